/* idx.c: reads IDX files, the format of MNIST (LeCun, Cortes, Burges: "The MNIST database").
 *
 *   offset 0  00 00 type ndims
 *   offset 4  ndims × uint32: sizes, slowest axis first
 *   then      Π sizes elements, big-endian, last index fastest
 *
 * Types: 08 uint8, 09 int8, 0B int16, 0C int32, 0D float, 0E double.
 *
 * The last index of the file is the first axis of the array, so elements keep their positions and
 * only the byte order changes. The header is not trusted: sizes are multiplied with overflow
 * checks. The length of a gzip stream is unknown before it is read, so the data are collected in
 * pieces that double in size; a short file whose header declares a large size then uses memory in
 * proportion to its real length. The pieces are freed after conversion into the array's own memory,
 * so the data are in memory at most twice: as the bytes of the file, and as elements of the array.
 * The array borrows that memory (fxi_borrow), which avoids a third copy.
 */
#include "data_file.h"
#include "lend.h"

#include <cflux/data.h>
#include <string.h>

static const char *const OP = "read_idx";
enum { FIRST_PIECE = 1 << 20, MAX_PIECES = 48 };

/* Converts n big-endian elements of the file to n elements of the array. */
static void from_u8(const unsigned char *src, void *dst, size_t n)
{
    memcpy(dst, src, n);
}

static void from_i8(const unsigned char *src, void *dst, size_t n)
{
    int32_t *out = dst;
    for (size_t i = 0; i < n; i++)
        out[i] = (int8_t)src[i];
}

static void from_i16(const unsigned char *src, void *dst, size_t n)
{
    int32_t *out = dst;
    for (size_t i = 0; i < n; i++)
        out[i] = (int16_t)(src[2 * i] << 8 | src[2 * i + 1]);
}

static uint32_t big_u32(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void from_32(const unsigned char *src, void *dst, size_t n)
{
    uint32_t *out = dst;
    for (size_t i = 0; i < n; i++)
        out[i] = big_u32(src + 4 * i);
}

static void from_64(const unsigned char *src, void *dst, size_t n)
{
    uint64_t *out = dst;
    for (size_t i = 0; i < n; i++)
        out[i] = (uint64_t)big_u32(src + 8 * i) << 32 | big_u32(src + 8 * i + 4);
}

typedef struct idx_type {
    unsigned char code;
    unsigned char bytes; /* per element in the file */
    fx_dtype dtype;
    void (*convert)(const unsigned char *src, void *dst, size_t n);
} idx_type;

static const idx_type TYPES[] = {
    {0x08, 1, FX_DTYPE_U8, from_u8},   {0x09, 1, FX_DTYPE_I32, from_i8},
    {0x0B, 2, FX_DTYPE_I32, from_i16}, {0x0C, 4, FX_DTYPE_I32, from_32},
    {0x0D, 4, FX_DTYPE_F32, from_32},  {0x0E, 8, FX_DTYPE_F64, from_64},
};

typedef struct idx_header {
    const idx_type *type;
    int ndims;
    int64_t sizes[FX_MAX_DIMS]; /* in the order of the array: fastest axis first */
    int64_t count;              /* number of elements */
    int64_t bytes;              /* their bytes in the file */
    int64_t array_bytes;        /* their bytes in the array */
} idx_header;

static fx_status bad(const fxi_data_file *file, int64_t offset, const char *expected,
                     const char *found)
{
    return fx_fail(FX_STATUS_FORMAT, OP, "%s: offset %lld: expected %s, found %s%s", file->path,
                   (long long)offset, expected, found, fxi_data_file_cut_note(file));
}

/* Reads exactly `bytes` bytes, which are a part of the `total` bytes of `what` at `start`. */
static fx_status read_part(fxi_data_file *file, void *dst, size_t bytes, const char *what,
                           int64_t start, int64_t total)
{
    const int64_t got = fxi_data_file_read(file, dst, bytes);
    if (got < 0)
        return file->status;
    if ((size_t)got == bytes)
        return FX_OK;
    char expected[64], found[32];
    snprintf(expected, sizeof expected, "%lld bytes of %s", (long long)total, what);
    snprintf(found, sizeof found, "%lld", (long long)(file->offset - start));
    return bad(file, start, expected, found);
}

static fx_status check_magic(const fxi_data_file *file, const unsigned char magic[4], idx_header *h)
{
    char found[64];
    snprintf(found, sizeof found, "%02X %02X", magic[0], magic[1]);
    if (magic[0] || magic[1])
        return bad(file, 0, "an IDX header that starts with 00 00", found);
    for (size_t i = 0; i < sizeof TYPES / sizeof *TYPES; i++)
        if (TYPES[i].code == magic[2])
            h->type = &TYPES[i];
    snprintf(found, sizeof found, "0x%02X", magic[2]);
    if (!h->type)
        return bad(file, 2, "an element type 0x08, 0x09, 0x0B, 0x0C, 0x0D or 0x0E", found);
    h->ndims = magic[3];
    snprintf(found, sizeof found, "%d", h->ndims);
    if (h->ndims < 1 || h->ndims > FX_MAX_DIMS)
        return bad(file, 3, "1 to 8 axes", found);
    return FX_OK;
}

static fx_status read_header(fxi_data_file *file, idx_header *h)
{
    unsigned char magic[4], sizes[4 * FX_MAX_DIMS];
    fx_status status = read_part(file, magic, sizeof magic, "header", 0, sizeof magic);
    if (status == FX_OK)
        status = check_magic(file, magic, h);
    if (status == FX_OK)
        status = read_part(file, sizes, 4 * (size_t)h->ndims, "sizes", 4, 4 * h->ndims);
    if (status != FX_OK)
        return status;
    bool fits = true;
    h->count = 1;
    for (int i = 0; i < h->ndims; i++) {
        const int64_t size = big_u32(sizes + 4 * i);
        h->sizes[h->ndims - 1 - i] = size;
        fits = fits && fxi_mul_i64(h->count, size, &h->count);
    }
    fits = fits && fxi_mul_i64(h->count, h->type->bytes, &h->bytes) &&
           fxi_mul_i64(h->count, (int64_t)fx_dtype_size(h->type->dtype), &h->array_bytes);
    return fits ? FX_OK : bad(file, 4, "sizes whose product is below 2^63 bytes", "larger ones");
}

typedef struct pieces {
    unsigned char *data[MAX_PIECES];
    size_t bytes[MAX_PIECES];
    int n;
} pieces;

static void free_pieces(pieces *p)
{
    for (int i = 0; i < p->n; i++)
        fxi_free(p->data[i]);
    p->n = 0;
}

static fx_status read_pieces(fxi_data_file *file, int64_t bytes, pieces *p)
{
    const int64_t start = file->offset;
    int64_t size = FIRST_PIECE, left = bytes;
    fx_status status = FX_OK;
    while (status == FX_OK && left > 0) {
        const size_t want = (size_t)(left < size ? left : size);
        if (fxi_data_file_check_memory(file, want + (size_t)(bytes - left)) != FX_OK)
            return FX_STATUS_MEMORY;
        unsigned char *data = p->n < MAX_PIECES ? fxi_malloc(want) : NULL;
        if (!data)
            return fx_fail(FX_STATUS_MEMORY, OP, "%s: out of memory for %lld bytes", file->path,
                           (long long)bytes);
        p->data[p->n] = data;
        p->bytes[p->n++] = want;
        status = read_part(file, data, want, "data", start, bytes);
        left -= (int64_t)want;
        size *= 2;
    }
    return status;
}

/* Reading past the end also makes zlib check the stream's checksum. */
static fx_status check_end(fxi_data_file *file)
{
    unsigned char extra[64];
    const int64_t end = file->offset, got = fxi_data_file_read(file, extra, sizeof extra);
    if (got < 0)
        return file->status;
    if (got > 0)
        return bad(file, end, "the end of the file", "more bytes");
    return file->cut ? bad(file, end, "the end of the gzip stream", "nothing") : FX_OK;
}

static fx_array *to_array(const fxi_data_file *file, const idx_header *h, const pieces *p)
{
    const size_t element = fx_dtype_size(h->type->dtype);
    if (fxi_data_file_check_memory(file, (size_t)h->array_bytes) != FX_OK)
        return fx_error_array(FX_STATUS_MEMORY);
    unsigned char *data = fxi_lend_alloc((size_t)h->array_bytes);
    if (!data)
        return fx_error_array(fx_fail(FX_STATUS_MEMORY, OP, "%s: out of memory for %lld bytes",
                                      file->path, (long long)h->array_bytes));
    size_t done = 0;
    for (int i = 0; i < p->n; i++) {
        const size_t n = p->bytes[i] / h->type->bytes;
        h->type->convert(p->data[i], data + done * element, n);
        done += n;
    }
    return fxi_lend(h->type->dtype, data, h->ndims, h->sizes);
}

fx_array *fx_read_idx(const char *path)
{
    fxi_data_file file;
    idx_header header = {0};
    pieces data = {.n = 0};
    fx_status status = fxi_data_file_open(&file, OP, path);
    if (status == FX_OK)
        status = read_header(&file, &header);
    if (status == FX_OK)
        status = read_pieces(&file, header.bytes, &data);
    if (status == FX_OK)
        status = check_end(&file);
    fx_array *result = status == FX_OK ? to_array(&file, &header, &data) : fx_error_array(status);
    free_pieces(&data);
    fxi_data_file_close(&file);
    return result;
}
