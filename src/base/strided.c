/* strided.c: walks over and copies strided memory; see strided.h.
 *
 * A copy whose fastest input axis is not the fastest output axis (a transpose) works in squares of
 * N×N elements in 16-byte vectors. log₂ N times, rows k and k + N/2 are interleaved to rows 2k and
 * 2k + 1; then the square is transposed. Squares are processed in blocks of one cache line by one
 * cache line of elements, so every line is used completely while it is in the cache. Within a
 * block, N lines of input are finished before the next N, because lines at a power-of-two distance
 * share one cache set.
 *
 * Outputs far larger than the cache are written past it, a line at a time. That saves reading the
 * memory that is overwritten. Their blocks form tiles, which follow each other along the input: the
 * processor then fetches its long runs in advance. 4096×4096 Float32 takes 15 ms, and 43 ms if
 * blocks follow each other along the output; a copy takes 7 ms.
 *
 * The CPU backend has faster loops for whole blocks (fxi_copy.block), which transpose in wider
 * registers and need no copy of a tile.
 */
#include "strided.h"

#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* ---- walks ----------------------------------------------------------------------------------- */

void fxi_walk_push(fxi_walk *w, int64_t n, int64_t stride)
{
    if (n == 1)
        return;
    const int last = w->nd - 1;
    if (last >= 0 && stride == w->stride[last] * w->shape[last]) {
        w->shape[last] *= n;
        return;
    }
    w->shape[w->nd] = n;
    w->stride[w->nd] = stride;
    w->idx[w->nd++] = 0;
}

void fxi_walk_init(fxi_walk *w, int ndim, const int64_t *shape, const int64_t *stride)
{
    w->nd = 0;
    w->offset = 0;
    for (int d = 0; d < ndim; d++)
        fxi_walk_push(w, shape[d], stride[d]);
}

void fxi_walk_pop(fxi_walk *w, int64_t *out_n, int64_t *out_stride)
{
    *out_n = *out_stride = 1;
    if (w->nd == 0)
        return;
    *out_n = w->shape[0];
    *out_stride = w->stride[0];
    w->nd--;
    for (int d = 0; d < w->nd; d++) {
        w->shape[d] = w->shape[d + 1];
        w->stride[d] = w->stride[d + 1];
        w->idx[d] = 0;
    }
}

void fxi_walk_seek(fxi_walk *w, int64_t element)
{
    w->offset = 0;
    for (int d = 0; d < w->nd; d++) {
        w->idx[d] = element % w->shape[d];
        w->offset += w->idx[d] * w->stride[d];
        element /= w->shape[d];
    }
}

int64_t fxi_walk_length(const fxi_walk *w)
{
    int64_t n = 1;
    for (int d = 0; d < w->nd; d++)
        n *= w->shape[d];
    return n;
}

/* ---- runs and squares, by element size ------------------------------------------------------- */

enum { LINE = 64, VECTOR = 16 };
/* The most lines, and the most elements, along a side of a tile that is written past the cache. The
 * tile is first copied to a buffer, which stays in the first-level cache. */
enum { TILE_LINES = 4, TILE = 64 };

/* The rows of a square are in registers only if the loops over them are unrolled. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#define LOW1  0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH1 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#define LOW2  0, 8, 1, 9, 2, 10, 3, 11
#define HIGH2 4, 12, 5, 13, 6, 14, 7, 15
#define LOW4  0, 4, 1, 5
#define HIGH4 2, 6, 3, 7
#define LOW8  0, 2
#define HIGH8 1, 3
#define EVEN1 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define EVEN2 0, 2, 4, 6, 8, 10, 12, 14
#define EVEN4 0, 2, 4, 6
#define EVEN8 0, 2

/* NAME: dst[i] = src[i·stride]. NAME_block: dst[i + j·dj] = src[i·si + j]. */
#define STRIDED(NAME, WORD, LOW, HIGH, EVEN)                                                       \
    typedef WORD __attribute__((may_alias)) NAME##_word;                                           \
    typedef WORD NAME##_row __attribute__((vector_size(VECTOR)));                                  \
    enum { NAME##_n = VECTOR / sizeof(WORD) };                                                     \
    static void NAME##_fill(NAME##_word *dst, const NAME##_word value, int64_t n)                  \
    {                                                                                              \
        const NAME##_row row = value - (NAME##_row){0};                                            \
        int64_t i = 0;                                                                             \
        for (; i + NAME##_n <= n; i += NAME##_n)                                                   \
            memcpy(dst + i, &row, VECTOR);                                                         \
        for (; i < n; i++)                                                                         \
            dst[i] = value;                                                                        \
    }                                                                                              \
    /* The last vector is shorter, because the element after the last one may not exist. */        \
    static void NAME##_even(NAME##_word *dst, const NAME##_word *src, int64_t n)                   \
    {                                                                                              \
        int64_t i = 0;                                                                             \
        for (; i + NAME##_n < n; i += NAME##_n) {                                                  \
            NAME##_row low, high;                                                                  \
            memcpy(&low, src + 2 * i, VECTOR);                                                     \
            memcpy(&high, src + 2 * i + NAME##_n, VECTOR);                                         \
            const NAME##_row even = __builtin_shufflevector(low, high, EVEN);                      \
            memcpy(dst + i, &even, VECTOR);                                                        \
        }                                                                                          \
        for (; i < n; i++)                                                                         \
            dst[i] = src[2 * i];                                                                   \
    }                                                                                              \
    static void NAME(void *to, const void *from, int64_t n, int64_t stride)                        \
    {                                                                                              \
        NAME##_word *dst = to;                                                                     \
        const NAME##_word *src = from;                                                             \
        if (stride == 0) {                                                                         \
            if (n > 0)                                                                             \
                NAME##_fill(dst, src[0], n);                                                       \
            return;                                                                                \
        }                                                                                          \
        if (stride == 2) {                                                                         \
            NAME##_even(dst, src, n);                                                              \
            return;                                                                                \
        }                                                                                          \
        for (int64_t i = 0; i < n; i++)                                                            \
            dst[i] = src[i * stride];                                                              \
    }                                                                                              \
    static inline void NAME##_square(NAME##_word *dst, const NAME##_word *src, int64_t si,         \
                                     int64_t dj)                                                   \
    {                                                                                              \
        NAME##_row a[NAME##_n], b[NAME##_n];                                                       \
        UNROLL for (int k = 0; k < NAME##_n; k++) memcpy(&a[k], src + k * si, VECTOR);             \
        UNROLL for (int pass = 1; pass < NAME##_n; pass *= 2)                                      \
        {                                                                                          \
            UNROLL for (int k = 0; k < NAME##_n; k += 2)                                           \
            {                                                                                      \
                const NAME##_row low = a[k / 2], high = a[(k + NAME##_n) / 2];                     \
                b[k] = __builtin_shufflevector(low, high, LOW);                                    \
                b[k + 1] = __builtin_shufflevector(low, high, HIGH);                               \
            }                                                                                      \
            UNROLL for (int k = 0; k < NAME##_n; k++) a[k] = b[k];                                 \
        }                                                                                          \
        UNROLL for (int k = 0; k < NAME##_n; k++) memcpy(dst + k * dj, &a[k], VECTOR);             \
    }                                                                                              \
    static inline void NAME##_block(void *to, const void *from, int64_t ni, int64_t nj,            \
                                    int64_t si, int64_t dj)                                        \
    {                                                                                              \
        NAME##_word *dst = to;                                                                     \
        const NAME##_word *src = from;                                                             \
        const int64_t wi = ni - ni % NAME##_n, wj = nj - nj % NAME##_n;                            \
        for (int64_t i = 0; i < wi; i += NAME##_n)                                                 \
            for (int64_t j = 0; j < wj; j += NAME##_n)                                             \
                NAME##_square(dst + i + j * dj, src + i * si + j, si, dj);                         \
        for (int64_t j = 0; j < nj; j++)                                                           \
            for (int64_t i = j < wj ? wi : 0; i < ni; i++)                                         \
                dst[i + j * dj] = src[i * si + j];                                                 \
    }
STRIDED(strided1, uint8_t, LOW1, HIGH1, EVEN1)
STRIDED(strided2, uint16_t, LOW2, HIGH2, EVEN2)
STRIDED(strided4, uint32_t, LOW4, HIGH4, EVEN4)
STRIDED(strided8, uint64_t, LOW8, HIGH8, EVEN8)

typedef void (*block_fn)(void *dst, const void *src, int64_t ni, int64_t nj, int64_t si,
                         int64_t dj);
static const struct {
    void (*run)(void *dst, const void *src, int64_t n, int64_t stride);
    block_fn block;
} by_size[] = {[1] = {strided1, strided1_block},
               [2] = {strided2, strided2_block},
               [4] = {strided4, strided4_block},
               [8] = {strided8, strided8_block}};

void fxi_copy_strided(void *dst, const void *src, int64_t n, int64_t stride, size_t size)
{
    if (stride == 1)
        memcpy(dst, src, (size_t)n * size);
    else
        by_size[size].run(dst, src, n, stride);
}

void fxi_transpose(void *dst, const void *src, int64_t ni, int64_t nj, int64_t si, int64_t dj,
                   size_t size)
{
    by_size[size].block(dst, src, ni, nj, si, dj);
}

/* ---- writing past the cache ------------------------------------------------------------------ */

/* stream_line, stream_group: write that many bytes past the cache. All bytes are read before any is
 * written: some processors compare only the lower 12 bits of addresses, so a read may wait for an
 * earlier write to other memory. */
enum { GROUP = 4 * LINE };
#if defined(__SSE2__)
#define STREAM(NAME, BYTES)                                                                        \
    static inline void NAME(void *dst, const void *src)                                            \
    {                                                                                              \
        __m128i v[BYTES / VECTOR];                                                                 \
        UNROLL for (int k = 0; k < BYTES / VECTOR; k++) v[k] =                                     \
            _mm_loadu_si128((const __m128i *)src + k);                                             \
        UNROLL for (int k = 0; k < BYTES / VECTOR; k++)                                            \
            _mm_stream_si128((__m128i *)dst + k, v[k]);                                            \
    }
#else
#define STREAM(NAME, BYTES)                                                                        \
    static inline void NAME(void *dst, const void *src)                                            \
    {                                                                                              \
        memcpy(dst, src, BYTES);                                                                   \
    }
#endif
STREAM(stream_line, LINE)
STREAM(stream_group, GROUP)

/* Orders streamed lines before later writes, so that other threads see them in order. */
static inline void stream_end(void)
{
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

static void copy_stream(void *dst, const void *src, size_t bytes)
{
    const size_t to_line = (size_t) - (uintptr_t)dst % LINE,
                 head = to_line < bytes ? to_line : bytes;
    char *d = memcpy(dst, src, head);
    const char *s = src;
    size_t done = head;
    for (; bytes - done >= GROUP; done += GROUP)
        stream_group(d + done, s + done);
    memcpy(d + done, s + done, bytes - done);
    stream_end();
}

/* ---- reading a walk -------------------------------------------------------------------------- */

/* Advances by `run` elements, which do not pass the end of the first axis. */
static void walk_forward(fxi_walk *w, int64_t run)
{
    w->idx[0] += run;
    w->offset += run * w->stride[0];
    if (w->idx[0] < w->shape[0])
        return;
    w->offset -= w->shape[0] * w->stride[0];
    w->idx[0] = 0;
    for (int d = 1; d < w->nd; d++) {
        w->offset += w->stride[d];
        if (++w->idx[d] < w->shape[d])
            return;
        w->offset -= w->stride[d] * w->shape[d];
        w->idx[d] = 0;
    }
}

/* Runs of fewer bytes are written through the cache, which is then faster. */
enum { STREAMED = 4096 };

static void read_walk(fxi_walk *w, const void *base, size_t size, void *dst, int64_t n, bool past)
{
    if (w->nd == 0 && n > 0) {
        memcpy(dst, base, size);
        return;
    }
    char *d = dst;
    while (n > 0) {
        const int64_t left = w->shape[0] - w->idx[0], run = left < n ? left : n;
        const void *src = fxi_at(base, w->offset, size);
        if (past && w->stride[0] == 1 && run * (int64_t)size >= STREAMED)
            copy_stream(d, src, (size_t)run * size);
        else
            fxi_copy_strided(d, src, run, w->stride[0], size);
        walk_forward(w, run);
        d += run * (int64_t)size;
        n -= run;
    }
}

void fxi_walk_read(fxi_walk *w, const void *base, size_t size, void *dst, int64_t n)
{
    read_walk(w, base, size, dst, n, false);
}

const void *fxi_walk_take(fxi_walk *w, const void *base, size_t size, int64_t n)
{
    if (w->nd == 0 || w->stride[0] != 1 || w->shape[0] - w->idx[0] < n)
        return NULL;
    const void *at = fxi_at(base, w->offset, size);
    walk_forward(w, n);
    return at;
}

void fxi_walk_stream(fxi_walk *w, const void *base, size_t size, void *dst, int64_t n)
{
    read_walk(w, base, size, dst, n, true);
}

/* ---- transposes ------------------------------------------------------------------------------ */

static int64_t line_of(size_t size)
{
    return LINE / (int64_t)size;
}

typedef struct plane {
    char *dst;
    const char *src;
    int64_t ni, nj, si, dj;
    size_t size;
    bool stream;
    fxi_block_fn block;
} plane;

/* dst[i + j·dj] = src[i·si + j], i < ni, j < nj, in blocks of a line by a line. */
static void copy_blocks(char *dst, const char *src, int64_t ni, int64_t nj, int64_t si, int64_t dj,
                        size_t size)
{
    const int64_t n = line_of(size);
    for (int64_t i = 0; i < ni; i += n)
        for (int64_t j = 0; j < nj; j += n)
            by_size[size].block(dst + (i + j * dj) * (int64_t)size,
                                src + (i * si + j) * (int64_t)size, ni - i < n ? ni - i : n,
                                nj - j < n ? nj - j : n, si, dj);
}

/* Copies the whole lines of a tile with p->block, and the rest with copy_blocks. */
static void copy_lines(const plane *p, char *dst, const char *src, int64_t ni, int64_t nj)
{
    const int64_t size = (int64_t)p->size, line = line_of(p->size), wi = ni - ni % line,
                  wj = nj - nj % line;
    p->block(dst, src, wi, wj, p->si, p->dj, p->stream);
    copy_blocks(dst + wj * p->dj * size, src + wj * size, ni, nj - wj, p->si, p->dj, p->size);
    copy_blocks(dst + wi * size, src + wi * p->si * size, ni - wi, wj, p->si, p->dj, p->size);
}

/* Copies a tile, which begins at (i, j). */
static void copy_tile(const plane *p, int64_t i, int64_t j, int64_t ni, int64_t nj)
{
    _Alignas(LINE) char scratch[TILE_LINES * LINE * TILE];
    const int64_t size = (int64_t)p->size;
    const char *src = p->src + (i * p->si + j) * size;
    char *dst = p->dst + (i + j * p->dj) * size;
    if (p->block) {
        copy_lines(p, dst, src, ni, nj);
        return;
    }
    if (!p->stream) {
        copy_blocks(dst, src, ni, nj, p->si, p->dj, p->size);
        return;
    }
    copy_blocks(scratch, src, ni, nj, p->si, TILE, p->size);
    for (int64_t k = 0; k < nj; k++)
        for (int64_t at = 0; at < ni * size; at += LINE)
            stream_line(dst + k * p->dj * size + at, scratch + k * TILE * size + at);
}

/* The axis to pair with axis 0 in a blocked copy: the one that is contiguous in memory; 0 if none.
 */
static int transposed_axis(const fxi_walk *w)
{
    if (w->nd < 2 || w->stride[0] == 1 || w->stride[0] == 0 || w->shape[0] < 4)
        return 0;
    for (int d = 1; d < w->nd; d++)
        if (w->stride[d] == 1 && w->shape[d] >= 4)
            return d;
    return 0;
}

/* Copies the parts from `first` to before `last`. Each is a tile; tiles are numbered along the
 * input, then plane by plane. */
static void copy_transposed(const fxi_copy *c, const char *src, char *dst, int64_t first,
                            int64_t last)
{
    const fxi_walk *w = &c->walk;
    const int64_t tile_i = c->tile[0], tile_j = c->tile[1];
    fxi_walk from = {0}, to = {0};
    plane p = {.ni = w->shape[0],
               .nj = w->shape[c->axis],
               .si = w->stride[0],
               .size = c->size,
               .stream = c->stream && (uintptr_t)dst % LINE == 0,
               .block = c->block};
    const int64_t across = (p.nj + tile_j - 1) / tile_j,
                  tiles = across * ((p.ni + tile_i - 1) / tile_i);
    int64_t next = 1;
    for (int d = 0; d < w->nd; d++) {
        if (d == c->axis)
            p.dj = next;
        else if (d != 0) {
            fxi_walk_push(&from, w->shape[d], w->stride[d]);
            fxi_walk_push(&to, w->shape[d], next);
        }
        next *= w->shape[d];
    }
    int64_t i = first % tiles / across * tile_i, j = first % across * tile_j;
    for (int64_t k = first; k < last; k++) {
        if (k == first || (i == 0 && j == 0)) {
            fxi_walk_seek(&from, k / tiles);
            fxi_walk_seek(&to, k / tiles);
            p.src = fxi_at(src, from.offset, c->size);
            p.dst = fxi_at_out(dst, to.offset, c->size);
        }
        copy_tile(&p, i, j, p.ni - i < tile_i ? p.ni - i : tile_i,
                  p.nj - j < tile_j ? p.nj - j : tile_j);
        j += tile_j;
        if (j >= p.nj)
            j = 0, i = i + tile_i < p.ni ? i + tile_i : 0;
    }
    stream_end();
}

/* ---- dense copies ---------------------------------------------------------------------------- */

enum { PART = 1 << 16 }; /* elements */

/* Only an output whose runs are whole lines is written past the cache. Tiles of other outputs are
 * as long as a run, and one line wide, or wider if the runs are short. */
static void choose_tiles(fxi_copy *c)
{
    const int64_t ni = c->walk.shape[0], nj = c->walk.shape[c->axis], line = line_of(c->size);
    c->stream = c->length * (int64_t)c->size >= FXI_STREAM_BYTES && ni % line == 0;
    const int64_t side = TILE_LINES * line < TILE ? TILE_LINES * line : TILE;
    c->tile[0] = c->stream ? side : ni;
    c->tile[1] = c->stream || ni <= line ? side : line;
    c->parts = (ni + c->tile[0] - 1) / c->tile[0] * ((nj + c->tile[1] - 1) / c->tile[1]) *
               (c->length / (ni * nj));
}

void fxi_copy_init(fxi_copy *c, int ndim, const int64_t *shape, const int64_t *stride, size_t size)
{
    c->size = size;
    c->block = NULL;
    fxi_walk_init(&c->walk, ndim, shape, stride);
    c->length = fxi_walk_length(&c->walk);
    c->axis = c->length > 0 ? transposed_axis(&c->walk) : 0;
    c->parts = (c->length + PART - 1) / PART;
    if (c->axis)
        choose_tiles(c);
}

void fxi_copy_parts(const fxi_copy *c, const void *src, void *dst, int64_t first, int64_t last)
{
    if (c->axis) {
        copy_transposed(c, src, dst, first, last);
        return;
    }
    fxi_walk w = c->walk;
    const int64_t at = first * PART, end = last == c->parts ? c->length : last * PART;
    fxi_walk_seek(&w, at);
    read_walk(&w, src, c->size, fxi_at_out(dst, at, c->size), end - at,
              c->length * (int64_t)c->size >= FXI_STREAM_BYTES);
}

void fxi_copy_elements(int ndim, const int64_t *shape, const int64_t *stride, size_t size,
                       const void *src, void *dst)
{
    fxi_copy c;
    fxi_copy_init(&c, ndim, shape, stride, size);
    if (c.parts > 0)
        fxi_copy_parts(&c, src, dst, 0, c.parts);
}
