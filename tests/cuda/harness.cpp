#include "cuda/harness.h"

#include "cuda/backend.h"

#include <algorithm>
#include <functional>
#include <malloc.h>
#include <map>
#include <math.h>
#include <memory>
#include <set>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

namespace
{
struct test {
    const char *name, *claim;
    void (*body)(void);
    bool once;
};
/* In order of registration; made at first use, before main. */
std::vector<test> &tests(void)
{
    static std::vector<test> all;
    return all;
}

struct block {
    unsigned char *map;
    size_t map_bytes, bytes;
};

std::unique_ptr<pn_kernels> cpu;
backend *running;
const test *current;
char what[160];
int n_fail, n_launch;
uint64_t random_state;
std::map<unsigned char *, block> memory;
std::multimap<size_t, unsigned char *>
    spare; /* mappings of arrays that were freed, by their bytes */
std::set<std::string> kernels_run;
std::function<void(const char *, double)> on_time;

enum {
    PAGE = 4096,
    CANARY = 0xa5,
    FAIL_MAX = 20
};
} // namespace

registration::registration(const char *name, const char *claim, void (*body)(void), bool once)
{
    tests().push_back({ name, claim, body, once });
}

const pn_kernels &scalar(void)
{
    return *cpu;
}

int arch(void)
{
    return running->arch();
}

unsigned long long executed(void)
{
    return running->executed();
}

bool has(const char *kernel)
{
    return running->args_bytes(kernel) > 0;
}

void test_case(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
}

void fail(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (n_fail++ < FAIL_MAX) {
        printf("FAILED %s, %s, %s: ", current->name, running ? running->name() : "host", what);
        vprintf(fmt, ap);
        printf("\n    where %s\n", current->claim);
    }
    va_end(ap);
}

/* --- device memory ---------------------------------------------------------------------------- */

/* Pages and behind them one that faults. Those of freed arrays are taken again: to map and unmap
 * them for every array takes longer than many a kernel. */
static unsigned char *guarded_pages(size_t bytes)
{
    const auto kept = spare.find(bytes + PAGE);
    if (kept != spare.end()) {
        unsigned char *const p = kept->second;
        spare.erase(kept);
        return p;
    }
    unsigned char *const p = (unsigned char *)mmap(nullptr, bytes + PAGE, PROT_READ | PROT_WRITE,
                                                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || mprotect(p + bytes, PAGE, PROT_NONE)) {
        fprintf(stderr, "out of memory\n");
        exit(2);
    }
    return p;
}

void *device_alloc(size_t bytes, bool holds_addresses)
{
    const size_t held = (bytes + 63) / 64 * 64; /* the end stays near the page that faults */
    const size_t pages = (held + PAGE - 1) / PAGE * PAGE + PAGE;
    unsigned char *const map = guarded_pages(pages);
    unsigned char *const p = map + pages - held;
    memset(map, CANARY, pages);
    memset(p, 0xff, bytes);
    memory[p] = { map, pages + PAGE, bytes };
    running->add_memory(p, bytes, holds_addresses);
    return p;
}

void device_free(void *ptr)
{
    unsigned char *const p = (unsigned char *)ptr;
    const block b = memory.at(p);
    for (unsigned char *q = b.map; q < b.map + b.map_bytes - PAGE; q++)
        if (*q != CANARY && (q < p || q >= p + b.bytes)) {
            fail("a kernel wrote at byte %td of an array of %zu bytes", q - p, b.bytes);
            break;
        }
    running->drop_memory(p);
    spare.insert({ b.map_bytes, b.map });
    memory.erase(p);
}

/* --- launches and what must hold -------------------------------------------------------------- */

/* launched: makes the launch, false where it is refused. */
static void run_by(const std::function<bool()> &launched, const char *kernel, const void *args,
                   size_t args_bytes, extent grid, extent block, size_t smem)
{
    const size_t want = running->args_bytes(kernel);
    if (!want) {
        fail("there is no kernel %s", kernel);
    } else if (want != args_bytes && want != SIZE_MAX) {
        fail("%s takes %zu bytes of arguments, not %zu", kernel, want, args_bytes);
    } else if (!launched()) {
        fail("%s: a GPU refuses the launch: grid %u %u %u, block %u %u %u, shared %zu", kernel,
             grid.v[0], grid.v[1], grid.v[2], block.v[0], block.v[1], block.v[2], smem);
    } else {
        n_launch++;
        kernels_run.insert(kernel);
        if (on_time)
            on_time(kernel, running->seconds(kernel, args, args_bytes, grid.v, block.v, smem));
    }
}

void run_bytes(const char *kernel, const void *args, size_t args_bytes, extent grid, extent block,
               size_t smem)
{
    run_by([&] { return running->launch(kernel, args, args_bytes, grid.v, block.v, smem); }, kernel,
           args, args_bytes, grid, block, smem);
}

void run_early(const char *kernel, const void *args, size_t args_bytes, extent grid, extent block,
               size_t smem)
{
    if (!running->begins_early())
        return run_bytes(kernel, args, args_bytes, grid, block, smem);
    std::map<unsigned char *, std::vector<unsigned char>> held;
    for (const auto &m : memory) {
        held[m.first].assign(m.first, m.first + m.second.bytes);
        memset(m.first, 0xff, m.second.bytes);
    }
    const auto give_back = [&] {
        for (const auto &h : held) {
            for (size_t i = 0; i < h.second.size(); i++)
                if (h.first[i] != 0xff) {
                    fail("%s writes before it has waited", kernel);
                    break;
                }
            std::copy(h.second.begin(), h.second.end(), h.first); /* of none, too */
        }
        held.clear();
    };
    run_by(
        [&] {
            return running->launch_early(kernel, args, args_bytes, grid.v, block.v, smem,
                                         give_back);
        },
        kernel, args, args_bytes, grid, block, smem);
    give_back(); /* where it was refused */
}

void time_launches(std::function<void(const char *kernel, double seconds)> told)
{
    on_time = std::move(told);
}

void same_bytes(const char *name, const void *got, const void *want, size_t n, size_t size)
{
    if (!n || !memcmp(got, want, n * size))
        return;
    const unsigned char *const g = (const unsigned char *)got, *const w =
                                                                   (const unsigned char *)want;
    size_t i = 0, n_diff = 0;
    for (size_t j = n; j-- > 0;)
        if (memcmp(g + j * size, w + j * size, size)) {
            i = j;
            n_diff++;
        }
    if (size == 4) {
        float fg, fw;
        uint32_t ug, uw;
        memcpy(&fg, g + i * 4, 4);
        memcpy(&fw, w + i * 4, 4);
        memcpy(&ug, g + i * 4, 4);
        memcpy(&uw, w + i * 4, 4);
        fail("%s[%zu] is %.9g (%08x), not %.9g (%08x); %zu of %zu differ", name, i, (double)fg, ug,
             (double)fw, uw, n_diff, n);
        return;
    }
    size_t b = 0;
    while (g[i * size + b] == w[i * size + b])
        b++;
    fail("%s[%zu] is another: byte %zu of its %zu is %02x, not %02x; %zu of %zu differ", name, i, b,
         size, g[i * size + b], w[i * size + b], n_diff, n);
}

/* --- random numbers: splitmix64 --------------------------------------------------------------- */

uint64_t random_bits(void)
{
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

size_t random_below(size_t n)
{
    return (size_t)(random_bits() % n);
}

float random_normal(void)
{
    const double u = ((double)(random_bits() >> 11) + 1) * 0x1p-53;
    const double v = (double)(random_bits() >> 11) * 0x1p-53;
    return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}

void fill_normal(float *x, size_t n, float scale)
{
    for (size_t i = 0; i < n; i++)
        x[i] = scale * random_normal();
}

void fill_random(void *p, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        ((unsigned char *)p)[i] = (unsigned char)random_bits();
}

/* --- the run ---------------------------------------------------------------------------------- */

static void on_fault(int sig, siginfo_t *info, void *)
{
    const std::string place = running ? running->where() : "";
    const char *const kind = sig == SIGILL ? "a check of the compiler's stopped it" /* -fsanitize */
                                           : strsignal(sig);
    fprintf(stderr, "%s at %p\n  test %s, %s, %s\n  in %s\n", kind, info->si_addr,
            current ? current->name : "", running ? running->name() : "", what, place.c_str());
    _exit(1);
}

static void catch_faults(void)
{
    static char stack[65536]; /* the fault may come from a fiber's small stack */
    stack_t alternate = {};
    alternate.ss_sp = stack;
    alternate.ss_size = sizeof stack;
    sigaltstack(&alternate, nullptr);
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (const int sig : { SIGSEGV, SIGBUS, SIGILL, SIGFPE })
        sigaction(sig, &action, nullptr);
}

/* Those of the running backend, or those without one. */
static void run_tests(const char *only)
{
    for (const test &t : tests()) {
        if (t.once != !running || (only && !strstr(t.name, only)))
            continue;
        current = &t;
        test_case("first case");
        random_state = 1;
        t.body();
    }
}

/* The kernels that were run, one a line beside the program, for the check that all are tested. */
static void write_kernels(const char *program)
{
    FILE *const f = fopen((std::string(program) + ".ran").c_str(), "w");
    if (!f)
        return;
    for (const std::string &k : kernels_run)
        fprintf(f, "%s\n", k.c_str());
    fclose(f);
}

int main(int, char **argv)
{
    setvbuf(stdout, nullptr, _IOLBF, 0);
    catch_faults();
    mallopt(M_MMAP_THRESHOLD, 1 << 30); /* what is freed is taken again, without the system */
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    cpu.reset(new pn_kernels);
    pn_kernels_init(cpu.get(), cpu_level());
    const char *const only = getenv("ONLY"), *const which = getenv("BACKEND");
    int n_backend = 0;
    run_tests(only);
    const std::vector<std::unique_ptr<backend>> backends = all_backends();
    for (const auto &b : backends) {
        if (which && !strstr(b->name(), which))
            continue;
        running = b.get();
        n_backend++;
        run_tests(only);
    }
    if (!getenv("DEVICE"))
        write_kernels(argv[0]);
    printf("%zu tests on %d backends, %d launches of %zu kernels: %s\n", tests().size(), n_backend,
           n_launch, kernels_run.size(), n_fail ? "FAILED" : "passed");
    return n_fail > 0;
}
