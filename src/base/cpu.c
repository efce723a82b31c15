#include "base/cpu.h"

#include "base/cgroup.h"

#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *pn_isa_name(pn_isa isa)
{
    static const char *const names[PN_ISA_COUNT] = {
        [PN_ISA_SCALAR] = "scalar", [PN_ISA_AVX2] = "avx2", [PN_ISA_AVXVNNI] = "avxvnni",
        [PN_ISA_AVX512] = "avx512", [PN_ISA_NEON] = "neon", [PN_ISA_DOTPROD] = "dotprod",
        [PN_ISA_I8MM] = "i8mm",
    };
    return isa >= 0 && isa < PN_ISA_COUNT ? names[isa] : "unknown";
}

#if defined(__x86_64__)
#include <cpuid.h>

/* gcc 12's __builtin_cpu_supports knows no "avxvnni": CPUID leaf 7, subleaf 1, EAX bit 4. */
static bool has_avxvnni(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}

/* Nor does clang 14's know "f16c": leaf 1, ECX bit 29 (F16C). */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c >> 29 & 1);
}

/* libgcc's test checks XGETBV too, so a level is reported only if the kernel saves its state. */
bool pn_isa_present(pn_isa isa)
{
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                      has_f16c() && __builtin_cpu_supports("bmi2");
    switch (isa) {
    case PN_ISA_SCALAR:
        return true;
    case PN_ISA_AVX2:
        return avx2;
    case PN_ISA_AVXVNNI:
        return avx2 && has_avxvnni();
    case PN_ISA_AVX512:
        return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vnni");
    default:
        return false;
    }
}

bool pn_cpu_has_fma(void)
{
    return __builtin_cpu_supports("fma");
}
#elif defined(__aarch64__)
#include <sys/auxv.h>

/* NEON is part of every ARMv8-A; what came later is in the kernel's words (asm/hwcap.h). */
bool pn_isa_present(pn_isa isa)
{
    const bool dotprod = getauxval(AT_HWCAP) >> 20 & 1; /* HWCAP_ASIMDDP */
    switch (isa) {
    case PN_ISA_SCALAR:
    case PN_ISA_NEON:
        return true;
    case PN_ISA_DOTPROD:
        return dotprod;
    case PN_ISA_I8MM:
        return dotprod && (getauxval(AT_HWCAP2) >> 13 & 1); /* HWCAP2_I8MM */
    default:
        return false;
    }
}

bool pn_cpu_has_fma(void)
{
    return true; /* part of the baseline */
}
#else
#error "pantheon runs on x86-64 and aarch64"
#endif

pn_isa pn_isa_best(void)
{
    pn_isa isa = PN_ISA_COUNT - 1;
    while (!pn_isa_present(isa)) /* scalar, the first, always is */
        isa--;
    return isa;
}

/* Of the hardware threads that share a core, only the lowest-numbered allowed one counts. */
static bool is_first_of_core(int cpu, const cpu_set_t *allowed)
{
    char path[128], list[256];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    FILE *const f = fopen(path, "re");
    if (!f)
        return true;
    const bool got = fgets(list, sizeof list, f) != NULL;
    fclose(f);
    for (char *p = list; got && *p;) {
        char *end;
        const long lo = strtol(p, &end, 10);
        if (end == p)
            break;
        long hi = lo;
        if (*end == '-')
            hi = strtol(end + 1, &end, 10);
        for (long c = lo; c <= hi && c < CPU_SETSIZE; c++)
            if (c >= 0 && CPU_ISSET((int)c, allowed))
                return c == cpu;
        p = *end == ',' ? end + 1 : end + strlen(end);
    }
    return true;
}

int pn_cpu_default_threads(void)
{
    cpu_set_t allowed;
    int n = 0;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
        for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
            if (CPU_ISSET(cpu, &allowed) && is_first_of_core(cpu, &allowed))
                n++;
    } else {
        n = (int)sysconf(_SC_NPROCESSORS_ONLN);
    }
    const int quota = pn_cgroup_cpus("/proc/self/cgroup", "/sys/fs/cgroup");
    if (quota > 0 && quota < n)
        n = quota;
    return n > 0 ? n : 1;
}
