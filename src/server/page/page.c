#include "server/page/page.h"

/* C17 has no #embed; the assembler puts in the files that build.sh made, in the folder that the
 * Makefile gives it. */
__asm__(".pushsection .rodata\n"
        ".hidden pn_page_html\n"
        ".hidden pn_page_html_size\n"
        ".hidden pn_page_csp\n"
        ".globl pn_page_html\n"
        "pn_page_html:\n"
        "    .incbin \"page.html\"\n"
        "1:\n"
        ".globl pn_page_csp\n"
        "pn_page_csp:\n"
        "    .incbin \"page.csp\"\n"
        "    .byte 0\n"
        ".globl pn_page_html_size\n"
        ".balign 8\n"
        "pn_page_html_size:\n"
        "    .quad 1b - pn_page_html\n"
        ".popsection\n");

_Static_assert(sizeof(size_t) == 8, "pn_page_html_size is .quad");
