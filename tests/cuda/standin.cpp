#include "cuda/standin.h"

#include <dlfcn.h>
#include <map>
#include <stdio.h>
#include <stdlib.h>
#include <string>
#include <unistd.h>
#include <vector>

const char *standin_library(void)
{
    static std::string path;
    if (path.empty()) {
        char exe[4096];
        const ssize_t n = readlink("/proc/self/exe", exe, sizeof exe);
        path.assign(exe, n > 0 ? (size_t)n : 0);
        path.resize(path.rfind('/') + 1);
        path += "fakecuda.so";
    }
    return path.c_str();
}

static void *symbol(const char *name)
{
    void *const library = dlopen(standin_library(), RTLD_NOW | RTLD_LOCAL);
    void *const p = library ? dlsym(library, name) : nullptr;
    if (!p) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    return p;
}

void standin_defaults(fakecuda_setup *setup)
{
    ((decltype(&fakecuda_defaults))symbol("fakecuda_defaults"))(setup);
}

void standin_begin(const fakecuda_setup *setup)
{
    ((decltype(&fakecuda_begin))symbol("fakecuda_begin"))(setup);
}

void standin_state(fakecuda_state *state)
{
    ((decltype(&fakecuda_get_state))symbol("fakecuda_get_state"))(state);
}

const fc_cubin *standin_cubins(int sm, size_t *n)
{
    struct code {
        std::vector<unsigned char> bytes;
        fakecuda_image image;
        fc_cubin cubin;
    };
    static std::map<int, code> all;
    code &c = all[sm];
    *n = 1;
    if (c.cubin.data)
        return &c.cubin;
    FILE *const f = fopen(("build/cuda/pantheon-" + std::to_string(sm) + ".cubin").c_str(), "rb");
    if (f) {
        unsigned char part[65536];
        for (size_t got; (got = fread(part, 1, sizeof part, f)) > 0;)
            c.bytes.insert(c.bytes.end(), part, part + got);
        fclose(f);
        c.cubin = { sm, c.bytes.data(), c.bytes.data() + c.bytes.size() };
    } else {
        c.image = FAKECUDA_IMAGE(sm);
        c.cubin = { sm, (unsigned char *)&c.image, (unsigned char *)(&c.image + 1) };
    }
    return &c.cubin;
}
