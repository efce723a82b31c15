/* The chat page at `/`: one HTML file without outside resources, made of the sources in this folder
 * by build.sh and linked into the program. */
#ifndef PN_SERVER_PAGE_PAGE_H
#define PN_SERVER_PAGE_PAGE_H

#include <stddef.h>

/* UTF-8, no NUL at the end; to be sent as text/html; charset=utf-8. */
extern const char pn_page_html[];
extern const size_t pn_page_html_size; /* bytes */

/* The value of the Content-Security-Policy header that has to go with it: nothing runs but the
 * page's own scripts, known by their hashes, and nothing is fetched but from this server. A NUL
 * ends it. */
extern const char pn_page_csp[];

#endif
