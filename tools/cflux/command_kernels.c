/* command_kernels.c: cflux kernels: list compiled kernels, and pack them for machines without a
 * compiler. */
#include "failure.h"
#include "options.h"
#include <cflux/json_out.h>
#include <string.h>

static bool as_json;
static option_row options[] = {OPTION_JSON(&as_json), OPTIONS_END};

typedef struct total {
    fx_json *json; /* NULL: text */
    int64_t count, bytes;
} total;

static void add(total *t, const fx_kernels_info *k)
{
    t->count += k->count;
    t->bytes += k->bytes;
}

static void print_kernels(const fx_kernels_info *k, void *user)
{
    total *t = user;
    if (t->count == 0)
        printf("%-8s  %7s  %12s  %s\n", "BACKEND", "KERNELS", "BYTES", "ARCHITECTURE, COMPILER");
    printf("%-8s  %7lld  %12lld  %s, %s\n", k->backend, (long long)k->count, (long long)k->bytes,
           k->target, k->compiler);
    add(t, k);
}

static void json_kernels(const fx_kernels_info *k, void *user)
{
    total *t = user;
    fx_json_open(t->json, NULL, '{');
    fx_json_text(t->json, "backend", k->backend);
    fx_json_text(t->json, "architecture", k->target);
    fx_json_text(t->json, "compiler", k->compiler);
    fx_json_integer(t->json, "count", k->count);
    fx_json_integer(t->json, "bytes", k->bytes);
    fx_json_close(t->json);
    add(t, k);
}

/* A file that is not a pack, or is damaged, is bad input. */
static int failed(void)
{
    const fx_status status = fx_error_status();
    return fail_library(status == FX_STATUS_FORMAT ? EXIT_BAD_INPUT : EXIT_FAILED);
}

static void ignore(const fx_kernels_info *k, void *user)
{
    (void)k, (void)user;
}

static int list_as_json(const char *file)
{
    fx_json j = {.to = stdout};
    total t = {.json = &j};
    /* Reads the file before it prints, so that a failure does not leave half of a JSON document. */
    if (fx_kernels_list(file, ignore, NULL) != FX_OK)
        return failed();
    fx_json_open(&j, NULL, '{');
    fx_json_text(&j, "file", file); /* null: the cache */
    fx_json_open(&j, "kernels", '[');
    if (fx_kernels_list(file, json_kernels, &t) != FX_OK)
        return failed();
    fx_json_close(&j);
    fx_json_integer(&j, "count", t.count);
    fx_json_integer(&j, "bytes", t.bytes);
    fx_json_end(&j);
    return EXIT_FINE;
}

/* file NULL: the cache. */
static int list(const char *file)
{
    total t = {.json = NULL};
    if (as_json)
        return list_as_json(file);
    if (fx_kernels_list(file, print_kernels, &t) != FX_OK)
        return failed();
    if (t.count == 0)
        printf("no kernels of cflux %s in %s\n", FX_VERSION_STRING, file ? file : "the cache");
    return EXIT_FINE;
}

static int pack(const char *file)
{
    return fx_kernels_pack(file) == FX_OK ? list(file) : failed();
}

static int run_kernels(int n, char **operands)
{
    const char *action = n > 0 ? operands[0] : "list", *file = n > 1 ? operands[1] : NULL;
    if (strcmp(action, "list") == 0)
        return list(file);
    if (strcmp(action, "pack") != 0)
        return fail(EXIT_BAD_INPUT, "unknown action \"%s\"; known are list, pack", action);
    return file ? pack(file)
                : fail(EXIT_BAD_INPUT, "the name of the pack is missing: cflux kernels pack FILE");
}

const command command_kernels = {
    .name = "kernels",
    .summary = "List compiled GPU kernels, or pack them for machines without a compiler",
    .operands = "[list [FILE] | pack FILE]",
    .most = 2,
    .examples = "cflux kernels\n"
                "cflux kernels pack kernels.pack\n",
    .about =
        "GPU backends cache the kernels that they compile. cflux kernels list shows the kernels in "
        "the cache or in a pack: backend, architecture, number, bytes and compiler. cflux kernels "
        "pack writes one file with all cached kernels that this version of cflux compiled, and "
        "lists them.\n"
        "A program that runs with CFLUX_KERNELS=FILE takes its kernels from the pack, also on a "
        "machine that has a device and its driver, but no NVRTC or hipRTC. To pack the kernels of "
        "one program only, run it and this command with XDG_CACHE_HOME set to a new folder.",
    .options = options,
    .run = run_kernels,
};
