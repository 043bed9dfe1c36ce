/* preferences.c: LocalPreferences.toml as Julia's Preferences.jl keeps it.
 *
 * The project is the folder that CFLUX_PROJECT names, else the current one; as in Preferences.jl a
 * JuliaLocalPreferences.toml goes before LocalPreferences.toml. The file may be that of a Julia
 * project and hold other programs' preferences: only the one value is changed, and the new text
 * takes the old one's place at once (file_out.h), so that nobody ever sees
 * half of a file. A file that is no TOML is never written to.
 */
#include "preferences.h"
#include "file_out.h"
#include "memory.h"
#include "toml.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_PATH = 4096, MAX_NAME = 64, MAX_FILE = 16 << 20 };
static const char TABLE[] = "Flux", KEY[] = "gpu_backend";

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool known;
static char preferred[MAX_NAME];

/* The file to read and write; where none exists, the one that would be made. */
static bool file_of_project(char path[MAX_PATH])
{
    static const char *const names[] = {"JuliaLocalPreferences.toml", "LocalPreferences.toml"};
    const char *folder = getenv("CFLUX_PROJECT");
    for (int i = 0; i < 2; i++) {
        const int n = snprintf(path, MAX_PATH, "%s/%s", folder && *folder ? folder : ".", names[i]);
        if (n < 0 || n >= MAX_PATH)
            return false;
        if (access(path, F_OK) == 0)
            return true;
    }
    return true;
}

/* The file's text in memory of fxi_malloc; an absent file is an empty one. NULL: errno says why. */
static char *read_file(const char *path, size_t *out_n)
{
    *out_n = 0;
    FILE *f = fopen(path, "rbe");
    if (!f)
        return errno == ENOENT ? fxi_calloc(1, 1) : NULL;
    struct stat st;
    char *text = NULL;
    if (fstat(fileno(f), &st) == 0 && st.st_size <= MAX_FILE)
        text = fxi_malloc((size_t)st.st_size + 1);
    else
        errno = EFBIG;
    if (text) {
        *out_n = fread(text, 1, (size_t)st.st_size, f);
        text[*out_n] = 0;
    }
    fclose(f);
    return text;
}

/* ---- reading --------------------------------------------------------------------------------- */

static void read_preference(char out[MAX_NAME])
{
    char path[MAX_PATH];
    size_t n;
    bool found;
    fxi_toml_error error;
    *out = 0;
    char *text = file_of_project(path) ? read_file(path, &n) : NULL;
    if (!text) {
        fx_message(1, "%s cannot be read (%s); preferences are ignored.", path, strerror(errno));
        return;
    }
    if (!fxi_toml_string(text, n, TABLE, KEY, out, MAX_NAME, &found, &error)) {
        fx_message(1, "%s, line %d: %s. Preferences are ignored.", path, error.line, error.text);
        *out = 0;
    }
    fxi_free(text);
}

const char *fxi_preferred_backend(void)
{
    pthread_mutex_lock(&lock);
    if (!known) {
        read_preference(preferred);
        known = true;
    }
    pthread_mutex_unlock(&lock);
    return preferred;
}

void fxi_preferences_forget(void)
{
    pthread_mutex_lock(&lock);
    known = false;
    pthread_mutex_unlock(&lock);
}

/* ---- writing --------------------------------------------------------------------------------- */

fx_status fxi_preference_store(const char *backend)
{
    char path[MAX_PATH];
    if (!file_of_project(path))
        return fx_fail(FX_STATUS_ARGUMENT, "gpu_backend_set", "the project's path is too long");
    size_t n, new_n;
    char *text = read_file(path, &n);
    if (!text)
        return fx_fail(FX_STATUS_IO, "gpu_backend_set", "cannot read %s: %s", path,
                       strerror(errno));
    fxi_toml_error error;
    char *changed = fxi_toml_set(text, n, TABLE, KEY, backend, &new_n, &error);
    fx_status status = FX_OK;
    if (changed)
        status = fxi_file_write("gpu_backend_set", path, changed, new_n);
    else if (error.line)
        status =
            fx_fail(FX_STATUS_FORMAT, "gpu_backend_set",
                    "%s, line %d: %s; the file is left as it is", path, error.line, error.text);
    else
        status = fx_fail(FX_STATUS_MEMORY, "gpu_backend_set", "no memory for %s", path);
    fxi_free(changed);
    fxi_free(text);
    return status;
}
