/* cpu_isa_winograd.h: the transformations of Winograd's convolution F(2×2, 3×3); part of cpu_isa.h.
 * cpu_conv_winograd.c has the formulas and the layout of the memory.
 *
 * winograd_rows     Bᵀ along the rows of the input, which are divided into even and odd elements
 * winograd_points   Bᵀ across the rows; vectors run over the tiles of several rows of tiles
 * winograd_outputs  Aᵀ in both directions; writes neighbouring outputs next to each other
 * winograd_kernel   G in both directions, for all columns of a panel at once
 * Elements of a vector beyond the last are computed too. What they overwrite is written later, or
 * is slack that the caller provides.
 */
typedef float winograd_panel __attribute__((vector_size(FXI_CONV_N * sizeof(float))));

/* The even and the odd elements of two vectors, and the two halves of both vectors interleaved. */
#define FXI_EVEN_ELEMENTS_4(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6)
#define FXI_ODD_ELEMENTS_4(a, b)  __builtin_shufflevector(a, b, 1, 3, 5, 7)
#if FXI_VECTOR_BYTES == 64
#define FXI_EVEN_ELEMENTS(a, b)                                                                    \
    __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)
#define FXI_ODD_ELEMENTS(a, b)                                                                     \
    __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31)
#define FXI_ALTERNATE_LOW(a, b)                                                                    \
    __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define FXI_ALTERNATE_HIGH(a, b)                                                                   \
    __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#elif FXI_VECTOR_BYTES == 32
#define FXI_EVEN_ELEMENTS(a, b)  __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14)
#define FXI_ODD_ELEMENTS(a, b)   __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15)
#define FXI_ALTERNATE_LOW(a, b)  __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define FXI_ALTERNATE_HIGH(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#else
#define FXI_EVEN_ELEMENTS(a, b)  FXI_EVEN_ELEMENTS_4(a, b)
#define FXI_ODD_ELEMENTS(a, b)   FXI_ODD_ELEMENTS_4(a, b)
#define FXI_ALTERNATE_LOW(a, b)  __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define FXI_ALTERNATE_HIGH(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#endif

/* One row of n tiles. V: a vector of the tiles; narrow rows use shorter vectors. */
#define FXI_WINOGRAD_ROW(NAME, V, EVEN, ODD)                                                       \
    FXI_INLINE void NAME(const float *x, float *t, int64_t apart, int64_t n)                       \
    {                                                                                              \
        enum { L = sizeof(V) / sizeof(float) };                                                    \
        for (int64_t i = 0; i < n; i += L) {                                                       \
            V a, b, c, d;                                                                          \
            memcpy(&a, x + 2 * i, sizeof a);                                                       \
            memcpy(&b, x + 2 * i + L, sizeof b);                                                   \
            memcpy(&c, x + 2 * i + 2, sizeof c);                                                   \
            memcpy(&d, x + 2 * i + L + 2, sizeof d);                                               \
            /* The elements 0 to 3 of each tile. */                                                \
            const V e0 = EVEN(a, b), e1 = ODD(a, b), e2 = EVEN(c, d), e3 = ODD(c, d);              \
            const V t0 = e0 - e2, t1 = e1 + e2, t2 = e2 - e1, t3 = e1 - e3;                        \
            memcpy(t + i, &t0, sizeof t0);                                                         \
            memcpy(t + i + 2 * apart, &t1, sizeof t1);                                             \
            memcpy(t + i + 4 * apart, &t2, sizeof t2);                                             \
            memcpy(t + i + 6 * apart, &t3, sizeof t3);                                             \
        }                                                                                          \
    }
FXI_WINOGRAD_ROW(winograd_row, vf, FXI_EVEN_ELEMENTS, FXI_ODD_ELEMENTS)
FXI_WINOGRAD_ROW(winograd_row_short, f32x16b, FXI_EVEN_ELEMENTS_4, FXI_ODD_ELEMENTS_4)

static void winograd_rows(const fxi_winograd_rows *p)
{
    enum { L = FXI_VECTOR_BYTES / sizeof(float) };
    for (int64_t r = 0; r < p->rows; r++) {
        const float *x = p->x + r * p->pitch;
        float *t = p->t + r % 2 * p->apart + r / 2 * p->across;
        if (p->across < L)
            winograd_row_short(x, t, p->apart, p->across);
        else
            winograd_row(x, t, p->apart, p->across);
    }
}

static void winograd_points(const fxi_winograd_points *p)
{
    enum { L = FXI_VECTOR_BYTES / sizeof(float) };
    const int64_t across = p->across, apart = p->apart, vapart = p->vapart;
    for (int64_t i = 0; i < p->n; i += L)
        FXI_UNROLL
    for (int b = 0; b < 4; b++) {
        /* The tile's rows 0 and 2 are even rows of the input, 1 and 3 odd ones. */
        const float *even = p->t + 2 * b * apart + i, *odd = even + apart;
        float *v = p->v + b * vapart + i;
        vf r0, r1, r2, r3;
        memcpy(&r0, even, sizeof r0);
        memcpy(&r1, odd, sizeof r1);
        memcpy(&r2, even + across, sizeof r2);
        memcpy(&r3, odd + across, sizeof r3);
        const vf v0 = r0 - r2, v1 = r1 + r2, v2 = r2 - r1, v3 = r1 - r3;
        memcpy(v, &v0, sizeof v0);
        memcpy(v + 4 * vapart, &v1, sizeof v1);
        memcpy(v + 8 * vapart, &v2, sizeof v2);
        memcpy(v + 12 * vapart, &v3, sizeof v3);
    }
}

/* Stores two neighbouring outputs of each tile of a vector. */
FXI_INLINE void winograd_pair(float *z, vf left, vf right)
{
    const vf low = FXI_ALTERNATE_LOW(left, right), high = FXI_ALTERNATE_HIGH(left, right);
    memcpy(z, &low, sizeof low);
    memcpy(z + sizeof(vf) / sizeof(float), &high, sizeof high);
}

static void winograd_outputs(const fxi_winograd_outputs *p)
{
    enum { L = FXI_VECTOR_BYTES / sizeof(float) };
    for (int64_t c = 0; c < p->columns; c++)
        for (int64_t i = 0; i < p->n; i += L) {
            const float *m = p->m + c * p->mpitch + i;
            float *z = p->z + c * p->zpitch + 2 * i;
            vf u[4], v[4]; /* the upper and the lower row */
            FXI_UNROLL
            for (int b = 0; b < 4; b++) {
                vf r0, r1, r2, r3;
                memcpy(&r0, m + b * p->mapart, sizeof r0);
                memcpy(&r1, m + (4 + b) * p->mapart, sizeof r1);
                memcpy(&r2, m + (8 + b) * p->mapart, sizeof r2);
                memcpy(&r3, m + (12 + b) * p->mapart, sizeof r3);
                u[b] = r0 + r1 + r2;
                v[b] = r1 - r2 - r3;
            }
            winograd_pair(z, u[0] + u[1] + u[2], u[1] - u[2] - u[3]);
            winograd_pair(z + p->lower, v[0] + v[1] + v[2], v[1] - v[2] - v[3]);
        }
}

/* G along one axis: three numbers become four. */
#define FXI_WINOGRAD_G(to, a, b, c)                                                                \
    do {                                                                                           \
        const winograd_panel ends = (a) + (c);                                                     \
        (to)[0] = (a);                                                                             \
        (to)[1] = (ends + (b)) * 0.5f;                                                             \
        (to)[2] = (ends - (b)) * 0.5f;                                                             \
        (to)[3] = (c);                                                                             \
    } while (0)

static void winograd_kernel(const fxi_winograd_kernel *p)
{
    for (int64_t c = 0; c < p->channels; c++) {
        winograd_panel g[9], h[3][4], u[4];
        FXI_UNROLL
        for (int k = 0; k < 9; k++)
            memcpy(&g[k], p->g + (9 * c + (p->against ? 8 - k : k)) * p->n, sizeof g[k]);
        FXI_UNROLL
        for (int r = 0; r < 3; r++)
            FXI_WINOGRAD_G(h[r], g[3 * r], g[3 * r + 1], g[3 * r + 2]);
        FXI_UNROLL
        for (int b = 0; b < 4; b++) {
            FXI_WINOGRAD_G(u, h[0][b], h[1][b], h[2][b]);
            FXI_UNROLL
            for (int a = 0; a < 4; a++)
                memcpy(p->u + (4 * a + b) * p->apart + c * p->n, &u[a], sizeof u[a]);
        }
    }
}

static const fxi_winograd_core tile_winograd = {winograd_rows, winograd_points, winograd_outputs,
                                                winograd_kernel};
