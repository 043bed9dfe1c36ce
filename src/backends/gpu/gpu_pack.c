/* gpu_pack.c: several elements that a work-item loads or stores together, as text (FX_PACK in
 * kernels/prelude.cl). */
#include "gpu_text.h"

enum { WIDEST = 16 }; /* bytes of the longest vector that all devices load at once */

int fxi_gpu_pack_bytes(const fxi_gpu_pack *p)
{
    const int bytes = p->elements * p->type->size;
    return bytes < WIDEST ? bytes : WIDEST;
}

void fxi_gpu_say_pack(fxi_gpu_builder *b, const fxi_gpu_pack *p)
{
    const int vector = fxi_gpu_pack_bytes(p);
    fxi_gpu_say(b, "FX_PACK(%s, %d, fx_v%d, %d) %s;\n", p->type->stored, p->elements, vector,
                p->elements * p->type->size / vector, p->name);
}

void fxi_gpu_say_pack_moved(fxi_gpu_builder *b, const fxi_gpu_pack *p, bool stores, const char *at)
{
    const int vector = fxi_gpu_pack_bytes(p);
    fxi_gpu_say(b, "FX_%s_PACK(%s, %s, fx_v%d, %d)\n", stores ? "STORE" : "LOAD", p->name, at,
                vector, p->elements * p->type->size / vector);
}

/* Enough elements for a vector of the narrowest type, but few enough that their registers do not
 * spill. A CPU computes one at a time: its compiler makes vectors of neighbouring work-items. */
int fxi_gpu_pack_elements(const fxi_gpu_builder *b, int narrowest, int words)
{
    const int bytes = b->limits->vector_bytes;
    enum { WORDS = 64 }; /* registers for the elements of a work-item, of 255 in all */
    int n = narrowest > 0 ? bytes / narrowest : bytes / 4;
    if (b->limits->serial)
        return 1;
    n = n > bytes / 2 ? bytes / 2 : n < bytes / 4 ? bytes / 4 : n;
    while (n > 1 && n * words > WORDS)
        n /= 2;
    return n;
}
