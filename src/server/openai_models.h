/* The list of models, of which there is one, for all the protocols that ask at /v1/models. */
#ifndef PN_SERVER_OPENAI_MODELS_H
#define PN_SERVER_OPENAI_MODELS_H

#include "server/server.h"

/* The model's own name: general.name of its file, else the file's name. Lives as long as it. */
pn_span pn_openai_model_name(const pn_server *s);

/* Answers of GET /v1/models and /v1/models/NAME; any name is the model's. */
pn_status pn_openai_list_models(pn_server *s, pn_visit *v, pn_buf *out, pn_problem *p);
pn_status pn_openai_show_model(pn_server *s, pn_visit *v, pn_buf *out, pn_problem *p);

#endif
