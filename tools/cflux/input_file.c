/* input_file.c: determines the format of a file, from its first bytes and then from its name, and
 * reads it. */
#include "input_file.h"
#include "failure.h"
#include "model_file.h"
#include "system.h"
#include <stdio.h>
#include <string.h>

enum { HEAD = 4 };
#define NO_FILE "%s: not a regular file"

static bool name_has(const char *path, const char *part)
{
    const char *slash = strrchr(path, '/');
    for (const char *s = slash ? slash + 1 : path; *s; s++)
        if (same_start_ignoring_case(s, part, strlen(part)))
            return true;
    return false;
}

static bool is_csv(const char *path)
{
    return name_has(path, ".csv");
}

bool is_idx_name(const char *path)
{
    return !is_csv(path) && (name_has(path, "idx") || name_has(path, "ubyte"));
}

/* IDX begins with two zeros, an element type and a number of axes. The format of
 * a compressed file is determined from its name only. */
static bool is_idx(const char *path, const unsigned char head[HEAD])
{
    if (head[0] == 0x1F && head[1] == 0x8B)
        return is_idx_name(path);
    return head[0] == 0 && head[1] == 0 && head[2] >= 8 && head[2] <= 14 && head[3] >= 1 &&
           head[3] <= FX_MAX_DIMS;
}

static bool read_idx(input_file *in)
{
    fx_array *x = fx_read_idx(in->path);
    in->entries = fx_named_tuple("array", x);
    return !fx_is_error(x);
}

/* The entry "array" has the values of all columns. in->columns stays NULL for a table of numbers
 * without column names. */
static bool read_csv(input_file *in)
{
    void *table = fx_read_table(in->path);
    if (fx_is_error(table) || fx_is_array(table))
        return false;
    void *columns = fx_child_named(table, "columns");
    char number[24];
    for (int64_t i = 0; i < fx_count(columns) && !in->columns; i++) {
        snprintf(number, sizeof number, "%lld", (long long)i + 1);
        if (strcmp(fx_child_name(columns, i), number) != 0 || fx_count(fx_child(columns, i)) > 0)
            in->columns = columns;
    }
    in->entries = fx_named_tuple("array", fx_child_named(table, "values"));
    return true;
}

static const struct {
    const char *name;
    bool (*read)(input_file *in);
} tables[] = {{"IDX", read_idx}, {"CSV", read_csv}};

/* The row of `tables` for a file that fx_file_about does not recognise; −1 if none matches. */
static int table_of(const char *path)
{
    unsigned char head[HEAD] = {0};
    FILE *f = open_file(path, "rb");
    const size_t n = f ? fread(head, 1, HEAD, f) : 0;
    if (f)
        fclose(f);
    return n == HEAD && is_idx(path, head) ? 0 : f && is_csv(path) ? 1 : -1;
}

static bool read_table(input_file *in, int row)
{
    in->format = tables[row].name;
    in->table = true;
    return tables[row].read(in);
}

/* If a notation in the header does not fit the arrays, only the arrays are read. */
static bool read_entries(input_file *in)
{
    in->entries = fx_load_entries(in->path, NULL);
    if (!fx_is_array(in->entries))
        return true;
    const fx_error why = fx_error_take();
    in->entries = fx_load(in->path);
    if (fx_is_error(in->entries))
        return false;
    snprintf(in->notice, sizeof in->notice, "its model cannot be created: %s",
             failure_sentence(&why));
    return true;
}

/* True for regular files. Commands read a file more than once, which a pipe does not allow, and a
 * device may have no end. */
static bool is_file(const char *path)
{
    const path_kind kind = kind_of_path(path);
    if (kind == PATH_ABSENT || kind == PATH_FILE)
        return true; /* reading reports the problem */
    fx_fail(FX_STATUS_FORMAT, "read", kind == PATH_FOLDER ? "%s is a folder, not a file" : NO_FILE,
            path);
    return false;
}

bool input_file_has_end(const char *path)
{
    const bool standard = strcmp(path, "/dev/stdin") == 0;
    if (kind_of_path(path) != PATH_DEVICE || is_own_terminal(path))
        return true;
    fx_fail(FX_STATUS_FORMAT, "read",
            standard ? "standard input is neither a file nor a pipe: give the data with --data FILE"
                     : NO_FILE,
            path);
    return false;
}

bool input_file_read(const char *path, input_file *out)
{
    fx_file_info info;
    *out = (input_file){.path = path, .format = ""};
    if (!is_file(path))
        return false;
    const fx_status status = fx_file_about(path, &info);
    out->format = info.format;
    out->bytes = info.bytes;
    snprintf(out->origin, sizeof out->origin, "%s", info.origin);
    const int row = status == FX_STATUS_FORMAT && !*info.format ? table_of(path) : -1;
    if (row >= 0)
        fx_error_take();
    return row >= 0 ? read_table(out, row) : status == FX_OK && read_entries(out);
}
