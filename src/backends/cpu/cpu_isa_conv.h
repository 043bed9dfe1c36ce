/* cpu_isa_conv.h: the register tiles of the convolutions; part of cpu_isa.h.
 *
 * forward_tile   FXI_CONV_V vectors of windows by up to FXI_CONV_N columns, summed over channels
 *                and taps in registers. The scratch x is laid out by cpu_conv_direct.c so that a
 *                tap of neighbouring windows is a run of neighbouring elements.
 * weight_tile    FXI_CONV_R taps by up to FXI_CONV_C columns. Each is a vector of partial sums over
 *                the windows; its lanes are added at the end, in a fixed order.
 * gather_tile    FXI_GATHER_Q single elements of x, each at an address of its own, by up to
 *                FXI_GATHER_V vectors of columns (cpu_conv_gather.c).
 * An element's sum does not depend on its position in a tile.
 *
 * The sizes are those that fill the registers: 24 sums of 32 registers with 64-byte vectors, 12 of
 * 16 with 32-byte ones. Fewer sums would wait for the latency of a multiply-add; more would be
 * moved to memory. The inner loops are unrolled completely, because only then are the arrays
 * registers. So each width has a function of its own.
 */
#if FXI_VECTOR_BYTES == 64
enum {
    FXI_CONV_V = 3,
    FXI_CONV_N = 8,
    FXI_CONV_R = 4,
    FXI_CONV_C = 6,
    FXI_GATHER_Q = 8,
    FXI_GATHER_V = 3
};
#elif FXI_VECTOR_BYTES == 32
enum {
    FXI_CONV_V = 3,
    FXI_CONV_N = 4,
    FXI_CONV_R = 3,
    FXI_CONV_C = 4,
    FXI_GATHER_Q = 6,
    FXI_GATHER_V = 2
};
#else
enum {
    FXI_CONV_V = 2,
    FXI_CONV_N = 4,
    FXI_CONV_R = 2,
    FXI_CONV_C = 4,
    FXI_GATHER_Q = 6,
    FXI_GATHER_V = 2
};
#endif

/* Vectors of windows of a tile with one column. */
enum { FXI_CONV_WIDE = 3 * FXI_CONV_V };

/* The even elements of a, and the odd ones of b. */
#define FXI_PICK_SHORT_f32(a, b) __builtin_shufflevector(a, b, 0, 2, 5, 7)
#define FXI_PICK_SHORT_f64(a, b) __builtin_shufflevector(a, b, 0, 3)
#if FXI_VECTOR_BYTES == 64
#define FXI_PICK_ROW_f32(a, b)                                                                     \
    __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 27, 29, 31)
#define FXI_PICK_ROW_f64(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6, 9, 11, 13, 15)
#elif FXI_VECTOR_BYTES == 32
#define FXI_PICK_ROW_f32(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6, 9, 11, 13, 15)
#define FXI_PICK_ROW_f64(a, b) __builtin_shufflevector(a, b, 0, 2, 5, 7)
#else
#define FXI_PICK_ROW_f32(a, b) FXI_PICK_SHORT_f32(a, b)
#define FXI_PICK_ROW_f64(a, b) FXI_PICK_SHORT_f64(a, b)
#endif

/* NAME copies every second element, n in all; n is at least the number of lanes. The second vector
 * begins an element earlier: it would otherwise read an element after the last one that is copied,
 * where memory may end. The last vector overlaps the previous vector, as in copy_row. */
#define FXI_CONV_PICK(NAME, T, V, PICK)                                                            \
    FXI_INLINE void NAME(T *d, const T *s, int64_t n)                                              \
    {                                                                                              \
        enum { L = sizeof(V) / sizeof(T) };                                                        \
        for (int64_t i = 0; i < n; i += L) {                                                       \
            V a, b;                                                                                \
            i = i + L > n ? n - L : i;                                                             \
            memcpy(&a, s + 2 * i, sizeof a);                                                       \
            memcpy(&b, s + 2 * i + L - 1, sizeof b);                                               \
            a = PICK(a, b);                                                                        \
            memcpy(d + i, &a, sizeof a);                                                           \
        }                                                                                          \
    }

/* Applies an instruction to x, for the vectors of a block. */
#define FXI_CONV_EACH(EXPR)                                                                        \
    FXI_UNROLL                                                                                     \
    for (int i = 0; i < N; i++) {                                                                  \
        EXPR;                                                                                      \
    }                                                                                              \
    break

/* Besides the tiles: copy_row copies n elements. Its last vector overlaps the previous vector
 * instead of leaving a remainder for a slower loop. finite multiplies by 0, which gives 0 for
 * finite numbers and NaN for others, in one pass without branches. finish applies all instructions
 * to N vectors in registers; a relu keeps NaN and compares with a zero from memory, because a zero
 * in a register would leave one register fewer for the sums. weight_tile computes taps beyond the
 * last too, and does not add them. */
#define FXI_CONV_TILES(S, T, V, H, FMA)                                                            \
    FXI_INLINE void forward_tile_##S(const fxi_conv_forward *p, int64_t q, const int M,            \
                                     const int N)                                                  \
    {                                                                                              \
        enum { L = sizeof(V) / sizeof(T) };                                                        \
        const T *x = (const T *)p->x + q, *w = p->w;                                               \
        V t[FXI_CONV_N * FXI_CONV_V];                                                              \
        FXI_UNROLL                                                                                 \
        for (int i = 0; i < N * M; i++)                                                            \
            t[i] = (V){0};                                                                         \
        for (int64_t k = 0; k < p->k; k++, w += N) {                                               \
            V a[FXI_CONV_N * FXI_CONV_V];                                                          \
            FXI_UNROLL                                                                             \
            for (int i = 0; i < M; i++)                                                            \
                /* Windows begin at any element, so the loads are not aligned. */                  \
                memcpy(&a[i], x + p->offset[k] + i * L, sizeof(V));                                \
            FXI_UNROLL                                                                             \
            for (int j = 0; j < N; j++) {                                                          \
                /* Spreads one number over a vector. Subtracting 0 keeps −0; adding 0 would not. \
                 */                                                                                \
                const V s = w[j] - (V){0};                                                         \
                FXI_UNROLL                                                                         \
                for (int i = 0; i < M; i++)                                                        \
                    t[j * M + i] = FMA(a[i], s, t[j * M + i]);                                     \
            }                                                                                      \
        }                                                                                          \
        FXI_UNROLL                                                                                 \
        for (int j = 0; j < N; j++)                                                                \
            FXI_UNROLL                                                                             \
        for (int i = 0; i < M; i++) {                                                              \
            T *y = (T *)p->y + q + j * p->ypitch + i * L;                                          \
            V old = {0};                                                                           \
            /* Long sums come in blocks of terms; all blocks but the first add to y. */            \
            if (p->accumulate)                                                                     \
                memcpy(&old, y, sizeof old);                                                       \
            old += t[j * M + i];                                                                   \
            memcpy(y, &old, sizeof old);                                                           \
        }                                                                                          \
    }                                                                                              \
    FXI_INLINE void forward_tiles_##S(const fxi_conv_forward *p, const int N)                      \
    {                                                                                              \
        enum { L = sizeof(V) / sizeof(T) };                                                        \
        int64_t i = 0;                                                                             \
        /* A single column of few terms, as in a depthwise convolution: more vectors share the     \
         * loads of its kernel and of the offsets. */                                              \
        for (; N == 1 && i + FXI_CONV_WIDE <= p->vectors; i += FXI_CONV_WIDE)                      \
            forward_tile_##S(p, i *L, FXI_CONV_WIDE, N);                                           \
        for (; i + FXI_CONV_V <= p->vectors; i += FXI_CONV_V)                                      \
            forward_tile_##S(p, i *L, FXI_CONV_V, N);                                              \
        /* The last vectors: an element of a tile is summed in the same order, whatever the width  \
         * of the tile. One vector has too few sums to hide the latency of a multiply-add. */      \
        if (i + 2 == p->vectors && FXI_CONV_V > 2) {                                               \
            forward_tile_##S(p, i *L, 2, N);                                                       \
            i += 2;                                                                                \
        }                                                                                          \
        for (; i < p->vectors; i++)                                                                \
            forward_tile_##S(p, i *L, 1, N);                                                       \
    }                                                                                              \
    FXI_INLINE T sum_of_##S(V v)                                                                   \
    {                                                                                              \
        H h[sizeof(V) / sizeof(H)];                                                                \
        memcpy(h, &v, sizeof h);                                                                   \
        FXI_UNROLL                                                                                 \
        /* Halves are added to halves, down to one vector of 16 bytes, and then its lanes: an      \
         * order that the vector length fixes. */                                                  \
        for (size_t n = sizeof(V) / sizeof(H) / 2; n; n /= 2)                                      \
            for (size_t i = 0; i < n; i++)                                                         \
                h[i] += h[i + n];                                                                  \
        T s = h[0][0];                                                                             \
        for (size_t i = 1; i < sizeof(H) / sizeof(T); i++)                                         \
            s += h[0][i];                                                                          \
        return s;                                                                                  \
    }                                                                                              \
    FXI_INLINE void weight_tile_##S(const fxi_conv_weight *p, int64_t row, const int N)            \
    {                                                                                              \
        enum { L = sizeof(V) / sizeof(T) };                                                        \
        V t[FXI_CONV_R][FXI_CONV_C];                                                               \
        FXI_UNROLL                                                                                 \
        for (int r = 0; r < FXI_CONV_R; r++)                                                       \
            FXI_UNROLL                                                                             \
        for (int j = 0; j < N; j++)                                                                \
            t[r][j] = (V){0};                                                                      \
        for (int64_t s = 0; s < p->segments; s++) {                                                \
            const T *x = (const T *)p->x + p->segment[s].x,                                        \
                    *g = (const T *)p->g + p->segment[s].g;                                        \
            const T *xr[FXI_CONV_R];                                                               \
            FXI_UNROLL                                                                             \
            for (int r = 0; r < FXI_CONV_R; r++)                                                   \
                xr[r] = x + p->offset[row + r];                                                    \
            for (int64_t q = 0; q < p->vectors * L; q += L) {                                      \
                V a[FXI_CONV_R];                                                                   \
                FXI_UNROLL                                                                         \
                for (int r = 0; r < FXI_CONV_R; r++)                                               \
                    memcpy(&a[r], xr[r] + q, sizeof(V));                                           \
                FXI_UNROLL                                                                         \
                for (int j = 0; j < N; j++) {                                                      \
                    V b;                                                                           \
                    memcpy(&b, g + q + j * p->gpitch, sizeof b);                                   \
                    FXI_UNROLL                                                                     \
                    for (int r = 0; r < FXI_CONV_R; r++)                                           \
                        t[r][j] = FMA(a[r], b, t[r][j]);                                           \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
        FXI_UNROLL                                                                                 \
        for (int r = 0; r < FXI_CONV_R; r++)                                                       \
            FXI_UNROLL                                                                             \
        for (int j = 0; j < N; j++) {                                                              \
            const T sum = sum_of_##S(t[r][j]);                                                     \
            /* The list of offsets repeats the last tap, so the loads above stay inside the        \
             * scratch. */                                                                         \
            if (row + r < p->k)                                                                    \
                ((T *)p->w)[row + r + j * p->wpitch] += sum;                                       \
        }                                                                                          \
    }                                                                                              \
    FXI_INLINE void weight_tiles_##S(const fxi_conv_weight *p, const int N)                        \
    {                                                                                              \
        for (int64_t row = 0; row < p->k; row += FXI_CONV_R)                                       \
            weight_tile_##S(p, row, N);                                                            \
    }                                                                                              \
    FXI_INLINE void gather_tile_##S(const fxi_conv_gather *p, int64_t i, const int N)              \
    {                                                                                              \
        enum { L = sizeof(V) / sizeof(T) };                                                        \
        const T *x[FXI_GATHER_Q], *b = p->b;                                                       \
        V t[FXI_GATHER_Q][FXI_GATHER_V];                                                           \
        T *y = (T *)p->y + i * N * L;                                                              \
        FXI_UNROLL                                                                                 \
        for (int r = 0; r < FXI_GATHER_Q; r++)                                                     \
            x[r] = (const T *)p->x + p->row[i + r];                                                \
        FXI_UNROLL                                                                                 \
        for (int r = 0; r < FXI_GATHER_Q; r++)                                                     \
            FXI_UNROLL                                                                             \
        for (int v = 0; v < N; v++)                                                                \
            t[r][v] = (V){0};                                                                      \
        for (int64_t k = 0; k < p->sums; k++, b += N * L) {                                        \
            /* One offset serves all rows: rows differ in their start only. */                     \
            const int64_t at = p->sum[k];                                                          \
            V c[FXI_GATHER_V];                                                                     \
            FXI_UNROLL                                                                             \
            for (int v = 0; v < N; v++)                                                            \
                memcpy(&c[v], b + v * L, sizeof(V));                                               \
            FXI_UNROLL                                                                             \
            for (int r = 0; r < FXI_GATHER_Q; r++) {                                               \
                const V s = x[r][at] - (V){0};                                                     \
                FXI_UNROLL                                                                         \
                for (int v = 0; v < N; v++)                                                        \
                    t[r][v] = FMA(s, c[v], t[r][v]);                                               \
            }                                                                                      \
        }                                                                                          \
        FXI_UNROLL                                                                                 \
        for (int r = 0; r < FXI_GATHER_Q; r++)                                                     \
            FXI_UNROLL                                                                             \
        for (int v = 0; v < N; v++) {                                                              \
            V old = {0};                                                                           \
            if (p->accumulate)                                                                     \
                memcpy(&old, y + (r * N + v) * L, sizeof old);                                     \
            old += t[r][v];                                                                        \
            memcpy(y + (r * N + v) * L, &old, sizeof old);                                         \
        }                                                                                          \
    }                                                                                              \
    FXI_INLINE void gather_tiles_##S(const fxi_conv_gather *p, const int N)                        \
    {                                                                                              \
        for (int64_t i = 0; i < p->rows; i += FXI_GATHER_Q)                                        \
            gather_tile_##S(p, i, N);                                                              \
    }                                                                                              \
    FXI_INLINE void copy_row_##S(T *d, const T *s, int64_t n, const int L)                         \
    {                                                                                              \
        for (int64_t i = 0; i < n; i += L) {                                                       \
            /* Elements that are copied twice get the same value. */                               \
            i = i + L > n ? n - L : i;                                                             \
            memcpy(d + i, s + i, (size_t)L * sizeof(T));                                           \
        }                                                                                          \
    }                                                                                              \
    FXI_INLINE void finish_block_##S(const fxi_conv_sums *p, T *y, int64_t step, int64_t column,   \
                                     const bool across, const int N)                               \
    {                                                                                              \
        V x[2 * FXI_GATHER_Q];                                                                     \
        FXI_UNROLL                                                                                 \
        for (int i = 0; i < N; i++)                                                                \
            memcpy(&x[i], y + i * step, sizeof(V));                                                \
        for (const fxi_conv_instr *e = p->instr, *end = e + p->n; e < end; e++) {                  \
            const T *value = (const T *)e->value + column;                                         \
            V c;                                                                                   \
            if (across)                                                                            \
                memcpy(&c, value, sizeof c);                                                       \
            else                                                                                   \
                c = *value - (V){0};                                                               \
            switch (e->op) {                                                                       \
            case FX_OP_ADD:                                                                        \
                FXI_CONV_EACH(x[i] += c);                                                          \
            case FX_OP_SUB:                                                                        \
                FXI_CONV_EACH(x[i] -= c);                                                          \
            case FX_OP_MUL:                                                                        \
                FXI_CONV_EACH(x[i] *= c);                                                          \
            case FX_OP_DIV:                                                                        \
                FXI_CONV_EACH(x[i] /= c);                                                          \
            default: /* relu */                                                                    \
                FXI_CONV_EACH(x[i] = (V)((vu)x[i] & ~(vu)(x[i] <= c)));                            \
            }                                                                                      \
        }                                                                                          \
        FXI_UNROLL                                                                                 \
        for (int i = 0; i < N; i++)                                                                \
            memcpy(y + i * step, &x[i], sizeof(V));                                                \
    }                                                                                              \
    /* A block: neighbouring vectors of a column, or (across) one vector of several rows. */       \
    FXI_INLINE void finish_line_##S(const fxi_conv_sums *p, T *y, int64_t column, int64_t length,  \
                                    int64_t step, const bool across)                               \
    {                                                                                              \
        enum { MOST = 2 * FXI_GATHER_Q, LESS = FXI_GATHER_Q };                                     \
        int64_t i = 0;                                                                             \
        for (; i + MOST <= length; i += MOST)                                                      \
            finish_block_##S(p, y + i * step, step, column, across, MOST);                         \
        for (; i + LESS <= length; i += LESS)                                                      \
            finish_block_##S(p, y + i * step, step, column, across, LESS);                         \
        for (; i < length; i++)                                                                    \
            finish_block_##S(p, y + i * step, step, column, across, 1);                            \
    }                                                                                              \
    static void finish_##S(const fxi_conv_sums *p)                                                 \
    {                                                                                              \
        enum { L = sizeof(V) / sizeof(T) };                                                        \
        T *y = p->y;                                                                               \
        if (p->across)                                                                             \
            for (int64_t k = 0; k < p->vectors; k++)                                               \
                finish_line_##S(p, y + k * L, k * L, p->rows, p->pitch, true);                     \
        else                                                                                       \
            for (int64_t k = 0; k < p->rows; k++)                                                  \
                finish_line_##S(p, y + k * p->pitch, k, p->vectors, L, false);                     \
    }                                                                                              \
    FXI_CONV_PICK(pick_row_##S, T, V, FXI_PICK_ROW_##S)                                            \
    FXI_CONV_PICK(pick_short_##S, T, H, FXI_PICK_SHORT_##S)                                        \
    static void rows_##S(const fxi_conv_rows *p)                                                   \
    {                                                                                              \
        enum { L = sizeof(V) / sizeof(T), FEW = sizeof(H) / sizeof(T) };                           \
        T *d = p->d;                                                                               \
        const T *s = p->s;                                                                         \
        for (int64_t j = 0; j < p->rows; j++, d += p->dpitch, s += p->spitch)                      \
            if (p->stride == 2 && p->n >= L)                                                       \
                pick_row_##S(d, s, p->n);                                                          \
            else if (p->stride == 2 && p->n >= FEW)                                                \
                pick_short_##S(d, s, p->n);                                                        \
            else if (p->stride != 1)                                                               \
                for (int64_t i = 0; i < p->n; i++)                                                 \
                    d[i] = s[i * p->stride];                                                       \
            /* The length of a copy is a constant in each call. */                                 \
            else if (p->n >= L)                                                                    \
                copy_row_##S(d, s, p->n, L);                                                       \
            else if (p->n >= 4)                                                                    \
                copy_row_##S(d, s, p->n, 4);                                                       \
            else                                                                                   \
                copy_row_##S(d, s, p->n, 1);                                                       \
    }                                                                                              \
    static bool finite_##S(const void *xv, int64_t n)                                              \
    {                                                                                              \
        enum { L = sizeof(V) / sizeof(T) };                                                        \
        const T *x = xv;                                                                           \
        V sum[2] = {{0}, {0}};                                                                     \
        for (int64_t i = 0; i + 2 * L <= n; i += 2 * L) {                                          \
            V first, second;                                                                       \
            memcpy(&first, x + i, sizeof first);                                                   \
            memcpy(&second, x + i + L, sizeof second);                                             \
            /* Two sums, because each addition waits for the previous one of its sum. */           \
            sum[0] += first * 0;                                                                   \
            sum[1] += second * 0;                                                                  \
        }                                                                                          \
        /* NaN in any lane makes the sum NaN. */                                                   \
        T rest = sum_of_##S(sum[0] + sum[1]);                                                      \
        for (int64_t i = n / (2 * L) * (2 * L); i < n; i++)                                        \
            rest += x[i] * 0;                                                                      \
        return rest == 0;                                                                          \
    }

/* The number of columns must be a constant in the loops above, so each width is a function, and
 * kernels are chosen from tables by width. */
#define FXI_CONV_WIDTH(S, N)                                                                       \
    static void forward_##S##_##N(const fxi_conv_forward *p)                                       \
    {                                                                                              \
        forward_tiles_##S(p, N);                                                                   \
    }
#define FXI_CONV_WIDTH_W(S, N)                                                                     \
    static void weight_##S##_##N(const fxi_conv_weight *p)                                         \
    {                                                                                              \
        weight_tiles_##S(p, N);                                                                    \
    }
#define FXI_GATHER_WIDTH(S, N)                                                                     \
    static void gather_##S##_##N(const fxi_conv_gather *p)                                         \
    {                                                                                              \
        gather_tiles_##S(p, N);                                                                    \
    }

FXI_CONV_TILES(f32, float, vf, f32x16b, FXI_FMA_F32)
FXI_CONV_TILES(f64, double, vd, f64x16b, FXI_FMA_F64)

#define FXI_CONV_ALL(X)                                                                            \
    X(f32, 1) X(f32, 2) X(f32, 3) X(f32, 4) X(f64, 1) X(f64, 2) X(f64, 3) X(f64, 4)
FXI_CONV_ALL(FXI_CONV_WIDTH)
FXI_CONV_ALL(FXI_CONV_WIDTH_W)
FXI_GATHER_WIDTH(f32, 1)
FXI_GATHER_WIDTH(f32, 2)
FXI_GATHER_WIDTH(f64, 1)
FXI_GATHER_WIDTH(f64, 2)
/* Tiles have more than four columns only with 64-byte vectors. */
#if FXI_VECTOR_BYTES == 64
#define FXI_CONV_MORE(X) X(f32, 5) X(f32, 6) X(f64, 5) X(f64, 6)
FXI_CONV_MORE(FXI_CONV_WIDTH)
FXI_CONV_MORE(FXI_CONV_WIDTH_W)
FXI_CONV_WIDTH(f32, 7)
FXI_CONV_WIDTH(f32, 8)
FXI_CONV_WIDTH(f64, 7)
FXI_CONV_WIDTH(f64, 8)
FXI_GATHER_WIDTH(f32, 3)
FXI_GATHER_WIDTH(f64, 3)
#define FXI_CONV_GATHERS(S)                                                                        \
    {                                                                                              \
        gather_##S##_1, gather_##S##_2, gather_##S##_3                                             \
    }
#define FXI_CONV_FORWARDS(S)                                                                       \
    {                                                                                              \
        forward_##S##_1, forward_##S##_2, forward_##S##_3, forward_##S##_4, forward_##S##_5,       \
            forward_##S##_6, forward_##S##_7, forward_##S##_8                                      \
    }
#define FXI_CONV_WEIGHTS(S)                                                                        \
    {                                                                                              \
        weight_##S##_1, weight_##S##_2, weight_##S##_3, weight_##S##_4, weight_##S##_5,            \
            weight_##S##_6                                                                         \
    }
#else
#define FXI_CONV_GATHERS(S)                                                                        \
    {                                                                                              \
        gather_##S##_1, gather_##S##_2                                                             \
    }
#define FXI_CONV_FORWARDS(S)                                                                       \
    {                                                                                              \
        forward_##S##_1, forward_##S##_2, forward_##S##_3, forward_##S##_4                         \
    }
#define FXI_CONV_WEIGHTS(S)                                                                        \
    {                                                                                              \
        weight_##S##_1, weight_##S##_2, weight_##S##_3, weight_##S##_4                             \
    }
#endif

#define FXI_CONV_CORE(S, T)                                                                        \
    {                                                                                              \
        .lanes = FXI_VECTOR_BYTES / sizeof(T), .columns = FXI_CONV_N, .weight_rows = FXI_CONV_R,   \
        .weight_columns = FXI_CONV_C, .gather_rows = FXI_GATHER_Q, .gather_vectors = FXI_GATHER_V, \
        .gather = FXI_CONV_GATHERS(S), .forward = FXI_CONV_FORWARDS(S),                            \
        .weight = FXI_CONV_WEIGHTS(S), .finish = finish_##S, .rows = rows_##S,                     \
        .spread = spread_##S, .finite = finite_##S                                                 \
    }
/* NAME copies in the opposite direction to `rows`: it stores elements that are neighbours in s
 * apart from each other, one by one. With a stride of 1 both directions are the same copy. Several
 * threads may write elements of one cache line at the same time, so the elements between must not
 * be stored again with their old values. */
#define FXI_CONV_SPREAD(NAME, S, T)                                                                \
    static void NAME(const fxi_conv_rows *p)                                                       \
    {                                                                                              \
        T *d = p->d;                                                                               \
        const T *s = p->s;                                                                         \
        if (p->stride == 1) {                                                                      \
            rows_##S(p);                                                                           \
            return;                                                                                \
        }                                                                                          \
        for (int64_t j = 0; j < p->rows; j++, d += p->dpitch, s += p->spitch)                      \
            for (int64_t i = 0; i < p->n; i++)                                                     \
                d[i * p->stride] = s[i];                                                           \
    }
FXI_CONV_SPREAD(spread_f64, f64, double)
#if FXI_VECTOR_BYTES == 64
FXI_CONV_SPREAD(spread_any, f32, float)
/* Stores with a mask write eight elements and leave those between alone. AVX2 has such stores too,
 * but some processors take tens of cycles for one. */
static void spread_f32(const fxi_conv_rows *p)
{
    float *d = p->d;
    const float *s = p->s;
    if (p->stride != 2) {
        spread_any(p);
        return;
    }
    for (int64_t j = 0; j < p->rows; j++, d += p->dpitch, s += p->spitch)
        for (int64_t i = 0; i < p->n; i += 8) {
            const unsigned n = p->n - i < 8 ? (unsigned)(p->n - i) : 8;
            const vf v = FXI_LOAD_PART_F32(FXI_PART_F32(n), s + i);
            const vf twice =
                __builtin_shufflevector(v, v, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
            FXI_STORE_PART_F32((__mmask16)(0x5555 & ((1u << 2 * n) - 1)), d + 2 * i, twice);
        }
}
#else
FXI_CONV_SPREAD(spread_f32, f32, float)
#endif

static const fxi_conv_core tile_conv[2] = {FXI_CONV_CORE(f32, float), FXI_CONV_CORE(f64, double)};
