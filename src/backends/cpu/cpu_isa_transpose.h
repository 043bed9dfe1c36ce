/* cpu_isa_transpose.h: transposes of blocks in registers, of elements of 4 and 8 bytes; part of
 * cpu_isa.h.
 *
 * A block has the elements of a cache line along the output (i), so a whole line is written at a
 * time, and those of a vector along the input (j). It consists of squares: N vectors of N elements.
 * A square is transposed within lanes of 16 bytes first, which shuffles do fastest, and then its
 * lanes are transposed. With vectors of 16 bytes, the loops of strided.c are as fast.
 */
#if FXI_VECTOR_BYTES == 64
#define FXI_LOW_4(a, b)                                                                            \
    (vl) __builtin_shufflevector((vu)(a), (vu)(b), 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12,   \
                                 28, 13, 29)
#define FXI_HIGH_4(a, b)                                                                           \
    (vl) __builtin_shufflevector((vu)(a), (vu)(b), 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, \
                                 30, 15, 31)
#define FXI_LOW_8(a, b)      __builtin_shufflevector((a), (b), 0, 8, 2, 10, 4, 12, 6, 14)
#define FXI_HIGH_8(a, b)     __builtin_shufflevector((a), (b), 1, 9, 3, 11, 5, 13, 7, 15)
#define FXI_EVEN_LANES(a, b) __builtin_shufflevector((a), (b), 0, 1, 4, 5, 8, 9, 12, 13)
#define FXI_ODD_LANES(a, b)  __builtin_shufflevector((a), (b), 2, 3, 6, 7, 10, 11, 14, 15)
#elif FXI_VECTOR_BYTES == 32
#define FXI_LOW_4(a, b)      (vl) __builtin_shufflevector((vu)(a), (vu)(b), 0, 8, 1, 9, 4, 12, 5, 13)
#define FXI_HIGH_4(a, b)     (vl) __builtin_shufflevector((vu)(a), (vu)(b), 2, 10, 3, 11, 6, 14, 7, 15)
#define FXI_LOW_8(a, b)      __builtin_shufflevector((a), (b), 0, 4, 2, 6)
#define FXI_HIGH_8(a, b)     __builtin_shufflevector((a), (b), 1, 5, 3, 7)
#define FXI_EVEN_LANES(a, b) __builtin_shufflevector((a), (b), 0, 1, 4, 5)
#define FXI_ODD_LANES(a, b)  __builtin_shufflevector((a), (b), 2, 3, 6, 7)
#endif

#if FXI_VECTOR_BYTES >= 32
enum { TRANSPOSE_LINE = 64, TRANSPOSE_LANES = FXI_VECTOR_BYTES / 16 };

/* Vector k·g + q of TRANSPOSE_LANES vectors gets lane k of each. Two lanes need one round of
 * shuffles, four lanes two. */
FXI_INLINE void transpose_lanes(vl *r, const int g, const int q)
{
    const vl a = r[q], b = r[g + q];
    const vl even = FXI_EVEN_LANES(a, b), odd = FXI_ODD_LANES(a, b);
#if FXI_VECTOR_BYTES == 64
    const vl c = r[2 * g + q], d = r[3 * g + q];
    const vl more_even = FXI_EVEN_LANES(c, d), more_odd = FXI_ODD_LANES(c, d);
    r[q] = FXI_EVEN_LANES(even, more_even);
    r[g + q] = FXI_EVEN_LANES(odd, more_odd);
    r[2 * g + q] = FXI_ODD_LANES(even, more_even);
    r[3 * g + q] = FXI_ODD_LANES(odd, more_odd);
#else
    r[q] = even;
    r[g + q] = odd;
#endif
}

/* Transposes the square of the vectors r. `size`: bytes of an element, a constant at every call. */
FXI_INLINE void transpose_square(vl *r, const int size)
{
    const int n = FXI_VECTOR_BYTES / size, g = 16 / size;
    vl t[16];
    FXI_UNROLL
    for (int k = 0; k < n; k += 2) {
        t[k] = size == 4 ? FXI_LOW_4(r[k], r[k + 1]) : FXI_LOW_8(r[k], r[k + 1]);
        t[k + 1] = size == 4 ? FXI_HIGH_4(r[k], r[k + 1]) : FXI_HIGH_8(r[k], r[k + 1]);
    }
    FXI_UNROLL
    for (int k = 0; k < n; k += g)
        if (size == 4) {
            r[k] = FXI_LOW_8(t[k], t[k + 2]);
            r[k + 1] = FXI_HIGH_8(t[k], t[k + 2]);
            r[k + 2] = FXI_LOW_8(t[k + 1], t[k + 3]);
            r[k + 3] = FXI_HIGH_8(t[k + 1], t[k + 3]);
        } else {
            r[k] = t[k];
            r[k + 1] = t[k + 1];
        }
    FXI_UNROLL
    for (int q = 0; q < g; q++)
        transpose_lanes(r, g, q);
}

/* Transposes one block; si and dj are in bytes. If a line has two vectors, the squares of both are
 * transposed before the first store: the halves of a line that is written past the cache must
 * follow each other, or the processor writes them separately. */
FXI_INLINE void transpose_block(char *d, const char *s, int64_t si, int64_t dj, const int size,
                                const bool past)
{
    enum { SQUARES = TRANSPOSE_LINE / FXI_VECTOR_BYTES };
    const int n = FXI_VECTOR_BYTES / size;
    vl r[SQUARES][16];
    FXI_UNROLL
    for (int q = 0; q < SQUARES; q++) {
        FXI_UNROLL
        for (int k = 0; k < n; k++)
            memcpy(&r[q][k], s + (q * n + k) * si, sizeof(vl));
        transpose_square(r[q], size);
    }
    FXI_UNROLL
    for (int k = 0; k < n; k++) {
        FXI_UNROLL
        for (int q = 0; q < SQUARES; q++) {
            char *to = d + k * dj + q * FXI_VECTOR_BYTES;
            if (past)
                FXI_STREAM((void *)to, r[q][k]);
            else
                memcpy(to, &r[q][k], sizeof(vl));
        }
    }
}

/* Blocks follow each other along the input, whose lines are then read in order (strided.c). */
FXI_INLINE void transpose_blocks(char *d, const char *s, int64_t ni, int64_t nj, int64_t si,
                                 int64_t dj, const int size, const bool past)
{
    const int line = TRANSPOSE_LINE / size, n = FXI_VECTOR_BYTES / size;
    for (int64_t i = 0; i < ni; i += line)
        for (int64_t j = 0; j < nj; j += n)
            transpose_block(d + (i + j * dj) * size, s + (i * si + j) * size, si * size, dj * size,
                            size, past);
}

/* Two calls with a constant, so that no loop tests how to store. */
#define FXI_TRANSPOSE(NAME, SIZE)                                                                  \
    static void NAME(void *d, const void *s, int64_t ni, int64_t nj, int64_t si, int64_t dj,       \
                     bool past)                                                                    \
    {                                                                                              \
        if (past)                                                                                  \
            transpose_blocks(d, s, ni, nj, si, dj, SIZE, true);                                    \
        else                                                                                       \
            transpose_blocks(d, s, ni, nj, si, dj, SIZE, false);                                   \
    }
FXI_TRANSPOSE(transpose_4, 4)
FXI_TRANSPOSE(transpose_8, 8)
#define FXI_TRANSPOSES                                                                             \
    {                                                                                              \
        [4] = transpose_4, [8] = transpose_8                                                       \
    }
#else
#define FXI_TRANSPOSES                                                                             \
    {                                                                                              \
        NULL                                                                                       \
    }
#endif
