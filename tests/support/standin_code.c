/* In place of the program's device code (the linker's --wrap=fc_cubins): images that the stand-in
 * driver takes for code of two architectures; it has its own. */
#include "cuda/fakecuda.h"

static const fakecuda_image image_37 = FAKECUDA_IMAGE(37), image_90 = FAKECUDA_IMAGE(90);

const fc_cubin *__wrap_fc_cubins(size_t *n);
const fc_cubin *__wrap_fc_cubins(size_t *n)
{
    static const fc_cubin images[] = {
        { 37, (const void *)&image_37, (const void *)(&image_37 + 1) },
        { 90, (const void *)&image_90, (const void *)(&image_90 + 1) },
    };
    *n = 2;
    return images;
}
