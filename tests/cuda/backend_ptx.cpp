/* The PTX interpreter as a backend: build/cuda/pantheon-<arch>.ptx, where they have been made. */
#include "cuda/backend.h"

#include "cuda/ptx.h"

#include <algorithm>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace
{
class ptx : public backend
{
  public:
    explicit ptx(ptx_module module)
        : module_(std::move(module)), name_("ptx " + std::to_string(module_.arch))
    {
    }
    ~ptx() override
    {
        if (getenv("PROFILE"))
            print_profile();
    }
    const char *name() const override
    {
        return name_.c_str();
    }
    int arch() const override
    {
        return module_.arch;
    }
    std::vector<std::string> kernels() const override
    {
        std::vector<std::string> all;
        for (const auto &k : module_.kernels)
            all.push_back(k.first);
        return all;
    }
    size_t args_bytes(const char *kernel) const override
    {
        const auto k = module_.kernels.find(kernel);
        return k == module_.kernels.end() ? 0 : k->second.args_bytes;
    }
    bool launch(const char *kernel, const void *args, size_t, const unsigned grid[3],
                const unsigned block[3], size_t smem) override
    {
        ptx_launch(ptx_get(&module_, kernel), grid, block, smem, args);
        return true; /* what a GPU refuses, the shim's backends have refused before */
    }
    bool begins_early() const override
    {
        return arch() >= 900;
    }
    /* What a kernel must not do before its wait is the interpreter's to see. */
    bool launch_early(const char *kernel, const void *args, size_t bytes, const unsigned grid[3],
                      const unsigned block[3], size_t smem,
                      const std::function<void()> &end_before) override
    {
        if (!ptx_get(&module_, kernel)->waits_for_grid)
            ptx_die("begins early, and does not wait", kernel);
        end_before();
        return launch(kernel, args, bytes, grid, block, smem);
    }
    unsigned long long executed() const override
    {
        unsigned long long all = 0;
        for (const auto &k : module_.kernels)
            for (const ptx_instruction &i : k.second.code)
                all += i.count;
        return all;
    }
    std::string where() const override
    {
        return name_;
    }
    void add_memory(void *p, size_t bytes, bool) override
    {
        ptx_add_memory(p, bytes);
    }
    void drop_memory(const void *p) override
    {
        ptx_drop_memory(p);
    }

  private:
    /* Warp instructions that ran, by opcode: what the cost model in docs/CUDA.md counts. */
    void print_profile() const
    {
        for (const auto &k : module_.kernels) {
            std::map<std::string, uint64_t> by_name;
            uint64_t all = 0;
            for (const ptx_instruction &i : k.second.code) {
                std::string s = i.text;
                if (s[0] == '@')
                    s = s.substr(s.find_first_of(" \t") + 1);
                by_name[s.substr(0, s.find_first_of(" \t"))] += i.count;
                all += i.count;
            }
            if (!all)
                continue;
            printf("%s %s: %llu warp instructions:", name_.c_str(), k.first.c_str(),
                   (unsigned long long)all);
            for (const auto &n : by_name)
                if (n.second)
                    printf(" %s %llu", n.first.c_str(), (unsigned long long)n.second);
            printf("\n");
        }
    }
    ptx_module module_;
    std::string name_;
};
} // namespace

std::vector<std::unique_ptr<backend>> ptx_backends(const char *device)
{
    std::vector<std::string> files;
    if (!device)
        for (const char *const arch : { "37", "75", "90" })
            files.push_back("build/cuda/pantheon-" + std::string(arch) + ".ptx");
    else if (strstr(device, ".ptx"))
        files.push_back(device);
    std::vector<std::unique_ptr<backend>> all;
    for (const std::string &file : files) {
        ptx_module m;
        if (ptx_load(&m, file.c_str()))
            all.emplace_back(new ptx(std::move(m)));
    }
    return all;
}
