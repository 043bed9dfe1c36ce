/* npy.c: one array in NumPy's format (numpy.lib.format, versions 1.0, 2.0 and 3.0).
 *
 * The file begins with a magic number, the version and the length of the header. The header is the
 * text of a Python dictionary, {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }, padded
 * with spaces up to a newline; the elements follow. NumPy parses that text with Python's own
 * parser; this reader accepts only the form that NumPy writes. Bytes after the elements are
 * refused.
 *
 * The result does not depend on the storage order: shape (a, b, c) becomes the array c×b×a. For C
 * order the bytes stay the same; for Fortran order the elements are transposed.
 */
#include "npy.h"
#include "entries.h"
#include "file_types.h"
#include "formats.h"
#include "memory.h"
#include "reads.h"

#include <cflux/ops.h>
#include <stdio.h>
#include <string.h>

enum { MAX_HEADER = 1 << 20, ALIGNMENT = 64 };

/* ---- the header's text ----------------------------------------------------------------------- */

typedef struct header {
    char descr[16];
    bool fortran;
    int ndims;
    uint64_t sizes[FXI_FILE_DIMS];
    unsigned has; /* which of the three keys were present */
} header;

static unsigned char peek(fxi_bytes *h)
{
    while (h->at < h->size && (h->data[h->at] == ' ' || h->data[h->at] == '\n'))
        h->at++;
    return h->status == FX_OK && h->at < h->size ? h->data[h->at] : 0;
}

static bool take(fxi_bytes *h, char c)
{
    const bool there = peek(h) == (unsigned char)c;
    h->at += there;
    return there;
}

static bool expect(fxi_bytes *h, char c)
{
    if (!take(h, c))
        fxi_bytes_fail(h, h->at, "expected '%c' in the header", c);
    return h->status == FX_OK;
}

/* Reads a short text in quotes, without escapes. */
static void quoted(fxi_bytes *h, char *out, size_t capacity)
{
    const unsigned char quote = peek(h);
    size_t n = 0;
    *out = 0;
    if (quote != '\'' && quote != '"') {
        fxi_bytes_fail(h, h->at, "expected a text in quotes in the header");
        return;
    }
    for (h->at++; h->at < h->size && h->data[h->at] != quote && n + 1 < capacity; h->at++)
        out[n++] = (char)h->data[h->at];
    out[n] = 0;
    if (h->at >= h->size || h->data[h->at] != quote)
        fxi_bytes_fail(h, h->at, "a text in the header is not closed, or has more than %zu bytes",
                       capacity - 1);
    else
        h->at++;
}

static bool word(fxi_bytes *h, const char *text)
{
    const size_t n = strlen(text);
    peek(h);
    const bool there = fxi_bytes_left(h) >= n && memcmp(h->data + h->at, text, n) == 0;
    h->at += there ? n : 0;
    return there;
}

static uint64_t count(fxi_bytes *h)
{
    peek(h);
    const size_t begin = h->at;
    uint64_t v = 0;
    while (h->at < h->size && h->data[h->at] >= '0' && h->data[h->at] <= '9') {
        if (v > (INT64_MAX - 9) / 10)
            fxi_bytes_fail(h, begin, "a size in the header is above %lld", (long long)INT64_MAX);
        v = h->status == FX_OK ? v * 10 + (h->data[h->at] - (uint64_t)'0') : 0;
        h->at++;
    }
    if (h->at == begin)
        fxi_bytes_fail(h, begin, "expected a size in the header, a whole number");
    if (h->at < h->size && h->data[h->at] == 'L') /* suffix written by Python 2 */
        h->at++;
    return v;
}

static void read_shape(fxi_bytes *h, header *out)
{
    if (!expect(h, '('))
        return;
    while (h->status == FX_OK && !take(h, ')')) {
        if (out->ndims > 0 && !expect(h, ','))
            return;
        if (out->ndims > 0 && take(h, ')'))
            return;
        if (out->ndims == FXI_FILE_DIMS) {
            fxi_bytes_fail(h, h->at, "the array has more than %d axes", (int)FXI_FILE_DIMS);
            return;
        }
        out->sizes[out->ndims++] = count(h);
    }
}

static void read_order(fxi_bytes *h, header *out)
{
    out->fortran = word(h, "True");
    if (!out->fortran && !word(h, "False"))
        fxi_bytes_fail(h, h->at, "expected True or False for fortran_order");
}

static void read_descr(fxi_bytes *h, header *out)
{
    quoted(h, out->descr, sizeof out->descr);
}

static void read_pair(fxi_bytes *h, header *out)
{
    static const struct {
        const char *key;
        void (*read)(fxi_bytes *h, header *out);
    } keys[] = {{"descr", read_descr}, {"fortran_order", read_order}, {"shape", read_shape}};
    char key[24];
    peek(h);
    const size_t at = h->at;
    quoted(h, key, sizeof key);
    for (unsigned i = 0; h->status == FX_OK && i < sizeof keys / sizeof *keys; i++)
        if (strcmp(key, keys[i].key) == 0 && !(out->has & 1u << i) && expect(h, ':')) {
            out->has |= 1u << i;
            keys[i].read(h, out);
            return;
        }
    fxi_bytes_fail(h, at, "\"%s\" appears twice, or is not one of descr, fortran_order and shape",
                   key);
}

static void read_dictionary(fxi_bytes *h, header *out)
{
    if (h->size == 0 || h->data[h->size - 1] != '\n')
        fxi_bytes_fail(h, h->size, "the header does not end with a newline");
    expect(h, '{');
    while (h->status == FX_OK && !take(h, '}')) {
        if (out->has && !expect(h, ','))
            return;
        if (out->has && take(h, '}'))
            break;
        read_pair(h, out);
    }
    if (h->status == FX_OK && peek(h) != 0)
        fxi_bytes_fail(h, h->at, "there is more text after the header's dictionary");
    else if (h->status == FX_OK && h->at < h->size)
        fxi_bytes_fail(h, h->at, "there is a zero byte in the header");
    else if (h->status == FX_OK && out->has != 7)
        fxi_bytes_fail(h, h->size, "the header lacks its %s",
                       !(out->has & 1)   ? "descr"
                       : !(out->has & 2) ? "fortran_order"
                                         : "shape");
}

/* ---- reading --------------------------------------------------------------------------------- */

static fxi_bytes open_header(fxi_bytes *b)
{
    const unsigned char *magic = fxi_bytes_take(b, FXI_NPY_MAGIC_BYTES, "the magic number");
    if (magic && memcmp(magic, FXI_NPY_MAGIC, FXI_NPY_MAGIC_BYTES) != 0)
        fxi_bytes_fail(b, 0, "the magic number is not NumPy's");
    const uint64_t major = fxi_bytes_number(b, 1, "the version");
    const uint64_t minor = fxi_bytes_number(b, 1, "the version");
    if (b->status == FX_OK && (major < 1 || major > 3 || minor != 0))
        fxi_bytes_fail(b, FXI_NPY_MAGIC_BYTES,
                       "the version is %d.%d; supported are 1.0, 2.0 and 3.0", (int)major,
                       (int)minor);
    const uint64_t n = fxi_bytes_number(b, major == 1 ? 2 : 4, "the length of the header");
    if (n > MAX_HEADER)
        fxi_bytes_fail(b, b->at, "the header has %llu bytes, expected at most %d",
                       (unsigned long long)n, (int)MAX_HEADER);
    fxi_bytes h = fxi_bytes_part(b, b->at, (size_t)n, "the header");
    b->at += h.size;
    return h;
}

static const fxi_file_type *type_of(fxi_bytes *h, const char *descr, bool *out_big)
{
    *out_big = descr[0] == '>';
    const fxi_file_type *type =
        descr[0] && strchr("<>|=", descr[0]) ? fxi_file_type_npy(descr + 1) : NULL;
    if (!type)
        fxi_bytes_fail(h, 0, "the element type is '%s'%s", descr,
                       strchr(descr, 'O') ? ": Python objects are not loaded"
                                          : ", expected numbers");
    return type;
}

static fx_array *transposed(fx_array *x, int first)
{
    int64_t axes[FX_MAX_DIMS];
    const int n = fx_ndims(x);
    for (int i = 0; i < n; i++)
        axes[i] = i < first ? i : n - 1 - (i - first);
    return fxi_permute(x, n, axes);
}

static void reverse(uint64_t *sizes, int n)
{
    for (int i = 0; i < n / 2; i++) {
        const uint64_t d = sizes[i];
        sizes[i] = sizes[n - 1 - i];
        sizes[n - 1 - i] = d;
    }
}

fx_array *fxi_npy_read(fxi_bytes *b)
{
    header h = {.has = 0};
    bool big = false;
    fxi_bytes text = open_header(b);
    if (text.status == FX_OK)
        read_dictionary(&text, &h);
    const fxi_file_type *type = text.status == FX_OK ? type_of(&text, h.descr, &big) : NULL;
    if (text.status != FX_OK)
        return fx_error_array(text.status);
    if (h.fortran)
        reverse(h.sizes, h.ndims);
    fx_array *x = fxi_file_type_array(b, type, big, h.ndims, h.sizes);
    if (b->status == FX_OK && fxi_bytes_left(b) > 0)
        fxi_bytes_fail(b, b->at, "%zu bytes follow the elements", fxi_bytes_left(b));
    if (b->status != FX_OK)
        return fx_error_array(b->status);
    if (!h.fortran || h.ndims < 2)
        return x;
    x = transposed(x, type->parts > 1);
    if (fx_eval(x) == FX_OK)
        fxi_array_cut(x);
    return x;
}

static bool sniff(const fxi_bytes *file)
{
    return file->size >= FXI_NPY_MAGIC_BYTES &&
           memcmp(file->data, FXI_NPY_MAGIC, FXI_NPY_MAGIC_BYTES) == 0;
}

static void *load(fxi_bytes *file)
{
    return fxi_npy_read(file);
}

static fx_status about(fxi_bytes *file, fx_file_info *out)
{
    const fxi_bytes text = open_header(file);
    if (text.status == FX_OK)
        snprintf(out->origin, sizeof out->origin, "NumPy's format %d.0",
                 file->data[FXI_NPY_MAGIC_BYTES]);
    return text.status;
}

/* ---- writing --------------------------------------------------------------------------------- */

size_t fxi_npy_header(const char *op, const fx_array *x, char out[FXI_NPY_HEADER])
{
    const fxi_file_type *type = fxi_file_type_of(fx_eltype(x));
    if (!type->npy) {
        fx_fail(FX_STATUS_DTYPE, op, "NumPy has no %s; convert with fx_f32 before saving",
                fx_dtype_name(fx_eltype(x)));
        return 0;
    }
    const size_t before = FXI_NPY_MAGIC_BYTES + 4;
    memcpy(out, FXI_NPY_MAGIC "\1\0\0\0", before);
    size_t n = before;
    n += (size_t)snprintf(out + n, FXI_NPY_HEADER - n,
                          "{'descr': '%c%s', 'fortran_order': False, 'shape': (",
                          type->size > 1 ? '<' : '|', type->npy);
    const int ndims = fx_ndims(x);
    for (int k = ndims - 1; k >= 0; k--)
        n += (size_t)snprintf(out + n, FXI_NPY_HEADER - n, "%lld%s", (long long)fx_size(x, k),
                              k > 0 || ndims == 1 ? "," : "");
    n += (size_t)snprintf(out + n, FXI_NPY_HEADER - n, "), }");
    while ((n + 1) % ALIGNMENT != 0)
        out[n++] = ' ';
    out[n++] = '\n';
    out[before - 2] = (char)((n - before) & 255);
    out[before - 1] = (char)((n - before) >> 8);
    return n;
}

static fx_status save_array(fxi_file_out *out, fx_array *x)
{
    char text[FXI_NPY_HEADER];
    const size_t n = fxi_npy_header(out->op, x, text);
    if (n == 0)
        return FX_STATUS_DTYPE;
    const fx_status status = fxi_file_out_write(out, text, n);
    return status == FX_OK ? fxi_write_elements(out, x) : status;
}

static fx_status save(fxi_file_out *out, const fxi_saving *what)
{
    fxi_entries e = {.op = what->op};
    for (int i = 0; i < what->n; i++)
        fxi_entries_walk(&e, what->names[i], what->objects[i]);
    fx_status status = e.status;
    if (status == FX_OK && (e.n != 1 || what->metadata))
        status = fx_fail(
            FX_STATUS_ARGUMENT, what->op,
            "%s: an .npy can hold one array and no texts, got %d arrays%s; .npz can hold several",
            out->path, (int)e.n, what->metadata ? " and texts" : "");
    if (status == FX_OK)
        status = save_array(out, e.items[0].array);
    fxi_entries_free(&e);
    return status;
}

const fxi_format fxi_format_npy = {
    .name = "npy", .extension = ".npy", .sniff = sniff, .load = load, .save = save, .about = about};
