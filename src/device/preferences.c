/* preferences.c: reads and writes the preferred GPU backend in LocalPreferences.toml, the file of
 * Julia's Preferences.jl.
 *
 * The project is the folder that CFLUX_PROJECT names (default: the current folder). As in
 * Preferences.jl, JuliaLocalPreferences.toml has precedence over LocalPreferences.toml. The file
 * may belong to a Julia project and hold preferences of other programs. So only the one value is
 * changed, and the new text replaces the old one atomically (file_out.h): no reader ever sees half
 * of a file. A file that is not TOML is never written.
 *
 * Flux before 0.14.23 keeps its preference in the table Flux; later versions use MLDataDevices and
 * ignore Flux. If a file has both, MLDataDevices is read. The value is written to the table that it
 * was read from, or to Flux if neither has it.
 */
#include "preferences.h"
#include "file_out.h"
#include "files.h"
#include "memory.h"
#include "thread.h"
#include "toml.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PATH = 4096, MAX_NAME = 64, MAX_FILE = 16 << 20 };
/* In the order in which they are read. A new value is written to the last one. */
static const char *const tables[] = {"MLDataDevices", "Flux"};
static const char KEY[] = "gpu_backend";
enum { NTABLES = sizeof tables / sizeof tables[0] };

static fxi_mutex lock = FXI_MUTEX_INIT;
static bool known;
static char preferred[MAX_NAME];

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

/* The table that holds the value; *out is "" if none does. NULL: the text is not TOML. */
static const char *find_table(const char *text, size_t n, char out[MAX_NAME], fxi_toml_error *error)
{
    bool found = false;
    int i = 0;
    for (; i < NTABLES && !found; i++) {
        *out = 0;
        if (!fxi_toml_string(text, n, tables[i], KEY, out, MAX_NAME, &found, error))
            return NULL;
    }
    return tables[i - 1];
}

static void read_preference(char out[MAX_NAME])
{
    char path[MAX_PATH];
    size_t n;
    fxi_toml_error error;
    *out = 0;
    char *text = file_of_project(path) ? read_file(path, &n) : NULL;
    if (!text) {
        fx_message(1, "%s cannot be read (%s); preferences are ignored.", path, strerror(errno));
        return;
    }
    if (!find_table(text, n, out, &error)) {
        fx_message(1, "%s, line %d: %s. Preferences are ignored.", path, error.line, error.text);
        *out = 0;
    }
    fxi_free(text);
}

const char *fxi_preferred_backend(void)
{
    fxi_mutex_lock(&lock);
    if (!known) {
        read_preference(preferred);
        known = true;
    }
    fxi_mutex_unlock(&lock);
    return preferred;
}

void fxi_preferences_reset(void)
{
    fxi_mutex_lock(&lock);
    known = false;
    fxi_mutex_unlock(&lock);
}

/* ---- writing --------------------------------------------------------------------------------- */

fx_status fxi_preference_store(const char *backend)
{
    char path[MAX_PATH];
    if (!file_of_project(path))
        return fx_fail(FX_STATUS_ARGUMENT, "gpu_backend_set",
                       "the path of the project's preferences has more than %d bytes",
                       MAX_PATH - 1);
    size_t n, new_n;
    char *text = read_file(path, &n);
    if (!text)
        return fx_fail(FX_STATUS_IO, "gpu_backend_set", "cannot read %s: %s", path,
                       strerror(errno));
    fxi_toml_error error;
    char now[MAX_NAME];
    const char *table = find_table(text, n, now, &error);
    char *changed = table ? fxi_toml_set(text, n, table, KEY, backend, &new_n, &error) : NULL;
    fx_status status = FX_OK;
    if (changed)
        status = fxi_file_write("gpu_backend_set", path, changed, new_n);
    else if (error.line)
        status = fx_fail(FX_STATUS_FORMAT, "gpu_backend_set",
                         "%s, line %d: %s; the file is unchanged", path, error.line, error.text);
    else
        status = fx_fail(FX_STATUS_MEMORY, "gpu_backend_set", "no memory for %s", path);
    fxi_free(changed);
    fxi_free(text);
    return status;
}
