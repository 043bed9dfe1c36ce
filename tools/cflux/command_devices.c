/* command_devices.c: cflux devices and cflux backend: what there is to compute with, why the rest
 * is absent, and which one is preferred. */
#include "failure.h"
#include "json_out.h"
#include "nearest.h"
#include "options.h"
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool as_json;
static option_row options[] = {OPTION_JSON(&as_json), OPTIONS_END};

/* Libraries that a backend uses where it finds them. */
static const struct {
    const char *backend, *part;
} parts[] = {{"CPU", "oneDNN"}, {"CUDA", "cuDNN"}, {"AMDGPU", "MIOpen"}};
enum { PARTS = sizeof parts / sizeof parts[0], NAME_BYTES = 64, SIZE_BYTES = 32 };

/* "CUDA" of "CUDA:0". */
static void backend_of(const fx_device *device, char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, "%s", fx_device_name(device));
    char *colon = strrchr(name, ':');
    if (colon && colon[1] && strspn(colon + 1, "0123456789") == strlen(colon + 1))
        *colon = 0;
}

/* The part of row i works. */
static bool has_part(int i, const char *backend)
{
    char name[2 * NAME_BYTES];
    snprintf(name, sizeof name, "%s:%s", parts[i].backend, parts[i].part);
    return strcmp(parts[i].backend, backend) == 0 && fx_functional(name);
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

/* "NVIDIA H100, cuDNN" */
static void name_text(const fx_device *device, const char *backend, char *text, size_t size)
{
    size_t n = (size_t)snprintf(text, size, "%s", fx_device_model(device));
    if (device == fx_cpu_device())
        n = (size_t)snprintf(text, size, "%d thread%s", fx_num_threads(),
                             fx_num_threads() == 1 ? "" : "s");
    for (int i = 0; i < PARTS && n < size; i++)
        if (has_part(i, backend))
            n += (size_t)snprintf(text + n, size - n, "%s%s", n ? ", " : "", parts[i].part);
}

static void print_device(fx_device *device)
{
    char backend[NAME_BYTES], memory[3 * SIZE_BYTES], name[256];
    backend_of(device, backend);
    memory_text(device, memory);
    name_text(device, backend, name, sizeof name);
    printf("%-8s %2d  %-*s%s\n", backend, fx_device_id(device), *name ? 28 : 0, memory, name);
}

static void print_devices(void *devices)
{
    const char *const *names = fx_supported_devices();
    bool absent = false;
    printf("%-8s %2s  %-26s  %s\n", "BACKEND", "ID", "MEMORY", "NAME, PARTS");
    for (int64_t i = 0; i < fx_count(devices); i++)
        print_device(fx_child(devices, i));
    printf("\nWithout a wish programs use %s.\n", fx_device_name(fx_get_device()));
    for (int i = 0; names[i]; i++) {
        if (fx_device_count(names[i]) > 0)
            continue;
        printf("%s%-8s %s\n", absent ? "" : "\nAbsent:\n", names[i], fx_why_not(names[i]));
        absent = true;
    }
}

/* ---- as JSON --------------------------------------------------------------------------------- */

static void json_device(json_out *j, fx_device *device)
{
    const fx_memory m = fx_memory_status(device);
    char backend[NAME_BYTES];
    backend_of(device, backend);
    json_open(j, NULL, '{');
    json_text(j, "backend", backend);
    json_integer(j, "id", fx_device_id(device));
    json_text(j, "device", fx_device_name(device));
    json_text(j, "name", fx_device_model(device));
    if (m.free >= 0)
        json_integer(j, "memory_free", m.free);
    if (m.total > 0)
        json_integer(j, "memory_total", m.total);
    json_open(j, "parts", '[');
    for (int i = 0; i < PARTS; i++)
        if (has_part(i, backend))
            json_text(j, NULL, parts[i].part);
    json_close(j);
    json_close(j);
}

static void json_devices(void *devices)
{
    json_out j = {.to = stdout};
    const char *const *names = fx_supported_devices();
    json_open(&j, NULL, '{');
    json_open(&j, "devices", '[');
    for (int64_t i = 0; i < fx_count(devices); i++)
        json_device(&j, fx_child(devices, i));
    json_close(&j);
    json_text(&j, "default", fx_device_name(fx_get_device()));
    json_integer(&j, "threads", fx_num_threads());
    json_open(&j, "absent", '{');
    for (int i = 0; names[i]; i++)
        if (fx_device_count(names[i]) == 0)
            json_text(&j, names[i], fx_why_not(names[i]));
    json_end(&j);
}

static int run_devices(int n, char **operands)
{
    (void)n;
    (void)operands;
    const char *const *names = fx_supported_devices();
    fx_use_all();
    for (int i = 0; names[i]; i++) /* so that each says why it is absent */
        fx_use(names[i]);
    (as_json ? json_devices : print_devices)(fx_devices(NULL));
    return EXIT_FINE;
}

const command command_devices = {
    .name = "devices",
    .summary = "List the devices there are, and why others are absent",
    .operands = "",
    .about = "Loads every backend that is installed. Each device is shown with its backend, its "
             "number, its memory, its name and the libraries that its backend has found.",
    .options = options,
    .run = run_devices,
};

/* ---- the preference -------------------------------------------------------------------------- */

/* The backend of that name in any case, or NULL. */
static const char *supported(const char *name, int *count)
{
    const char *const *names = fx_supported_devices();
    const char *found = NULL;
    for (*count = 0; names[*count]; ++*count)
        if (strcasecmp(names[*count], name) == 0)
            found = names[*count];
    return found;
}

static int unknown_backend(const char *name, int count)
{
    const char *const *names = fx_supported_devices(), *near = nearest(name, names, count);
    char all[200] = "";
    for (int i = 0; i < count; i++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? ", " : "", names[i]);
    return fail(EXIT_BAD_INPUT, "there is no backend \"%s\"%s%s%s; those there are: %s", name,
                near ? " (did you mean " : "", near ? near : "", near ? "?)" : "", all);
}

static void show_preference(const char *name)
{
    json_out j = {.to = stdout};
    if (!as_json) {
        puts(*name ? name : "no preference: the first of CUDA, AMDGPU, Metal, OpenCL that works");
        return;
    }
    json_open(&j, NULL, '{');
    json_text(&j, "preference", *name ? name : NULL);
    json_end(&j);
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
    .about = "The preference is gpu_backend in the table [Flux] of LocalPreferences.toml, in the "
             "folder that CFLUX_PROJECT names or the current one; the rest of the file stays as it "
             "is. NAME is CUDA, AMDGPU, Metal, OpenCL or CPU, in any case.",
    .options = options,
    .run = run_backend,
};
