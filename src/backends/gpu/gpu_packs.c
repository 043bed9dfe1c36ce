/* gpu_packs.c: the operands of reductions and rows, whose lanes load several elements at a time;
 * see gpu_text.h.
 *
 * A lane that loads one element, adds it and loads the next one has a single load in flight, and
 * the memory of a GPU is busy only with many loads in flight. So a lane loads p->elements elements
 * of every operand into a union of an array and vectors (a pack), and then uses them. The text
 * loads a pack in one of two forms: as vectors if all operands are dense and every address is a
 * multiple of the vector, which fxi_gpu_say_near tests once for each lane, else element by element.
 * Both fill the same union, so the rest of the kernel exists once.
 */
#include "gpu_text.h"

#include <stdio.h>

/* Is operand k loaded for each element? */
static bool is_loaded(const fxi_gpu_packs *p, int k, const bool *needed)
{
    return p->pattern[k] >= 0 && (!needed || needed[k]);
}

/* Do all elements of a pack use one element of operand k? */
static bool is_shared(const fxi_gpu_packs *p, int k)
{
    return p->pattern[k] >= 0 && (p->shared >> p->pattern[k] & 1);
}

static fxi_gpu_pack pack_of(const fxi_gpu_packs *p, int k, char name[16])
{
    snprintf(name, 16, p->several ? "v%d[c]" : "v%d", k);
    return (fxi_gpu_pack){.name = name,
                          .type = &fxi_gpu_types[p->in[k].dtype],
                          .elements = is_shared(p, k) ? 1 : p->elements};
}

/* Chooses the number of elements: as many as a vector has of the narrowest type, fewer if the packs
 * and the caller's `words` would need too many registers. Returns the words of one element of each
 * operand, so that the caller can decide what else fits. */
int fxi_gpu_packs_divide(const fxi_gpu_builder *b, fxi_gpu_packs *p, const fxi_gpu_walk *elements,
                         int words)
{
    int narrowest = 0, own = 0;
    p->neighbours = elements->nd == 1;
    for (int k = 0; k < p->n; k++) {
        const int size = fxi_gpu_types[p->in[k].dtype].size;
        if (!is_loaded(p, k, NULL))
            continue;
        p->neighbours &= elements->stride[p->pattern[k]][0] == 1;
        own += size > 4 ? size / 4 : 1;
        narrowest = narrowest == 0 || size < narrowest ? size : narrowest;
    }
    p->elements = fxi_gpu_pack_elements(b, narrowest, words + own);
    p->neighbours &= p->elements > 1;
    return own;
}

void fxi_gpu_say_operands(fxi_gpu_builder *b, const fx_tensor *in, int n)
{
    for (int k = 0; k < n; k++)
        fxi_gpu_say(b, "FX_USE(%d, const %s, x%d)\n", k, fxi_gpu_types[in[k].dtype].stored, k);
}

void fxi_gpu_say_packs(fxi_gpu_builder *b, const fxi_gpu_packs *p, const bool *needed)
{
    char name[16];
    for (int k = 0; k < p->n; k++) {
        const fxi_gpu_pack pack = pack_of(p, k, name);
        if (p->several)
            snprintf(name, sizeof name, "v%d[%d]", k, p->several);
        if (is_loaded(p, k, needed))
            fxi_gpu_say_pack(b, &pack);
    }
}

void fxi_gpu_say_vector_loads(fxi_gpu_builder *b, const fxi_gpu_packs *p, const bool *needed)
{
    char name[16], at[48];
    for (int k = 0; k < p->n && p->neighbours; k++) {
        const fxi_gpu_pack pack = pack_of(p, k, name);
        snprintf(at, sizeof at, p->several ? "x%d + o%d" : "x%d + k%d + base", k, p->pattern[k]);
        if (is_loaded(p, k, needed))
            fxi_gpu_say_pack_moved(b, &pack, false, at);
    }
}

void fxi_gpu_say_element_loads(fxi_gpu_builder *b, const fxi_gpu_packs *p, const bool *needed)
{
    char name[16];
    for (int k = 0; k < p->n; k++)
        if (is_loaded(p, k, needed))
            fxi_gpu_say(b, "%s.e[%c] = x%d[o%d%s];\n", pack_of(p, k, name).name,
                        is_shared(p, k) ? '0' : 'e', k, p->pattern[k],
                        p->several && p->neighbours && !is_shared(p, k) ? " + e" : "");
}

/* One test for all operands: the addresses are joined by |, so a low bit that is set in any of them
 * stays set. The longest pack decides, because its alignment includes that of the shorter ones. */
void fxi_gpu_say_near(fxi_gpu_builder *b, const fxi_gpu_packs *p, const char *from)
{
    char name[16];
    int longest = 1;
    const char *join = "((";
    for (int k = 0; k < p->n && p->neighbours; k++) {
        const fxi_gpu_pack pack = pack_of(p, k, name);
        if (!is_loaded(p, k, NULL) || is_shared(p, k))
            continue;
        longest = fxi_gpu_pack_bytes(&pack) > longest ? fxi_gpu_pack_bytes(&pack) : longest;
        fxi_gpu_say(b, "%sFX_ADDRESS(x%d + k%d + %s)", join, k, p->pattern[k], from);
        join = " | ";
    }
    if (longest > 1)
        fxi_gpu_say(b, ") & %du) == 0", longest - 1);
    else
        fxi_gpu_say(b, "0");
}
