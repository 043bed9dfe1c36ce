/* preferences.c: reads and writes preferences in LocalPreferences.toml, the file of Julia's
 * Preferences.jl.
 *
 * The project is the folder that CFLUX_PROJECT names (default: the current folder). As in
 * Preferences.jl, JuliaLocalPreferences.toml has precedence over LocalPreferences.toml. The file
 * may belong to a Julia project and hold preferences of other programs. So only the one value is
 * changed, and the new text replaces the old one atomically (file_out.h): no reader ever sees half
 * of a file. A file that is not TOML is never written.
 *
 * Flux keeps its preferences in the table Flux. Only gpu_backend moved: versions from 0.14.23 on
 * use the table MLDataDevices and ignore Flux. If a file has both, MLDataDevices is read. The value
 * is written to the table that it was read from, or to Flux if neither has it.
 *
 * A value is read once in a process, so it does not change while the program runs.
 */
#include "preferences.h"
#include "file_out.h"
#include "files.h"
#include "memory.h"
#include "registry.h"
#include "thread.h"
#include "toml.h"
#include "utf8.h"

#include <cflux/device.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PATH = 4096, MAX_NAME = 64, MAX_VALUE = 200, MAX_FILE = 16 << 20 };
/* In the order in which they are read. If none of them has the key, it is added to the last one. */
static const char *const tables[] = {"MLDataDevices", "Flux"};
static const char KEY[] = "gpu_backend";
enum { NTABLES = sizeof tables / sizeof tables[0] };

/* A value that a program asked for; never freed. */
typedef struct preference {
    struct preference *next;
    bool known;
    char key[MAX_NAME], value[MAX_VALUE];
} preference;

static fxi_mutex lock = FXI_MUTEX_INIT; /* protects the list */
static preference *all;

/* The file to read and write; if none exists, the one to create. */
static bool file_of_project(char path[MAX_PATH])
{
    static const char *const names[] = {"JuliaLocalPreferences.toml", "LocalPreferences.toml"};
    const char *folder = getenv("CFLUX_PROJECT");
    for (int i = 0; i < 2; i++) {
        const int n = snprintf(path, MAX_PATH, "%s/%s", folder && *folder ? folder : ".", names[i]);
        if (n < 0 || n >= MAX_PATH)
            return false;
        if (fxi_file_exists(path))
            return true;
    }
    return true;
}

/* Reads the file into memory of fxi_malloc; an absent file is empty. NULL: errno tells why. */
static char *read_file(const char *path, size_t *out_n)
{
    *out_n = 0;
    FILE *f = fxi_os_open_stream(path, "rb");
    if (!f)
        return errno == ENOENT ? fxi_calloc(1, 1) : NULL;
    fxi_os_facts facts;
    char *text = NULL;
    if (fxi_os_facts_of_stream(f, &facts) == 0) {
        if (facts.bytes <= MAX_FILE)
            text = fxi_malloc((size_t)facts.bytes + 1);
        else
            errno = EFBIG;
    }
    if (text) {
        *out_n = fread(text, 1, (size_t)facts.bytes, f);
        text[*out_n] = 0;
    }
    if (text && ferror(f)) { /* such as a folder */
        const int error = errno;
        fxi_free(text);
        text = NULL;
        errno = error;
    }
    fclose(f);
    return text;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* The table that holds the value; *out is "" if none does. NULL: the text is not TOML, or the value
 * is not of the kind that the key has. */
static const char *find_table(const char *text, size_t n, const char *key, char out[MAX_VALUE],
                              fxi_toml_error *error)
{
    const bool is_backend = strcmp(key, KEY) == 0;
    bool found = false;
    int i = is_backend ? 0 : NTABLES - 1;
    for (; i < NTABLES && !found; i++) {
        *out = 0;
        if (!(is_backend ? fxi_toml_string : fxi_toml_text)(
                text, n, tables[i], key, out, is_backend ? MAX_NAME : MAX_VALUE, &found, error))
            return NULL;
    }
    return tables[i - 1];
}

static bool warned; /* that the file cannot be used: once, not for each key */

/* Warns that the value of the key, or the whole file, is ignored. */
static void say_ignored(const char *path, const char *key, const fxi_toml_error *error)
{
    if (error->of_value) {
        fx_message(1, "%s, line %d: %s: %s. This preference is ignored.", path, error->line, key,
                   error->text);
        return;
    }
    if (!warned)
        fx_message(1, "%s, line %d: %s. Preferences are ignored.", path, error->line, error->text);
    warned = true;
}

/* Reads the value of a key, with the lock held. */
static void read_preference(const char *key, char out[MAX_VALUE])
{
    char path[MAX_PATH];
    size_t n;
    fxi_toml_error error;
    *out = 0;
    char *text = file_of_project(path) ? read_file(path, &n) : NULL;
    if (!text) {
        if (!warned)
            fx_message(1, "%s cannot be read (%s); preferences are ignored.", path,
                       strerror(errno));
        warned = true;
        return;
    }
    if (!find_table(text, n, key, out, &error)) {
        say_ignored(path, key, &error);
        *out = 0;
    }
    fxi_free(text);
}

/* The entry of the key, with the lock held; NULL if memory is exhausted. */
static preference *entry_of(const char *key)
{
    preference *p = all;
    while (p && strcmp(p->key, key) != 0)
        p = p->next;
    if (p)
        return p;
    p = fxi_calloc(1, sizeof *p);
    if (!p)
        return NULL;
    snprintf(p->key, sizeof p->key, "%s", key);
    p->next = all;
    return all = p;
}

/* NULL if memory is exhausted. */
static const char *value_of(const char *key)
{
    fxi_mutex_lock(&lock);
    preference *p = entry_of(key);
    if (p && !p->known) {
        read_preference(key, p->value);
        p->known = true;
    }
    fxi_mutex_unlock(&lock);
    return p ? p->value : NULL;
}

const char *fxi_preferred_backend(void)
{
    const char *value = value_of(KEY);
    return value ? value : "";
}

/* Can the key be written without quotes? */
static fx_status check_key(const char *op, const char *key)
{
    static const char bare[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
    const size_t n = key ? strlen(key) : 0;
    return n > 0 && n < MAX_NAME && strspn(key, bare) == n
               ? FX_OK
               : fx_fail(FX_STATUS_ARGUMENT, op,
                         "a key has 1 to %d letters, digits, _ and -, got \"%s\"", MAX_NAME - 1,
                         key ? key : "NULL");
}

const char *fx_preference(const char *key)
{
    if (check_key("preference", key) != FX_OK)
        return "";
    const char *value = value_of(key);
    if (!value)
        fx_fail(FX_STATUS_MEMORY, "preference", "no memory for the value of %s", key);
    return value ? value : "";
}

bool fxi_preference_is_true(const char *key)
{
    const char *value = value_of(key);
    const bool yes = value && strcmp(value, "true") == 0;
    if (value && *value && !yes && strcmp(value, "false") != 0)
        fx_message(1, "The preference %s is \"%s\", expected true or false. It counts as false.",
                   key, value);
    return yes;
}

void fxi_preferences_reset(void)
{
    fxi_mutex_lock(&lock);
    for (preference *p = all; p; p = p->next)
        p->known = false;
    warned = false;
    fxi_mutex_unlock(&lock);
}

/* ---- writing --------------------------------------------------------------------------------- */

/* `raw`: the value as TOML. */
static fx_status store(const char *op, const char *key, const char *raw)
{
    char path[MAX_PATH];
    if (!file_of_project(path))
        return fx_fail(FX_STATUS_ARGUMENT, op,
                       "the path of the project's preferences has more than %d bytes",
                       MAX_PATH - 1);
    size_t n, new_n;
    char *text = read_file(path, &n);
    if (!text)
        return fx_fail(FX_STATUS_IO, op, "cannot read %s: %s", path, strerror(errno));
    fxi_toml_error error;
    char now[MAX_VALUE];
    const char *table = find_table(text, n, key, now, &error);
    char *changed = table ? fxi_toml_set_raw(text, n, table, key, raw, &new_n, &error) : NULL;
    fx_status status = FX_OK;
    if (changed)
        status = fxi_file_write(op, path, changed, new_n);
    else if (error.line)
        status = fx_fail(FX_STATUS_FORMAT, op, "%s, line %d: %s; the file is unchanged", path,
                         error.line, error.text);
    else
        status = fx_fail(FX_STATUS_MEMORY, op, "no memory for %s", path);
    fxi_free(changed);
    fxi_free(text);
    return status;
}

fx_status fxi_preference_store(const char *backend)
{
    char quoted[MAX_NAME];
    snprintf(quoted, sizeof quoted, "\"%s\"", backend);
    return store("gpu_backend_set", KEY, quoted);
}

/* Can the value be written between quotes as it is? A file that is not UTF-8 is not TOML. */
static bool is_plain(const char *value)
{
    const size_t n = strlen(value);
    size_t at;
    if (!fxi_is_utf8((const unsigned char *)value, n, &at))
        return false;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)value[i] < ' ' || value[i] == 127 || value[i] == '"' || value[i] == '\\')
            return false;
    return n + 2 < MAX_VALUE;
}

fx_status fx_preference_set(const char *key, const char *value)
{
    static const char op[] = "preference_set";
    char quoted[MAX_VALUE + 2];
    const fx_status status = check_key(op, key);
    if (status != FX_OK)
        return status;
    if (!value || !is_plain(value))
        return fx_fail(FX_STATUS_ARGUMENT, op,
                       "the value of %s must be a UTF-8 text of at most %d bytes without quotes, "
                       "backslashes and control characters",
                       key, MAX_VALUE - 3);
    /* The library reads this key, and ignores a value of another kind. */
    if (strcmp(key, KEY) == 0 && !fxi_is_preferable(value))
        return fx_fail(FX_STATUS_ARGUMENT, op, "%s must be one of %s, got \"%s\"", KEY,
                       fxi_backend_list(), value);
    const bool word = strcmp(value, "true") == 0 || strcmp(value, "false") == 0;
    snprintf(quoted, sizeof quoted, word ? "%s" : "\"%s\"", value);
    return store(op, key, quoted);
}
