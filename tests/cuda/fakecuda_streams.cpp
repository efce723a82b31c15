/* The driver API of the stand-in (fakecuda.h): modules, launches, streams, events, recordings. */
#include "cuda/fake.h"

#include <array>
#include <memory>

/* --- modules, launches ------------------------------------------------------------------------ */

CUresult cuModuleLoadData(CUmodule *out, const void *image)
{
    ENTER(fake_current, ALLOCATES);
    std::unique_ptr<fake_module> m(new fake_module{ fake_current, false, {} });
    if (const CUresult r = fake_module_load(m.get(), image))
        return r;
    fake_state.n_live++;
    *out = (CUmodule)m.release();
    return 0;
}

CUresult cuModuleUnload(CUmodule m)
{
    const std::lock_guard<std::recursive_mutex> hold(fake_lock);
    delete (fake_module *)m; /* the functions of a module live as long as the process */
    fake_state.n_live--;
    return 0;
}

CUresult cuModuleGetFunction(CUfunction *out, CUmodule m, const char *name)
{
    ENTER(fake_current, PLAIN);
    static std::map<std::string, fake_function> all; /* by module and name */
    fake_function f = {};
    if (const CUresult r = fake_module_find((const fake_module *)m, name, &f))
        return r;
    fake_function &kept = all[std::to_string((uintptr_t)m) + name];
    kept = f;
    *out = (CUfunction)&kept;
    return 0;
}

CUresult cuFuncSetAttribute(CUfunction f, int attribute, int v)
{
    ENTER(fake_current, PLAIN);
    if (attribute == 8 /* dynamic shared memory */)
        ((fake_function *)f)->smem_max = (size_t)v;
    return 0;
}

/* is_early: it may begin before the launch in front of it has ended, as it does here: it runs after
 * that, and its threads must come to the wait that they then need. */
static CUresult launch(const CUlaunchConfig &c, CUfunction function, void **params, bool is_early)
{
    fake_stream *const s = fake_of(c.stream);
    ENTER(s->device, PLAIN);
    fake_function *const f = (fake_function *)function;
    const cushim_kernel *const kernel = f->kernel;
    if (fake_current != s->device)
        fake_die("%s is launched on a stream of another device", kernel->name);
    if (is_early && fake_setup.sm < 90)
        fake_die("%s is to begin early on a device that cannot", kernel->name);
    if (is_early && !s->ends_with_launch)
        fake_die("%s is to begin before something that is no launch has ended", kernel->name);
    if (is_early && s->recording && fake_setup.version < 12030)
        fake_die("this driver does not record that %s begins early", kernel->name);
    fake_state.n_early += is_early;
    const std::array<unsigned, 3> grid = { c.grid_x, c.grid_y, c.grid_z },
                                  block = { c.block_x, c.block_y, c.block_z };
    const size_t smem = c.smem;
    const cushim_module *const shim = fake_shim();
    if (!shim->accepts(grid.data(), block.data(), smem) || smem > f->smem_max)
        return INVALID_VALUE;
    const long threads = ((long)block[0] * block[1] * block[2] + 31) / 32 * 32;
    if (f->registers * threads > 65536)
        return OUT_OF_RESOURCES;
    const std::vector<char> args((const char *)params[0],
                                 (const char *)params[0] + kernel->args_bytes);
    const int device = s->device;
    fake_push(s, { kernel->name,
                   {},
                   [=] {
                       fake_memory_open(device, -1);
                       if (fake_setup.launch) {
                           size_t bytes;
                           const void *const memory = fake_memory_all(device, &bytes);
                           const fakecuda_launch l = { device,
                                                       kernel->name,
                                                       { grid[0], grid[1], grid[2] },
                                                       { block[0], block[1], block[2] },
                                                       smem,
                                                       is_early,
                                                       args.data(),
                                                       args.size(),
                                                       memory,
                                                       bytes };
                           fake_setup.launch(&l);
                           return;
                       }
                       const unsigned seed = fake_setup.seed + (unsigned)fake_state.n_op;
                       const cushim_order order = { CUSHIM_SHUFFLED, seed, true };
                       if (is_early)
                           shim->launch_early(
                               kernel, grid.data(), block.data(), smem, args.data(), order,
                               [](void *) {}, nullptr);
                       else
                           shim->launch(kernel, grid.data(), block.data(), smem, args.data(),
                                        order);
                   },
                   nullptr,
                   0,
                   false,
                   true });
    return 0;
}

CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                        unsigned by, unsigned bz, unsigned smem, CUstream stream, void **params,
                        void **)
{
    return launch({ gx, gy, gz, bx, by, bz, smem, stream, nullptr, 0 }, function, params, false);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction function, void **params, void **)
{
    if (c->n_attr != 1 || c->attrs->id != FC_LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION)
        return INVALID_VALUE;
    return launch(*c, function, params, c->attrs->value.programmatic_stream_serialization_allowed);
}

/* --- streams and events ----------------------------------------------------------------------- */

CUresult cuStreamCreate(CUstream *out, unsigned flags)
{
    ENTER(fake_current, ALLOCATES);
    if (flags != 1 /* not ordered with the null stream */)
        fake_die("a stream that waits for the null stream");
    fake_stream *const s = new fake_stream;
    s->device = fake_current;
    fake_stream_add(s);
    fake_state.n_live++;
    *out = (CUstream)s;
    return 0;
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
    const std::lock_guard<std::recursive_mutex> hold(fake_lock);
    fake_stream *const s = fake_of(stream);
    fake_run_until([s] { return s->queue.empty(); });
    fake_stream_remove(s);
    delete s;
    fake_state.n_live--;
    return 0;
}

CUresult cuStreamSynchronize(CUstream stream)
{
    fake_stream *const s = fake_of(stream);
    ENTER(s->device, PLAIN);
    if (s->recording) {
        s->recording_broken = true;
        return CAPTURE_UNSUPPORTED;
    }
    fake_run_until([s] { return s->queue.empty(); });
    return 0;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned)
{
    fake_stream *const s = fake_of(stream);
    ENTER(s->device, PLAIN);
    fake_event *const e = (fake_event *)event;
    if (s->recording) {
        s->recording_broken = true;
        return CAPTURE_UNSUPPORTED;
    }
    const int64_t n = e->recorded;
    fake_push(s, { "wait", [own = e->own, n] { return own->done >= n; }, [] {}, nullptr, 0 });
    return 0;
}

CUresult cuEventCreate(CUevent *out, unsigned flags)
{
    ENTER(fake_current, ALLOCATES);
    const auto e = std::make_shared<fake_event>();
    e->own = e;
    e->device = fake_current;
    e->timed = !(flags & 2);
    fake_state.n_live++;
    *out = (CUevent)e.get();
    return 0;
}

CUresult cuEventDestroy_v2(CUevent event)
{
    const std::lock_guard<std::recursive_mutex> hold(fake_lock);
    fake_event *const e = (fake_event *)event;
    fake_run_until([e] { return e->done >= e->recorded; });
    const std::shared_ptr<fake_event> last = std::move(e->own);
    fake_state.n_live--;
    return 0;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    fake_stream *const s = fake_of(stream);
    ENTER(s->device, PLAIN);
    fake_event *const e = (fake_event *)event;
    if (e->device != s->device)
        return INVALID_HANDLE;
    if (s->recording) {
        s->recording_broken = true;
        return CAPTURE_UNSUPPORTED;
    }
    const int64_t n = ++e->recorded;
    fake_push(s, { "event",
                   {},
                   [own = e->own, n] {
                       own->done = n;
                       own->tick = fake_state.n_op;
                   },
                   nullptr,
                   0,
                   true });
    return 0;
}

CUresult cuEventSynchronize(CUevent event)
{
    fake_event *const e = (fake_event *)event;
    ENTER(e->device, PLAIN);
    const int64_t n = e->recorded;
    fake_run_until([e, n] { return e->done >= n; });
    return 0;
}

CUresult cuEventQuery(CUevent event)
{
    const fake_event *const e = (fake_event *)event;
    ENTER(e->device, PLAIN);
    return e->done >= e->recorded ? 0 : FC_CUDA_NOT_READY;
}

/* The time of the stand-in: a microsecond an operation. */
CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to)
{
    const fake_event *const a = (fake_event *)from, *const b = (fake_event *)to;
    ENTER(a->device, PLAIN);
    if (!a->timed || !b->timed)
        return INVALID_HANDLE;
    if (a->done < a->recorded || b->done < b->recorded)
        return FC_CUDA_NOT_READY;
    *ms = (float)(b->tick - a->tick) * 1e-3f;
    return 0;
}

/* --- recorded streams ------------------------------------------------------------------------- */

CUresult cuStreamBeginCapture_v2(CUstream stream, int)
{
    fake_stream *const s = fake_of(stream);
    ENTER(s->device, PLAIN);
    if (!fake_setup.graph)
        return 801; /* CUDA_ERROR_NOT_SUPPORTED */
    s->recording = true;
    s->ends_with_launch = false;
    s->recording_broken = false;
    s->recorded.clear();
    return 0;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *out)
{
    fake_stream *const s = fake_of(stream);
    ENTER(s->device, PLAIN);
    s->recording = false;
    if (s->recording_broken)
        return CAPTURE_INVALIDATED;
    *out = (CUgraph) new fake_graph{ s->device, std::move(s->recorded) };
    fake_state.n_live++;
    return 0;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph g, unsigned long long)
{
    const fake_graph *const graph = (const fake_graph *)g;
    ENTER(graph->device, ALLOCATES);
    *out = (CUgraphExec) new fake_graph(*graph);
    fake_state.n_live++;
    return 0;
}

CUresult cuGraphLaunch(CUgraphExec e, CUstream stream)
{
    fake_stream *const s = fake_of(stream);
    ENTER(s->device, PLAIN);
    const fake_graph *const graph = (const fake_graph *)e;
    if (graph->device != s->device)
        return INVALID_HANDLE;
    for (const fake_op &op : graph->ops)
        fake_push(s, op);
    return 0;
}

CUresult cuGraphExecDestroy(CUgraphExec e)
{
    const std::lock_guard<std::recursive_mutex> hold(fake_lock);
    delete (fake_graph *)e;
    fake_state.n_live--;
    return 0;
}

CUresult cuGraphDestroy(CUgraph g)
{
    const std::lock_guard<std::recursive_mutex> hold(fake_lock);
    delete (fake_graph *)g;
    fake_state.n_live--;
    return 0;
}
