/* bson_version.c: determines which versions of Flux and Julia wrote a BSON document.
 *
 * Files do not store the version. But most changes of a layer changed its field count, arrays were
 * Tracker's until Flux 0.9, and the type of an anonymous function holds the version of Julia. Each
 * struct in the document narrows the range of versions.
 */
#include "bson_version.h"
#include "error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct versions {
    fxi_julia *j;
    fxi_flux_range flux;
    char julia[24];
} versions;

static void narrow(versions *v, fxi_flux_range r)
{
    v->flux.since = r.since > v->flux.since ? r.since : v->flux.since;
    v->flux.until = r.until < v->flux.until ? r.until : v->flux.until;
}

/* Modules that existed only in some versions. */
static const struct {
    const char *module;
    fxi_flux_range range;
} modules[] = {
    {"Flux.Tracker.", {600, 799}},       {"Tracker.", {800, 999}},
    {"Zygote.", {1000, FXI_FLUX_LAST}},  {"Optimisers.", {1300, FXI_FLUX_LAST}},
    {"MLUtils.", {1300, FXI_FLUX_LAST}},
};

/* The type name of an anonymous function is a struct whose first field is Julia's version. */
static void inspect_type_name(versions *v, fxi_bson value)
{
    fxi_bson fields[FXI_JULIA_FIELDS];
    const int n = fxi_julia_fields(v->j, value, fields);
    if (n > 0 && fields[0].kind == FXI_BSON_STRING && fields[0].size < sizeof v->julia)
        snprintf(v->julia, sizeof v->julia, "%s", fields[0].u.text);
}

static void inspect_struct(versions *v, fxi_bson value)
{
    char name[FXI_JULIA_NAME];
    fxi_bson fields[FXI_JULIA_FIELDS];
    fxi_julia_struct_name(v->j, value, name);
    if (strcmp(name, "TypeName") == 0)
        inspect_type_name(v, value);
    for (size_t i = 0; i < sizeof modules / sizeof modules[0]; i++)
        if (strncmp(name, modules[i].module, strlen(modules[i].module)) == 0)
            narrow(v, modules[i].range);
    if (strncmp(name, "Flux.", 5) == 0)
        narrow(v, fxi_bson_layer_range(name, fxi_julia_fields(v->j, value, fields)));
}

static void inspect_value(versions *v, fxi_bson value, int depth)
{
    if ((value.kind != FXI_BSON_DOCUMENT && value.kind != FXI_BSON_ARRAY) ||
        depth > FXI_BSON_MAX_NESTING || v->j->b->status != FX_OK)
        return;
    if (value.kind == FXI_BSON_DOCUMENT && fxi_julia_tagged(value, "struct"))
        inspect_struct(v, value);
    fxi_bson_items items = fxi_bson_items_of(value);
    fxi_bson item;
    while (fxi_bson_next(&items, &item))
        inspect_value(v, item, depth + 1);
}

/* "0.13"; "0.12.6" */
static const char *version_text(int version, char text[16])
{
    const int patch = version % 100;
    snprintf(text, 16, patch && patch != 99 ? "0.%d.%d" : "0.%d", version / 100, patch);
    return text;
}

static void flux_text(fxi_flux_range r, char *text, size_t size)
{
    char since[16], until[16];
    version_text(r.since, since);
    version_text(r.until, until);
    *text = 0;
    if (r.since > r.until)
        snprintf(text, size, "no single version of Flux");
    else if (r.since > FXI_FLUX_FIRST && r.until < FXI_FLUX_LAST && strcmp(since, until) != 0)
        snprintf(text, size, "Flux %s to %s", since, until);
    else if (r.since > FXI_FLUX_FIRST && r.until < FXI_FLUX_LAST)
        snprintf(text, size, "Flux %s", since);
    else if (r.since > FXI_FLUX_FIRST)
        snprintf(text, size, "Flux %s or later", since);
    else if (r.until < FXI_FLUX_LAST)
        snprintf(text, size, "Flux %s or earlier", until);
}

/* Loading may never read the damaged part, so damage that is found here must not make loading fail:
 * the status is restored. */
static void guess(versions *v, fxi_bson root)
{
    const fx_error earlier = fxi_error_begin();
    inspect_value(v, root, 0);
    if (v->j->b->status == FX_STATUS_FORMAT) {
        v->j->b->status = FX_OK;
        fx_error_take();
    }
    fxi_error_end(&earlier);
}

/* Parses a version: "0.14" (its latest patch) or "0.16.10"; −1 if it is not a version. */
static int version_of(const char *text)
{
    char *end;
    if (strncmp(text, "0.", 2) != 0 || !strchr("0123456789", text[2]) || !text[2])
        return -1;
    const long minor = strtol(text + 2, &end, 10);
    const bool patched = *end == '.' && end[1] && strchr("0123456789", end[1]);
    const long patch =
        patched ? strtol(end + 1, &end, 10) : 99; /* the latest patch of the minor version */
    return *end || minor > 99 || patch > 99 ? -1 : (int)(100 * minor + patch);
}

/* The version set by fx_load_flux_version; 0: none. */
static _Thread_local int chosen;

fx_status fx_load_flux_version(const char *version)
{
    const int v = version ? version_of(version) : 0;
    if (v < 0)
        return fx_fail(FX_STATUS_ARGUMENT, "load_flux_version",
                       "\"%s\" is not a version of Flux such as 0.14 or 0.16.10", version);
    chosen = v;
    return FX_OK;
}

fxi_flux_range fxi_bson_flux_range(fxi_julia *j)
{
    if (chosen)
        return (fxi_flux_range){chosen, chosen};
    versions v = {.j = j, .flux = {FXI_FLUX_FIRST, FXI_FLUX_LAST}};
    guess(&v, j->root);
    return v.flux;
}

fx_status fxi_bson_about(fxi_bytes *b, fx_file_info *out)
{
    fxi_julia j = {0};
    char flux[64];
    const fxi_bson root = fxi_bson_open(b);
    if (root.kind != FXI_BSON_NOTHING && fxi_julia_open(&j, b, root)) {
        versions v = {.j = &j, .flux = {FXI_FLUX_FIRST, FXI_FLUX_LAST}};
        guess(&v, root);
        flux_text(v.flux, flux, sizeof flux);
        snprintf(out->origin, sizeof out->origin, "%s%s%s%s", flux, *flux && *v.julia ? ", " : "",
                 *v.julia ? "Julia " : "", v.julia);
    }
    fxi_julia_close(&j);
    return b->status;
}
