/* conform_attention.c: rows of dot-product attention.
 *
 * Devices with a kernel for attention compute it in one step for some types; the others, and ref,
 * with products and softmax. Lengths are at and around multiples of a kernel's tile, and features
 * of a head are multiples of 8 with and without padding to its tile, or odd. Parameters: heads,
 * causal.
 */
#include "conform.h"

#include <math.h>

static fx_array *b_attention(fx_array *const *x, const int64_t *p)
{
    return fx_child(fx_dot_product_attention(x[0], x[1], x[2], .nheads = p[0], .causal = p[1] != 0),
                    0);
}

/* Later keys have larger scores, so a kernel that adds up exponentials tile by tile finds a larger
 * maximum in almost every tile, and scales its sums each time. */
static fx_array *b_rising(fx_array *const *x, const int64_t *p)
{
    const int64_t keys = fx_size(x[1], 1);
    fx_array *ramp = fx_div(fx_range(1, 1, keys), (double)keys / 16);
    fx_array *k = fx_mul(x[1], fx_cast(fx_reshape(ramp, 1, keys), fx_eltype(x[1])));
    return b_attention((fx_array *const[]){x[0], k, x[2]}, p);
}

/* q, k and v are slices of one array, as in a layer that computes them with one product. */
static fx_array *b_slices(fx_array *const *x, const int64_t *p)
{
    const int64_t n = fx_size(x[0], 0) / 3;
    fx_array *parts[3];
    for (int i = 0; i < 3; i++)
        parts[i] = fx_slice(x[0], 0, i * n, (i + 1) * n);
    return b_attention(parts, p);
}

/* The gradient with respect to input p[2], of q, k and v. A gradient is a row here, because the
 * modes for gradients have no 16-bit floats. */
static fx_array *b_gradient(fx_array *const *x, const int64_t *p)
{
    fx_array *g;
    fx_pullback(b_attention(x, p), x[3], &x[p[2]], 1, &g);
    return g;
}

/* The gradient of a gradient: with respect to input p[3]. */
static fx_array *b_second(fx_array *const *x, const int64_t *p)
{
    fx_array *first = b_gradient(x, p), *g;
    fx_pullback(first, fx_sin(x[p[2]]), &x[p[3]], 1, &g);
    return g;
}

/* The gradient of k or v, p[2], if the first key is infinite in all features: no query sees it,
 * because the queries are positive. Its own gradients are 0. */
static fx_array *b_infinite(fx_array *const *x, const int64_t *p)
{
    const int64_t n = fx_size(x[1], 1);
    fx_array *infinite = fx_sub(fx_slice(x[1], 1, 0, 1), INFINITY),
             *k = fx_concat(1, infinite, fx_slice(x[1], 1, 1, n));
    fx_array *const all[] = {fx_add(fx_abs(x[0]), 0.1), k, x[2]};
    fx_array *g;
    fx_pullback(b_attention(all, p), x[3], &all[p[2]], 1, &g);
    return g;
}

/* All three gradients as one array, so that one plan computes them. */
static fx_array *b_gradients(fx_array *const *x, const int64_t *p)
{
    fx_array *g[3];
    fx_pullback(b_attention(x, p), x[3], x, 3, g);
    return fx_concat(0, fx_vec(g[0]), fx_vec(g[1]), fx_vec(g[2]));
}

/* All gradients of slices, which become one array again. */
static fx_array *b_slices_gradient(fx_array *const *x, const int64_t *p)
{
    fx_array *y = b_slices(x, p), *g;
    fx_pullback(y, fx_cos(fx_stop_gradient(y)), x, 1, &g);
    return g;
}

/* A mask of the scores of a call. Its sizes are 1 along the axes that `axes`, p[2], does not have.
 * A VIEW has the queries first in memory, and lies within a larger array. Every query sees the
 * first key, except with BLIND: then some queries see no key. */
enum { KEYS = 1, QUERIES = 2, HEADS = 4, BATCH = 8, VIEW = 16, BLIND = 32 };
static fx_array *mask_of(fx_array *const *x, const int64_t *p)
{
    const int64_t axes = p[2], more = axes & VIEW ? 1 : 0,
                  full[] = {fx_size(x[1], 1) + 2 * more, fx_size(x[0], 1), p[0],
                            fx_ndims(x[0]) > 2 ? fx_size(x[0], 2) : 1};
    fx_array *index[4];
    for (int i = 0; i < 4; i++) {
        int64_t sizes[4] = {1, 1, 1, 1};
        const int at = more && i < 2 ? 1 - i : i;
        sizes[at] = axes >> i & 1 ? full[i] : 1;
        index[i] =
            fx_range_dtype(FX_DTYPE_I64, i == 0 && axes & KEYS ? (double)-more : 0, 1, sizes[at]);
        index[i] = fx_reshape(index[i], sizes[0], sizes[1], sizes[2], sizes[3]);
    }
    fx_array *rest = fx_add(fx_add(index[1], index[2]), index[3]);
    fx_array *key = fx_mul(fx_add(index[0], more), fx_add(rest, 37)); /* not negative */
    fx_array *m = fx_gt(fx_rem(fx_rem(fx_add(key, rest), 101), 3), 0);
    m = axes & BLIND ? fx_and(m, fx_ne(fx_rem(rest, 3), 1)) : fx_or(m, fx_eq(index[0], 0));
    if (!more)
        return m;
    m = fx_permute(m, 1, 0, 2, 3);
    return axes & KEYS ? fx_slice(m, 0, more, full[0] - more) : m;
}

static fx_array *b_masked(fx_array *const *x, const int64_t *p)
{
    return fx_child(fx_dot_product_attention(x[0], x[1], x[2], .nheads = p[0], .causal = p[1] != 0,
                                             .mask = mask_of(x, p)),
                    0);
}

/* The gradient of masked attention with respect to input p[3]. */
static fx_array *b_masked_gradient(fx_array *const *x, const int64_t *p)
{
    fx_array *g;
    fx_pullback(b_masked(x, p), x[3], &x[p[3]], 1, &g);
    return g;
}

/* The gradient of that gradient with respect to input p[4]. */
static fx_array *b_masked_second(fx_array *const *x, const int64_t *p)
{
    fx_array *first = b_masked_gradient(x, p), *g;
    fx_pullback(first, fx_sin(x[p[3]]), &x[p[4]], 1, &g);
    return g;
}

static const char *const calls[] = {"one=8x1x2 8x1x2 8x1x2:1,0",
                                    "even=16x64x1 16x64x1 16x64x1:1,1",
                                    "tail=16x65x1 16x65x1 16x65x1:2,0",
                                    "cross=32x64x1 32x70x1 16x70x1:1,0",
                                    "fewer_keys=16x67x1 16x64x1 32x64x1:2,1",
                                    "two_axes=8x66 8x64 8x64:1,0",
                                    "+short=32x63x2 32x63x2 32x63x2:2,1",
                                    "+long=32x200x1 32x200x1 32x200x1:1,1",
                                    "+longer=16x513x1 16x513x1 16x513x1:1,1",
                                    "+f64=128x66x1 128x129x1 128x129x1:2,0",
                                    "+f80=160x65x1 160x70x1 160x70x1:2,1",
                                    "+f128=128x129x1 128x65x1 128x65x1:1,1",
                                    "+other_values=128x72x1 128x65x1 24x65x1:1,0",
                                    "odd=10x37x2 10x41x2 6x41x2:2,1",
                                    "one_query=8x1x1 8x300x1 8x300x1:2,0",
                                    "+four_axes=16x64x2x2 16x65x2x2 16x65x2x2:2,0",
                                    NULL};
#define GRADIENT(name, q, k, v, y, call)                                                           \
    name "_q=" q " " k " " v " " y ":" call ",0", name "_k=" q " " k " " v " " y ":" call ",1",    \
        name "_v=" q " " k " " v " " y ":" call ",2"
static const char *const gradients[] = {
    GRADIENT("tail", "16x65x1", "16x65x1", "16x65x1", "16x65x1", "2,1"),
    GRADIENT("+cross", "32x64x1", "32x70x1", "16x70x1", "16x64x1", "1,0"),
    GRADIENT("+causal", "48x67x2", "48x64x2", "16x64x2", "16x67x2", "2,1"),
    GRADIENT("odd", "10x37x2", "10x41x2", "6x41x2", "6x37x2", "2,1"),
    GRADIENT("+blocks", "8x300x1", "8x290x1", "8x290x1", "8x300x1", "1,1"),
    GRADIENT("+f80", "80x66x1", "80x65x1", "80x65x1", "80x66x1", "1,0"),
    GRADIENT("+f128", "128x70x1", "128x65x1", "128x65x1", "128x70x1", "1,1"),
    NULL};
/* With 8 short heads or 32 long ones, the CPU computes the gradients in one step. */
static const char *const together[] = {"tail=48x37x3 48x41x3 24x41x3 24x37x3:4,0",
                                       "+causal=40x130x8 40x300x8 40x300x8 40x130x8:4,1",
                                       "+fewer_keys=72x300x4 72x270x4 72x270x4 72x300x4:8,1",
                                       "+blocks=24x260x4 24x530x4 24x530x4 24x260x4:8,0",
                                       "+one_query=16x1x4 16x70x4 16x70x4 16x1x4:2,0",
                                       NULL};
#define SECOND "16x20x1 16x21x1 16x21x1 16x20x1:2,"
static const char *const seconds[] = {"qk=16x64x1 16x65x1 16x65x1 16x64x1:2,1,0,1",
                                      "kv=" SECOND "0,1,2",
                                      "vq=" SECOND "1,2,0",
                                      "+qq=" SECOND "0,0,0",
                                      "+qy=" SECOND "1,0,3",
                                      "+ky=" SECOND "1,1,3",
                                      "+kk=" SECOND "1,1,1",
                                      "+vy=" SECOND "0,2,3",
                                      NULL};
static const char *const rising[] = {"ten_tiles=16x64x1 16x640x1 16x640x1:2,0",
                                     "+causal=16x512x1 16x512x1 16x512x1:1,1", NULL};
#define INFINITE(name, q, k, call) name "=" q " " k " " k " " q ":" call
static const char *const infinite[] = {INFINITE("tail_k", "16x65x1", "16x66x1", "2,0,1"),
                                       INFINITE("tail_v", "16x65x1", "16x66x1", "2,0,2"),
                                       INFINITE("even_k", "16x64x1", "16x64x1", "1,0,1"),
                                       INFINITE("+f128_k", "128x70x1", "128x65x1", "1,0,1"),
                                       INFINITE("+f128_v", "128x70x1", "128x65x1", "1,0,2"),
                                       NULL};
static const char *const packed[] = {"48x64x2:2,1", "+72x130x1:1,0", NULL};

/* Parameters: heads, causal, axes of the mask. */
#define TAIL "32x65x2 32x70x2 16x70x2:2,"
static const char *const masked[] = {"keys=" TAIL "0,1",
                                     "causal=" TAIL "1,3",
                                     "batch=" TAIL "0,9",
                                     "all=" TAIL "0,15",
                                     "view=" TAIL "1,27",
                                     "blind=" TAIL "0,43",
                                     "even=16x64x1 16x64x1 16x64x1:1,0,3",
                                     "odd=10x37x2 10x41x2 6x41x2:2,1,11",
                                     "two_axes=8x66 8x64 8x64:1,0,1",
                                     "+one=" TAIL "0,0",
                                     "+heads=" TAIL "1,5",
                                     "+queries=" TAIL "0,2",
                                     "+queries_heads=" TAIL "1,7",
                                     "+queries_heads_batch=" TAIL "0,14",
                                     "+keys_heads_batch=" TAIL "0,13",
                                     "+blind_causal=" TAIL "1,47",
                                     "+blind_observations=" TAIL "0,40",
                                     "+view_all=" TAIL "0,31",
                                     "+long=32x200x1 32x200x1 32x200x1:1,1,3",
                                     "+f80=160x65x2 160x70x2 160x70x2:2,1,15",
                                     "+f128=128x129x1 128x65x1 128x65x1:1,0,3",
                                     NULL};
/* The last parameter is the input. A query that sees no key makes the gradient of v NaN. With a
 * causal mask too, it is NaN for all keys in the composed form, but in a kernel only for some of
 * them; so that case is missing. */
#define MIXED(name, call) GRADIENT(name, "32x65x2", "32x70x2", "16x70x2", "16x65x2", "2," call)
static const char *const masked_gradients[] = {
    MIXED("batch", "0,9"),
    MIXED("blind", "0,43"),
    MIXED("+causal", "1,3"),
    "+blind_causal_q=32x65x2 32x70x2 16x70x2 16x65x2:2,1,43,0",
    "+blind_causal_k=32x65x2 32x70x2 16x70x2 16x65x2:2,1,43,1",
    MIXED("+keys", "1,1"),
    MIXED("+all", "0,15"),
    MIXED("+view", "1,27"),
    GRADIENT("+f80", "80x66x1", "80x65x1", "80x65x1", "80x66x1", "1,0,3"),
    GRADIENT("+f128", "128x70x2", "128x65x2", "128x65x2", "128x70x2", "1,1,9"),
    NULL};
static const char *const masked_seconds[] = {"qk=16x64x2 16x65x2 16x65x2 16x64x2:2,1,9,0,1",
                                             "+kv=16x64x2 16x65x2 16x65x2 16x64x2:2,0,3,1,2", NULL};

/* The gradient of equal keys is 0, so an error cannot be compared with its size. */
#define ROW(name, build, shapes, n)                                                                \
    {                                                                                              \
        name, "fx_dot_product_attention", build, shapes, NULL, n,                                  \
            {CF_UNIT, CF_ANY, CF_ANY, CF_ANY}, CF_HALF & ~CF_T(F64), CF_ROUNDED,                   \
            CF_NO_SPECIAL | CF_NO_GRAD | CF_NO_BROADCAST                                           \
    }

const cf_row cf_attention_rows[] = {
    ROW("attention", b_attention, calls, 3),
    ROW("attention.rising", b_rising, rising, 3),
    ROW("attention.slices", b_slices, packed, 1),
    ROW("attention.gradient", b_gradient, gradients, 4),
    ROW("attention.gradients", b_gradients, together, 4),
    ROW("attention.infinite", b_infinite, infinite, 4),
    ROW("attention.masked", b_masked, masked, 3),
    ROW("attention.masked_gradient", b_masked_gradient, masked_gradients, 4),
    ROW("attention.masked_second", b_masked_second, masked_seconds, 4),
    ROW("attention.second", b_second, seconds, 4),
    ROW("attention.slices_gradient", b_slices_gradient, packed, 1),
    {0},
};
