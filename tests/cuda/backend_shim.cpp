/* The shim as a backend: shim-<arch>.so beside the program, loaded apart from each other. */
#include "cuda/backend.h"

#include "cuda/cushim_run.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace
{
class shim : public backend
{
  public:
    shim(const cushim_module *module, std::string name, cushim_order order)
        : module_(module), name_(std::move(name)), order_(order)
    {
    }
    const char *name() const override
    {
        return name_.c_str();
    }
    int arch() const override
    {
        return module_->arch;
    }
    std::vector<std::string> kernels() const override
    {
        std::vector<std::string> all;
        for (size_t i = 0; i < module_->n_kernel; i++)
            all.push_back(module_->kernels[i].name);
        return all;
    }
    size_t args_bytes(const char *kernel) const override
    {
        const cushim_kernel *const k = find(kernel);
        return k ? k->args_bytes : 0;
    }
    bool launch(const char *kernel, const void *args, size_t, const unsigned grid[3],
                const unsigned block[3], size_t smem) override
    {
        return module_->launch(find(kernel), grid, block, smem, args, order_);
    }
    bool begins_early() const override
    {
        return arch() >= 900;
    }
    bool launch_early(const char *kernel, const void *args, size_t, const unsigned grid[3],
                      const unsigned block[3], size_t smem,
                      const std::function<void()> &end_before) override
    {
        return module_->launch_early(
            find(kernel), grid, block, smem, args, order_,
            [](void *end) { (*(const std::function<void()> *)end)(); }, (void *)&end_before);
    }
    std::string where() const override
    {
        return module_->where();
    }
    void add_memory(void *, size_t, bool) override
    {
    }
    void drop_memory(const void *) override
    {
    }

  private:
    const cushim_kernel *find(const char *kernel) const
    {
        for (size_t i = 0; i < module_->n_kernel; i++)
            if (!strcmp(module_->kernels[i].name, kernel))
                return &module_->kernels[i];
        return nullptr;
    }
    const cushim_module *module_;
    std::string name_;
    cushim_order order_;
};

std::string beside_program(const char *file)
{
    char path[4096];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path);
    std::string dir(path, n > 0 ? (size_t)n : 0);
    dir.resize(dir.rfind('/') + 1);
    return dir + file;
}

const cushim_module *load(const std::string &path)
{
    void *const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    void *const get = library ? dlsym(library, "cushim_module_get") : nullptr;
    if (!get) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    return ((decltype(&cushim_module_get))get)();
}
struct order {
    const char *name;
    cushim_order order;
};
const order up = { "up", { CUSHIM_UP, 1, false } };
const order down = { "down", { CUSHIM_DOWN, 3, false } };
const order chaos_a = { "chaos", { CUSHIM_SHUFFLED, 2, true } };
const order chaos_b = { "chaos", { CUSHIM_SHUFFLED, 4, true } };

void add(std::vector<std::unique_ptr<backend>> *all, const std::string &path,
         std::initializer_list<order> orders)
{
    const cushim_module *const module = load(path);
    for (const order &o : orders)
        all->emplace_back(
            new shim(module, "shim " + std::to_string(module->arch) + " " + o.name, o.order));
}
} // namespace

std::vector<std::unique_ptr<backend>> shim_backends(const char *device)
{
    std::vector<std::unique_ptr<backend>> all;
    if (!device) {
        add(&all, beside_program("shim-370.so"), { up, chaos_a });
        add(&all, beside_program("shim-900.so"), { down, chaos_b });
    } else if (strstr(device, ".so")) {
        add(&all, device, { up, down, chaos_a, chaos_b });
    }
    return all;
}
