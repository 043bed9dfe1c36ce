/* npz.c: several arrays in NumPy's format: a ZIP archive of .npy members.
 *
 * The archive's directory, at the end of the file, gives the locations of the members; each
 * member's own header repeats its entry. Only archives as NumPy writes them are accepted: members
 * stored or deflated, not encrypted, in one part, on bytes that do not overlap, with sizes in 32 or
 * 64 bits (Zip64). The CRC-32 of every member is checked.
 *
 * A small file must not allocate much memory (a "ZIP bomb"). Deflate cannot compress better than
 * 1032 : 1, so a member that declares more is refused before anything is allocated. The declared
 * size must also fit the limit of fx_set_memory_limit for the CPU device, or without a limit the
 * free memory (bytes.h). Decompression never writes beyond the declared size.
 *
 * The name of an array is the name of its member without ".npy", unless the archive also has a
 * member of exactly that name. Then the array keeps the ".npy", because NumPy finds both members
 * under these names too: z["a"] and z["a.npy"].
 *
 * Texts are stored as the member "__metadata__", a UInt8 array that holds a JSON object of texts,
 * as in the header of a safetensors file. NumPy reads it as an array:
 * json.loads(bytes(z["__metadata__"])).
 *
 * Members are written uncompressed, as numpy.savez does, and aligned to 64 bytes by an extra field
 * that readers skip, so that their arrays can be used in place in the mapped file. Format: PKWARE,
 * APPNOTE.TXT 6.3.
 */
#include "entries.h"
#include "formats.h"
#include "memory.h"
#include "metadata.h"
#include "npy.h"
#include "reads.h"
#include "utf8.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum {
    END_BYTES = 22,     /* size of the end record, without the comment */
    LOCATOR_BYTES = 20, /* size of the Zip64 locator, which directly precedes the end record and
                           gives the location of the Zip64 end record */
    END64_BYTES = 56,
    ENTRY_BYTES = 46, /* size of a directory entry, without name, extra field and comment */
    LOCAL_BYTES = 30, /* size of a member's header, without name and extra field */
    MAX_COMMENT = 65535,
    MOST_INFLATED = 1032,
    ALIGNMENT = 64,
    ZIP64_FIELD = 1,
    PADDING_FIELD = 0xD935 /* the same as Android's zipalign uses */
};
#define SIGNATURE_ENTRY   0x02014b50u
#define SIGNATURE_LOCAL   0x04034b50u
#define SIGNATURE_END     0x06054b50u
#define SIGNATURE_END64   0x06064b50u
#define SIGNATURE_LOCATOR 0x07064b50u
static const char SUFFIX[] = ".npy";
static const uint64_t IN_64_BITS = 0xFFFFFFFF; /* the value is in the Zip64 field */

typedef struct member {
    char *name;
    bool stripped; /* ".npy" was removed from the name, whose memory still has space for it */
    size_t at;     /* offset of its directory entry, for messages */
    uint64_t flags, method, crc, packed, size, local;
    uint64_t begin; /* offset of its bytes */
} member;

typedef struct archive {
    fxi_bytes *file;
    uint64_t count, directory, directory_bytes;
    member *members;
    int32_t n, capacity;
} archive;

static fx_status no_memory(fxi_bytes *b)
{
    return b->status = fx_fail(FX_STATUS_MEMORY, b->op, "%s: out of memory", b->path);
}

/* ---- the directory --------------------------------------------------------------------------- */

static bool signed_as(const fxi_bytes *b, size_t at, uint32_t signature)
{
    fxi_bytes here = *b;
    here.at = at;
    return at <= b->size && b->size - at >= 4 && fxi_bytes_number(&here, 4, "") == signature;
}

/* Finds the end record: the last signature in the file whose comment reaches exactly to the end of
 * the file. */
static bool find_end(const fxi_bytes *b, size_t *out_at)
{
    for (size_t back = END_BYTES; back <= b->size && back <= END_BYTES + MAX_COMMENT; back++) {
        const size_t at = b->size - back;
        if (signed_as(b, at, SIGNATURE_END) &&
            (size_t)(b->data[at + 20] | b->data[at + 21] << 8) == back - END_BYTES) {
            *out_at = at;
            return true;
        }
    }
    return false;
}

static void read_end64(archive *a, size_t end)
{
    fxi_bytes *b = a->file;
    if (end < LOCATOR_BYTES || !signed_as(b, end - LOCATOR_BYTES, SIGNATURE_LOCATOR))
        return;
    b->at = end - LOCATOR_BYTES + 8;
    const uint64_t at = fxi_bytes_number(b, 8, "the offset of the Zip64 end record");
    if (at > end || end - at < END64_BYTES || !signed_as(b, (size_t)at, SIGNATURE_END64)) {
        fxi_bytes_fail(b, end - LOCATOR_BYTES, "the Zip64 end record is not at its offset");
        return;
    }
    b->at = (size_t)at + 32;
    a->count = fxi_bytes_number(b, 8, "the number of members");
    a->directory_bytes = fxi_bytes_number(b, 8, "the size of the directory");
    a->directory = fxi_bytes_number(b, 8, "the offset of the directory");
}

static void read_end(archive *a)
{
    fxi_bytes *b = a->file;
    size_t end;
    if (!find_end(b, &end)) {
        fxi_bytes_fail(b, b->size, "%s",
                       b->size ? "the archive's directory is missing: the file is truncated"
                               : "the file is empty");
        return;
    }
    b->at = end + 4;
    const uint64_t disks = fxi_bytes_number(b, 4, "the number of the part");
    const uint64_t here = fxi_bytes_number(b, 2, "the number of members");
    a->count = fxi_bytes_number(b, 2, "the number of members");
    a->directory_bytes = fxi_bytes_number(b, 4, "the size of the directory");
    a->directory = fxi_bytes_number(b, 4, "the offset of the directory");
    if (disks != 0 || here != a->count)
        fxi_bytes_fail(b, end, "the archive is split into several parts");
    read_end64(a, end);
    if (b->status == FX_OK &&
        (a->directory > end || a->directory_bytes > end - a->directory ||
         a->count > a->directory_bytes / ENTRY_BYTES || a->count > FXI_IO_MAX_ARRAYS))
        fxi_bytes_fail(b, end,
                       "a directory of %llu members in %llu bytes at offset %llu is invalid",
                       (unsigned long long)a->count, (unsigned long long)a->directory_bytes,
                       (unsigned long long)a->directory);
}

/* The Zip64 field holds, in this order, the values that do not fit 32 bits. */
static void read_extra(fxi_bytes *b, size_t n, member *m)
{
    fxi_bytes extra = fxi_bytes_part(b, b->at, n, "an extra field");
    while (extra.status == FX_OK && fxi_bytes_left(&extra) >= 4) {
        const uint64_t id = fxi_bytes_number(&extra, 2, "an extra field");
        const size_t length = (size_t)fxi_bytes_number(&extra, 2, "an extra field");
        fxi_bytes field = fxi_bytes_part(&extra, extra.at, length, "an extra field");
        extra.at += field.size;
        uint64_t *const values[] = {&m->size, &m->packed, &m->local};
        for (int i = 0; i < 3 && id == ZIP64_FIELD; i++)
            if (*values[i] == IN_64_BITS)
                *values[i] = fxi_bytes_number(&field, 8, "a 64-bit size");
        extra.status = field.status;
    }
    b->status = extra.status;
}

static void add_member(archive *a, member *m, const unsigned char *name, size_t n)
{
    fxi_bytes *b = a->file;
    size_t bad;
    if (!fxi_is_utf8(name, n, &bad)) {
        fxi_bytes_fail(b, m->at, "the name of a member is not UTF-8 text");
        return;
    }
    m->stripped = n > 4 && memcmp(name + n - 4, SUFFIX, 4) == 0;
    m->name = fxi_malloc(n + 1);
    n -= m->stripped ? 4 : 0;
    if (!m->name || !fxi_grow(&a->members, &a->capacity, a->n + 1, sizeof *a->members)) {
        fxi_free(m->name);
        no_memory(b);
        return;
    }
    memcpy(m->name, name, n);
    m->name[n] = 0;
    a->members[a->n++] = *m;
}

static void read_entry(archive *a)
{
    fxi_bytes *b = a->file;
    member m = {.at = b->at};
    if (fxi_bytes_number(b, 4, "a directory entry") != SIGNATURE_ENTRY)
        fxi_bytes_fail(b, m.at, "this is not an entry of the directory");
    fxi_bytes_take(b, 4, "versions");
    m.flags = fxi_bytes_number(b, 2, "flags");
    m.method = fxi_bytes_number(b, 2, "the compression method");
    fxi_bytes_take(b, 4, "the time");
    m.crc = fxi_bytes_number(b, 4, "the checksum");
    m.packed = fxi_bytes_number(b, 4, "the compressed size");
    m.size = fxi_bytes_number(b, 4, "the size");
    const size_t name_bytes = (size_t)fxi_bytes_number(b, 2, "the length of the name");
    const size_t extra_bytes = (size_t)fxi_bytes_number(b, 2, "the length of the extra field");
    const size_t comment_bytes = (size_t)fxi_bytes_number(b, 2, "the length of the comment");
    fxi_bytes_take(b, 8, "attributes");
    m.local = fxi_bytes_number(b, 4, "the offset of the member");
    const unsigned char *name = fxi_bytes_take(b, name_bytes, "the name of a member");
    if (name)
        read_extra(b, extra_bytes, &m);
    fxi_bytes_take(b, extra_bytes, "the extra field");
    fxi_bytes_take(b, comment_bytes, "the comment");
    if (b->status == FX_OK)
        add_member(a, &m, name, name_bytes);
}

static void read_directory(archive *a)
{
    read_end(a);
    a->file->at = (size_t)a->directory;
    for (uint64_t i = 0; i < a->count && a->file->status == FX_OK; i++)
        read_entry(a);
}

static void free_members(archive *a)
{
    for (int32_t i = 0; i < a->n; i++)
        fxi_free(a->members[i].name);
    fxi_free(a->members);
}

/* ---- members --------------------------------------------------------------------------------- */

/* Finds the bytes of a member after its own header, which must agree with the directory. */
static void locate(fxi_bytes *b, member *m)
{
    if (!signed_as(b, m->local < b->size ? (size_t)m->local : b->size, SIGNATURE_LOCAL)) {
        fxi_bytes_fail(b, m->at, "the member \"%.80s\" is not at offset %llu", m->name,
                       (unsigned long long)m->local);
        return;
    }
    b->at = (size_t)m->local + 6;
    const uint64_t flags = fxi_bytes_number(b, 2, "flags");
    const uint64_t method = fxi_bytes_number(b, 2, "the compression method");
    b->at = (size_t)m->local + 26;
    const size_t name = (size_t)fxi_bytes_number(b, 2, "the length of the name");
    const size_t extra = (size_t)fxi_bytes_number(b, 2, "the length of the extra field");
    fxi_bytes_take(b, name, "the name of a member");
    fxi_bytes_take(b, extra, "the extra field");
    m->begin = b->at;
    if (b->status == FX_OK && (flags != m->flags || method != m->method))
        fxi_bytes_fail(b, (size_t)m->local, "the member \"%.80s\" and the directory disagree",
                       m->name);
    if ((m->flags & 1) != 0 || (m->method != 0 && m->method != Z_DEFLATED))
        fxi_bytes_fail(b, m->at, "the member \"%.80s\" is %s", m->name,
                       m->flags & 1 ? "encrypted" : "compressed by a method other than deflate");
    if (b->status == FX_OK && m->packed > fxi_bytes_left(b))
        fxi_bytes_fail(b, m->at, "the member \"%.80s\" has %llu bytes, %zu are left", m->name,
                       (unsigned long long)m->packed, fxi_bytes_left(b));
    if (b->status == FX_OK &&
        (m->method == 0 ? m->size != m->packed : m->size / MOST_INFLATED > m->packed))
        fxi_bytes_fail(b, m->at, "%llu bytes of \"%.80s\" cannot come from %llu compressed bytes",
                       (unsigned long long)m->size, m->name, (unsigned long long)m->packed);
}

/* By name; complete names are before those without their ".npy". */
static int by_name(const void *x, const void *y)
{
    const member *a = *(const member *const *)x, *b = *(const member *const *)y;
    const int order = strcmp(a->name, b->name);
    return order ? order : a->stripped - b->stripped;
}

/* Gives the names their final form, and refuses members without a name of their own. */
static void name_members(archive *a)
{
    member **order = fxi_calloc((size_t)a->n + 1, sizeof *order);
    if (!order)
        no_memory(a->file);
    for (int32_t i = 0; order && i < a->n; i++)
        order[i] = &a->members[i];
    if (order)
        qsort(order, (size_t)a->n, sizeof *order, by_name);
    for (int32_t i = 0, whole = -1; order && i < a->n; i++) {
        if (!order[i]->stripped)
            whole = i;
        else if (whole >= 0 && strcmp(order[whole]->name, order[i]->name) == 0)
            strcat(order[i]->name, SUFFIX);
    }
    if (order)
        qsort(order, (size_t)a->n, sizeof *order, by_name);
    for (int32_t i = 0; order && i < a->n; i++)
        if (!order[i]->name[0])
            fxi_bytes_fail(a->file, order[i]->at, "a member has no name");
        else if (i > 0 && strcmp(order[i - 1]->name, order[i]->name) == 0)
            fxi_bytes_fail(a->file, order[i]->at, "two members are called \"%.80s\"",
                           order[i]->name);
    fxi_free(order);
}

static int by_begin(const void *x, const void *y)
{
    const member *a = *(const member *const *)x, *b = *(const member *const *)y;
    return (a->begin > b->begin) - (a->begin < b->begin);
}

/* Refuses members that share bytes: they would let a small file decompress to a huge one. */
static void check_overlap(archive *a)
{
    const member **order = fxi_calloc((size_t)a->n + 1, sizeof *order);
    if (!order)
        no_memory(a->file);
    for (int32_t i = 0; order && i < a->n; i++)
        order[i] = &a->members[i];
    if (order)
        qsort((void *)order, (size_t)a->n, sizeof *order, by_begin);
    for (int32_t i = 1; order && i < a->n; i++)
        if (order[i]->local < order[i - 1]->begin + order[i - 1]->packed)
            fxi_bytes_fail(a->file, order[i]->at, "the members \"%.80s\" and \"%.80s\" overlap",
                           order[i - 1]->name, order[i]->name);
    fxi_free((void *)order);
}

/* Decompresses a member into exactly m->size bytes. Returns Z_OK, Z_MEM_ERROR, or Z_DATA_ERROR if
 * the member gives another number of bytes. Never writes beyond them. */
static int inflate_all(const unsigned char *from, const member *m, unsigned char *to)
{
    z_stream z = {.next_in = (unsigned char *)(uintptr_t)from, .next_out = to};
    size_t in = (size_t)m->packed, out = (size_t)m->size;
    int code = inflateInit2(&z, -MAX_WBITS);
    if (code != Z_OK)
        return code == Z_MEM_ERROR ? code : Z_DATA_ERROR;
    while (code == Z_OK) {
        const uInt most = 1u << 30;
        z.avail_in = in < most ? (uInt)in : most;
        z.avail_out = out < most ? (uInt)out : most;
        const uInt had_in = z.avail_in, had_out = z.avail_out;
        code = inflate(&z, Z_NO_FLUSH);
        in -= had_in - z.avail_in;
        out -= had_out - z.avail_out;
    }
    inflateEnd(&z);
    if (code == Z_STREAM_END && in == 0 && out == 0)
        return Z_OK;
    return code == Z_MEM_ERROR ? code : Z_DATA_ERROR;
}

/* Decompresses a deflated member into memory; NULL on failure (recorded in the status of b). */
static fxi_file *unpack(fxi_bytes *b, const member *m, const unsigned char *packed)
{
    unsigned char *all;
    fxi_file *file = fxi_file_in_memory(b->op, b->path, (size_t)m->size, &all);
    if (!file) {
        b->status = FX_STATUS_MEMORY;
        return NULL;
    }
    const int code = inflate_all(packed, m, all);
    if (code == Z_OK)
        return file;
    if (code == Z_MEM_ERROR)
        no_memory(b);
    else
        fxi_bytes_fail(b, (size_t)m->begin,
                       "the member \"%.80s\" is damaged: it cannot be decompressed", m->name);
    fxi_file_release(file);
    return NULL;
}

/* The bytes of a member. A deflated member is decompressed into *out_memory. */
static fxi_bytes open_member(fxi_bytes *b, const member *m, fxi_file **out_memory)
{
    fxi_bytes part = fxi_bytes_part(b, (size_t)m->begin, (size_t)m->packed, "a member");
    *out_memory = NULL;
    if (part.status == FX_OK && m->method != 0) {
        *out_memory = unpack(b, m, part.data);
        part.status = b->status;
        if (*out_memory) {
            part = fxi_file_bytes(*out_memory, b->op, b->path);
            part.format = b->format;
            part.origin = (size_t)m->begin;
        }
    }
    if (part.status == FX_OK && crc32_z(0, part.data, part.size) != m->crc)
        part.status = fxi_bytes_fail(
            b, (size_t)m->begin, "the member \"%.80s\" is damaged: its CRC-32 differs", m->name);
    return part;
}

/* True if the elements, the final bytes of the member, are a JSON object. An array that another
 * program wrote may also have the name of the metadata. */
static bool is_object(const member *m, fx_array *x, const fxi_bytes *elements)
{
    fxi_bytes peek = *elements;
    return strcmp(m->name, FXI_METADATA_NAME) == 0 && fx_ndims(x) == 1 &&
           fxi_json_peek(&peek) == '{';
}

/* The texts that an array of bytes holds; the array itself if it holds none. */
static void *texts_or_array(fxi_bytes *bytes, const member *m, fx_array *x)
{
    if (fx_is_error(x) || fx_eltype(x) != FX_DTYPE_U8 || (size_t)fx_length(x) > bytes->size)
        return x;
    const size_t n = (size_t)fx_length(x);
    size_t bad;
    fxi_bytes elements = *bytes;
    elements.at = 0;
    elements.data += bytes->size - n;
    elements.origin += bytes->size - n;
    elements.size = n;
    if (!is_object(m, x, &elements))
        return x;
    if (!fxi_is_utf8(elements.data, n, &bad))
        fxi_bytes_fail(&elements, bad, "the texts of \"%s\" are not UTF-8", m->name);
    void *texts = elements.status == FX_OK ? fxi_metadata_read(&elements) : NULL;
    if (elements.status == FX_OK && fxi_json_peek(&elements) != 0)
        fxi_bytes_fail(&elements, elements.at, "there is more text after the texts of \"%s\"",
                       m->name);
    bytes->status = elements.status;
    return elements.status == FX_OK ? texts : fx_error_array(elements.status);
}

static void load_member(archive *a, const member *m, fxi_entries *e)
{
    fxi_file *memory;
    fxi_bytes bytes = open_member(a->file, m, &memory);
    void *x = bytes.status == FX_OK ? fxi_npy_read(&bytes) : fx_error_array(bytes.status);
    if (bytes.status == FX_OK)
        x = texts_or_array(&bytes, m, x);
    if (x)
        a->file->status = fxi_entries_add(e, m->name, x);
    fxi_file_release(memory);
}

/* ---- the format ------------------------------------------------------------------------------ */

static bool sniff(const fxi_bytes *file)
{
    return signed_as(file, 0, SIGNATURE_LOCAL) || signed_as(file, 0, SIGNATURE_END);
}

static void *load(fxi_bytes *file)
{
    archive a = {.file = file};
    fxi_entries e = {.op = file->op};
    read_directory(&a);
    for (int32_t i = 0; i < a.n && file->status == FX_OK; i++)
        locate(file, &a.members[i]);
    if (file->status == FX_OK)
        name_members(&a);
    if (file->status == FX_OK)
        check_overlap(&a);
    for (int32_t i = 0; i < a.n && file->status == FX_OK; i++)
        load_member(&a, &a.members[i], &e);
    void *all = file->status == FX_OK ? fxi_entries_tuple(&e) : fx_error_array(file->status);
    free_members(&a);
    fxi_entries_free(&e);
    return all;
}

static fx_status about(fxi_bytes *file, fx_file_info *out)
{
    (void)out;
    archive a = {.file = file};
    read_directory(&a);
    free_members(&a);
    return file->status;
}

/* ---- writing --------------------------------------------------------------------------------- */

typedef struct record {
    unsigned char bytes[128];
    size_t n;
} record;

static void put(record *r, uint64_t v, int n)
{
    for (int i = 0; i < n; i++)
        r->bytes[r->n++] = (unsigned char)(v >> 8 * i);
}

static uint64_t in_32(uint64_t v)
{
    return v < IN_64_BITS ? v : IN_64_BITS;
}

/* Writes the fields that a member's header shares with its directory entry. */
static void put_common(record *r, const member *m, size_t name, size_t extra)
{
    const bool large = m->size >= IN_64_BITS || m->local >= IN_64_BITS;
    put(r, large ? 45 : 20, 2);
    put(r, 0x800, 2);    /* flag: names are UTF-8 */
    put(r, 0, 2);        /* method: stored */
    put(r, 0x210000, 4); /* a fixed time, midnight of 1 January 1980, so that the same arrays give
                            the same file */
    put(r, m->crc, 4);
    put(r, in_32(m->size), 4);
    put(r, in_32(m->size), 4);
    put(r, name, 2);
    put(r, extra, 2);
}

static fx_status write_local(fxi_file_out *out, const member *m)
{
    record r = {.n = 0};
    const bool large = m->size >= IN_64_BITS;
    const size_t name = strlen(m->name) + 4, wide = large ? 20 : 0;
    const size_t plain = (size_t)m->local + LOCAL_BYTES + name + wide + 4;
    const size_t padding = (ALIGNMENT - plain % ALIGNMENT) % ALIGNMENT;
    put(&r, SIGNATURE_LOCAL, 4);
    put_common(&r, m, name, wide + 4 + padding);
    fxi_file_out_write(out, r.bytes, r.n);
    fxi_file_out_write(out, m->name, name - 4);
    r.n = 0;
    put(&r, 0x79706e2e, 4); /* ".npy" */
    if (large) {
        put(&r, ZIP64_FIELD, 2);
        put(&r, 16, 2);
        put(&r, m->size, 8);
        put(&r, m->size, 8);
    }
    put(&r, PADDING_FIELD, 2);
    put(&r, padding, 2);
    memset(r.bytes + r.n, 0, padding);
    return fxi_file_out_write(out, r.bytes, r.n + padding);
}

static fx_status write_entry(fxi_file_out *out, const member *m)
{
    record r = {.n = 0};
    const bool wide_size = m->size >= IN_64_BITS, wide_local = m->local >= IN_64_BITS;
    const size_t field = (wide_size ? 16u : 0) + (wide_local ? 8u : 0);
    put(&r, SIGNATURE_ENTRY, 4);
    put(&r, 0x32D, 2); /* version: Unix, 4.5 */
    put_common(&r, m, strlen(m->name) + 4, field ? field + 4 : 0);
    put(&r, 0, 6);           /* comment length, disk number, internal attributes */
    put(&r, 0644u << 16, 4); /* file permissions */
    put(&r, in_32(m->local), 4);
    fxi_file_out_write(out, r.bytes, r.n);
    fxi_file_out_write(out, m->name, strlen(m->name));
    r.n = 0;
    put(&r, 0x79706e2e, 4);
    if (field) {
        put(&r, ZIP64_FIELD, 2);
        put(&r, field, 2);
    }
    for (int i = 0; i < 2 && wide_size; i++)
        put(&r, m->size, 8);
    if (wide_local)
        put(&r, m->local, 8);
    return fxi_file_out_write(out, r.bytes, r.n);
}

static fx_status write_end(fxi_file_out *out, uint64_t count, uint64_t begin)
{
    record r = {.n = 0};
    const uint64_t end = (uint64_t)out->offset;
    const bool large = count >= 0xFFFF || end >= IN_64_BITS;
    if (large) {
        put(&r, SIGNATURE_END64, 4);
        put(&r, END64_BYTES - 12, 8);
        put(&r, 45 | 45 << 16, 4);
        put(&r, 0, 8);
        put(&r, count, 8);
        put(&r, count, 8);
        put(&r, end - begin, 8);
        put(&r, begin, 8);
        put(&r, SIGNATURE_LOCATOR, 4);
        put(&r, 0, 4);
        put(&r, end, 8);
        put(&r, 1, 4);
    }
    put(&r, SIGNATURE_END, 4);
    put(&r, 0, 4);
    put(&r, large ? 0xFFFF : count, 2);
    put(&r, large ? 0xFFFF : count, 2);
    put(&r, large ? IN_64_BITS : end - begin, 4);
    put(&r, large ? IN_64_BITS : begin, 4);
    put(&r, 0, 2);
    return fxi_file_out_write(out, r.bytes, r.n);
}

static fx_status add_to_crc(const void *data, size_t bytes, void *io_crc)
{
    uint32_t *crc = io_crc;
    *crc = (uint32_t)crc32_z(*crc, data, bytes);
    return FX_OK;
}

/* The CRC-32 precedes the elements in the file, so the elements are read twice. */
static fx_status write_member(fxi_file_out *out, const fxi_entry *e, member *m)
{
    char header[FXI_NPY_HEADER];
    const size_t bytes = (size_t)fx_length(e->array) * fx_dtype_size(fx_eltype(e->array));
    if (strlen(e->name) > UINT16_MAX - 4)
        return fx_fail(FX_STATUS_UNSUPPORTED, out->op,
                       "the name of an array has %zu bytes, npz files allow %d", strlen(e->name),
                       UINT16_MAX - 4);
    const size_t n = fxi_npy_header(out->op, e->array, header);
    if (n == 0)
        return FX_STATUS_DTYPE;
    uint32_t crc = (uint32_t)crc32_z(0, (unsigned char *)header, n);
    fx_status status = fxi_read_pieces(e->array, add_to_crc, &crc);
    *m = (member){.name = e->name, .local = (uint64_t)out->offset, .size = n + bytes, .crc = crc};
    if (status == FX_OK)
        status = write_local(out, m);
    if (status == FX_OK)
        status = fxi_file_out_write(out, header, n);
    return status == FX_OK ? fxi_write_elements(out, e->array) : status;
}

static fx_status write_all(fxi_file_out *out, const fxi_entries *e)
{
    member *members = fxi_calloc((size_t)e->n + 1, sizeof *members);
    if (!members)
        return fx_fail(FX_STATUS_MEMORY, out->op, "no memory for a list of %d arrays", (int)e->n);
    fx_status status = FX_OK;
    for (int32_t i = 0; i < e->n && status == FX_OK; i++)
        status = write_member(out, &e->items[i], &members[i]);
    const uint64_t directory = (uint64_t)out->offset;
    for (int32_t i = 0; i < e->n && status == FX_OK; i++)
        status = write_entry(out, &members[i]);
    fxi_free(members);
    return status == FX_OK ? write_end(out, (uint64_t)e->n, directory) : status;
}

/* Adds the texts as a member. */
static void add_texts(fxi_entries *e, const void *metadata)
{
    fx_json text = {0};
    if (fx_is_error(metadata)) {
        e->status = fxi_status_of_error(metadata);
        return;
    }
    fxi_metadata_put(&text, NULL, metadata);
    const int64_t n = text.n;
    if (text.failed)
        e->status = fx_fail(FX_STATUS_MEMORY, e->op, "out of memory for the texts");
    else if (text.not_utf8)
        e->status = fx_fail(FX_STATUS_ARGUMENT, e->op, "a name or text is not UTF-8");
    else
        fxi_entries_add(e, FXI_METADATA_NAME, fxi_from(FX_DTYPE_U8, text.text, 1, &n));
    fxi_free(text.text);
}

static fx_status save(fxi_file_out *out, const fxi_saving *what)
{
    fxi_entries e = {.op = what->op};
    for (int i = 0; i < what->n; i++)
        fxi_entries_walk(&e, what->names[i], what->objects[i]);
    if (what->metadata && e.status == FX_OK)
        add_texts(&e, what->metadata);
    fx_status status = fxi_entries_unique(&e);
    if (status == FX_OK)
        status = write_all(out, &e);
    fxi_entries_free(&e);
    return status;
}

const fxi_format fxi_format_npz = {.name = "npz",
                                   .extension = ".npz",
                                   .arrays = true,
                                   .sniff = sniff,
                                   .load = load,
                                   .save = save,
                                   .about = about};
