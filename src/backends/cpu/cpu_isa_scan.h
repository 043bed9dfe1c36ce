/* cpu_isa_scan.h: running sums along an axis, from either end; part of cpu_isa.h.
 *
 * Sums of Float32 run in Float64. A sum waits for the previous one. So neighbours along the axis
 * are added within a vector first (log₂ of its lanes additions), and only one addition of each
 * vector waits for the previous vector. If a few elements of inner axes are between the terms, the
 * sums stay in registers; with many, the loop over these elements is the vector loop.
 */
#if FXI_VECTOR_BYTES == 64
#define VD_LATER_1(v)   __builtin_shufflevector((v), (vd){0}, 8, 0, 1, 2, 3, 4, 5, 6)
#define VD_LATER_2(v)   __builtin_shufflevector((v), (vd){0}, 8, 8, 0, 1, 2, 3, 4, 5)
#define VD_LATER_4(v)   __builtin_shufflevector((v), (vd){0}, 8, 8, 8, 8, 0, 1, 2, 3)
#define VD_EARLIER_1(v) __builtin_shufflevector((v), (vd){0}, 1, 2, 3, 4, 5, 6, 7, 8)
#define VD_EARLIER_2(v) __builtin_shufflevector((v), (vd){0}, 2, 3, 4, 5, 6, 7, 8, 8)
#define VD_EARLIER_4(v) __builtin_shufflevector((v), (vd){0}, 4, 5, 6, 7, 8, 8, 8, 8)
#elif FXI_VECTOR_BYTES == 32
#define VD_LATER_1(v)   __builtin_shufflevector((v), (vd){0}, 4, 0, 1, 2)
#define VD_LATER_2(v)   __builtin_shufflevector((v), (vd){0}, 4, 4, 0, 1)
#define VD_EARLIER_1(v) __builtin_shufflevector((v), (vd){0}, 1, 2, 3, 4)
#define VD_EARLIER_2(v) __builtin_shufflevector((v), (vd){0}, 2, 3, 4, 4)
#else
#define VD_LATER_1(v)   __builtin_shufflevector((v), (vd){0}, 2, 0)
#define VD_EARLIER_1(v) __builtin_shufflevector((v), (vd){0}, 1, 2)
#endif

enum { SCAN_LANES = FXI_VECTOR_BYTES / 8 };

/* Lane i becomes the sum of the lanes up to i, or of those from i on: lanes are added to lanes 1,
 * 2, 4, … further (Hillis, Steele, "Data Parallel Algorithms", 1986). The shuffles fill up with 0.
 */
static inline vd sums_within(vd v, bool from_end)
{
    v += from_end ? VD_EARLIER_1(v) : VD_LATER_1(v);
#if FXI_VECTOR_BYTES >= 32
    v += from_end ? VD_EARLIER_2(v) : VD_LATER_2(v);
#endif
#if FXI_VECTOR_BYTES >= 64
    v += from_end ? VD_EARLIER_4(v) : VD_LATER_4(v);
#endif
    return v;
}

/* A vector is first summed within itself, then `before`, the total of all previous vectors, is
 * added to each lane: the chain of additions that wait for each other has one link for each vector.
 * The remainder is the end of the row in the direction of the sums, so `before` is right for it.
 *
 * NAME(x, y, n, from_end): y = the running sums of the n elements of x, of type T; V is a vector of
 * SCAN_LANES of them, which WIDE converts to Float64 and NARROW back. */
#define SCAN_ROW(NAME, T, V, WIDE, NARROW)                                                         \
    static inline void NAME(const T *x, T *y, int64_t n, bool from_end)                            \
    {                                                                                              \
        const int64_t whole = n / SCAN_LANES * SCAN_LANES, rest = n - whole;                       \
        vd before = {0};                                                                           \
        for (int64_t i = 0; i < whole; i += SCAN_LANES) {                                          \
            const int64_t at = from_end ? n - SCAN_LANES - i : i;                                  \
            V in, out;                                                                             \
            memcpy(&in, x + at, sizeof in);                                                        \
            const vd sums = sums_within(WIDE(in), from_end);                                       \
            out = NARROW(sums + before);                                                           \
            memcpy(y + at, &out, sizeof out);                                                      \
            before += sums[from_end ? 0 : SCAN_LANES - 1];                                         \
        }                                                                                          \
        double sum = before[0];                                                                    \
        for (int64_t i = 0; i < rest; i++) {                                                       \
            const int64_t at = from_end ? rest - 1 - i : whole + i;                                \
            sum += (double)x[at];                                                                  \
            y[at] = (T)sum;                                                                        \
        }                                                                                          \
    }
SCAN_ROW(scan_row_f32, float, vh, vd_wide, vd_narrow)
SCAN_ROW(scan_row_f64, double, vd, , )

/* NAME_part: the sums of `width` elements of the inner axes, in the type A. It is inlined into
 * calls in which the width is a constant, so that the sums are in registers. NAME: all inner axes.
 */
#define SCAN(NAME, T, A, ROW)                                                                      \
    static inline __attribute__((always_inline)) void NAME##_part(const fxi_scan *s,               \
                                                                  int64_t first, int width)        \
    {                                                                                              \
        A sum[FXI_TILE] = {0};                                                                     \
        for (int64_t k = 0; k < s->n; k++) {                                                       \
            const int64_t at = first + (s->from_end ? s->n - 1 - k : k) * s->inner;                \
            const T *x = (const T *)s->x + at;                                                     \
            T *y = (T *)s->y + at;                                                                 \
            FXI_IVDEP                                                                              \
            for (int i = 0; i < width; i++) {                                                      \
                sum[i] = (A)(sum[i] + (A)x[i]);                                                    \
                y[i] = (T)sum[i];                                                                  \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    static void NAME(const fxi_scan *s)                                                            \
    {                                                                                              \
        switch (s->inner) {                                                                        \
        case 1:                                                                                    \
            ROW;                                                                                   \
            return;                                                                                \
        case 2:                                                                                    \
            NAME##_part(s, 0, 2);                                                                  \
            return;                                                                                \
        case 3:                                                                                    \
            NAME##_part(s, 0, 3);                                                                  \
            return;                                                                                \
        case 4:                                                                                    \
            NAME##_part(s, 0, 4);                                                                  \
            return;                                                                                \
        default:                                                                                   \
            break;                                                                                 \
        }                                                                                          \
        for (int64_t i = 0; i < s->inner; i += FXI_TILE)                                           \
            NAME##_part(s, i, (int)(s->inner - i < FXI_TILE ? s->inner - i : FXI_TILE));           \
    }
SCAN(scan_f32, float, double, scan_row_f32(s->x, s->y, s->n, s->from_end))
SCAN(scan_f64, double, double, scan_row_f64(s->x, s->y, s->n, s->from_end))
/* In the unsigned type, overflow wraps instead of being undefined. */
SCAN(scan_i32, int32_t, uint32_t, scan_i32_part(s, 0, 1))
SCAN(scan_i64, int64_t, uint64_t, scan_i64_part(s, 0, 1))
SCAN(scan_u8, uint8_t, uint8_t, scan_u8_part(s, 0, 1))

static void (*const tile_scan[FXI_C_COUNT])(const fxi_scan *s) = {scan_f32, scan_f64, scan_i32,
                                                                  scan_i64, scan_u8,  NULL};
