/* cpu_simd.h: the table of inner loops that exist once for each instruction set. Internal.
 *
 * cpu_isa.h is the text of these loops; cpu_isa_{base,avx2,avx512}.c compile it for one instruction
 * set each and export one table. fxi_cpu_simd returns the best table that the machine can run, or
 * the one that the environment variable FX_CPU_ISA names (base, avx2, avx512) if the machine can
 * run it. So one build runs on every machine at full speed. Within one table results depend on
 * values only, never on an element's position in a tile.
 */
#ifndef CFLUX_CPU_SIMD_H
#define CFLUX_CPU_SIMD_H

#include "cpu_kernels.h"
#include "strided.h"

/* A tile is small enough for the first-level cache and long enough to repay a call. */
#define FXI_TILE      256  /* elements of a tile */
#define FXI_TILE_MOST 1024 /* a tile function's n never exceeds it */

/* The types that loops compute in. 16-bit floats are Float32 in registers. */
enum { FXI_C_F32, FXI_C_F64, FXI_C_I32, FXI_C_I64, FXI_C_U8, FXI_C_BOOL, FXI_C_COUNT };
static inline int fxi_compute_type(int dtype)
{
    return dtype <= FX_DTYPE_BOOL ? dtype : FXI_C_F32;
}

/* d[i] = op(s[0][i], s[1][i], …); d may be one of the s. attr: POWI's exponent. */
typedef void (*fxi_tile_fn)(void *d, const void *const *s, int n, int64_t attr);

/* A reduction over one type. n accumulators take n·size bytes. Their contents are private to the
 * reducer (doubles for sums of Float32, for example), so an array of accumulators is always used
 * with the same n. Only those of FX_REDUCE_SUM … FX_REDUCE_PROD are n separate accumulators of
 * `size` bytes each. */
typedef struct fxi_reducer {
    size_t size;
    void (*init)(void *acc, int64_t n);
    void (*row)(const void *x, int64_t n, int64_t stride, void *acc); /* acc = op(acc, op over x) */
    /* acc[i] = op(acc[i], x[i·stride + k·pitch]) over k < rows, in this order */
    void (*col)(const void *x, int64_t n, int64_t stride, int64_t rows, int64_t pitch, void *acc);
    /* `later` holds the terms that follow those of `acc`: the first of equal extremes must win. */
    void (*merge)(void *acc, const void *later, int64_t n); /* acc[i] = op(acc[i], later[i]) */
    void (*done)(const void *acc, int64_t n, void *out);
} fxi_reducer;

/* Register tiles of the matrix product: c (m×n) = A·B, or += A·B, summed over k. Rows of A and c
 * are neighbours in memory; columns are acs and ccs apart. If `columns`, element (p, j) of a panel
 * of B is at b[p·brs + j·bcs], else at b[p·brs + j], for as many j as the tile is wide. The tiles
 * of one call have the same function: their rows of A are `anext` apart, their panels of B `bnext`.
 */
typedef struct fxi_gemm_tiles {
    int64_t k;
    const void *a, *b;
    void *c;
    const void *d; /* what `accumulate` adds to the product, columns dcs apart; NULL: C itself */
    int64_t acs, brs, bcs, ccs, dcs, anext, bnext;
    int64_t m, n;
    bool columns, accumulate;
} fxi_gemm_tiles;
typedef void (*fxi_gemm_tiles_fn)(const fxi_gemm_tiles *t);

typedef struct fxi_gemm_core {
    int lanes, nr, unit; /* tiles are up to 2·lanes × nr; their widths are multiples of unit */
    /* d[r + p·width] = s[r·stride + p·depth_stride], p < depth, r < count; 0 for count ≤ r < width.
     * next: also prefetches the elements of the `count` rows that follow. */
    void (*pack)(int width, const void *s, int64_t stride, int64_t depth_stride, int count,
                 int64_t depth, bool next, void *d);
    /* For m rows: [width/unit − 1][0: m ≤ lanes; 1: lanes < m < 2·lanes; 2: m is a multiple of
     * 2·lanes]. */
    fxi_gemm_tiles_fn tile[3][3];
} fxi_gemm_core;

/* y[i] += Σ a(i, p)·x[p·xs] over p < k, i < rows. a(i, p) is a[i + p·stride] for `columns` and
 * a[i·stride + p] for `across`. */
typedef struct fxi_gemv {
    const void *a, *x;
    void *y;
    int64_t rows, k, stride, xs;
} fxi_gemv;
typedef struct fxi_gemv_core {
    void (*columns)(const fxi_gemv *p);
    void (*across)(const fxi_gemv *p);
} fxi_gemv_core;

/* The direct convolution (cpu_conv_direct.c), for windows that begin at consecutive elements q of a
 * scratch x: y[q + ypitch·j] = Σ x[q + offset[k]]·w[k·n + j] over k, for j < n and q below
 * `vectors` whole vectors; or += if `accumulate`. */
typedef struct fxi_conv_forward {
    const void *x, *w;
    void *y;
    const int32_t *offset;
    int64_t k, vectors, ypitch;
    bool accumulate;
} fxi_conv_forward;

/* w[k + wpitch·j] += Σ x[segment.x + q + offset[k]]·g[segment.g + q + gpitch·j] over the segments
 * and q. `offset` has weight_rows − 1 elements more, which are read but not used. */
typedef struct fxi_conv_segment {
    int64_t x, g;
} fxi_conv_segment;
typedef struct fxi_conv_weight {
    const void *x, *g;
    void *w;
    const int32_t *offset;
    const fxi_conv_segment *segment;
    int64_t k, segments, vectors, gpitch, wpitch;
} fxi_conv_weight;

/* The sums of fxi_conv_forward with vectors along the columns, for elements of x at any positions
 * (cpu_conv_gather.c):
 *   y[i·columns + j] = Σ x[row[i] + sum[k]]·b[k·columns + j]   over k < sums, for j < columns.
 * `accumulate`: += instead of =. Here `columns` is the number of elements of the n vectors for
 * which the function is made. Rows are computed gather_rows at a time, so `row` and `y` must have
 * elements up to the next multiple of gather_rows. */
typedef struct fxi_conv_gather {
    const void *x, *b;
    void *y;
    const int32_t *row, *sum;
    int64_t rows, sums;
    bool accumulate;
} fxi_conv_gather;

/* An instruction of a convolution's epilogue: FX_OP_ADD, SUB, MUL or DIV with a value of each
 * column as the second operand, or RELU. */
typedef struct fxi_conv_instr {
    int op;
    const void *value; /* of each column; zeros for RELU */
} fxi_conv_instr;

/* Applies n instructions to complete sums: rows of whole vectors, `pitch` elements apart, in place.
 * A row is a column of the result, or holds all columns side by side (`across`). */
typedef struct fxi_conv_sums {
    void *y;
    int64_t rows, vectors, pitch;
    bool across;
    int n;
    const fxi_conv_instr *instr;
} fxi_conv_sums;

/* rows: d[i + dpitch·j] = s[i·stride + spitch·j]; spread: d[i·stride + dpitch·j] = s[i + spitch·j];
 * i < n, j < rows. Neither touches the elements between those of d: another thread may write them.
 */
typedef struct fxi_conv_rows {
    void *d;
    const void *s;
    int64_t dpitch, spitch, stride, n, rows;
} fxi_conv_rows;

typedef struct fxi_conv_core {
    int lanes, columns, weight_rows, weight_columns, gather_rows, gather_vectors;
    void (*gather[3])(const fxi_conv_gather *p);   /* [n − 1], n vectors, up to gather_vectors */
    void (*forward[8])(const fxi_conv_forward *p); /* [n − 1], n up to columns */
    void (*weight[6])(const fxi_conv_weight *p);   /* [n − 1], n up to weight_columns */
    void (*finish)(const fxi_conv_sums *p);
    void (*rows)(const fxi_conv_rows *p);
    void (*spread)(const fxi_conv_rows *p);
    bool (*finite)(const void *x, int64_t n);
} fxi_conv_core;

/* The convolution along two axes that reads x in its own memory (cpu_conv_masked.c). One tap of a
 * vector of windows: which elements it loads (S = 2: of two vectors, of which the even elements are
 * used), and for which windows the tap is inside x. */
typedef struct fxi_conv_lanes {
    uint32_t load, add;
} fxi_conv_lanes;

/* Dense planes x of in[1] rows of in[0] elements and y of out[1] rows of out[0]; the sums of y run
 * over `terms` planes of x that follow each other. The tap k, l of a plane of x and a column is
 * w[k·wtap[0] + l·wtap[1] + plane·wterm + column·wcolumn]; tap 0 of window i reads element i·stride
 * − before. `lanes`: one entry for each vector and each k.
 */
enum { FXI_MASKED_WIDTH = 16 }; /* the most columns of a kernel, k[0] */
typedef struct fxi_conv_masked {
    const float *x, *w;
    float *y;
    void *sums; /* of the gradient of w: a vector for each k, l and column, aligned */
    const fxi_conv_lanes *lanes;
    int64_t in[2], out[2], k[2], before[2], dilation[2];
    int64_t terms, columns, wtap[2], wterm, wcolumn;
    int64_t at, length; /* where x begins in its array, and the length of that array */
    const float *end;   /* of the array of y, if it is read */
    int n;              /* instructions of the epilogue */
    const fxi_conv_instr *instr;
} fxi_conv_masked;

/* For kernels of 3, 5 and 7 rows: [(rows − 3) / 2]. */
typedef struct fxi_conv_masked_core {
    int lanes;
    int channels; /* of a group, of x and of y: with more, the other methods are faster */
    void (*planes[2][3][2])(const fxi_conv_masked *p); /* [stride − 1][][columns − 1]: y */
    void (*spread[3])(
        const fxi_conv_masked *p); /* one plane of y, the gradient of an array that the
                                      convolution reads with strides of 2; x: gy */
    void (*weight[2][3][2])(const fxi_conv_masked *p);     /* sums += those of one plane of x and of
                                                              the columns' planes of y, which is read */
    void (*add_lanes)(const fxi_conv_masked *p, float *w); /* w = the sums of the lanes */
} fxi_conv_masked_core;

/* The transformations of Winograd's convolution F(2×2, 3×3), all of Float32 (cpu_conv_winograd.c
 * has the formulas). A tile is 4×4 elements of the input and gives 2×2 outputs; neighbouring tiles
 * are 2 elements apart. Each function may read and write `lanes` elements beyond the last tile.
 *
 * rows: for each of `rows` rows of x, `pitch` apart, Bᵀ along the row for `across` tiles. The 4
 * numbers of each tile are in arrays 2·apart apart; the array of odd rows is `apart` after that of
 * even rows, and two rows of an array are `across` apart. */
typedef struct fxi_winograd_rows {
    const float *x;
    float *t;
    int64_t rows, pitch, across, apart;
} fxi_winograd_rows;
/* Bᵀ across the rows, for n tiles of consecutive rows: t is what `rows` has written. The 16 numbers
 * of a tile are `vapart` apart in v. */
typedef struct fxi_winograd_points {
    const float *t;
    float *v;
    int64_t n, across, apart, vapart;
} fxi_winograd_points;
/* The outputs of n tiles for each column. The 16 sums of a tile are `mapart` apart, columns
 * `mpitch` and `zpitch`. The upper two outputs of tile i are z[2·i] and z[2·i + 1], the lower two
 * are `lower` after them. */
typedef struct fxi_winograd_outputs {
    const float *m;
    float *z;
    int64_t n, columns, mapart, mpitch, zpitch, lower;
} fxi_winograd_outputs;
/* The transformed kernel for n columns. Tap k of channel c is g[(9·c + k)·n + column], and the
 * result is in u[c·n + column], 16 arrays `apart` apart. `against`: the taps are in the opposite
 * order. */
typedef struct fxi_winograd_kernel {
    const float *g;
    float *u;
    int64_t channels, n, apart;
    bool against;
} fxi_winograd_kernel;
typedef struct fxi_winograd_core {
    void (*rows)(const fxi_winograd_rows *p);
    void (*points)(const fxi_winograd_points *p);
    void (*outputs)(const fxi_winograd_outputs *p);
    void (*kernel)(const fxi_winograd_kernel *p);
} fxi_winograd_core;

/* Pooling of planes by windows of 2×2 with stride 2: a row has n windows. By kind: MAX and MEAN
 * compute y from x; MAX_GRAD computes v (gx) from y (gy) and x; MEAN_GRAD computes v from y;
 * MAX_PICK computes y from v and x. Rows of x and v are `pitch` elements apart. Elements that no
 * window covers are not written. */
typedef struct fxi_pool_pairs {
    void *x, *y, *v; /* only one is written; the unused may be NULL */
    int64_t pitch, n, rows;
} fxi_pool_pairs;

/* One tap of n neighbouring windows: the elements first, first + stride, … of a plane x. top and
 * sum hold one value for each window; at holds its index in x, or is NULL if the index is not
 * needed. max may read and write FXI_POOL_SLACK elements of top and at beyond n, without changing
 * them. */
enum { FXI_POOL_SLACK = 16 };
typedef struct fxi_pool_core {
    void (*low)(int64_t n, void *top); /* the maximum of no elements */
    void (*max)(const void *x, int64_t first, int64_t n, int64_t stride, void *top, int64_t *at);
    void (*sum)(const void *x, int64_t first, int64_t n, int64_t stride, double *sum);
    void (*spread)(void *x, int64_t first, int64_t n, int64_t stride, const void *share); /* x += */
    void (*pairs[5])(const fxi_pool_pairs *p); /* [fx_pool_kind]; NULL: no loop for this type */
} fxi_pool_core;

/* One window of a channels-last array, for all its channels. x: searched for maxima; y: one value
 * for each channel; v: gradients of x, or the values picked from. `taps` taps are inside the array,
 * at the offsets `tap` in x and v. By kind: MAX and MEAN compute y from x; MAX_GRAD and MEAN_GRAD
 * compute v from y (and x), and add to v if `adds`; MAX_PICK computes y from v and x. */
typedef struct fxi_pool_window {
    const int64_t *tap;
    int taps;
    bool adds;
    int64_t channels;
    double count; /* elements of a whole window */
    const float *x;
    float *y, *v;
} fxi_pool_window;

/* Uniform random numbers in [0, 1), made of the words of Philox (philox.h) from block `block` on.
 * Element i is made of word i mod 4 of block i / 4, counted from there, or of two words if it is a
 * Float64. f32 uses the upper `bits` bits of a word, at most 24. */
typedef struct fxi_random_core {
    void (*f32)(const uint64_t stream[2], uint64_t block, int64_t n, int bits, float *out);
    void (*f64)(const uint64_t stream[2], uint64_t block, int64_t n, double *out);
} fxi_random_core;

/* Running sums along an axis of n elements, with `inner` elements of the inner axes between
 * neighbours; both arrays are dense, and y may be x. */
typedef struct fxi_scan {
    const void *x;
    void *y;
    int64_t inner, n;
    bool from_end;
} fxi_scan;

/* A panel of attention (cpu_attention.c): `rows` rows of one number for each of 2·lanes lanes, the
 * rows of the matrix product's register tile. softmax replaces scores s by exp(s − top), where top
 * is the maximum of `most` and of the scores; it sets `most` to top, `factor` to exp(most − top)
 * with the earlier `most`, and `sum` to sum·factor plus the exponentials. gradient replaces s by
 * α = exp(s − log_sums), and d by α·(d − delta). With `stride` 0, log_sums and delta are arrays of
 * one number for each lane, otherwise of one for each row. */
typedef struct fxi_attention_panel {
    float *s, *d;
    int64_t rows, stride;
    float *most, *sum, *factor;
    const float *log_sums, *delta;
} fxi_attention_panel;
typedef struct fxi_attention_core {
    void (*softmax)(const fxi_attention_panel *p);
    void (*gradient)(const fxi_attention_panel *p);
} fxi_attention_core;

/* Loops for two additions, subtractions or products of Float32, where an operand of the second is
 * the result of the first: d[i] = second(first(s[0][i], s[1][i]), s[2][i]), rounded twice.
 * The second may also be a negation; if it is a difference, there are loops for both orders of its
 * operands. At most one operand of the first operation is a single number: s[1]
 * (FXI_PAIR_SECOND_ONE) or s[0] (FXI_PAIR_FIRST_ONE). The other operand of the second, s[2], may be
 * one too. */
enum { FXI_PAIR_SUM, FXI_PAIR_DIFFERENCE, FXI_PAIR_PRODUCT, FXI_PAIR_FIRSTS };
enum {
    FXI_PAIR_FROM = FXI_PAIR_FIRSTS, /* s[2][i] − first */
    FXI_PAIR_NEGATED,                /* −first */
    FXI_PAIR_SECONDS
};
enum { FXI_PAIR_VECTORS, FXI_PAIR_SECOND_ONE, FXI_PAIR_FIRST_ONE, FXI_PAIR_FORMS };
/* [first][second][operands of the first][is s[2] a single number?] */
typedef fxi_tile_fn fxi_pair_loops[FXI_PAIR_SECONDS][FXI_PAIR_FORMS][2];

/* Loops for several calls of a row step (cpu_row_fuse.c), all of Float32. `at`: addresses, of which
 * [0] is the result. The vectors have n elements; while x[i] is read, x[i + ahead] is fetched,
 * unless the result bypasses the caches. `streams`: the result bypasses the caches. */
enum { FXI_FUSED_OPERANDS = 8 };
typedef struct fxi_fused_tile {
    void *at[FXI_FUSED_OPERANDS];
    int64_t n, ahead;
    bool streams;
} fxi_fused_tile;
typedef struct fxi_fused_loops {
    /* Adds neighbouring elements to the accumulators of FX_REDUCE_SQDEV, and fetches those from
     * `next` on. */
    void (*deviations)(const float *x, int64_t n, const float *next, void *acc);
    /* at: y, x, m, e, r, g, b, z. z = ((x − m) − e)·r, which is stored if z is not NULL, and
     * y = z·g + b. m, e and r are numbers. */
    void (*norm)(const fxi_fused_tile *t);
    /* at: y, x, c, k, s, v. y = ((x − c)·k + v) + s. c, k and s are numbers. */
    void (*shift)(const fxi_fused_tile *t);
    /* at: e, x, m, d, y. d = x − m, which is stored if it is not NULL, and e = exp(d). m is a
     * number. y[i + ahead] is fetched, too. NULL: the calls are as fast. */
    void (*exponentials)(const fxi_fused_tile *t);
    /* at: v, x, g, z, r, dot, sum, y. v = (x·g)·r, *dot += Σ (x·g)·z, *sum += Σ v. r is a number,
     * dot and sum are accumulators. At least 16 elements. y[i + ahead] is fetched instead of
     * x[i + ahead]. */
    void (*dots)(const fxi_fused_tile *t);
    void (*products)(const float *x, const float *z, int64_t n,
                     double *acc);                                       /* acc[i] += x[i]·z[i] */
    void (*dot)(const float *x, const float *z, int64_t n, double *acc); /* *acc += Σ x[i]·z[i] */
} fxi_fused_loops;

typedef struct fxi_simd {
    const char *name;
    const fxi_tile_fn (*ops)[FXI_C_COUNT]; /* [op][type of the operands; SELECT: of the result] */
    /* [op][Float32 or Float64]: loops with a single value for the whole tile as their last operand
     * ([0]), their last but one ([1]) or both ([2]); NULL if the operation has no such loop. The
     * results are the same bits as those of `ops`. */
    const fxi_tile_fn (*mixed)[2][3];
    const fxi_pair_loops *pairs; /* [first] */
    const fxi_fused_loops *fused;
    const fxi_tile_fn (*cast)[FXI_C_COUNT]; /* [from][to] */
    const fxi_tile_fn *cast_odd;            /* [from]: to Float32, rounded to odd */
    const fxi_tile_fn *round;        /* [0] Float32 to Float16 values, [1] to BFloat16 values */
    const fxi_tile_fn *load, *store; /* [0] Float16, [1] BFloat16: to Float32 and back */
    /* Copies that bypass the caches. After the last one of an array, call `stream_end`; other
     * threads may read the array only then. */
    void (*stream)(void *d, const void *s, size_t bytes);
    void (*stream_end)(void);
    /* Pairs of loops with the same results; those of the second one bypass the caches. The last
     * pair is NULL. */
    const fxi_tile_fn (*streamed)[2];
    const fxi_reducer (*reduce)[FXI_C_COUNT]; /* [fx_reduce][type] */
    const fxi_reducer *sum_wide;              /* sum of Float32 with a Float64 result */
    const fxi_reducer *sum_of_sqdev; /* the same sum, from the accumulators of FX_REDUCE_SQDEV */
    const fxi_gemm_core *gemm;       /* [0] Float32, [1] Float64 */
    const fxi_gemv_core *gemv;       /* [0] Float32, [1] Float64 */
    const fxi_attention_core *attention;
    const fxi_conv_core *conv;               /* [0] Float32, [1] Float64 */
    const fxi_conv_masked_core *conv_masked; /* Float32; NULL: no masks */
    const fxi_winograd_core *winograd;
    const fxi_pool_core *pool;                                   /* [type] */
    void (*const *pool_channels_last)(const fxi_pool_window *w); /* [fx_pool_kind], Float32 */
    const fxi_random_core *random;
    /* Bool masks of n > 0 bytes: the number of true elements; the length of the longest beginning
     * in which every block of 64 elements has a true one (*out_some is true), or none has. */
    int64_t (*mask_count)(const uint8_t *mask, int64_t n);
    int64_t (*mask_run)(const uint8_t *mask, int64_t n, bool *out_some);
    /* Stores the indices of the true elements in order, and returns their number. If there are more
     * than `most`, it may return early, with at most most + 64 of them. */
    int (*mask_list)(const uint8_t *mask, int64_t n, int most, int64_t *list);
    void (*const *scan)(const fxi_scan *s); /* [type]; NULL for Bool */
    fxi_block_fn transpose[9];              /* [bytes of an element]; NULL: strided.c is as fast */
} fxi_simd;

const fxi_simd *fxi_cpu_simd(void);

/* The loop with the same results as `loop` that bypasses the caches; NULL: there is none. */
static inline fxi_tile_fn fxi_cpu_streamed(fxi_tile_fn loop)
{
    const fxi_tile_fn(*pair)[2] = fxi_cpu_simd()->streamed;
    while ((*pair)[0] && (*pair)[0] != loop)
        pair++;
    return (*pair)[1];
}

/* The reducer for elements of type `from` with results of type `to`. */
static inline const fxi_reducer *fxi_cpu_reducer(int64_t kind, int from, int to)
{
    const fxi_simd *simd = fxi_cpu_simd();
    const bool wide = kind == FX_REDUCE_SUM && from == FX_DTYPE_F32 && to == FX_DTYPE_F64;
    return wide ? simd->sum_wide : &simd->reduce[kind][fxi_compute_type(from)];
}

/* Uses the table of this name from now on; false if the machine cannot run it. For tests. */
bool fxi_cpu_simd_choose(const char *name);

extern const fxi_simd fxi_simd_base;
#if defined(__x86_64__)
extern const fxi_simd fxi_simd_avx2, fxi_simd_avx512;
#endif

#endif
