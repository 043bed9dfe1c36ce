/* safetensors.c: arrays by name, in Hugging Face's safetensors format.
 *
 * A file has three parts: the length of the header, a little-endian number of 8 bytes; the header,
 * a JSON object {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, …,
 * "__metadata__": {"key": "text"}}, padded with spaces; and the bytes of the arrays, in C order.
 * The arrays must cover the data from offset 0 to the end of the file without gaps or overlaps. All
 * of this is checked, because bytes without a name, or with two, are a way to hide content in a
 * file.
 *
 * Arrays are used in place in the mapped file. To align them, the header is padded to a multiple of
 * 8 bytes and arrays with larger elements are stored first; the header lists them in the order
 * given by the caller.
 */
#include "safetensors.h"
#include "file_types.h"
#include "formats.h"
#include "json.h"
#include "memory.h"
#include "metadata.h"
#include "utf8.h"

#include <stdlib.h>
#include <string.h>

enum { LENGTH_BYTES = 8, MAX_HEADER = 100000000 };

/* ---- reading: the header --------------------------------------------------------------------- */

/* The record of one array; small, because a file may have a million. */
typedef struct span {
    uint64_t begin, end; /* offsets in the data */
    size_t at;           /* offset of its entry in the header */
    int32_t entry;
    const char *name; /* name of the entry; set after all entries are read */
} span;

typedef struct reading {
    fxi_bytes *file;
    fxi_bytes header, data;
    fxi_entries entries;
    span *spans;
    int32_t n, capacity;
    void *metadata; /* NULL if there is none */
} reading;

static bool sniff(const fxi_bytes *file)
{
    fxi_bytes b = *file;
    const uint64_t n = b.size > LENGTH_BYTES ? fxi_bytes_number(&b, LENGTH_BYTES, "length") : 0;
    const uint64_t left = b.size > LENGTH_BYTES ? fxi_bytes_left(&b) : 0;
    for (size_t i = 0; i < left && i < n && i < 16; i++)
        if (!strchr(" \t\r\n", b.data[b.at + i]))
            return b.data[b.at + i] == '{';
    return false;
}

static const fxi_file_type *read_type(fxi_bytes *h)
{
    const size_t at = h->at;
    char *name = fxi_json_string(h);
    const fxi_file_type *type = name ? fxi_file_type_safetensors(name) : NULL;
    if (name && !type)
        fxi_bytes_fail(h, at, "unknown element type \"%.40s\"", name);
    fxi_free(name);
    return type;
}

static int read_shape(fxi_bytes *h, uint64_t sizes[FXI_FILE_DIMS])
{
    int n = 0;
    if (!fxi_json_expect(h, '['))
        return 0;
    while (fxi_json_more(h, ']', n == 0)) {
        if (n == FXI_FILE_DIMS) {
            fxi_bytes_fail(h, h->at, "an array has more than %d axes", (int)FXI_FILE_DIMS);
            return 0;
        }
        sizes[n++] = fxi_json_count(h);
    }
    return n;
}

static void read_offsets(fxi_bytes *h, span *s)
{
    if (!fxi_json_expect(h, '['))
        return;
    s->begin = fxi_json_count(h);
    fxi_json_expect(h, ',');
    s->end = fxi_json_count(h);
    fxi_json_expect(h, ']');
}

enum { HAS_TYPE = 1, HAS_SHAPE = 2, HAS_OFFSETS = 4, HAS_ALL = 7 };

static unsigned read_field(fxi_bytes *h, const char *key, const fxi_file_type **type, int *ndims,
                           uint64_t sizes[FXI_FILE_DIMS], span *s)
{
    if (strcmp(key, "dtype") == 0) {
        *type = read_type(h);
        return HAS_TYPE;
    }
    if (strcmp(key, "shape") == 0) {
        *ndims = read_shape(h, sizes);
        return HAS_SHAPE;
    }
    if (strcmp(key, "data_offsets") == 0) {
        read_offsets(h, s);
        return HAS_OFFSETS;
    }
    return 0;
}

/* The array that a header entry describes, from its bytes in the data; NULL on failure (recorded).
 */
static fx_array *entry_array(reading *r, const fxi_file_type *type, int ndims,
                             const uint64_t *sizes, const span *s)
{
    size_t bytes;
    if (s->begin > s->end || s->end > r->data.size) {
        fxi_bytes_fail(&r->header, s->at,
                       "the array's offsets are %llu and %llu, but the data has %zu bytes",
                       (unsigned long long)s->begin, (unsigned long long)s->end, r->data.size);
        return NULL;
    }
    if (!fxi_file_type_bytes(type, ndims, sizes, &bytes)) {
        fxi_bytes_fail(&r->header, s->at, FXI_FILE_TOO_LARGE);
        return NULL;
    }
    if (bytes != s->end - s->begin) {
        fxi_bytes_fail(
            &r->header, s->at,
            "the array has %zu bytes according to its shape, but %llu according to its offsets",
            bytes, (unsigned long long)(s->end - s->begin));
        return NULL;
    }
    r->data.at = s->begin;
    fx_array *x = fxi_file_type_array(&r->data, type, false, ndims, sizes);
    r->header.status = r->data.status;
    return x;
}

static void read_tensor(reading *r, const char *name, size_t at)
{
    fxi_bytes *h = &r->header;
    uint64_t sizes[FXI_FILE_DIMS];
    const fxi_file_type *type = NULL;
    int ndims = 0;
    unsigned has = 0;
    span s = {.at = at, .entry = r->entries.n};
    fxi_json_expect(h, '{');
    while (h->status == FX_OK && fxi_json_more(h, '}', has == 0)) {
        const size_t key_at = h->at;
        char *key = fxi_json_string(h);
        const bool colon = key && fxi_json_expect(h, ':');
        const unsigned field = colon ? read_field(h, key, &type, &ndims, sizes, &s) : 0;
        if (colon && (field == 0 || has & field))
            fxi_bytes_fail(h, key_at, "\"%.40s\" is %s", key,
                           field ? "given twice" : "not one of dtype, shape and data_offsets");
        has |= field;
        fxi_free(key);
    }
    if (h->status == FX_OK && has != HAS_ALL)
        fxi_bytes_fail(h, at, "the array lacks its %s",
                       !(has & HAS_TYPE)    ? "dtype"
                       : !(has & HAS_SHAPE) ? "shape"
                                            : "data_offsets");
    fx_array *x = h->status == FX_OK ? entry_array(r, type, ndims, sizes, &s) : NULL;
    if (!x)
        return;
    if (!fxi_grow(&r->spans, &r->capacity, r->n + 1, sizeof *r->spans))
        h->status = fx_fail(FX_STATUS_MEMORY, h->op, "%s: out of memory", h->path);
    else if ((h->status = fxi_entries_add(&r->entries, name, x)) == FX_OK)
        r->spans[r->n++] = s;
}

static void read_header(reading *r)
{
    fxi_bytes *h = &r->header;
    fxi_json_expect(h, '{');
    bool metadata = false;
    for (bool first = true; h->status == FX_OK && fxi_json_more(h, '}', first); first = false) {
        fxi_json_peek(h);
        const size_t at = h->at;
        char *name = fxi_json_string(h);
        const bool is_metadata = name && strcmp(name, FXI_METADATA_NAME) == 0;
        if (is_metadata && metadata)
            fxi_bytes_fail(h, at, "the metadata appears twice");
        if (name && fxi_json_expect(h, ':')) {
            if (is_metadata)
                r->metadata = fxi_metadata_read(h);
            else
                read_tensor(r, name, at);
        }
        metadata |= is_metadata;
        fxi_free(name);
    }
    if (h->status == FX_OK && fxi_json_peek(h) != 0)
        fxi_bytes_fail(h, h->at, "there is more text after the header's object");
    else if (h->status == FX_OK && h->at != h->size)
        fxi_bytes_fail(h, h->at, "there is a zero byte after the header's object");
}

/* ---- reading: the whole ---------------------------------------------------------------------- */

static int by_begin(const void *a, const void *b)
{
    const span *x = a, *y = b;
    return x->begin != y->begin ? (x->begin < y->begin ? -1 : 1)
           : x->end != y->end   ? (x->end < y->end ? -1 : 1)
                                : (x->at > y->at) - (x->at < y->at);
}

/* Checks that every byte of the data belongs to exactly one array. */
static void check_cover(reading *r)
{
    uint64_t at = 0;
    if (r->n)
        qsort(r->spans, (size_t)r->n, sizeof *r->spans, by_begin);
    for (int32_t i = 0; i < r->n && r->header.status == FX_OK; i++) {
        const span *s = &r->spans[i];
        if (s->begin != at)
            fxi_bytes_fail(&r->header, s->at,
                           "the array \"%.80s\" starts at byte %llu of the data, but the previous "
                           "one ends at %llu",
                           r->entries.items[s->entry].name, (unsigned long long)s->begin,
                           (unsigned long long)at);
        at = s->end;
    }
    if (r->header.status == FX_OK && at != r->data.size)
        r->header.status = fxi_bytes_fail(&r->data, at, "%llu bytes belong to no array",
                                          (unsigned long long)(r->data.size - at));
}

static int by_name_then_offset(const void *a, const void *b)
{
    const span *x = a, *y = b;
    const int order = strcmp(x->name, y->name);
    return order ? order : (x->at > y->at) - (x->at < y->at);
}

static void check_names(reading *r)
{
    for (int32_t i = 0; i < r->n; i++)
        r->spans[i].name = r->entries.items[r->spans[i].entry].name;
    if (r->n)
        qsort(r->spans, (size_t)r->n, sizeof *r->spans, by_name_then_offset);
    for (int32_t i = 1; i < r->n && r->header.status == FX_OK; i++) {
        const char *name = r->spans[i].name;
        if (strcmp(r->spans[i - 1].name, name) == 0)
            fxi_bytes_fail(&r->header, r->spans[i].at, "the name \"%.80s\" appears twice", name);
    }
    if (r->header.status == FX_OK && r->n && !*r->spans[0].name)
        fxi_bytes_fail(&r->header, r->spans[0].at, "the name of an array is empty");
}

static void open_parts(reading *r)
{
    fxi_bytes *f = r->file;
    const uint64_t n = fxi_bytes_number(f, LENGTH_BYTES, "the length of the header");
    size_t bad;
    if (f->status == FX_OK && n > MAX_HEADER)
        fxi_bytes_fail(f, 0, "the header's length is %llu, expected at most %d",
                       (unsigned long long)n, (int)MAX_HEADER);
    r->header = fxi_bytes_part(f, LENGTH_BYTES, (size_t)n, "the header");
    if (f->status == FX_OK)
        r->data = fxi_bytes_part(f, LENGTH_BYTES + (size_t)n, f->size - LENGTH_BYTES - (size_t)n,
                                 "the data");
    r->header.status = f->status;
    if (f->status == FX_OK && !fxi_is_utf8(r->header.data, r->header.size, &bad))
        fxi_bytes_fail(&r->header, bad, "the header is not UTF-8 text");
}

static void *load(fxi_bytes *file)
{
    reading r = {.file = file, .entries = {.op = file->op}};
    open_parts(&r);
    if (r.header.status == FX_OK)
        read_header(&r);
    if (r.header.status == FX_OK)
        check_cover(&r);
    if (r.header.status == FX_OK)
        check_names(&r);
    void *all = NULL;
    if (r.header.status == FX_OK && r.metadata)
        r.header.status = fxi_entries_add(&r.entries, FXI_METADATA_NAME, r.metadata);
    if (r.header.status == FX_OK)
        all = fxi_entries_tuple(&r.entries);
    fxi_free(r.spans);
    fxi_entries_free(&r.entries);
    return all ? all : fx_error_array(r.header.status);
}

/* ---- writing --------------------------------------------------------------------------------- */

typedef struct planned {
    const fxi_entry *entry;
    const fxi_file_type *type;
    size_t begin, end;
    int32_t index; /* in the caller's list */
} planned;

static int by_element_size(const void *a, const void *b)
{
    const planned *x = a, *y = b;
    return x->type->size != y->type->size ? y->type->size - x->type->size : x->index - y->index;
}

static int by_index(const void *a, const void *b)
{
    return ((const planned *)a)->index - ((const planned *)b)->index;
}

/* Assigns each array its offsets in the file. Returns the arrays in the order of their bytes. */
static planned *plan(const fxi_entries *e, size_t *out_end)
{
    planned *p = fxi_calloc((size_t)e->n + 1, sizeof *p);
    size_t at = 0;
    for (int32_t i = 0; p && i < e->n; i++)
        p[i] = (planned){.entry = &e->items[i],
                         .type = fxi_file_type_of(fx_eltype(e->items[i].array)),
                         .index = i};
    if (p)
        qsort(p, (size_t)e->n, sizeof *p, by_element_size);
    for (int32_t i = 0; p && i < e->n; i++) {
        p[i].begin = at;
        at += (size_t)fx_length(p[i].entry->array) * (size_t)p[i].type->size;
        p[i].end = at;
    }
    *out_end = at;
    return p;
}

static void put_offsets(fx_json *out, size_t begin, size_t end)
{
    fx_json_open(out, "data_offsets", '[');
    fx_json_integer(out, NULL, (int64_t)begin);
    fx_json_integer(out, NULL, (int64_t)end);
    fx_json_close(out);
    fx_json_close(out); /* closes the entry */
}

static void put_entry(fx_json *out, const planned *p)
{
    const fx_array *x = p->entry->array;
    fx_json_open(out, p->entry->name, '{');
    fx_json_text(out, "dtype", p->type->safetensors);
    fx_json_open(out, "shape", '[');
    for (int k = fx_ndims(x) - 1; k >= 0; k--)
        fx_json_integer(out, NULL, fx_size(x, k));
    fx_json_close(out);
    put_offsets(out, p->begin, p->end);
}

static void put_sum(fx_json *out, size_t end)
{
    fx_json_open(out, FXI_SUM_NAME, '{');
    fx_json_text(out, "dtype", "U8");
    fx_json_open(out, "shape", '[');
    fx_json_integer(out, NULL, FXI_SUM_BYTES);
    fx_json_close(out);
    put_offsets(out, end, end + FXI_SUM_BYTES);
}

/* Writes the padded text of the header. `p` is in the order of the caller's list. */
static fx_status put_header(fx_json *out, const fxi_entries *e, const planned *p,
                            const void *metadata, bool sum, size_t end)
{
    fx_json_open(out, NULL, '{');
    if (metadata)
        fxi_metadata_put(out, FXI_METADATA_NAME, metadata);
    for (int32_t i = 0; i < e->n; i++)
        put_entry(out, &p[i]);
    if (sum)
        put_sum(out, end);
    fx_json_close(out);
    while (!out->failed && out->n % 8 != 0)
        fxi_json_raw(out, " ");
    if (out->failed)
        return fx_fail(FX_STATUS_MEMORY, e->op, "no memory for the header");
    if (out->n > MAX_HEADER)
        return fx_fail(FX_STATUS_UNSUPPORTED, e->op,
                       "safetensors: the header would have %d bytes; the maximum is %d",
                       (int)out->n, (int)MAX_HEADER);
    if (out->not_utf8)
        return fx_fail(FX_STATUS_ARGUMENT, e->op, "a name or text is not UTF-8");
    return FX_OK;
}

static fx_status write_number(fxi_file_out *out, uint64_t v, int n)
{
    unsigned char bytes[8];
    for (int i = 0; i < n; i++)
        bytes[i] = (unsigned char)(v >> 8 * i);
    return fxi_file_out_write(out, bytes, (size_t)n);
}

fx_status fxi_safetensors_write(fxi_file_out *out, fxi_entries *e, const void *metadata, bool sum)
{
    size_t end;
    if (metadata && fx_is_error(metadata))
        return fxi_status_of_error(metadata);
    if (fxi_entries_unique(e) != FX_OK)
        return e->status;
    planned *p = plan(e, &end);
    if (!p)
        return fx_fail(FX_STATUS_MEMORY, e->op, "no memory for a list of %d arrays", (int)e->n);
    fx_json header = {0};
    qsort(p, (size_t)e->n, sizeof *p, by_index);
    fx_status status = put_header(&header, e, p, metadata, sum, end);
    qsort(p, (size_t)e->n, sizeof *p, by_element_size);
    if (status == FX_OK)
        status = write_number(out, (uint64_t)header.n, LENGTH_BYTES);
    if (status == FX_OK)
        status = fxi_file_out_write(out, header.text, (size_t)header.n);
    for (int32_t i = 0; i < e->n && status == FX_OK; i++)
        status = fxi_write_elements(out, p[i].entry->array);
    if (status == FX_OK && sum)
        status = write_number(out, out->crc, FXI_SUM_BYTES);
    fxi_free(header.text);
    fxi_free(p);
    return status;
}

static fx_status save(fxi_file_out *out, const fxi_saving *what)
{
    fxi_entries e = {.op = what->op};
    for (int i = 0; i < what->n; i++)
        fxi_entries_walk(&e, what->names[i], what->objects[i]);
    fx_status status = e.status;
    if (status == FX_OK)
        status = fxi_safetensors_write(out, &e, what->metadata, false);
    fxi_entries_free(&e);
    return status;
}

const fxi_format fxi_format_safetensors = {.name = "safetensors",
                                           .extension = ".safetensors",
                                           .arrays = true,
                                           .sniff = sniff,
                                           .load = load,
                                           .save = save};
