#include "server/native.h"

void pn_native_put_settings(pn_jw *w, const char *key, const pn_gen_opts *gen)
{
    static const char *const samplers[] = { "penalties", "temperature", "top_k", "top_p", "min_p" };
    const pn_sampler_opts *const s = &gen->sampler;
    pn_jw_begin_obj(w, key);
    pn_jw_uint(w, "seed", s->seed);
    pn_jw_real(w, "temperature", (double)s->temperature);
    pn_jw_int(w, "top_k", s->top_k);
    pn_jw_real(w, "top_p", (double)s->top_p);
    pn_jw_real(w, "min_p", (double)s->min_p);
    pn_jw_int(w, "repeat_last_n", s->repeat_last_n);
    pn_jw_real(w, "repeat_penalty", (double)s->repeat_penalty);
    pn_jw_real(w, "presence_penalty", (double)s->presence_penalty);
    pn_jw_real(w, "frequency_penalty", (double)s->frequency_penalty);
    pn_jw_int(w, "mirostat", 0);
    pn_jw_int(w, "max_tokens", gen->n_predict);
    pn_jw_int(w, "n_predict", gen->n_predict);
    pn_jw_bool(w, "ignore_eos", gen->ignore_eos);
    pn_jw_int(w, "n_probs", gen->wants_logprobs ? gen->n_top_logprobs : 0);
    pn_jw_begin_arr(w, "samplers");
    for (size_t i = 0; i < sizeof samplers / sizeof *samplers; i++)
        pn_jw_str(w, NULL, samplers[i]);
    pn_jw_end_arr(w);
    pn_jw_end_obj(w);
}
