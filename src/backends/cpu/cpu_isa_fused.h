/* cpu_isa_fused.h: loops that compute several calls of a row step at once, and loops whose results
 * bypass the caches, for row steps and for elementwise programs; part of cpu_isa.h.
 *
 * cpu_row_fuse.c finds the calls of row steps. Every operation is rounded as if its result were
 * stored, and sums are added in the lanes and in the order of the reducers, so the bits are those
 * of the separate calls. Contraction is off, so the compiler does not join a product and a sum.
 *
 * A result that bypasses the caches is stored directly. Its elements before the first aligned
 * address, and those after the last whole cache line, are computed one by one.
 */

/* Each round computes one cache line of Float32 and fetches the line that is t->ahead elements
 * later. A loop that stores past the caches fetches nothing: both would wait for the memory. */
enum { FUSED_STEP = 16, FUSED_LANES = FXI_VECTOR_BYTES / 4, SECOND_LEVEL = 2 };

/* memcpy, because operands need not begin at multiples of a vector. */
static inline vf fused_load(const float *p)
{
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void fused_store(float *p, vf v, bool streams)
{
#ifdef FXI_STREAM
    if (streams) {
        FXI_STREAM(p, v);
        return;
    }
#endif
    (void)streams;
    memcpy(p, &v, sizeof v);
}

/* The number of elements before the first one whose address suits a streaming store. */
static inline int64_t fused_head(const fxi_fused_tile *t, bool streams)
{
    const int64_t odd = (int64_t)(-(uintptr_t)t->at[0] % FXI_VECTOR_BYTES / sizeof(float));
    return !streams ? 0 : odd < t->n ? odd : t->n;
}

/* ---- normalised elements --------------------------------------------------------------------- */
/* z = ((x − m) − e)·r and y = z·g + b, for elements from … to − 1, one by one. */
static inline void norm_ends(const fxi_fused_tile *t, int64_t from, int64_t to)
{
    float *y = t->at[0], *kept = t->at[7];
    const float *x = t->at[1], *g = t->at[5], *b = t->at[6];
    const float m = *(float *)t->at[2], e = *(float *)t->at[3], r = *(float *)t->at[4];
    for (int64_t i = from; i < to; i++) {
        const float z = (x[i] - m - e) * r, scaled = z * g[i], result = scaled + b[i];
        if (kept)
            kept[i] = z;
        y[i] = result;
    }
}
static inline void norm_loop(const fxi_fused_tile *t, bool keeps, bool streams)
{
    float *y = t->at[0], *kept = t->at[7];
    const float *x = t->at[1], *g = t->at[5], *b = t->at[6];
    const vf m = vf_splat(*(float *)t->at[2]), e = vf_splat(*(float *)t->at[3]),
             r = vf_splat(*(float *)t->at[4]);
    const int64_t n = t->n, ahead = t->ahead;
    int64_t i = fused_head(t, streams);
    norm_ends(t, 0, i);
    for (; i + FUSED_STEP <= n; i += FUSED_STEP) {
        if (!streams)
            __builtin_prefetch(x + i + ahead, 0, SECOND_LEVEL);
        FXI_UNROLL
        for (int k = 0; k < FUSED_STEP; k += FUSED_LANES) {
            const vf z = (fused_load(x + i + k) - m - e) * r;
            const vf result = z * fused_load(g + i + k) + fused_load(b + i + k);
            if (keeps)
                fused_store(kept + i + k, z, false);
            fused_store(y + i + k, result, streams);
        }
    }
    norm_ends(t, i, n);
}
/* A loop for each combination, so that the inner loop has no branch. */
static void fused_norm(const fxi_fused_tile *t)
{
    if (t->at[7])
        (t->streams ? norm_loop(t, true, true) : norm_loop(t, true, false));
    else
        (t->streams ? norm_loop(t, false, true) : norm_loop(t, false, false));
}

/* ---- the gradient of a norm ------------------------------------------------------------------ */
/* y = ((x − c)·k + v) + s */
static inline void shift_ends(const fxi_fused_tile *t, int64_t from, int64_t to)
{
    float *y = t->at[0];
    const float *x = t->at[1], *v = t->at[5];
    const float c = *(float *)t->at[2], k = *(float *)t->at[3], s = *(float *)t->at[4];
    for (int64_t i = from; i < to; i++) {
        const float scaled = (x[i] - c) * k, sum = scaled + v[i];
        y[i] = sum + s;
    }
}
static inline void shift_loop(const fxi_fused_tile *t, bool streams)
{
    float *y = t->at[0];
    const float *x = t->at[1], *v = t->at[5];
    const vf c = vf_splat(*(float *)t->at[2]), f = vf_splat(*(float *)t->at[3]),
             s = vf_splat(*(float *)t->at[4]);
    const int64_t n = t->n, ahead = t->ahead;
    int64_t i = fused_head(t, streams);
    shift_ends(t, 0, i);
    for (; i + FUSED_STEP <= n; i += FUSED_STEP) {
        if (!streams)
            __builtin_prefetch(x + i + ahead, 0, SECOND_LEVEL);
        FXI_UNROLL
        for (int k = 0; k < FUSED_STEP; k += FUSED_LANES)
            fused_store(y + i + k, (fused_load(x + i + k) - c) * f + fused_load(v + i + k) + s,
                        streams);
    }
    shift_ends(t, i, n);
}
static void fused_shift(const fxi_fused_tile *t)
{
    t->streams ? shift_loop(t, true) : shift_loop(t, false);
}

/* u = x·g, v = u·r; adds Σ u·z to one accumulator and Σ v to another one. Half vectors, because
 * the sums are in double. At least FXI_ADD_LANES elements: shorter rows are added in order. */
static inline vh half_load(const float *p)
{
    vh v;
    memcpy(&v, p, sizeof v);
    return v;
}
static void fused_dots(const fxi_fused_tile *t)
{
    float *v = t->at[0];
    const float *x = t->at[1], *g = t->at[2], *z = t->at[3], r = *(float *)t->at[4],
                *next = (float *)t->at[7] + t->ahead;
    const int64_t n = t->n;
    vd dots[WIDE_VECTORS] = {{0}}, sums[WIDE_VECTORS] = {{0}};
    const vh by = r - (vh){0};
    int64_t i = 0;
    for (; i + FXI_ADD_LANES <= n; i += FXI_ADD_LANES) {
        __builtin_prefetch(next + i, 0, SECOND_LEVEL);
        FXI_UNROLL
        for (int k = 0; k < WIDE_VECTORS; k++) {
            const int64_t at = i + k * WIDE_LANES;
            const vh u = half_load(x + at) * half_load(g + at), uz = u * half_load(z + at),
                     ur = u * by;
            memcpy(v + at, &ur, sizeof ur);
            dots[k] += vd_wide(uz);
            sums[k] += vd_wide(ur);
        }
    }
    /* The remaining elements go to the first lanes, as in FXI_WIDE_SUM. */
    if (i < n) {
        float uz[FXI_ADD_LANES] = {0}, ur[FXI_ADD_LANES] = {0};
        for (int j = 0; i + j < n; j++) {
            const float u = x[i + j] * g[i + j];
            uz[j] = u * z[i + j];
            ur[j] = v[i + j] = u * r;
        }
        wide_add_f32(uz, dots);
        wide_add_f32(ur, sums);
    }
    *(double *)t->at[5] += wide_fold(dots);
    *(double *)t->at[6] += wide_fold(sums);
}

/* ---- exponentials of differences ------------------------------------------------------------- */
/* d = x − m and e = exp(d). Only with FXI_SCALE_F32: other exponentials are faster if all numbers
 * of a tile are near enough to 0, and the test for that needs the differences. The sum of the
 * exponentials is not part of the loop: with it a vector took 2.3 ns, and 2.0 with a loop for the
 * sum (Zen 5). */
#ifdef FXI_SCALE_F32
static inline void exp_rest(const fxi_fused_tile *t, int64_t i, vf m)
{
    const int64_t left = t->n - i < FUSED_LANES ? t->n - i : FUSED_LANES;
    const gemm_part_f32 part = FXI_PART_F32(left);
    const vf d = FXI_LOAD_PART_F32(part, (const float *)t->at[1] + i) - m;
    if (t->at[3])
        FXI_STORE_PART_F32(part, (float *)t->at[3] + i, d);
    FXI_STORE_PART_F32(part, (float *)t->at[0] + i, vf_exp(d));
}
static inline FXI_INTERLEAVE void exp_loop(const fxi_fused_tile *t, bool keeps_d)
{
    enum { VECTORS = 4, ROUND = VECTORS * FUSED_LANES };
    float *e = t->at[0], *d = t->at[3];
    const float *x = t->at[1], *next = x + t->ahead, *also = (float *)t->at[4] + t->ahead;
    const vf m = vf_splat(*(float *)t->at[2]);
    int64_t i = 0;
    for (; i + ROUND <= t->n; i += ROUND) {
        vf u[VECTORS], v[VECTORS];
        FXI_UNROLL
        for (int k = 0; k < VECTORS; k++) {
            __builtin_prefetch(next + i + k * FUSED_LANES);
            __builtin_prefetch(also + i + k * FUSED_LANES, 0, SECOND_LEVEL);
            u[k] = fused_load(x + i + k * FUSED_LANES) - m;
            v[k] = vf_exp(u[k]);
        }
        FXI_UNROLL
        for (int k = 0; k < VECTORS; k++) {
            if (keeps_d)
                fused_store(d + i + k * FUSED_LANES, u[k], false);
            fused_store(e + i + k * FUSED_LANES, v[k], false);
        }
    }
    for (; i < t->n; i += FUSED_LANES)
        exp_rest(t, i, m);
}
static FXI_INTERLEAVE void fused_exponentials(const fxi_fused_tile *t)
{
    t->at[3] ? exp_loop(t, true) : exp_loop(t, false);
}
#else
#define fused_exponentials NULL
#endif

/* ---- sums of products across rows ------------------------------------------------------------ */
/* acc[i] += x[i]·z[i], with half vectors, as above. The products are rounded to Float32 before they
 * are added, as if they were stored in a tile. */
static void fused_products(const float *x, const float *z, int64_t n, double *acc)
{
    int64_t i = 0;
    for (; i + FXI_ADD_LANES <= n; i += FXI_ADD_LANES) {
        FXI_UNROLL
        for (int k = 0; k < FXI_ADD_LANES; k += WIDE_LANES) {
            vd a = wide_load_f64(acc + i + k);
            a += vd_wide(half_load(x + i + k) * half_load(z + i + k));
            memcpy(acc + i + k, &a, sizeof a);
        }
    }
    for (; i < n; i++) {
        const float product = x[i] * z[i];
        acc[i] += (double)product;
    }
}
/* *acc += Σ x[i]·z[i] */
static void fused_dot(const float *x, const float *z, int64_t n, double *acc)
{
    vd s[WIDE_VECTORS] = {{0}};
    float rest[FXI_ADD_LANES] = {0};
    const int64_t whole = n - n % FXI_ADD_LANES;
    for (int64_t i = 0; i < whole; i += FXI_ADD_LANES) {
        FXI_UNROLL
        for (int k = 0; k < WIDE_VECTORS; k++)
            s[k] += vd_wide(half_load(x + i + k * WIDE_LANES) * half_load(z + i + k * WIDE_LANES));
    }
    for (int64_t i = whole; i < n; i++)
        rest[i - whole] = x[i] * z[i];
    if (n < FXI_ADD_LANES) {
        rsum_f32_row(rest, n, 1, acc);
        return;
    }
    if (whole < n)
        wide_add_f32(rest, s);
    *acc += wide_fold(s);
}

/* ---- mean and variance ----------------------------------------------------------------------- */
static void fused_deviations(const float *x, int64_t n, const float *next, void *acc)
{
    const deviations d = rdev_f32_begin(x, n, acc);
    rdev_f32_dense(x, n, next, &d);
}

static const fxi_fused_loops tile_fused = {.deviations = fused_deviations,
                                           .norm = fused_norm,
                                           .shift = fused_shift,
                                           .exponentials = fused_exponentials,
                                           .dots = fused_dots,
                                           .products = fused_products,
                                           .dot = fused_dot};

/* ---- sums and products that bypass the caches ------------------------------------------------ */
/* Loops of cpu_isa_ops.h for Float32 whose results bypass the caches. With a tile between, loading
 * and storing alternate, and the memory is half idle: a bias added to 4096² took 7.0 ms, and 4.1 by
 * these loops (Zen 4, one thread). VA, VB, VC: 1: the operand is a vector; 0: a single value; −1:
 * unused. */
#ifdef FXI_STREAM
#define FXI_STREAMED(NAME, VA, VB, VC, EXPR)                                                       \
    static void NAME##_streamed(void *dv, const void *const *s, int n, int64_t attr)               \
    {                                                                                              \
        (void)attr;                                                                                \
        float *d = dv;                                                                             \
        const float *p = s[0], *q = s[1], *r = VC < 0 ? p : s[2];                                  \
        const float one_a = *p, one_b = *q, one_c = *r;                                            \
        const int odd = (int)(-(uintptr_t)d % FXI_VECTOR_BYTES / sizeof *d);                       \
        int i = 0;                                                                                 \
        for (; i < odd && i < n; i++) {                                                            \
            const float a = VA ? p[i] : one_a, b = VB ? q[i] : one_b, c = VC > 0 ? r[i] : one_c;   \
            (void)c;                                                                               \
            d[i] = EXPR;                                                                           \
        }                                                                                          \
        for (; i + FUSED_LANES <= n; i += FUSED_LANES) {                                           \
            const vf a = VA ? fused_load(p + i) : vf_splat(one_a),                                 \
                     b = VB ? fused_load(q + i) : vf_splat(one_b),                                 \
                     c = VC > 0 ? fused_load(r + i) : vf_splat(one_c);                             \
            (void)c;                                                                               \
            fused_store(d + i, EXPR, true);                                                        \
        }                                                                                          \
        for (; i < n; i++) {                                                                       \
            const float a = VA ? p[i] : one_a, b = VB ? q[i] : one_b, c = VC > 0 ? r[i] : one_c;   \
            (void)c;                                                                               \
            d[i] = EXPR;                                                                           \
        }                                                                                          \
    }
#define FXI_STREAMED_OP(NAME, EXPR)                                                                \
    FXI_STREAMED(NAME, 1, 1, -1, EXPR)                                                             \
    FXI_STREAMED(NAME##_vs, 1, 0, -1, EXPR)                                                        \
    FXI_STREAMED(NAME##_sv, 0, 1, -1, EXPR)
FXI_STREAMED_OP(add_f32, a + b)
FXI_STREAMED_OP(sub_f32, a - b)
FXI_STREAMED_OP(mul_f32, a *b)
FXI_STREAMED(product_sum_vs_s, 1, 0, 0, a *b + c) /* batch norm */
FXI_STREAMED(product_sum_vv_v, 1, 1, 1, a *b + c)
#define FXI_STREAMED_ROW(NAME)                                                                     \
    {                                                                                              \
        NAME, NAME##_streamed                                                                      \
    }
#define FXI_STREAMED_ROWS(NAME)                                                                    \
    FXI_STREAMED_ROW(NAME), FXI_STREAMED_ROW(NAME##_vs), FXI_STREAMED_ROW(NAME##_sv)
static const fxi_tile_fn tile_streamed[][2] = {
    FXI_STREAMED_ROWS(add_f32),         FXI_STREAMED_ROWS(sub_f32),
    FXI_STREAMED_ROWS(mul_f32),         FXI_STREAMED_ROW(product_sum_vs_s),
    FXI_STREAMED_ROW(product_sum_vv_v), {NULL, NULL}};
#else
static const fxi_tile_fn tile_streamed[][2] = {{NULL, NULL}};
#endif
