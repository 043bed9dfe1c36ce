/* fuzz_targets.c: the readers of the library, a row each. */
#include "fuzz_target.h"

#include "memory.h"
#include "toml.h"

#include <cflux.h>
#include <string.h>

/* ---- texts ----------------------------------------------------------------------------------- */

/* What can be read can be printed, and comes back the same. */
static void read_notation(const char *text, size_t n)
{
    static char shown[1 << 20], again[1 << 20];
    (void)n;
    void *model = fx_parse_model(text);
    fuzz_outcome(model);
    fx_parse_loss(text);
    fx_error_take();
    fuzz_outcome(fx_parse_optimiser(text));
    if (fx_is_error(model) || fx_summary(model, shown, sizeof shown) >= sizeof shown)
        return;
    void *copy = fx_parse_model(shown);
    fuzz_expect(!fx_is_error(copy), "what is printed is not read");
    fx_summary(copy, again, sizeof again);
    fuzz_expect(strcmp(shown, again) == 0, "what is printed comes back as something else");
}

/* What is set is found, and the rest is still TOML. */
static void read_toml(const char *text, size_t n)
{
    char value[64];
    bool found;
    size_t length;
    fxi_toml_error error = {0};
    const bool good =
        fxi_toml_string(text, n, "Flux", "gpu_backend", value, sizeof value, &found, &error);
    fuzz_expect(good == (error.line == 0), "an error has a line");
    error = (fxi_toml_error){0};
    char *changed = fxi_toml_set(text, n, "Flux", "gpu_backend", "CUDA", &length, &error);
    if (!changed)
        return;
    const bool kept = fxi_toml_string(changed, length, "Flux", "gpu_backend", value, sizeof value,
                                      &found, &error);
    fuzz_expect(kept && found && strcmp(value, "CUDA") == 0, "what is set is not found");
    fxi_free(changed);
}

/* ---- files ----------------------------------------------------------------------------------- */

#define LOADER(name)                                                                               \
    static void *load_##name(const char *path)                                                     \
    {                                                                                              \
        return fx_read_##name(path);                                                               \
    }
LOADER(csv)
LOADER(table)
LOADER(idx)

const fuzz_target fuzz_targets[] = {
    {.name = "notation", .read = read_notation, .longest = 1 << 13},
    {.name = "toml", .read = read_toml},
    {.name = "csv", .load = load_csv, .extension = ".csv", .gzip = true, .seeds = {"tabular"}},
    {.name = "table", .load = load_table, .extension = ".csv", .gzip = true, .seeds = {"tabular"}},
    {.name = "idx",
     .load = load_idx,
     .extension = ".idx",
     .gzip = true,
     .seeds = {"formats/idx_good", "formats/idx_bad"}},
    {.name = "bson",
     .load = fx_load,
     .extension = ".bson",
     .seeds = {"flux-bson", "formats/bson/corpus_bin/valid", "formats/bson/corpus_bin/bad",
               "formats/bson/corpus_bin/degenerate"}},
    {.name = "safetensors",
     .load = fx_load,
     .extension = ".safetensors",
     .seeds = {"formats/safetensors/good", "formats/safetensors/bad", "formats/safetensors/real"}},
    {.name = "npy",
     .load = fx_load,
     .extension = ".npy",
     .seeds = {"formats/npy/good", "formats/npy/bad"}},
    {.name = "npz",
     .load = fx_load,
     .extension = ".npz",
     .seeds = {"formats/npy/npz", "formats/npy/npz_bad"}},
};
const int fuzz_target_count = sizeof fuzz_targets / sizeof *fuzz_targets;
