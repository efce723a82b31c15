/* Modules of the stand-in: the shim's kernels, held against the cubin that the program loads. */
#include "cuda/fake.h"

#include <dlfcn.h>
#include <elf.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum {
    EM_CUDA_ = 190,
    NO_BINARY_FOR_GPU = 209,
    INVALID_IMAGE = 200,
    NOT_FOUND = 500,
    EIFMT_SVAL = 4, /* the attribute has bytes behind it */
    EIATTR_CBANK_PARAM_SIZE = 0x19,
};

const cushim_module *fake_shim(void)
{
    Dl_info here;
    if (!dladdr((void *)fake_shim, &here))
        fake_die("dladdr failed");
    char file[PATH_MAX]; /* behind links: a program may have it as libcuda.so.1 */
    if (!realpath(here.dli_fname, file))
        fake_die("%s has no path", here.dli_fname);
    std::string path(file);
    path.resize(path.rfind('/') + 1);
    path += fake_setup.sm < 61 ? "shim-370.so" : "shim-900.so";
    void *const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    void *const get = library ? dlsym(library, "cushim_module_get") : nullptr;
    if (!get)
        fake_die("%s", dlerror());
    return ((decltype(&cushim_module_get))get)();
}

/* --- cubins ----------------------------------------------------------------------------------- */

static const Elf64_Ehdr *header(const std::string &image)
{
    return (const Elf64_Ehdr *)image.data();
}

static const Elf64_Shdr *section(const std::string &image, const std::string &name)
{
    const Elf64_Ehdr *const h = header(image);
    const Elf64_Shdr *const s = (const Elf64_Shdr *)(image.data() + h->e_shoff);
    for (int i = 0; i < h->e_shnum; i++)
        if (name == image.data() + s[h->e_shstrndx].sh_offset + s[i].sh_name)
            return s + i;
    return nullptr;
}

/* The 16-bit value of an attribute of the kernel; -1 without it. */
static int attribute(const std::string &image, const char *kernel, int wanted)
{
    const Elf64_Shdr *const s = section(image, std::string(".nv.info.") + kernel);
    if (!s)
        return -1;
    const unsigned char *p = (const unsigned char *)image.data() + s->sh_offset;
    const unsigned char *const end = p + s->sh_size;
    while (p + 4 <= end) {
        const int value = p[2] | p[3] << 8;
        if (p[1] == wanted)
            return value;
        p += 4 + (p[0] == EIFMT_SVAL ? value : 0);
    }
    return -1;
}

CUresult fake_module_load(fake_module *m, const void *image)
{
    if (!memcmp(image, FAKECUDA_MAGIC, sizeof FAKECUDA_MAGIC - 1)) {
        m->checked = false;
        return ((const fakecuda_image *)image)->sm == fake_setup.sm ? 0 : NO_BINARY_FOR_GPU;
    }
    const Elf64_Ehdr *const h = (const Elf64_Ehdr *)image;
    if (memcmp(h, ELFMAG, SELFMAG) || h->e_machine != EM_CUDA_)
        return INVALID_IMAGE;
    /* The capability: in the low byte of the flags, from ABI version 8 on in the next one. */
    const int sm = (int)(h->e_ident[EI_ABIVERSION] >= 8 ? h->e_flags >> 8 : h->e_flags) & 0xff;
    if (sm / 10 != fake_setup.sm / 10 || sm > fake_setup.sm)
        return NO_BINARY_FOR_GPU;
    m->checked = true;
    m->image.assign((const char *)image, h->e_shoff + (size_t)h->e_shnum * h->e_shentsize);
    return 0;
}

CUresult fake_module_find(const fake_module *m, const char *name, fake_function *f)
{
    const cushim_module *const shim = fake_shim();
    const cushim_kernel *kernel = nullptr;
    for (size_t i = 0; i < shim->n_kernel; i++)
        if (!strcmp(shim->kernels[i].name, name))
            kernel = &shim->kernels[i];
    if (!kernel)
        return NOT_FOUND;
    int registers = 0;
    if (m->checked) {
        const Elf64_Shdr *const text = section(m->image, std::string(".text.") + name);
        if (!text)
            return NOT_FOUND;
        registers = (int)(text->sh_info >> 24);
        const int bytes = attribute(m->image, name, EIATTR_CBANK_PARAM_SIZE);
        if (bytes != (int)kernel->args_bytes)
            fake_die("%s takes %d bytes of arguments in the cubin, %zu on the CPU: stale cubins?",
                     name, bytes, kernel->args_bytes);
    }
    *f = { kernel, 48 << 10, registers };
    return 0;
}
