/* input_file.c: what a file is, by its first bytes, then by its name. */
#include "input_file.h"
#include "model_file.h"
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { HEAD = 4 };

static bool name_has(const char *path, const char *part)
{
    const char *slash = strrchr(path, '/');
    for (const char *s = slash ? slash + 1 : path; *s; s++)
        if (strncasecmp(s, part, strlen(part)) == 0)
            return true;
    return false;
}

/* Two zeros, an element type, a number of axes; compressed, its name has to say it. */
static bool is_idx(const char *path, const unsigned char head[HEAD])
{
    if (head[0] == 0x1F && head[1] == 0x8B)
        return name_has(path, "idx") || name_has(path, "ubyte");
    return head[0] == 0 && head[1] == 0 && head[2] >= 8 && head[2] <= 14 && head[3] >= 1 &&
           head[3] <= FX_MAX_DIMS;
}

static bool is_csv(const char *path)
{
    return name_has(path, ".csv");
}

static const struct {
    const char *name;
    fx_array *(*read)(const char *path);
} tables[] = {{"IDX", fx_read_idx}, {"CSV", fx_read_csv}};

/* The row of `tables` for a file that fx_file_about does not know; −1: none. */
static int table_of(const char *path)
{
    unsigned char head[HEAD] = {0};
    FILE *f = fopen(path, "rbe");
    const size_t n = f ? fread(head, 1, HEAD, f) : 0;
    if (f)
        fclose(f);
    return n == HEAD && is_idx(path, head) ? 0 : f && is_csv(path) ? 1 : -1;
}

static bool read_table(input_file *in, int row)
{
    in->format = tables[row].name;
    in->table = true;
    fx_array *x = tables[row].read(in->path);
    in->entries = fx_named_tuple("array", x);
    return !fx_is_error(x);
}

/* A notation in the header that does not fit its arrays leaves the arrays. */
static bool read_entries(input_file *in)
{
    in->entries = model_file_load(in->path);
    if (!fx_is_array(in->entries))
        return true;
    const fx_error why = fx_error_take();
    in->entries = fx_load(in->path);
    if (fx_is_error(in->entries))
        return false;
    snprintf(in->notice, sizeof in->notice,
             "the arrays stand alone, as its model cannot be made: %s", why.message);
    return true;
}

bool input_file_read(const char *path, input_file *out)
{
    fx_file_info info;
    *out = (input_file){.path = path};
    const fx_status status = fx_file_about(path, &info);
    out->format = info.format;
    out->bytes = info.bytes;
    snprintf(out->origin, sizeof out->origin, "%s", info.origin);
    const int row = status == FX_STATUS_FORMAT && !*info.format ? table_of(path) : -1;
    if (row >= 0)
        fx_error_take();
    return row >= 0 ? read_table(out, row) : status == FX_OK && read_entries(out);
}
