/* command_devices.c: cflux devices and cflux backend: list the available devices, why others are
 * absent, and which one is preferred. */
#include "failure.h"
#include <cflux/json_out.h>
#include "nearest.h"
#include "options.h"
#include "system.h"
#include <stdlib.h>
#include <string.h>

static bool as_json;
static option_row options[] = {OPTION_JSON(&as_json), OPTIONS_END};

enum { NAME_BYTES = 64, SIZE_BYTES = 32 };

/* "CUDA" for "CUDA:0". */
static void backend_of(const fx_device *device, char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, "%s", fx_device_name(device));
    char *colon = strrchr(name, ':');
    if (colon && colon[1] && strspn(colon + 1, "0123456789") == strlen(colon + 1))
        *colon = 0;
}

/* Opens a kernel library that nothing has used yet, so that the list can say whether it works. */
static void open_library(const fx_plugin_info *plugin, void *user)
{
    char name[3 * NAME_BYTES];
    (void)user;
    snprintf(name, sizeof name, "%s:%s", plugin->serves, plugin->name);
    if (*plugin->serves && !plugin->why)
        fx_functional(name);
}

/* True for a kernel library that the backend uses. */
static bool is_part_of(const fx_plugin_info *plugin, const char *backend)
{
    return plugin->why && !*plugin->why &&
           same_start_ignoring_case(plugin->serves, backend, strlen(backend) + 1);
}

/* ---- as text --------------------------------------------------------------------------------- */

static const char *size_text(int64_t bytes, char text[SIZE_BYTES])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double x = (double)bytes;
    int unit = 0;
    for (; x >= 1024 && unit < 4; unit++)
        x /= 1024;
    snprintf(text, SIZE_BYTES, unit ? "%.1f %s" : "%.0f %s", x, units[unit]);
    return text;
}

static void memory_text(fx_device *device, char text[3 * SIZE_BYTES])
{
    const fx_memory m = fx_memory_status(device);
    char free_bytes[SIZE_BYTES], total[SIZE_BYTES];
    *text = 0;
    size_text(m.free, free_bytes);
    size_text(m.total, total);
    if (m.free >= 0 && m.total > 0)
        snprintf(text, 3 * SIZE_BYTES, "%s of %s free", free_bytes, total);
    else if (m.total > 0 || m.free >= 0)
        snprintf(text, 3 * SIZE_BYTES, "%s%s", m.total > 0 ? total : free_bytes,
                 m.total > 0 ? "" : " free");
}

typedef struct parts_text {
    const char *backend;
    char *text;
    size_t size;
} parts_text;

static void add_part(const fx_plugin_info *plugin, void *user)
{
    const parts_text *p = user;
    const size_t n = strlen(p->text);
    if (is_part_of(plugin, p->backend))
        snprintf(p->text + n, p->size - n, "%s%s", n ? ", " : "", plugin->name);
}

/* "NVIDIA H100, cuDNN" */
static void name_text(const fx_device *device, const char *backend, char *text, size_t size)
{
    snprintf(text, size, "%s", fx_device_model(device));
    if (device == fx_cpu_device())
        snprintf(text, size, "%d thread%s", fx_num_threads(), fx_num_threads() == 1 ? "" : "s");
    parts_text parts = {backend, text, size};
    fx_plugins(add_part, &parts);
}

static void print_device(fx_device *device)
{
    char backend[NAME_BYTES], memory[3 * SIZE_BYTES], name[256];
    backend_of(device, backend);
    memory_text(device, memory);
    name_text(device, backend, name, sizeof name);
    printf("%-8s %2d  %-*s%s\n", backend, fx_device_id(device), *name ? 28 : 0, memory, name);
}

static void print_plugin(const fx_plugin_info *plugin, void *user)
{
    bool *first = user;
    char name[2 * NAME_BYTES];
    snprintf(name, sizeof name, "%s%s%s", plugin->name, *plugin->serves ? " for " : "",
             plugin->serves);
    printf("%s%-14s  %-16s  %s\n", *first ? "\nPlugins:\n" : "", plugin->kind, name, plugin->file);
    *first = false;
}

static void print_devices(void *devices)
{
    const char *const *names = fx_supported_devices();
    bool absent = false;
    printf("%-8s %2s  %-26s  %s\n", "BACKEND", "ID", "MEMORY", "NAME, PARTS");
    for (int64_t i = 0; i < fx_count(devices); i++)
        print_device(fx_child(devices, i));
    printf("\nDefault device: %s\n", fx_device_name(fx_get_device()));
    for (int i = 0; names[i]; i++) {
        if (fx_device_count(names[i]) > 0)
            continue;
        printf("%s%-8s %s\n", absent ? "" : "\nAbsent:\n", names[i], fx_why_not(names[i]));
        absent = true;
    }
    bool first = true;
    fx_plugins(print_plugin, &first);
}

/* ---- as JSON --------------------------------------------------------------------------------- */

typedef struct json_parts {
    fx_json *j;
    const char *backend;
} json_parts;

static void json_part(const fx_plugin_info *plugin, void *user)
{
    const json_parts *p = user;
    if (is_part_of(plugin, p->backend))
        fx_json_text(p->j, NULL, plugin->name);
}

static void json_plugin(const fx_plugin_info *plugin, void *user)
{
    fx_json *j = user;
    fx_json_open(j, NULL, '{');
    fx_json_text(j, "kind", plugin->kind);
    fx_json_text(j, "name", plugin->name);
    fx_json_text(j, "serves", *plugin->serves ? plugin->serves : NULL);
    fx_json_text(j, "file", plugin->file);
    fx_json_text(j, "version", *plugin->version ? plugin->version : NULL);
    fx_json_text(j, "why", plugin->why); /* "": in use; null: not opened */
    fx_json_close(j);
}

static void json_device(fx_json *j, fx_device *device)
{
    const fx_memory m = fx_memory_status(device);
    char backend[NAME_BYTES];
    backend_of(device, backend);
    fx_json_open(j, NULL, '{');
    fx_json_text(j, "backend", backend);
    fx_json_integer(j, "id", fx_device_id(device));
    fx_json_text(j, "device", fx_device_name(device));
    fx_json_text(j, "name", fx_device_model(device));
    if (m.free >= 0)
        fx_json_integer(j, "memory_free", m.free);
    if (m.total > 0)
        fx_json_integer(j, "memory_total", m.total);
    fx_json_open(j, "parts", '[');
    fx_plugins(json_part, &(json_parts){j, backend});
    fx_json_close(j);
    fx_json_close(j);
}

static void json_devices(void *devices)
{
    fx_json j = {.to = stdout};
    const char *const *names = fx_supported_devices();
    fx_json_open(&j, NULL, '{');
    fx_json_open(&j, "devices", '[');
    for (int64_t i = 0; i < fx_count(devices); i++)
        json_device(&j, fx_child(devices, i));
    fx_json_close(&j);
    fx_json_text(&j, "default", fx_device_name(fx_get_device()));
    fx_json_integer(&j, "threads", fx_num_threads());
    fx_json_open(&j, "absent", '{');
    for (int i = 0; names[i]; i++)
        if (fx_device_count(names[i]) == 0)
            fx_json_text(&j, names[i], fx_why_not(names[i]));
    fx_json_close(&j);
    fx_json_open(&j, "plugins", '[');
    fx_plugins(json_plugin, &j);
    fx_json_end(&j);
}

static int run_devices(int n, char **operands)
{
    (void)n;
    (void)operands;
    const char *const *names = fx_supported_devices();
    fx_use_all();
    for (int i = 0; names[i]; i++) /* makes each backend record why it is absent */
        fx_use(names[i]);
    fx_plugins(open_library, NULL);
    (as_json ? json_devices : print_devices)(fx_devices(NULL));
    return EXIT_FINE;
}

const command command_devices = {
    .name = "devices",
    .summary = "List the available devices, and say why others are not available",
    .operands = "",
    .examples = "cflux devices\n",
    .about =
        "Loads every backend that is installed. Shows for each device its backend, number, "
        "memory, name and the kernel libraries that its backend uses. Then it lists the missing "
        "backends, with the reason, and the files of all plugins.",
    .options = options,
    .run = run_devices,
};

/* ---- the preference -------------------------------------------------------------------------- */

/* The known backend with this name in any case; NULL if there is none. */
static const char *supported(const char *name, int *count)
{
    const char *const *names = fx_supported_devices();
    const char *found = NULL;
    for (*count = 0; names[*count]; ++*count)
        if (same_start_ignoring_case(names[*count], name, strlen(name) + 1))
            found = names[*count];
    return found;
}

static int unknown_backend(const char *name, int count)
{
    const char *const *names = fx_supported_devices(), *near = nearest(name, names, count);
    char all[200] = "";
    for (int i = 0; i < count; i++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? ", " : "", names[i]);
    return fail(EXIT_BAD_INPUT, "unknown backend \"%s\"%s%s%s; known are %s", name,
                near ? " (did you mean " : "", near ? near : "", near ? "?)" : "", all);
}

static void show_preference(const char *name)
{
    fx_json j = {.to = stdout};
    if (!as_json) {
        puts(*name ? name
                   : "no preference: the first of CUDA, AMDGPU, Metal, OpenCL that works and is "
                     "not a CPU, otherwise the CPU");
        return;
    }
    fx_json_open(&j, NULL, '{');
    fx_json_text(&j, "preference", *name ? name : NULL);
    fx_json_end(&j);
}

static int run_backend(int n, char **operands)
{
    int count = 0;
    const char *name = n ? supported(operands[0], &count) : fx_gpu_backend();
    if (!name)
        return unknown_backend(operands[0], count);
    const fx_status status = n ? fx_gpu_backend_set(name) : FX_OK;
    if (status != FX_OK)
        return fail_library(status == FX_STATUS_FORMAT ? EXIT_BAD_INPUT : EXIT_FAILED);
    show_preference(name);
    return EXIT_FINE;
}

const command command_backend = {
    .name = "backend",
    .summary = "Show or set the project's preferred backend",
    .operands = "[NAME]",
    .most = 1,
    .examples = "cflux backend\n"
                "cflux backend CUDA\n",
    .about =
        "The preference is the value gpu_backend in JuliaLocalPreferences.toml or, if that file "
        "does not exist, in LocalPreferences.toml: in the table [MLDataDevices], else in [Flux]. "
        "The environment variable CFLUX_PROJECT names the folder of the file (default: the "
        "current folder). Setting the preference leaves the rest of the file unchanged. NAME is "
        "CUDA, AMDGPU, Metal, OpenCL or CPU, in upper or lower case.",
    .options = options,
    .run = run_backend,
};
