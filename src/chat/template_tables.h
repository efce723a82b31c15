/* The lines of the chat templates that this build knows. */
#ifndef PN_CHAT_TEMPLATE_TABLES_H
#define PN_CHAT_TEMPLATE_TABLES_H

#include <stddef.h>
#include <stdint.h>

extern const uint64_t pn_template_lines[]; /* [pn_template_n_line] FNV-1a hashes, ascending */
extern const size_t pn_template_n_line;

#endif
