/* tokenizer_files.c: GPT-2's files of a tokenizer, vocab.json and merges.txt: see
 * cflux/tokenizer.h. */
#include "bytes.h"
#include "file_out.h"
#include "json.h"
#include "memory.h"
#include "object_types.h"
#include "tokenizer_parts.h"
#include "utf8.h"

#include <string.h>

static const char *const LOAD = "tokenizer_load", *const SAVE = "tokenizer_save";
static const char VERSION_LINE[] = "#version: 0.2\n";

/* ---- bytes as characters --------------------------------------------------------------------- */

/* The bytes that do not print are 0 to 32, 127 to 160 and 173. They are the characters U+0100 to
 * U+0120, U+0121 to U+0142 and U+0143. */
static bool prints(uint32_t c)
{
    return (c > 32 && c < 127) || (c > 160 && c < 256 && c != 173);
}

uint32_t fxi_byte_character(unsigned char byte)
{
    if (prints(byte))
        return byte;
    return byte <= 32 ? 0x100U + byte : byte == 173 ? 0x143U : 0x121U + byte - 127;
}

int fxi_character_byte(uint32_t c)
{
    if (c < 0x100)
        return prints(c) ? (int)c : -1;
    if (c > 0x143)
        return -1;
    return c <= 0x120 ? (int)c - 0x100 : c == 0x143 ? 173 : (int)c - 0x121 + 127;
}

/* Converts the characters of a name of n bytes to the bytes that they represent, and writes these
 * to `out`, which has n bytes. A name with another character is copied unchanged. Returns the
 * number of bytes. */
static size_t bytes_of(const char *name, size_t n, unsigned char *out)
{
    const unsigned char *s = (const unsigned char *)name;
    size_t count = 0, length;
    for (size_t at = 0; at < n; at += length) {
        const int byte = fxi_character_byte(fxi_character(s + at, n - at, &length));
        if (byte < 0) {
            memcpy(out, name, n);
            return n;
        }
        out[count++] = (unsigned char)byte;
    }
    return count;
}

/* ---- loading --------------------------------------------------------------------------------- */

/* The tokens of a vocabulary in the order of the file. */
typedef struct vocabulary {
    fxi_strings tokens;
    int64_t *ids;
    int32_t ids_capacity;
} vocabulary;

static bool no_memory(fxi_bytes *b)
{
    b->status = fx_fail(FX_STATUS_MEMORY, b->op, "%s: no memory for its tokens", b->path);
    return false;
}

static bool read_token(fxi_bytes *b, vocabulary *v)
{
    const size_t at = b->at;
    char *name = fxi_json_string(b);
    const uint64_t id = name && fxi_json_expect(b, ':') ? fxi_json_count(b) : 0;
    if (b->status == FX_OK) {
        const int32_t count = v->tokens.count;
        const size_t n = bytes_of(name, strlen(name), (unsigned char *)name);
        const int32_t token = fxi_strings_add(&v->tokens, name, n);
        if (token < 0 || !fxi_grow(&v->ids, &v->ids_capacity, count + 1, sizeof *v->ids))
            no_memory(b);
        else if (token < count)
            fxi_bytes_fail(b, at, "two tokens have the same bytes");
        else
            v->ids[token] = (int64_t)id;
    }
    fxi_free(name);
    return b->status == FX_OK;
}

/* Adds the tokens to the tokenizer in the order of their ids. */
static bool order_tokens(fxi_bytes *b, const vocabulary *v, fxi_strings *out)
{
    const int32_t n = v->tokens.count;
    int32_t *at = fxi_malloc((size_t)(n > 0 ? n : 1) * sizeof *at);
    if (!at)
        return no_memory(b);
    memset(at, -1, (size_t)n * sizeof *at);
    for (int32_t i = 0; i < n && b->status == FX_OK; i++)
        if (v->ids[i] >= n || at[v->ids[i]] >= 0)
            fxi_bytes_fail(b, b->size, "the ids of %d tokens are not 0 to %d: id %lld %s", (int)n,
                           (int)n - 1, (long long)v->ids[i],
                           v->ids[i] < n ? "occurs twice" : "is too large");
        else
            at[v->ids[i]] = i;
    for (int32_t id = 0; id < n && b->status == FX_OK; id++) {
        size_t length;
        const unsigned char *s = fxi_strings_get(&v->tokens, at[id], &length);
        if (fxi_strings_add(out, s, length) < 0)
            no_memory(b);
    }
    fxi_free(at);
    return b->status == FX_OK;
}

/* Opens a file of UTF-8 text. */
static fxi_bytes open_text(const char *path, const char *format)
{
    fxi_file *file = NULL;
    size_t bad;
    const fx_status status = fxi_file_map(LOAD, path, &file);
    fxi_bytes b = {.op = LOAD, .path = path, .status = status};
    if (status != FX_OK)
        return b;
    b = fxi_file_bytes(file, LOAD, path);
    b.format = format;
    if (!fxi_is_utf8(b.data, b.size, &bad))
        fxi_bytes_fail(&b, bad, "the text is not UTF-8");
    return b;
}

static bool read_vocabulary(fx_tokenizer *t, const char *path)
{
    vocabulary v = {0};
    fxi_bytes b = open_text(path, "vocabulary");
    bool good = b.status == FX_OK && fxi_json_expect(&b, '{');
    for (bool first = true; good && fxi_json_more(&b, '}', first); first = false)
        good = read_token(&b, &v);
    fxi_json_peek(&b);
    if (b.status == FX_OK && b.at < b.size)
        fxi_bytes_fail(&b, b.at, "text after the object");
    good = b.status == FX_OK && order_tokens(&b, &v, &t->tokens);
    const int byte = good ? fxi_tokenizer_find_bytes(t) : 256;
    if (byte < 256)
        good = fxi_bytes_fail(&b, b.size, "the byte %d has no token", byte) == FX_OK;
    fxi_strings_free(&v.tokens);
    fxi_free(v.ids);
    fxi_file_release(b.file);
    return good;
}

/* The id of the token that is written as `name`; −1 if there is none. `scratch` has n bytes. */
static int32_t id_of(const fx_tokenizer *t, const char *name, size_t n, unsigned char *scratch)
{
    return fxi_strings_find(&t->tokens, scratch, bytes_of(name, n, scratch));
}

static bool read_merge(fxi_bytes *b, fx_tokenizer *t, const char *line, size_t n, int64_t number)
{
    const char *blank = memchr(line, ' ', n);
    const size_t na = blank ? (size_t)(blank - line) : 0, at = (size_t)(line - (char *)b->data);
    if (na == 0 || na + 1 == n || memchr(blank + 1, ' ', n - na - 1)) {
        fxi_bytes_fail(b, at, "line %lld: expected two tokens with a blank between them",
                       (long long)number);
        return false;
    }
    unsigned char *scratch = fxi_malloc(n);
    if (!scratch)
        return no_memory(b);
    const int32_t a = id_of(t, line, na, scratch), c = id_of(t, blank + 1, n - na - 1, scratch),
                  count = t->tokens.count;
    int32_t joined;
    fxi_free(scratch);
    if (a < 0 || c < 0)
        fxi_bytes_fail(b, at, "line %lld: the %s token is not in the vocabulary", (long long)number,
                       a < 0 ? "first" : "second");
    else if (!fxi_tokenizer_add_merge(t, LOAD, a, c, &joined))
        b->status = FX_STATUS_MEMORY;
    else if (t->tokens.count > count)
        fxi_bytes_fail(b, at, "line %lld: the joined token is not in the vocabulary",
                       (long long)number);
    return b->status == FX_OK;
}

static bool read_merges(fx_tokenizer *t, const char *path)
{
    fxi_bytes b = open_text(path, "merges");
    bool good = b.status == FX_OK;
    for (int64_t number = 1; good && b.at < b.size; number++) {
        const char *line = (const char *)b.data + b.at, *end = memchr(line, '\n', b.size - b.at);
        size_t n = end ? (size_t)(end - line) : b.size - b.at;
        b.at += n + (end != NULL);
        n -= n > 0 && line[n - 1] == '\r';
        const bool comment = number == 1 && n >= 8 && memcmp(line, "#version", 8) == 0;
        good = n == 0 || comment || read_merge(&b, t, line, n, number);
    }
    fxi_file_release(b.file);
    return good;
}

fx_tokenizer *fx_tokenizer_load(const char *vocab, const char *merges)
{
    fx_tokenizer t = {0};
    bool good = vocab && merges;
    if (!good)
        fx_fail(FX_STATUS_ARGUMENT, LOAD, "the path of the %s is NULL",
                vocab ? "merges" : "vocabulary");
    good = good && read_vocabulary(&t, vocab) && read_merges(&t, merges);
    return fxi_tokenizer_finish(&t, good);
}

/* ---- saving ---------------------------------------------------------------------------------- */

/* The character of each byte as UTF-8: two bytes at most. */
typedef struct byte_names {
    char text[256][3];
} byte_names;

/* Writes the characters of a token's bytes to `out`, which has 2·n + 1 bytes. */
static size_t name_of(const unsigned char *s, size_t n, const byte_names *names, char *out)
{
    size_t at = 0;
    for (size_t i = 0; i < n; i++)
        at += (size_t)snprintf(out + at, 3, "%s", names->text[s[i]]);
    out[at] = 0;
    return at;
}

static void fill_names(byte_names *names)
{
    for (int byte = 0; byte < 256; byte++) {
        const uint32_t c = fxi_byte_character((unsigned char)byte);
        if (c < 0x80)
            snprintf(names->text[byte], 3, "%c", (char)c);
        else
            snprintf(names->text[byte], 3, "%c%c", (char)(0xC0 | c >> 6),
                     (char)(0x80 | (c & 0x3F)));
    }
}

static size_t longest(const fx_tokenizer *t)
{
    size_t most = 1;
    for (int32_t i = 0; i < t->tokens.count; i++) {
        size_t n;
        fxi_strings_get(&t->tokens, i, &n);
        most = n > most ? n : most;
    }
    return most;
}

static void put_vocabulary(fx_json *j, const fx_tokenizer *t, const byte_names *names, char *name)
{
    fx_json_open(j, NULL, '{');
    for (int32_t id = 0; id < t->tokens.count; id++) {
        size_t n;
        const unsigned char *s = fxi_strings_get(&t->tokens, id, &n);
        name_of(s, n, names, name);
        fx_json_integer(j, name, id);
    }
    fx_json_end(j);
}

static void put_merges(fx_json *j, const fx_tokenizer *t, const byte_names *names, char *name)
{
    fxi_json_raw(j, VERSION_LINE);
    for (int32_t i = 0; i < t->nmerges; i++) {
        const int32_t pair[2] = {t->merges[i].a, t->merges[i].b};
        for (int k = 0; k < 2; k++) {
            size_t n;
            const unsigned char *s = fxi_strings_get(&t->tokens, pair[k], &n);
            fxi_json_bytes(j, name, name_of(s, n, names, name));
            fxi_json_raw(j, k == 0 ? " " : "\n");
        }
    }
}

fx_status fx_tokenizer_save(const fx_tokenizer *t, const char *vocab, const char *merges)
{
    byte_names names;
    if (fx_tokenizer_count(t) == 0)
        return t && fx_is_error(t) && fx_error_status() != FX_OK
                   ? fx_error_status()
                   : fx_fail(FX_STATUS_ARGUMENT, SAVE, "expects a tokenizer, got %s",
                             fxi_type_name(t));
    if (!vocab || !merges)
        return fx_fail(FX_STATUS_ARGUMENT, SAVE, "the path of the %s is NULL",
                       vocab ? "merges" : "vocabulary");
    fill_names(&names);
    fx_json both[2] = {{0}, {0}};
    char *name = fxi_malloc(2 * longest(t) + 1);
    if (name) {
        put_vocabulary(&both[0], t, &names, name);
        put_merges(&both[1], t, &names, name);
    }
    fx_status status = FX_OK;
    if (!name || both[0].failed || both[1].failed)
        status = fx_fail(FX_STATUS_MEMORY, SAVE, "%s: no memory for its text", vocab);
    for (int i = 0; i < 2 && status == FX_OK; i++)
        status = fxi_file_write(SAVE, i == 0 ? vocab : merges, both[i].text, (size_t)both[i].n);
    fxi_free(both[0].text);
    fxi_free(both[1].text);
    fxi_free(name);
    return status;
}
