/* text_bytes.c: see text_bytes.h. */
#include "text_bytes.h"
#include "clean_text.h"
#include "failure.h"
#include "system.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

static const char MARK[] = "\xEF\xBB\xBF"; /* a byte order mark */
enum { MARK_BYTES = sizeof MARK - 1, PART = 1 << 16 };

int no_text_memory(const char *path)
{
    return fail(EXIT_FAILED, "%s: no memory for its texts", path);
}

/* Reads until the end of the stream. A gzip stream that is cut ends with Z_BUF_ERROR. */
static int read_stream(gzFile f, const char *path, text_bytes *t)
{
    int got = 1, code;
    for (size_t capacity = 0; got > 0; t->size += got > 0 ? (size_t)got : 0) {
        if (capacity - t->size < PART + 1) {
            capacity = 2 * capacity + 2 * PART;
            char *bytes = realloc(t->bytes, capacity);
            if (!bytes)
                return no_text_memory(path);
            t->bytes = bytes;
        }
        got = gzread(f, t->bytes + t->size, PART);
    }
    const char *why = gzerror(f, &code);
    if (got < 0 || code == Z_BUF_ERROR)
        return fail(EXIT_BAD_INPUT, "%s: %s", path,
                    code == Z_ERRNO       ? strerror(errno)
                    : code == Z_BUF_ERROR ? "the gzip stream is truncated"
                                          : why);
    t->bytes[t->size] = 0;
    return EXIT_FINE;
}

int read_text_bytes(const char *path, text_bytes *t)
{
    gzFile f = gzdopen(open_to_read(path), "rb");
    if (!f)
        return fail(EXIT_BAD_INPUT, "%s: %s", path, errno ? strerror(errno) : "out of memory");
    const int status = read_stream(f, path, t);
    gzclose_r(f);
    if (status != EXIT_FINE)
        return status;
    t->text = t->bytes + (strncmp(t->bytes, MARK, MARK_BYTES) == 0 ? MARK_BYTES : 0);
    return t->size > 0 ? EXIT_FINE : fail(EXIT_BAD_INPUT, "%s is empty", path);
}

int check_utf8(const char *path, int64_t line, const char *text, size_t n)
{
    int length;
    for (size_t i = 0; i < n; i += (size_t)length) {
        length = text[i] ? utf8_length(text + i) : 0;
        if (length == 0)
            return fail(EXIT_BAD_INPUT, "%s: line %lld: byte %zu (0x%02X) is not UTF-8", path,
                        (long long)line, i + 1, (unsigned)(unsigned char)text[i]);
    }
    return EXIT_FINE;
}

int check_text_options(const data_request *r, const char *what)
{
    const struct {
        bool given;
        const char *name;
    } others[] = {{r->targets.n > 0, "target"},    {r->id != NULL, "id"},
                  {r->shape != NULL, "shape"},     {r->separator != NULL, "separator"},
                  {r->decimal != NULL, "decimal"}, {r->skip > 0, "skip"},
                  {r->transpose, "transpose"}};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (others[i].given)
            return fail(EXIT_BAD_INPUT, "--%s does not work with %s, a text with %s",
                        others[i].name, r->path, what);
    return EXIT_FINE;
}
