/* The host's side of a GPU on the stand-in driver: opening, memory, order of streams, the ways
 * between devices, recordings, and every call failing in turn. */
#include "cuda/harness.h"

#include "cuda/standin.h"

extern "C" {
#include "cuda/device.h"
#include "cuda/graph.h"
#include "cuda/link.h"
}

#include <fcntl.h>
#include <stdlib.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

static fakecuda_setup setup(void)
{
    fakecuda_setup s;
    standin_defaults(&s);
    s.mem = 8 << 20;
    return s;
}

/* Whether the call failed with this status and a message that contains text. */
static void check_fails(pn_status got, const pn_err &err, pn_status want, const char *text)
{
    if (got != want || !strstr(err.msg, text))
        fail("status %d, \"%s\"; wanted %d, \"...%s...\"", got, got ? err.msg : "", want, text);
}

static void check_all_freed(void)
{
    fakecuda_state state;
    standin_state(&state);
    if (state.n_live || state.mem_used)
        fail("%d things and %zu bytes are not freed", state.n_live, state.mem_used);
}

static fc_device *open_device(const fc_driver *drv, int ordinal, pn_err *err, pn_status *st)
{
    fc_device_options opts = {};
    opts.cubins = standin_cubins(37, &opts.n_cubin);
    fc_device *dev = nullptr;
    *st = fc_device_open(&dev, drv, ordinal, &opts, err);
    return dev;
}

/* --- opening ---------------------------------------------------------------------------------- */

static void check_start(int init, const char *dev_dir, pn_status want, const char *text)
{
    fakecuda_setup s = setup();
    s.init = init;
    standin_begin(&s);
    fc_driver *drv = nullptr;
    pn_err err = {};
    const pn_status st = fc_driver_open(&drv, standin_library(), dev_dir, &err);
    check_fails(st, err, want, text);
    CHECK(!drv);
}

TEST_ONCE(driver_causes, "a driver that is missing or does not start is told with its cause")
{
    fc_driver *drv = nullptr;
    pn_err err = {};
    check_fails(fc_driver_open(&drv, "/nowhere/libcuda.so.1", nullptr, &err), err,
                PN_ERR_UNSUPPORTED, "no NVIDIA driver");
    check_fails(fc_driver_open(&drv, "libm.so.6", nullptr, &err), err, PN_ERR_UNSUPPORTED,
                "too old a driver");
    CHECK(!drv);

    char dir[] = "/tmp/pn-dev-XXXXXX";
    CHECK(mkdtemp(dir));
    const std::string ctl = std::string(dir) + "/nvidiactl", uvm = std::string(dir) + "/nvidia-uvm";
    check_start(100, dir, PN_ERR_IO, "/nvidiactl is missing: the kernel module nvidia");
    close(open(ctl.c_str(), O_CREAT | O_RDWR, 0600));
    check_start(999, dir, PN_ERR_IO, "/nvidia-uvm is missing: the kernel module nvidia_uvm");
    close(open(uvm.c_str(), O_CREAT | O_RDWR, 0600));
    if (geteuid() != 0) { /* root may open all */
        chmod(uvm.c_str(), 0);
        check_start(999, dir, PN_ERR_IO, "/nvidia-uvm may not be opened by this user");
    }
    check_start(100, dir, PN_ERR_UNSUPPORTED, "the driver finds no device");
    check_start(803, dir, PN_ERR_IO, "reboot");
    check_start(34, dir, PN_ERR_IO, "stub");
    check_start(35, dir, PN_ERR_IO, "does not start");
    unlink(ctl.c_str());
    unlink(uvm.c_str());
    rmdir(dir);
}

TEST_ONCE(code_for_the_device, "the code is chosen by the device, and what is missing is told")
{
    static const fc_cubin three[] = { { 37, nullptr, nullptr },
                                      { 80, nullptr, nullptr },
                                      { 86, nullptr, nullptr } };
    CHECK(fc_cubin_for(three, 3, 37)->sm == 37);
    CHECK(!fc_cubin_for(three, 3, 35));
    CHECK(fc_cubin_for(three, 3, 80)->sm == 80);
    CHECK(fc_cubin_for(three, 3, 87)->sm == 86);
    CHECK(!fc_cubin_for(three, 3, 90));

    fakecuda_setup s = setup();
    s.sm = 90;
    standin_begin(&s);
    fc_driver *drv = nullptr;
    fc_device *dev = nullptr;
    pn_err err = {};
    CHECK(fc_driver_open(&drv, standin_library(), nullptr, &err) == PN_OK);
    pn_status st;
    open_device(drv, 0, &err, &st);
    check_fails(st, err, PN_ERR_UNSUPPORTED, "capability 9.0; this build holds code for 3.7");
    fc_device_options none = {};
    none.cubins = three;
    check_fails(fc_device_open(&dev, drv, 0, &none, &err), err, PN_ERR_UNSUPPORTED, "make cuda");
    open_device(drv, 2, &err, &st);
    check_fails(st, err, PN_ERR_ARG, "there is no device 2");
    fc_driver_close(drv);
    check_all_freed();
}

/* --- memory ----------------------------------------------------------------------------------- */

TEST_ONCE(memory_is_counted, "what is held is known, and a limit or a full card is told with sizes")
{
    const fakecuda_setup s = setup();
    standin_begin(&s);
    pn_err err = {};
    fc_driver *drv = nullptr;
    CHECK(fc_driver_open(&drv, standin_library(), nullptr, &err) == PN_OK);
    fc_device_options opts = {};
    opts.cubins = standin_cubins(37, &opts.n_cubin);
    opts.mem_max = 3000000;
    fc_device *dev = nullptr;
    CHECK(fc_device_open(&dev, drv, 0, &opts, &err) == PN_OK);
    void *p[100], *none = nullptr;
    for (int i = 0; i < 100; i++)
        CHECK(fc_alloc(dev, 10000 + (size_t)i, "a row", &p[i], &err) == PN_OK);
    size_t held, peak, free;
    CHECK(fc_device_memory(dev, &held, &peak, &free, &err) == PN_OK);
    CHECK(held == 1004950 && peak == held && free < s.mem - held);
    check_fails(fc_alloc(dev, 2000000, "the weights", &none, &err), err, PN_ERR_NOMEM,
                "2.0 MB for the weights pass the limit of 3.0 MB, of which 1.0 MB are held");
    for (int i = 0; i < 100; i++)
        fc_free(dev, p[i * 37 % 100]);
    CHECK(fc_device_memory(dev, &held, &peak, nullptr, &err) == PN_OK);
    CHECK(held == 0 && peak == 1004950);
    fc_device_close(dev);

    fc_device *all = nullptr;
    opts.mem_max = 0;
    CHECK(fc_device_open(&all, drv, 1, &opts, &err) == PN_OK);
    check_fails(fc_alloc(all, 9 << 20, "the weights", &none, &err), err, PN_ERR_NOMEM,
                "9.4 MB for the weights; 0.0 MB are held, 8.4 of 8.4 MB are free: out of memory");
    CHECK(!fc_device_is_lost(all, nullptr));
    fc_device_close(all);
    fc_driver_close(drv);
    check_all_freed();
}

/* --- order ------------------------------------------------------------------------------------ */

/* Two devices, each with a stream and memory, and links both ways. */
struct pair {
    fc_driver *drv = nullptr;
    fc_device *dev[2] = {};
    fc_stream *stream[2] = {};
    void *x[2] = {}, *sum[2] = {};
    fc_link *link[2] = {};
    uint32_t *host = nullptr; /* pinned, N words */
};
enum {
    N = 2048,
    BLOCKS = 2,
    ROUNDS = 3
};

static pn_status open_pair(pair *p, bool staged, pn_err *err)
{
    PN_TRY(fc_driver_open(&p->drv, standin_library(), nullptr, err));
    for (int i = 0; i < 2; i++) {
        pn_status st;
        p->dev[i] = open_device(p->drv, i, err, &st);
        PN_TRY(st);
        PN_TRY(fc_stream_new(&p->stream[i], p->dev[i], err));
        PN_TRY(fc_alloc(p->dev[i], N * 4, "x", &p->x[i], err));
        PN_TRY(fc_alloc(p->dev[i], N * 4, "sum", &p->sum[i], err));
    }
    for (int i = 0; i < 2; i++)
        PN_TRY(fc_link_new(&p->link[i], p->dev[i], p->dev[!i], N * 4, staged, err));
    void *host = nullptr;
    PN_TRY(fc_pinned_alloc(p->dev[0], N * 4, "x", &host, err));
    p->host = (uint32_t *)host;
    return PN_OK;
}

static void close_pair(pair *p)
{
    for (int i = 0; i < 2; i++)
        fc_link_free(p->link[i]);
    for (fc_device *dev : p->dev)
        if (dev)
            fc_device_sync(dev, nullptr);
    if (p->dev[0])
        fc_pinned_free(p->dev[0], p->host);
    for (int i = 0; i < 2; i++) {
        if (p->dev[i]) {
            fc_free(p->dev[i], p->x[i]);
            fc_free(p->dev[i], p->sum[i]);
        }
        fc_stream_free(p->stream[i]);
        fc_device_close(p->dev[i]);
    }
    fc_driver_close(p->drv);
    *p = pair();
}

static pn_status read_sums(pair *p, int i, pn_err *err)
{
    const pn_read_args args = { (uint32_t *)p->x[i], (uint32_t *)p->sum[i], N };
    const unsigned grid[3] = { BLOCKS, 1, 1 }, block[3] = { 256, 1, 1 };
    PN_TRY(fc_fill(p->stream[i], p->sum[i], 0, N * 4, err));
    return fc_launch(p->stream[i], "pn_k_read", grid, block, 0, &args, err);
}

/* x goes to device 0, its sums to device 1, theirs back, some times; what comes out is the first
 * word of sums of sums. The input changes every time, so a copy that is late or early shows. */
static pn_status ping_pong(pair *p, std::vector<uint32_t> *out, pn_err *err)
{
    out->clear();
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        for (uint32_t i = 0; i < N; i++)
            p->host[i] = i * 2654435761u * round;
        PN_TRY(fc_copy_in(p->stream[0], p->x[0], p->host, N * 4, err));
        for (int hop = 0; hop < 4; hop++) {
            const int i = hop % 2;
            PN_TRY(read_sums(p, i, err));
            PN_TRY(fc_link_send(p->link[i], p->stream[i], p->sum[i], p->stream[!i], p->x[!i], N * 4,
                                err));
        }
        uint32_t got = 0;
        PN_TRY(fc_copy_out(p->stream[0], &got, p->x[0], 4, err));
        PN_TRY(fc_stream_sync(p->stream[0], err));
        out->push_back(got);
    }
    return PN_OK;
}

/* Runs of 1024 words go to the blocks in turn. */
static std::vector<uint32_t> ping_pong_wanted(void)
{
    std::vector<uint32_t> out;
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        std::vector<uint32_t> x(N);
        for (uint32_t i = 0; i < N; i++)
            x[i] = i * 2654435761u * round;
        for (int hop = 0; hop < 4; hop++) {
            std::vector<uint32_t> sum(N);
            for (size_t i = 0; i < N; i++)
                sum[i / 1024 % BLOCKS] += x[i];
            x = sum;
        }
        out.push_back(x[0]);
    }
    return out;
}

/* Device 0 sends again and again, and nothing comes back: only the link keeps it from overwriting
 * what device 1 has not read yet. */
static pn_status send_only(pair *p, std::vector<uint32_t> *out, pn_err *err)
{
    out->assign(2 * ROUNDS, 0);
    for (size_t i = 0; i < out->size(); i++) {
        PN_TRY(fc_fill(p->stream[0], p->x[0], (int)i + 1, N * 4, err));
        PN_TRY(fc_link_send(p->link[0], p->stream[0], p->x[0], p->stream[1], p->x[1], N * 4, err));
        PN_TRY(read_sums(p, 1, err));
        PN_TRY(fc_copy_out(p->stream[1], &(*out)[i], p->sum[1], 4, err));
    }
    return fc_stream_sync(p->stream[1], err);
}

static std::vector<uint32_t> send_only_wanted(void)
{
    std::vector<uint32_t> out;
    for (uint32_t i = 1; i <= 2 * ROUNDS; i++)
        out.push_back(N / BLOCKS * (i * 0x01010101u));
    return out;
}

TEST_ONCE(order_of_two_devices, "links order two devices whatever their streams do, either way")
{
    for (unsigned seed = 1; seed <= 4; seed++)
        for (const bool staged : { false, true }) {
            test_case("seed %u, %s", seed, staged ? "staged" : "direct");
            fakecuda_setup s = setup();
            s.seed = seed;
            standin_begin(&s);
            pair p;
            pn_err err = {};
            std::vector<uint32_t> got, one_way;
            if (open_pair(&p, staged, &err) != PN_OK || ping_pong(&p, &got, &err) != PN_OK ||
                send_only(&p, &one_way, &err) != PN_OK)
                fail("%s", err.msg);
            else
                CHECK(got == ping_pong_wanted() && one_way == send_only_wanted() &&
                      fc_link_is_direct(p.link[0]) == !staged);
            close_pair(&p);
            check_all_freed();
        }
}

TEST_ONCE(missing_wait_shows, "the stand-in turns a missing wait into wrong bytes")
{
    int n_wrong = 0;
    for (unsigned seed = 1; seed <= 8; seed++) {
        fakecuda_setup s = setup();
        s.seed = seed;
        standin_begin(&s);
        pair p;
        pn_err err = {};
        CHECK(open_pair(&p, false, &err) == PN_OK);
        fc_stream *other = nullptr;
        CHECK(fc_stream_new(&other, p.dev[0], &err) == PN_OK);
        CHECK(fc_fill(p.stream[0], p.x[0], 1, N * 4, &err) == PN_OK);
        CHECK(fc_copy_out(other, p.host, p.x[0], N * 4, &err) == PN_OK);
        CHECK(fc_device_sync(p.dev[0], &err) == PN_OK);
        n_wrong += p.host[0] != 0x01010101;
        fc_stream_free(other);
        close_pair(&p);
    }
    CHECK(n_wrong > 0 && n_wrong < 8);
    check_all_freed();
}

TEST_ONCE(recording_replays, "a recorded stream does the same as its calls, each time")
{
    const fakecuda_setup s = setup();
    standin_begin(&s);
    pair p;
    pn_err err = {};
    CHECK(open_pair(&p, false, &err) == PN_OK);
    fc_graph *graph = nullptr;
    CHECK(fc_graph_begin(p.stream[0], &err) == PN_OK);
    CHECK(fc_copy_in(p.stream[0], p.x[0], p.host, N * 4, &err) == PN_OK);
    CHECK(read_sums(&p, 0, &err) == PN_OK);
    CHECK(fc_copy_out(p.stream[0], p.host, p.sum[0], 4, &err) == PN_OK);
    CHECK(fc_graph_end(p.stream[0], &graph, &err) == PN_OK);
    CHECK(fc_launches(p.dev[0]) == 0);
    for (uint32_t round = 1; round <= 3; round++) {
        for (uint32_t i = 0; i < N; i++)
            p.host[i] = round;
        CHECK(fc_graph_launch(graph, p.stream[0], &err) == PN_OK);
        CHECK(fc_stream_sync(p.stream[0], &err) == PN_OK);
        CHECK(p.host[0] == N / BLOCKS * round && fc_launches(p.dev[0]) == round);
    }
    fc_graph_free(graph);
    close_pair(&p);
    check_all_freed();
}

/* Whether each launch that ran was one that may begin early; the kernels themselves do not run. */
static std::vector<bool> seen_early;

static void note_launch(const fakecuda_launch *l)
{
    seen_early.push_back(l->is_early);
}

/* What a stream is given before the launch in question. */
enum before {
    NOTHING,
    A_LAUNCH,
    A_COPY_IN,
    A_COPY_OUT,
    A_COPY,
    A_FILL,
    A_RECORD,
    A_WAIT,
    N_BEFORE
};

static pn_status give(fc_stream *s, before what, void *x, uint32_t *host, fc_event *e, pn_err *err)
{
    const pn_read_args args = { (uint32_t *)x, (uint32_t *)x, 4 };
    const unsigned one[3] = { 1, 1, 1 };
    switch (what) {
    case A_LAUNCH:
        return fc_launch(s, "pn_k_read", one, one, 0, &args, err);
    case A_COPY_IN:
        return fc_copy_in(s, x, host, 16, err);
    case A_COPY_OUT:
        return fc_copy_out(s, host, x, 16, err);
    case A_COPY:
        return fc_copy(s, (char *)x + 16, x, 16, err);
    case A_FILL:
        return fc_fill(s, x, 0, 16, err);
    case A_RECORD:
        return fc_event_record(e, s, err);
    case A_WAIT:
        return fc_stream_wait(s, e, err);
    default:
        return PN_OK;
    }
}

/* A launch, `what`, and one that is asked to begin early; recorded from behind the first where
 * is_recorded. Whether the driver was told that the last may. */
static bool begins_early(int sm, int version, before what, bool is_recorded)
{
    fakecuda_setup s = setup();
    s.sm = sm;
    s.version = version;
    static const size_t all_copies = SIZE_MAX;
    s.launch = note_launch;
    s.hollow_copy = &all_copies;
    standin_begin(&s);
    seen_early.clear();
    pn_err err = {};
    fc_driver *drv = nullptr;
    fc_device *dev = nullptr;
    fc_stream *stream = nullptr;
    fc_event *event = nullptr;
    fc_graph *graph = nullptr;
    void *x = nullptr, *host = nullptr;
    const auto all = [&]() -> pn_status {
        const pn_read_args args = {};
        const unsigned one[3] = { 1, 1, 1 };
        fc_device_options opts = {};
        opts.cubins = standin_cubins(sm, &opts.n_cubin);
        PN_TRY(fc_driver_open(&drv, standin_library(), nullptr, &err));
        PN_TRY(fc_device_open(&dev, drv, 0, &opts, &err));
        PN_TRY(fc_stream_new(&stream, dev, &err));
        PN_TRY(fc_event_new(&event, dev, false, &err));
        PN_TRY(fc_alloc(dev, 32, "x", &x, &err));
        PN_TRY(fc_pinned_alloc(dev, 16, "x", &host, &err));
        PN_TRY(fc_fill(stream, x, 0, 32, &err));
        PN_TRY(fc_event_record(event, stream, &err));
        if (what != NOTHING || is_recorded) /* nothing: not even a launch, as in a fresh stream */
            PN_TRY(give(stream, A_LAUNCH, x, nullptr, nullptr, &err));
        if (is_recorded)
            PN_TRY(fc_graph_begin(stream, &err));
        PN_TRY(give(stream, what, x, (uint32_t *)host, event, &err));
        PN_TRY(fc_launch_early(stream, "pn_k_read", one, one, 0, &args, &err));
        if (is_recorded) {
            PN_TRY(fc_graph_end(stream, &graph, &err));
            PN_TRY(fc_graph_launch(graph, stream, &err));
        }
        return fc_stream_sync(stream, &err);
    };
    if (all() != PN_OK)
        fail("%s", err.msg);
    fc_graph_free(graph);
    fc_event_free(event);
    fc_stream_free(stream);
    fc_pinned_free(dev, host);
    fc_free(dev, x);
    fc_device_close(dev);
    fc_driver_close(drv);
    check_all_freed();
    return !seen_early.empty() && seen_early.back();
}

TEST_ONCE(early_behind_launches_alone, "only right behind a launch may one begin early")
{
    for (int what = NOTHING; what < N_BEFORE; what++) {
        test_case("behind %d", what);
        CHECK(begins_early(90, 12020, (before)what, false) == (what == A_LAUNCH));
        CHECK(!begins_early(37, 12040, (before)what, false));
        if (what == A_RECORD || what == A_WAIT)
            continue; /* no part of a recording */
        CHECK(begins_early(90, 12030, (before)what, true) == (what == A_LAUNCH));
        CHECK(!begins_early(90, 12020, (before)what, true)); /* it would lose that */
    }
}

/* --- failures --------------------------------------------------------------------------------- */

TEST_ONCE(out_of_memory_everywhere, "whichever allocation fails, it is told and nothing is left")
{
    for (int k = 0;; k++) {
        test_case("allocation %d", k);
        fakecuda_setup s = setup();
        s.oom = k;
        standin_begin(&s);
        pair p;
        pn_err err = {};
        const pn_status st = open_pair(&p, true, &err);
        fakecuda_state state;
        standin_state(&state);
        if (state.oom_done)
            check_fails(st, err, PN_ERR_NOMEM, "out of memory");
        close_pair(&p);
        check_all_freed();
        if (!state.oom_done) {
            CHECK(st == PN_OK && k > 10);
            break;
        }
    }
}

TEST_ONCE(loss_everywhere, "a device that falls away at any call is told, stays lost, frees all")
{
    for (int k = 0;; k++) {
        test_case("call %d", k);
        fakecuda_setup s = setup();
        s.lose = k;
        standin_begin(&s);
        pair p;
        pn_err err = {};
        std::vector<uint32_t> got;
        pn_status st = open_pair(&p, k % 2, &err);
        if (st == PN_OK)
            st = ping_pong(&p, &got, &err);
        fakecuda_state state;
        standin_state(&state);
        if (state.lost) {
            check_fails(st, err, PN_ERR_IO, "launch failure");
            for (fc_device *dev : p.dev)
                if (dev && fc_device_is_lost(dev, nullptr)) {
                    pn_err again = {};
                    CHECK(fc_device_sync(dev, &again) == PN_ERR_IO);
                    CHECK(!strcmp(again.msg, err.msg)); /* the first reason */
                }
        }
        close_pair(&p);
        check_all_freed();
        if (!state.lost) {
            CHECK(st == PN_OK && got == ping_pong_wanted() && k > 50);
            break;
        }
    }
}
