/* fuzz_targets.c: the readers of the library, a row each. */
#include "fuzz_target.h"

#include "kernel_pack.h"
#include "memory.h"
#include "read_log.h"
#include "toml.h"

#include <cflux.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

/* ---- texts ----------------------------------------------------------------------------------- */

/* A model that was read can be printed, and the printed text gives the same model. A short text can
 * describe gigabytes: a model whose values exceed the limit of the row is printed without them, and
 * the limit may allow one model but not two. */
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
    if (fx_is_error(copy) && fx_error_take().status == FX_STATUS_MEMORY)
        return;
    fuzz_expect(!fx_is_error(copy), "what is printed is not read");
    fx_summary(copy, again, sizeof again);
    fuzz_expect(strcmp(shown, again) == 0, "what is printed comes back as something else");
}

/* A value that was set is found again, and the rest is still TOML. */
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
    char *changed = fxi_toml_set_raw(text, n, "Flux", "gpu_backend", "\"CUDA\"", &length, &error);
    if (!changed)
        return;
    const bool kept = fxi_toml_string(changed, length, "Flux", "gpu_backend", value, sizeof value,
                                      &found, &error);
    fuzz_expect(kept && found && strcmp(value, "CUDA") == 0, "what is set is not found");
    fxi_free(changed);
}

static void read_run_log(const char *text, size_t n)
{
    fxi_log_record record;
    FILE *f = fmemopen((void *)(uintptr_t)text, n, "r");
    fuzz_expect(f != NULL, "no file of the text");
    const fx_status status = fxi_read_log(f, "a log", &record);
    fuzz_expect(fx_error_take().status == status, "a refused log is recorded");
    fuzz_expect(status == FX_OK || status == FX_STATUS_FORMAT, "a log is read or refused");
    fxi_log_free(&record);
    fclose(f);
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

/* A file that loads has a known format; a checkpoint also has a correct checksum. */
static void *load_any(const char *path)
{
    fx_file_info info;
    const fx_status about = fx_file_about(path, &info);
    fx_error_take();
    void *object = fx_load(path);
    fuzz_expect(fx_is_error(object) || about == FX_OK || strcmp(info.format, "checkpoint") == 0,
                "what can be loaded is of no known format");
    return object;
}

/* Corrects the checksum after the input was damaged, so that the reader after the check is tested.
 */
static void mend_sum(const char *path)
{
    static unsigned char bytes[1 << 20];
    FILE *f = fopen(path, "r+b");
    fuzz_expect(f != NULL, "the file can be opened");
    const size_t n = fread(bytes, 1, sizeof bytes, f);
    const uint32_t sum = n > 4 ? (uint32_t)crc32_z(0, bytes, n - 4) : 0;
    for (int i = 0; i < 4; i++)
        bytes[i] = (unsigned char)(sum >> 8 * i);
    if (n > 4)
        fuzz_expect(fseek(f, (long)n - 4, SEEK_SET) == 0 && fwrite(bytes, 1, 4, f) == 4,
                    "the sum can be written");
    fclose(f);
}

/* Loads into the objects that the seeds contain. Nothing changes unless the file is complete. */
static void *load_checkpoint(const char *path)
{
    fx_chain_layer *model = fx_chain(fx_dense(2, 3, FX_RELU), fx_batchnorm(3), fx_dense(3, 1));
    fx_checkpoint_args c = {.fxi_size = sizeof c,
                            .model = model,
                            .state = fx_setup(fx_adam(), model),
                            .data = fx_dataloader(fx_zeros(2, 10), .batchsize = 4, .shuffle = true),
                            .step = -1};
    const double before = fx_item(fx_sum(fx_destructure(model)));
    mend_sum(path);
    const fx_status status = fx_checkpoint_load(path, &c);
    const double after = fx_item(fx_sum(fx_destructure(model)));
    if (status == FX_OK)
        return c.metrics ? c.metrics : model;
    fuzz_expect(c.step == -1 && before == after, "a file that is refused changes nothing");
    return fx_error_array(status);
}

/* Corrects what a reader compares first, so that later checks are tested: the checksum, and
 * the version, which seeds of other versions of cflux have too. */
static void mend_pack(const char *path)
{
    static unsigned char bytes[1 << 20];
    FILE *f = fopen(path, "r+b");
    fuzz_expect(f != NULL, "the file can be opened");
    const size_t n = fread(bytes, 1, sizeof bytes, f);
    if (n >= FXI_PACK_HEADER) {
        memcpy(bytes + FXI_PACK_AT_VERSION, FX_VERSION_STRING, sizeof FX_VERSION_STRING);
        fxi_pack_put(bytes + FXI_PACK_AT_BYTES, n, 8);
        fxi_pack_put(bytes + FXI_PACK_AT_HASH, fxi_pack_hash(bytes, n), 8);
        fuzz_expect(fseek(f, 0, SEEK_SET) == 0 && fwrite(bytes, 1, n, f) == n,
                    "the header can be written");
    }
    fclose(f);
}

static void read_kind(const fx_kernels_info *k, void *user)
{
    int64_t *count = user;
    fuzz_expect(strlen(k->backend) + strlen(k->target) + strlen(k->compiler) < 1 << 20,
                "the names end");
    *count += k->count;
}

/* Reads all bytes of the code of an entry. */
static uint64_t read_code(const fxi_packed *e)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < e->size; i++)
        sum += ((const unsigned char *)e->code)[i];
    return sum;
}

static void *load_kernels(const char *path)
{
    char why[FXI_PACK_WHY];
    int64_t count = 0;
    uint64_t sum = 0;
    fxi_pack pack;
    mend_pack(path);
    const fx_status status = fx_kernels_list(path, read_kind, &count);
    if (status)
        return fx_error_array(status);
    fuzz_expect(fxi_pack_read(path, &pack, why) == FX_OK && pack.count == count,
                "a list has every entry");
    for (uint32_t k = 0; k < pack.count; k++) {
        const fxi_packed e = fxi_pack_entry(&pack, k);
        sum += read_code(&e);
    }
    fxi_free(pack.bytes);
    return fx_full((double)(sum % 7), 1);
}

/* A struct of this program, which seeds name Main.Inner. */
typedef struct Inner {
    fx_object base;
    fx_array *x;
    double scale;
} Inner;
FX_FUNCTOR(Inner, x, scale);

static void *load_bson(const char *path)
{
    fuzz_expect(fx_julia_name(fx_new(Inner, .x = fx_ones(1)), "Main.Inner") == FX_OK,
                "a type is named");
    return load_any(path);
}

/* A damaged text of the file can describe a large model. */
static void *load_entries(const char *path)
{
    return fx_load_entries(path, NULL);
}

/* ---- tokenizers ------------------------------------------------------------------------------ */

static const char SMALL_VOCABULARY[] = "tests/fuzz/corpus/vocabulary/small.json",
                  SMALL_MERGES[] = "tests/fuzz/corpus/merges/small.txt";

static void *load_vocabulary(const char *path)
{
    return fx_tokenizer_load(path, "/dev/null");
}

static void *load_merges(const char *path)
{
    return fx_tokenizer_load(SMALL_VOCABULARY, path);
}

/* Any bytes come back from their ids. */
static void check_round_trip(const fx_tokenizer *t, const char *text, size_t n)
{
    static char back[1 << 17];
    size_t bytes;
    fx_array *ids = fx_tokenizer_encode(t, text, n);
    fuzz_expect(fx_tokenizer_decode(t, ids, back, sizeof back, &bytes) == FX_OK, "ids are decoded");
    fuzz_expect(bytes == n && memcmp(back, text, n) == 0, "a text comes back from its ids");
}

/* Learns from the file, if it is UTF-8. A tokenizer that exists encodes every file. */
static void *learn_tokenizer(const char *path)
{
    static char text[1 << 17];
    FILE *f = fopen(path, "rb");
    fuzz_expect(f != NULL, "the file can be opened");
    const size_t n = fread(text, 1, sizeof text, f);
    fclose(f);
    check_round_trip(fx_tokenizer_load(SMALL_VOCABULARY, SMALL_MERGES), text, n);
    fx_tokenizer *t = fx_tokenizer_learn(1, &path, 400, 1);
    if (!fx_is_error(t))
        check_round_trip(t, text, n);
    return t;
}

const fuzz_target fuzz_targets[] = {
    {.name = "notation", .read = read_notation, .longest = 1 << 13, .memory_limit = 16 << 20},
    {.name = "toml", .read = read_toml},
    {.name = "run_log", .read = read_run_log},
    {.name = "csv", .load = load_csv, .extension = ".csv", .gzip = true, .seeds = {"tabular"}},
    /* A name and a text, four bytes of a file, may be a column, which takes two objects. */
    {.name = "table",
     .load = load_table,
     .extension = ".csv",
     .gzip = true,
     .seeds = {"tabular"},
     .heap_per_byte = 300},
    {.name = "idx",
     .load = load_idx,
     .extension = ".idx",
     .gzip = true,
     .seeds = {"formats/idx_good", "formats/idx_bad"}},
    {.name = "bson",
     .load = load_bson,
     .extension = ".bson",
     .seeds = {"flux-bson", "formats/bson/corpus_bin/valid", "formats/bson/corpus_bin/bad",
               "formats/bson/corpus_bin/degenerate"}},
    {.name = "safetensors",
     .load = load_any,
     .extension = ".safetensors",
     .seeds = {"formats/safetensors/good", "formats/safetensors/bad", "formats/safetensors/real"}},
    {.name = "checkpoint", .load = load_checkpoint, .extension = ".safetensors"},
    {.name = "entries",
     .load = load_entries,
     .extension = ".safetensors",
     .memory_limit = 16 << 20,
     .heap_per_byte = 100},
    {.name = "kernels", .load = load_kernels, .extension = ".pack", .heap_per_byte = 4},
    {.name = "npy",
     .load = load_any,
     .extension = ".npy",
     .seeds = {"formats/npy/good", "formats/npy/bad"}},
    {.name = "npz",
     .load = load_any,
     .extension = ".npz",
     .seeds = {"formats/npy/npz", "formats/npy/npz_bad"}},
    {.name = "vocabulary", .load = load_vocabulary, .extension = ".json", .heap_per_byte = 30},
    {.name = "merges", .load = load_merges, .extension = ".txt", .heap_per_byte = 30},
    /* Each byte may be a pair with a list of words, and an entry of the encoder's queue. */
    {.name = "tokenizer", .load = learn_tokenizer, .extension = ".txt", .heap_per_byte = 400},
};
const int fuzz_target_count = sizeof fuzz_targets / sizeof *fuzz_targets;
