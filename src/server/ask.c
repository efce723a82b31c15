#include "server/ask.h"

#include "base/mem.h"

void pn_ask_clear(pn_ask *a)
{
    pn_constraint_free(a->constraint);
    pn_prompt_free(&a->prompt);
    pn_buf_free(&a->opening);
    pn_buf_free(&a->think_hint);
    pn_free(a->stop);
    pn_free(a->biases);
    pn_json_free(a->canon);
    pn_json_free(a->body);
    *a = (pn_ask){ 0 };
}
