#include "cuda/cost_model.h"

#include "models/exec.h"
#include "models/model.h"
#include "models/placement.h"
#include "models/qwen35moe_cuda.h"

double cost_token_bytes(const pn_model *model, int at)
{
    return (double)model->info.active_bytes + 2.0 * (double)pn_seq_recurrent_bytes(&model->layout) +
           (double)pn_seq_page_bytes(&model->layout, PN_KV_F16) / PN_KV_CHUNK * at;
}

bool cost_fits(const pn_model *model, const pn_exec_opts *opts)
{
    pn_placement plan;
    pn_err err;
    if (pn_exec_plan(model, opts, &plan, &err) != PN_OK)
        return false;
    const bool fits = plan.n_cpu_moe == 0;
    pn_placement_clear(&plan);
    return fits;
}

int cost_n_micro_batch(const pn_exec *exec, int n_tok)
{
    const int n = pn_gpu_n_ubatch(exec->gpu, n_tok);
    return (n_tok + n - 1) / n;
}
