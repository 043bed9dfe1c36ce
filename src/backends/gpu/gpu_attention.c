/* gpu_attention.c: dot-product attention and its gradients, each kind as one kernel.
 *
 * No kernel writes scores to memory. A group computes some rows of the result: of queries, or of
 * keys for the gradients of k and v. It moves along the other axis by tiles, computes their scores
 * with the device's instructions for products of matrices, and keeps the sums in registers. Softmax
 * is online: when a larger score arrives, the sums so far are scaled. The gradients compute the
 * scores again, from the logarithms of the sums of exponentials. Sources: FlashAttention-2 (Dao,
 * 2023); online softmax (Milakov, Gimelshein, 2018).
 *
 * Every row of a result is computed by one group in one order, without atomic additions. So the
 * results have the same bits in every run. This costs the gradients a second computation of the
 * scores: one for the queries, and one for the keys.
 *
 * The scores before softmax are Float32. α and its gradient are rounded to the operands' type, as
 * operands of the next product.
 */
#include "gpu_text.h"

#include <stdlib.h>
#include <string.h>

/* How the work is divided into groups. Features are rounded up to the next row of the table. With
 * more rows, a warp reads a tile from local memory less often, but needs more registers: a
 * work-item has at most 255. */
typedef struct division {
    int features; /* the most */
    int cells;    /* a warp has 16 · cells rows: a cell has the 16 rows of one instruction */
    int group;    /* work-items */
    int tile;     /* rows of a tile */
} division;
enum { MOST_FEATURES = 128 };
static const division divisions[][3] = {
    [FX_ATTENTION_FORWARD] = {{64, 2, 128, 64}, {96, 1, 128, 64}, {MOST_FEATURES, 1, 256, 64}},
    [FX_ATTENTION_LOGSUMEXP] = {{64, 2, 128, 64}, {96, 2, 128, 64}, {MOST_FEATURES, 2, 128, 64}},
    [FX_ATTENTION_GRADIENT_QUERY] = {{64, 2, 128, 64},
                                     {96, 1, 128, 64},
                                     {MOST_FEATURES, 1, 128, 32}},
    [FX_ATTENTION_GRADIENT_KEY_VALUE] = {{64, 2, 128, 64},
                                         {96, 1, 128, 64},
                                         {MOST_FEATURES, 1, 256, 32}},
};

typedef struct plan {
    const fx_step *step;
    const fx_attention_step *a;
    division its;
    bool of_keys;          /* the rows of the result are keys */
    int features, values;  /* of a head, rounded up */
    int64_t stage, groups; /* bytes of a pair of tiles; groups of a head */
} plan;

/* Rounds up to a multiple of 16, the terms of a cell. */
static int round_up(int64_t n)
{
    return (int)fxi_gpu_divide_up(n, 16) * 16;
}

/* Bytes of a tile in local memory (STRIDE of attention.cl). */
static int64_t tile_bytes(const plan *p, int features)
{
    return features ? p->its.tile * (features * 2 + 16) : 0;
}

static plan plan_of(const fx_step *s)
{
    const fx_attention_step *a = fx_step_attention(s);
    plan p = {.step = s,
              .a = a,
              .of_keys = a->kind == FX_ATTENTION_GRADIENT_KEY_VALUE,
              .features = round_up(a->features),
              .values = round_up(a->value_features)};
    const division *d = divisions[a->kind];
    /* A gradient with a mask has no registers for two cells. */
    const bool one_cell = a->mask && a->kind >= FX_ATTENTION_GRADIENT_QUERY;
    while (d->features < p.features || d->features < p.values || (one_cell && d->cells > 1))
        d++;
    p.its = *d;
    /* A stage is a pair of tiles; those of queries have their logarithms and sums too. */
    const int64_t numbers = p.of_keys ? 2 * (int64_t)sizeof(float) * p.its.tile : 0;
    p.stage = tile_bytes(&p, p.features) + tile_bytes(&p, p.values) + numbers;
    p.groups = fxi_gpu_divide_up(p.of_keys ? a->keys : a->queries, d->group / 32 * d->cells * 16);
    return p;
}

/* Is an operand or the output too large for 32-bit indices? A work-item also computes addresses up
 * to two tiles beyond the operand, but does not read there. */
static bool is_wide(const plan *p)
{
    const fx_step *s = p->step;
    bool wide = fxi_gpu_wide(fx_tensor_length(&s->out)) ||
                fxi_gpu_wide(p->groups * p->a->heads * p->a->batch);
    for (int i = 0; i < s->nin; i++) {
        const fx_tensor *t = &s->in[i];
        if (p->a->mask && i == p->a->mask)
            wide |= fxi_gpu_wide(fxi_gpu_reach(t->ndim, t->shape, t->stride));
        else
            wide |= fxi_gpu_wide(t->shape[0] + (t->shape[1] + 256) * llabs(fxi_gpu_stride(t, 1)) +
                                 t->shape[2] * llabs(fxi_gpu_stride(t, 2)));
    }
    return wide;
}

/* ---- the text -------------------------------------------------------------------------------- */

/* Parameters. Two strides of each of q, k, v and gy follow, then the four of the mask. */
enum {
    QUERIES,
    KEYS,
    FEATURES,
    VALUE_FEATURES,
    HEADS,
    BATCH,
    CAUSAL,
    SCALE,
    GROUPS,
    BAND,
    STRIDES,
    MASK_STRIDES = STRIDES + 2 * FX_ATTENTION_VIEWS,
    MASK_AXES = 4,
    PARAMS = MASK_STRIDES + MASK_AXES
};

static void set_constants(fxi_gpu_builder *b, const plan *p)
{
    fxi_gpu_set_number(b, "features", p->features);
    fxi_gpu_set_number(b, "value_features", p->values);
    fxi_gpu_set_number(b, "cells", p->its.cells);
    fxi_gpu_set_number(b, "tile", p->its.tile);
    fxi_gpu_set_number(b, "stage", p->stage);
    fxi_gpu_set_number(b, "values", p->a->kind == FX_ATTENTION_FORWARD);
    /* Indices of buffers: the outputs follow the inputs. */
    const int result = p->step->nin;
    fxi_gpu_set_number(b, "mask", p->a->mask);
    fxi_gpu_set_number(b, "result", result);
    fxi_gpu_set_number(b, "logs",
                       p->a->kind == FX_ATTENTION_LOGSUMEXP ? result
                       : p->a->more.n                       ? result + 1
                                                            : 0);
    fxi_gpu_set(b, "name", fxi_gpu_types[p->step->in[0].dtype].name);
}

static void say_kernel(fxi_gpu_builder *b, const plan *p)
{
    static const char *const rows[][2] = {
        [FX_ATTENTION_FORWARD] = {"", fxi_gpu_text_attention_forward},
        [FX_ATTENTION_LOGSUMEXP] = {"", fxi_gpu_text_attention_forward},
        [FX_ATTENTION_GRADIENT_QUERY] = {fxi_gpu_text_attention_gradient,
                                         fxi_gpu_text_attention_query},
        [FX_ATTENTION_GRADIENT_KEY_VALUE] = {fxi_gpu_text_attention_gradient,
                                             fxi_gpu_text_attention_key_value},
    };
    /* Two stages: the tiles of the next round are fetched into one while the other is computed. */
    fxi_gpu_begin_large_groups(b, is_wide(p), p->its.group, (int)(2 * p->stage));
    set_constants(b, p);
    fxi_gpu_say_part(b, fxi_gpu_text_attention_functions);
    fxi_gpu_kernel(b, "fx_attention", p->step->nin + fx_step_outputs(p->step), PARAMS);
    fxi_gpu_say_part(b, fxi_gpu_text_attention);
    for (int k = 0; k < 2; k++)
        fxi_gpu_say_part(b, rows[p->a->kind][k]);
    fxi_gpu_end(b);
}

/* ---- the step -------------------------------------------------------------------------------- */

/* The number of heads whose groups run at about the same time: their tiles stay in the cache. The
 * longest rows of a causal mask come first within a band, so a band should not be small. */
static int64_t band_of(const plan *p)
{
    enum { CACHE = 24 << 20 };
    const fx_attention_step *a = p->a;
    const int64_t length = p->of_keys ? a->queries : a->keys,
                  band = CACHE / (2 * length * (a->features + a->value_features));
    return band < 1 ? 1 : band < a->heads * a->batch ? band : a->heads * a->batch;
}

static void add_launch(fxi_gpu_builder *b, const plan *p)
{
    const fx_attention_step *a = p->a;
    const union {
        float f;
        uint32_t u;
    } scale = {.f = (float)a->scale};
    const int64_t params[STRIDES] = {[QUERIES] = a->queries,   [KEYS] = a->keys,
                                     [FEATURES] = a->features, [VALUE_FEATURES] = a->value_features,
                                     [HEADS] = a->heads,       [BATCH] = a->batch,
                                     [CAUSAL] = a->causal,     [GROUPS] = p->groups,
                                     [BAND] = band_of(p)};
    fxi_gpu_call *c = fxi_gpu_add(b);
    for (int k = 0; k < STRIDES; k++)
        fxi_gpu_param(c, k, params[k]);
    fxi_gpu_bits(c, SCALE, scale.u);
    for (int k = 0; k < p->step->nin; k++)
        fxi_gpu_buffer(c, k, FXI_GPU_IN, k);
    for (int k = 0; k < fx_step_outputs(p->step); k++)
        fxi_gpu_buffer(c, p->step->nin + k, FXI_GPU_OUT, k);
    const int inputs = a->mask ? a->mask : p->step->nin;
    for (int k = 0; k < FX_ATTENTION_VIEWS && k < inputs; k++)
        for (int d = 0; d < 2; d++)
            fxi_gpu_param(c, STRIDES + 2 * k + d, fxi_gpu_stride(&p->step->in[k], 1 + d));
    for (int d = 0; d < MASK_AXES && a->mask; d++)
        fxi_gpu_param(c, MASK_STRIDES + d, fxi_gpu_stride(&p->step->in[a->mask], d));
    /* All groups along the first axis: many devices allow only 65535 groups along the others. */
    c->groups[0] = p->groups * a->heads * a->batch;
}

void fxi_gpu_attention(fxi_gpu_builder *b)
{
    if (fx_tensor_length(&b->step->out) == 0)
        return;
    const plan p = plan_of(b->step);
    say_kernel(b, &p);
    add_launch(b, &p);
}

/* Short sequences have few scores, and a group would compute tiles that are mostly empty. */
enum { LEAST_LENGTH = 64 };
/* Devices whose groups can ask for this much memory have the instructions of the text: products of
 * 16-bit floats, and asynchronous copies. The groups here ask for at most 68 KiB. */
enum { ASKED = 97 << 10 };

static bool fits(int64_t features)
{
    return features > 0 && features % 8 == 0 && features <= MOST_FEATURES;
}

bool fxi_gpu_has_attention(const fxi_gpu_runtime *runtime, fx_device *device, const fx_step *step)
{
    const fx_attention_step *a = fx_step_attention(step);
    const char *text = getenv("FX_GPU_ATTENTION");
    if ((text && strcmp(text, "0") == 0) || a->kind == FX_ATTENTION_GRADIENTS)
        return false;
    const fxi_gpu_type *type = &fxi_gpu_types[step->in[0].dtype];
    return runtime->limits(device)->asked_memory >= ASKED && type->math && type->size == 2 &&
           fits(a->features) && fits(a->value_features) && a->queries >= LEAST_LENGTH &&
           a->keys >= LEAST_LENGTH && a->scale > 0;
}
