/* cpu_isa_conv_masked.h: the register tiles of convolutions that read x in its own memory; part of
 * cpu_isa.h, for instruction sets with masked loads and stores.
 *
 * masked_tile    R rows of one vector of windows, for N columns. A vector of x is loaded once for
 *                each tap along the row, and added to all windows that read it: up to K rows.
 * spread_tile    the gradient of x for strides of 2: some rows, and the two vectors of windows with
 *                an even and an odd remainder, which are interleaved when they are stored
 * weight_tile    R rows of gy stay in registers, and every vector of x is multiplied by those rows
 *                that meet it
 * Lanes of taps outside x are masked in the load and in the multiply-add, so they contribute
 * nothing, whatever the weights or gy are. Rows outside x are skipped. An element's sum does not
 * depend on its position in a tile: the columns of the kernel follow each other, each with its rows
 * in their order.
 *
 * A column is an output channel, as in a matrix product, but a column of the kernel is its K taps
 * at one position along axis 0. K, the number of rows of a kernel, is a constant; the number of its
 * columns is not. S (the stride), R and N are constants too: the sums are registers only if all
 * loops over them are unrolled.
 */
#if defined(FXI_LANES_F32)
enum {
    MASKED_LANES = FXI_VECTOR_BYTES / sizeof(float),
    MASKED_ROWS = 8,
    MASKED_TAPS = 7, /* rows of a kernel at most */
#if FXI_VECTOR_BYTES == 64
    MASKED_PAIR = 2, /* columns of a tile */
    MASKED_CHANNELS = 16,
    SPREAD_ROWS = 8,
#else
    MASKED_PAIR = 1,
    MASKED_CHANNELS = 2,
    SPREAD_ROWS = 4,
#endif
};
/* Keep a value in a register. Else gcc 12 tests all bits of the rows and multiplies all pitches
 * before a loop and keeps the results in memory, and loads a vector again for each use. */
#define MASKED_KEEP(v)        __asm__ volatile("" : "+r"(v))
#define MASKED_KEEP_VECTOR(v) __asm__ volatile("" : "+v"(v))
#define MASKED_FULL           ((1u << MASKED_LANES) - 1)
#if defined(__clang__)
#define MASKED_UNROLL FXI_UNROLL
#else
#define MASKED_UNROLL _Pragma("GCC unroll 32")
#endif

/* The lanes of the first n windows of a vector. */
FXI_INLINE uint32_t masked_first(int64_t n)
{
    return n >= MASKED_LANES ? MASKED_FULL : n <= 0 ? 0 : (1u << n) - 1;
}

/* A bit for each t < T: is row first + t·step one of the `rows` rows that exist? */
FXI_INLINE uint32_t masked_rows(int64_t first, int64_t step, int64_t rows, const int T)
{
    int64_t lo = -first, hi = rows - first;
    if (step != 1) {
        lo = lo <= 0 ? 0 : (lo + step - 1) / step;
        hi = hi <= 0 ? 0 : (hi + step - 1) / step;
    }
    lo = lo < 0 ? 0 : lo > T ? T : lo;
    hi = hi < lo ? lo : hi > T ? T : hi;
    return (1u << hi) - (1u << lo);
}

/* The masks of one tap of a vector: of two loads, and of the multiply-add. The multiply-add has its
 * own, because with strides of 2 a mask of a load has a bit for each element between. */
typedef struct masked_lanes {
    gemm_part_f32 first, second, add;
} masked_lanes;
FXI_INLINE masked_lanes masked_lanes_of(const fxi_conv_lanes *l)
{
    return (masked_lanes){FXI_LANES_F32(l->load), FXI_LANES_F32(l->load >> MASKED_LANES),
                          FXI_LANES_F32(l->add)};
}

/* Rows begin at any element, so the load is not aligned. A function of its own: if one branch fills
 * a variable with memcpy and another assigns it, gcc keeps the variable in memory. */
FXI_INLINE vf masked_vector(const float *x)
{
    vf v;
    memcpy(&v, x, sizeof v);
    return v;
}

/* A vector of elements of x, S apart. On AMD Zen 5 a load with a mask takes about 2.8 cycles, one
 * without a mask 1.9 where it crosses a cache line and otherwise hardly any. So if `inside`, no
 * mask is used: elements of other rows may then be loaded, and masked_add leaves them out. */
FXI_INLINE vf masked_load(const masked_lanes *m, const float *x, const bool inside, const int S)
{
    if (S == 1)
        return inside ? masked_vector(x) : FXI_LOAD_PART_F32(m->first, x);
    const vf first = inside ? masked_vector(x) : FXI_LOAD_PART_F32(m->first, x),
             second = inside ? masked_vector(x + MASKED_LANES)
                             : FXI_LOAD_PART_F32(m->second, x + MASKED_LANES);
    return FXI_EVEN_ELEMENTS(first, second);
}

/* Whether the vectors of the rows top … bottom are inside the array of x: `left` is the offset of
 * the first one, and the last one ends `length` elements later. */
FXI_INLINE bool masked_inside(const fxi_conv_masked *p, int64_t top, int64_t bottom, int64_t left,
                              int64_t length)
{
    const int64_t plane = p->in[0] * p->in[1], most = p->in[1] - 1;
    return p->at + (top < 0 ? 0 : top) * p->in[0] + left >= 0 &&
           p->at + (p->terms - 1) * plane + (bottom < most ? bottom : most) * p->in[0] + left +
                   length <=
               p->length;
}

/* c + a·b; if not `whole`, only in the lanes of the mask. */
FXI_INLINE vf masked_add(const masked_lanes *m, vf a, vf b, vf c, const bool whole)
{
    return whole ? FXI_FMA_F32(a, b, c) : FXI_ADD_LANES_F32(m->add, a, b, c);
}

/* Lanes outside the mask must keep their memory: it belongs to the next row. */
FXI_INLINE void masked_store(gemm_part_f32 m, const bool whole, float *y, vf v)
{
    if (whole)
        memcpy(y, &v, sizeof v);
    else
        FXI_STORE_PART_F32(m, y, v);
}

/* The operation is chosen once for the rows of a column, not once for each row. */
#define MASKED_EACH(EXPR)                                                                          \
    MASKED_UNROLL                                                                                  \
    for (int i = 0; i < R; i++) {                                                                  \
        EXPR;                                                                                      \
    }                                                                                              \
    break

/* Applies the epilogue to the R rows of column j. */
FXI_INLINE void masked_finish(const fxi_conv_masked *p, vf *x, int64_t j, const int R)
{
    for (const fxi_conv_instr *e = p->instr, *end = e + p->n; e < end; e++) {
        const vf c = vf_splat(((const float *)e->value)[j]);
        switch (e->op) {
        case FX_OP_ADD:
            MASKED_EACH(x[i] += c);
        case FX_OP_SUB:
            MASKED_EACH(x[i] -= c);
        case FX_OP_MUL:
            MASKED_EACH(x[i] *= c);
        case FX_OP_DIV:
            MASKED_EACH(x[i] /= c);
        default: /* relu */
            MASKED_EACH(x[i] = (vf)((vu)x[i] & ~(vu)(x[i] <= c)));
        }
    }
}

/* Adds the products of x and s for one column of the kernel to the sums t. s has its K weights for
 * each of N columns, and t the R rows of each; for the gradient of the `weight`, s has R rows of
 * gy, and t the sum of each weight. The loop runs over the rows of x, not over those of the tile,
 * so that each vector of x is loaded once and then meets up to K sums. All conditions but `rows`
 * are known to the compiler, which removes them. */
FXI_INLINE void masked_rows_of_x(vf *t, const float *x, int64_t pitch, uint32_t rows, const vf *s,
                                 const masked_lanes *m, const bool inside, const bool whole,
                                 const bool weight, const int S, const int K, const int R,
                                 const int N)
{
    MASKED_UNROLL
    for (int i = 0; i < (R - 1) * S + K; i++, x += pitch) {
        MASKED_KEEP(x);
        if (!(rows >> i & 1))
            continue;
        vf a = masked_load(m, x, inside, S);
        MASKED_KEEP_VECTOR(a);
        MASKED_UNROLL
        for (int l = 0; l < K; l++) {
            const int r = (i - l) / S;
            if (i < l || (i - l) % S != 0 || r >= R)
                continue;
            MASKED_UNROLL
            for (int j = 0; j < N; j++) {
                vf *sum = weight ? &t[l * N + j] : &t[j * R + r];
                *sum = masked_add(m, a, weight ? s[j * R + r] : s[j * K + l], *sum, whole);
            }
        }
    }
}

/* Chooses the loop for one column of the kernel: with or without masks of the loads, and of the
 * multiply-adds. */
FXI_INLINE void masked_column(vf *t, const float *x, int64_t pitch, uint32_t rows, const vf *s,
                              const fxi_conv_lanes *lanes, bool inside, const bool weight,
                              const int S, const int K, const int R, const int N)
{
    const masked_lanes m = masked_lanes_of(lanes);
    if (!inside)
        masked_rows_of_x(t, x, pitch, rows, s, &m, false, false, weight, S, K, R, N);
    else if (FXI_LANES_COST && lanes->add == MASKED_FULL)
        masked_rows_of_x(t, x, pitch, rows, s, &m, true, true, weight, S, K, R, N);
    else
        masked_rows_of_x(t, x, pitch, rows, s, &m, true, false, weight, S, K, R, N);
}

/* R rows of vector v, from `row` on, for N columns. The weights of a column of the kernel are
 * spread over vectors once for the whole tile. Rows of the tile that do not exist, if the image has
 * fewer, are computed from the rows of x that exist, and are not stored. */
FXI_INLINE void masked_tile(const fxi_conv_masked *p, int64_t v, int64_t row, const int S,
                            const int K, const int R, const int N)
{
    const int64_t step = p->dilation[1], pitch = step * p->in[0], top = row * S - p->before[1],
                  left = v * MASKED_LANES * S - p->before[0];
    const uint32_t written = masked_rows(row, step, p->out[1], R);
    uint32_t rows = masked_rows(top, step, p->in[1], (R - 1) * S + K);
    const bool inside = masked_inside(p, top, top + ((R - 1) * S + K - 1) * step, left,
                                      (p->k[0] - 1) * p->dilation[0] + S * MASKED_LANES);
    vf t[MASKED_PAIR * MASKED_ROWS];
    MASKED_UNROLL
    for (int i = 0; i < N * R; i++)
        t[i] = (vf){0};
    for (int64_t c = 0; c < p->terms; c++) {
        const float *x = p->x + c * p->in[0] * p->in[1] + top * p->in[0] + left;
        const float *w = p->w + c * p->wterm;
        const fxi_conv_lanes *lanes = p->lanes + v * p->k[0];
        for (int64_t k = 0; k < p->k[0]; k++, lanes++, x += p->dilation[0], w += p->wtap[0]) {
            MASKED_KEEP(rows);
            vf s[MASKED_PAIR * MASKED_TAPS];
            MASKED_UNROLL
            for (int j = 0; j < N; j++)
                MASKED_UNROLL
            for (int l = 0; l < K; l++)
                s[j * K + l] = vf_splat(w[j * p->wcolumn + l * p->wtap[1]]);
            masked_column(t, x, pitch, rows, s, lanes, inside, false, S, K, R, N);
        }
    }
    const uint32_t stored = masked_first(p->out[0] - v * MASKED_LANES);
    float *y = p->y + row * p->out[0] + v * MASKED_LANES;
    MASKED_UNROLL
    for (int j = 0; j < N; j++) {
        masked_finish(p, t + j * R, j, R);
        MASKED_UNROLL
        for (int r = 0; r < R; r++)
            if (written >> r & 1)
                masked_store(FXI_LANES_F32(stored), stored == MASKED_FULL, y + r * step * p->out[0],
                             t[j * R + r]);
        y += p->out[0] * p->out[1];
    }
}

/* The height of the tiles, 7 or 8 rows: the one that needs fewer vectors for `count` rows. Images
 * of 224×224 have 112, 56, 28, 14 and 7 rows after strides of 2, so tiles of seven rows fit them,
 * and powers of 2 are filled by eight. */
FXI_INLINE int masked_height(int64_t count)
{
    const int64_t low = MASKED_ROWS - 1, high = MASKED_ROWS;
    return (int)((count + low - 1) / low * low < (count + high - 1) / high * high ? low : high);
}

/* N planes of the output. Rows that read the same rows of x are `dilation` apart. If the last tile
 * has fewer rows, it begins earlier, and writes some rows again. */
FXI_INLINE void masked_planes(const fxi_conv_masked *p, const int S, const int K, const int N)
{
    const int64_t d = p->dilation[1], vectors = (p->out[0] + MASKED_LANES - 1) / MASKED_LANES;
    for (int64_t f = 0; f < d && f < p->out[1]; f++) {
        const int64_t count = (p->out[1] - f + d - 1) / d;
        const int height = masked_height(count);
        for (int64_t a = 0; a < count; a += height) {
            const int64_t last = count > height ? count - height : 0, row = a < last ? a : last;
            for (int64_t v = 0; v < vectors; v++)
                if (height == MASKED_ROWS)
                    masked_tile(p, v, f + d * row, S, K, MASKED_ROWS, N);
                else
                    masked_tile(p, v, f + d * row, S, K, MASKED_ROWS - 1, N);
        }
    }
}

/* As masked_rows_of_x, for a tile of the gradient of x: tap l of row i of gy adds to row 2·(i −
 * over) + l of the tile. */
FXI_INLINE void spread_column(vf *t, const float *x, int64_t pitch, uint32_t rows, const vf *s,
                              const masked_lanes *m, const bool inside, const int K)
{
    const int over = (K - 1) / 2, T = over + (SPREAD_ROWS + 1) / 2;
    MASKED_UNROLL
    for (int i = 0; i < T; i++, x += pitch) {
        MASKED_KEEP(x);
        if (!(rows >> i & 1))
            continue;
        vf a = masked_load(m, x, inside, 1);
        MASKED_KEEP_VECTOR(a);
        MASKED_UNROLL
        for (int l = 0; l < K; l++) {
            const int r = 2 * (i - over) + l;
            if (r >= 0 && r < SPREAD_ROWS)
                t[r] = masked_add(m, a, s[l], t[r], false);
        }
    }
}

/* An element of the output reads the taps that have the same remainder modulo 2, along each axis,
 * as its position plus the padding. So a tile begins with a row and a window whose positions plus
 * padding are even; either may be −1. */
FXI_INLINE void spread_tile(const fxi_conv_masked *p, int64_t v, int64_t row, const int K)
{
    enum { R = SPREAD_ROWS };
    const int over = (K - 1) / 2, T = over + (R + 1) / 2;
    const int64_t left = v * 2 * MASKED_LANES - (p->before[0] & 1);
    const int64_t top = (row + p->before[1]) / 2 - over, first = (left + p->before[0]) / 2;
    const uint32_t rows = masked_rows(top, 1, p->in[1], T),
                   written = masked_rows(row, 1, p->out[1], R);
    const bool inside = masked_inside(p, top, top + T - 1, first - (p->k[0] - 1) / 2,
                                      (p->k[0] - 1) / 2 + MASKED_LANES);
    vf t[2][R];
    MASKED_UNROLL
    for (int i = 0; i < R; i++)
        t[0][i] = t[1][i] = (vf){0};
    for (int64_t c = 0; c < p->terms; c++) {
        const float *x = p->x + c * p->in[0] * p->in[1] + top * p->in[0] + first;
        MASKED_UNROLL
        for (int e = 0; e < 2; e++)
            for (int64_t k = e; k < p->k[0]; k += 2) {
                const masked_lanes m = masked_lanes_of(&p->lanes[v * p->k[0] + k]);
                const float *w = p->w + c * p->wterm + k * p->wtap[0];
                vf s[MASKED_TAPS];
                MASKED_UNROLL
                for (int l = 0; l < K; l++)
                    s[l] = vf_splat(w[l * p->wtap[1]]);
                if (inside)
                    spread_column(t[e], x - k / 2, p->in[0], rows, s, &m, true, K);
                else
                    spread_column(t[e], x - k / 2, p->in[0], rows, s, &m, false, K);
            }
    }
    const int64_t end = p->out[0] - left;
    const uint32_t low = masked_first(end) & (left < 0 ? ~1u : ~0u),
                   high = masked_first(end - MASKED_LANES);
    float *y = p->y + row * p->out[0] + left;
    MASKED_UNROLL
    for (int r = 0; r < R; r++)
        if (written >> r & 1) {
            masked_store(FXI_LANES_F32(low), low == MASKED_FULL, y + r * p->out[0],
                         FXI_ALTERNATE_LOW(t[0][r], t[1][r]));
            masked_store(FXI_LANES_F32(high), high == MASKED_FULL, y + r * p->out[0] + MASKED_LANES,
                         FXI_ALTERNATE_HIGH(t[0][r], t[1][r]));
        }
}

/* All tiles of a plane. The first row and the first window may be −1, so one more tile may be
 * needed than the sizes suggest. The last tile does not begin earlier when rows are missing: its
 * rows must keep their remainders modulo 2. */
FXI_INLINE void spread_planes(const fxi_conv_masked *p, const int K)
{
    const int64_t width = 2 * MASKED_LANES;
    for (int64_t row = -(p->before[1] & 1); row < p->out[1]; row += SPREAD_ROWS)
        for (int64_t v = 0; v * width < p->out[0] + (p->before[0] & 1); v++)
            spread_tile(p, v, row, K);
}

/* Adds the products of R rows of vector v to the sums. All rows must exist: a row that is taken
 * twice would be counted twice. The sums of a column of the kernel are in registers while the tile
 * passes, and in the first-level cache between tiles. */
FXI_INLINE void masked_weight_tile(const fxi_conv_masked *p, vf *sums, int64_t v, int64_t row,
                                   const int S, const int K, const int R, const int N)
{
    const int64_t step = p->dilation[1], pitch = step * p->in[0], top = row * S - p->before[1],
                  left = v * MASKED_LANES * S - p->before[0];
    uint32_t rows = masked_rows(top, step, p->in[1], (R - 1) * S + K);
    const gemm_part_f32 there = FXI_LANES_F32(masked_first(p->out[0] - v * MASKED_LANES));
    const float *y = p->y + row * p->out[0] + v * MASKED_LANES;
    const bool inside = masked_inside(p, top, top + ((R - 1) * S + K - 1) * step, left,
                                      (p->k[0] - 1) * p->dilation[0] + S * MASKED_LANES);
    const bool within =
        y + ((N - 1) * p->out[1] + (R - 1) * step) * p->out[0] + MASKED_LANES <= p->end;
    vf g[MASKED_PAIR * MASKED_ROWS];
    MASKED_UNROLL
    for (int j = 0; j < N; j++)
        MASKED_UNROLL
    for (int r = 0; r < R; r++) {
        const float *from = y + (j * p->out[1] + r * step) * p->out[0];
        g[j * R + r] = within ? masked_vector(from) : FXI_LOAD_PART_F32(there, from);
    }
    const float *x = p->x + top * p->in[0] + left;
    const fxi_conv_lanes *lanes = p->lanes + v * p->k[0];
    for (int64_t k = 0; k < p->k[0]; k++, lanes++, x += p->dilation[0], sums += N * K) {
        MASKED_KEEP(rows);
        vf t[MASKED_PAIR * MASKED_TAPS];
        MASKED_UNROLL
        for (int i = 0; i < N * K; i++)
            t[i] = sums[i];
        masked_column(t, x, pitch, rows, g, lanes, inside, true, S, K, R, N);
        MASKED_UNROLL
        for (int i = 0; i < N * K; i++)
            sums[i] = t[i];
    }
}

/* Adds the sums over one plane of x and N planes of gy to p->sums. The sums of a plane are added
 * up first, so that no sum has too many terms in a row. Rows that do not fill a tile are taken one
 * by one. */
FXI_INLINE void masked_weight(const fxi_conv_masked *p, const int S, const int K, const int N)
{
    vf sums[FXI_MASKED_WIDTH * MASKED_TAPS * MASKED_PAIR];
    const int64_t d = p->dilation[1], vectors = (p->out[0] + MASKED_LANES - 1) / MASKED_LANES;
    for (int64_t i = 0; i < p->k[0] * K * N; i++)
        sums[i] = (vf){0};
    for (int64_t f = 0; f < d && f < p->out[1]; f++) {
        const int64_t count = (p->out[1] - f + d - 1) / d;
        const int height = masked_height(count);
        int64_t a = 0;
        for (; a + height <= count; a += height)
            for (int64_t v = 0; v < vectors; v++)
                if (height == MASKED_ROWS)
                    masked_weight_tile(p, sums, v, f + d * a, S, K, MASKED_ROWS, N);
                else
                    masked_weight_tile(p, sums, v, f + d * a, S, K, MASKED_ROWS - 1, N);
        for (; a < count; a++)
            for (int64_t v = 0; v < vectors; v++)
                masked_weight_tile(p, sums, v, f + d * a, S, K, 1, N);
    }
    vf *total = p->sums;
    for (int64_t i = 0; i < p->k[0] * K * N; i++)
        total[i] += sums[i];
}

/* Adds up the lanes of the sums of some columns, in a fixed order. Only now, after all images: a
 * sum of the lanes takes longer than a tile's multiply-adds of one tap. */
static void masked_add_lanes(const fxi_conv_masked *p, float *w)
{
    const vf *total = p->sums;
    for (int64_t k = 0; k < p->k[0]; k++)
        for (int64_t l = 0; l < p->k[1]; l++)
            for (int64_t j = 0; j < p->columns; j++, total++)
                w[k * p->wtap[0] + l * p->wtap[1] + j * p->wcolumn] = sum_of_f32(*total);
}

/* S, K and N must be constants in the loops above, so each combination is a function, and the
 * tables below choose among them. */
#define MASKED_WIDTH(S, K, N)                                                                      \
    static void masked_##S##_##K##_##N(const fxi_conv_masked *p)                                   \
    {                                                                                              \
        masked_planes(p, S, K, N);                                                                 \
    }                                                                                              \
    static void masked_weight_##S##_##K##_##N(const fxi_conv_masked *p)                            \
    {                                                                                              \
        masked_weight(p, S, K, N);                                                                 \
    }
#define MASKED_SPREAD(K)                                                                           \
    static void spread_##K(const fxi_conv_masked *p)                                               \
    {                                                                                              \
        spread_planes(p, K);                                                                       \
    }
MASKED_WIDTH(1, 3, 1)
MASKED_WIDTH(1, 5, 1)
MASKED_WIDTH(1, 7, 1)
MASKED_WIDTH(2, 3, 1)
MASKED_WIDTH(2, 5, 1)
MASKED_WIDTH(2, 7, 1)
MASKED_SPREAD(3)
MASKED_SPREAD(5)
MASKED_SPREAD(7)
/* Two columns fit in 32 registers, but not those of a kernel of seven rows. */
#if FXI_VECTOR_BYTES == 64
MASKED_WIDTH(1, 3, 2)
MASKED_WIDTH(1, 5, 2)
MASKED_WIDTH(2, 3, 2)
MASKED_WIDTH(2, 5, 2)
#define MASKED_SECOND(NAME) NAME
#else
#define MASKED_SECOND(NAME) NULL
#endif
#define MASKED_ALL(NAME, S)                                                                        \
    {                                                                                              \
        {NAME##_##S##_3_1, MASKED_SECOND(NAME##_##S##_3_2)},                                       \
            {NAME##_##S##_5_1, MASKED_SECOND(NAME##_##S##_5_2)},                                   \
        {                                                                                          \
            NAME##_##S##_7_1, NULL                                                                 \
        }                                                                                          \
    }
static const fxi_conv_masked_core tile_conv_masked = {
    .lanes = MASKED_LANES,
    .channels = MASKED_CHANNELS,
    .planes = {MASKED_ALL(masked, 1), MASKED_ALL(masked, 2)},
    .spread = {spread_3, spread_5, spread_7},
    .weight = {MASKED_ALL(masked_weight, 1), MASKED_ALL(masked_weight, 2)},
    .add_lanes = masked_add_lanes,
};
#define FXI_CONV_MASKED &tile_conv_masked
#else
#define FXI_CONV_MASKED NULL
#endif
