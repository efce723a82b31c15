/* Reading lines from a person: editing and history by libedit on a terminal, pasted blocks kept
 * whole; plain lines otherwise. */
#ifndef PN_CLI_LINE_H
#define PN_CLI_LINE_H

#include "base/buf.h"
#include "base/status.h"

typedef struct pn_line pn_line;

/* History is kept in $XDG_STATE_HOME/pantheon/history (or ~/.local/state); a file that cannot be
 * read or written is no error. */
pn_status pn_line_open(pn_line **line, pn_err *err);
void pn_line_close(pn_line *line);

typedef enum pn_line_got {
    PN_LINE_TEXT,        /* text holds it, without the newline */
    PN_LINE_INTERRUPTED, /* Ctrl-C */
    PN_LINE_END,         /* Ctrl-D or the end of input */
} pn_line_got;

/* Shows prompt on a terminal and replaces text by the next line. */
pn_line_got pn_line_read(pn_line *line, const char *prompt, pn_buf *text);

#endif
