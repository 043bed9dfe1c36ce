/* command_convert.c: cflux convert: from one format into another, without loss or not at all. */
#include "clean_text.h"
#include "failure.h"
#include "input_file.h"
#include "interrupt.h"
#include "json_out.h"
#include "model_file.h"
#include "nearest.h"
#include "options.h"
#include "output_paths.h"
#include "text_parts.h"
#include <inttypes.h>
#include <string.h>

static bool as_json, as_checkpoint, as_pytorch, arrays_alone;
static const char *notation;
static text_list only;
static option_row options[] = {
    {"only", 'k', OPTION_TEXTS, &only, "NAME",
     "Convert the entry of this name and leave out the others; may be given several times", 0, 0},
    {"model", 'm', OPTION_TEXT, &notation, "NOTATION",
     "The model, in Flux's notation, that the arrays of IN belong to: those of a file without "
     "notation, of Flux.state, of a list of parameters, or of PyTorch",
     0, 0},
    {"arrays", 'a', OPTION_FLAG, &arrays_alone, NULL,
     "Write arrays by name and leave out the structure that a format of arrays cannot hold", 0, 0},
    {"pytorch", 0, OPTION_FLAG, &as_pytorch, NULL,
     "Write the model's state with PyTorch's names and layouts", 0, 0},
    {"checkpoint", 0, OPTION_FLAG, &as_checkpoint, NULL,
     "Write a checkpoint, whatever OUT is called; .checkpoint and .ckpt say it too", 0, 0},
    OPTION_JSON(&as_json),
    OPTIONS_END,
};

/* A format that cannot hold models, or keeps them as text. */
static bool to_arrays(const char *path)
{
    return ends_with(path, ".safetensors") || ends_with(path, ".npz") || ends_with(path, ".npy");
}

static bool to_checkpoint(const char *path)
{
    return as_checkpoint || ends_with(path, ".checkpoint") || ends_with(path, ".ckpt");
}

/* ---- which entries --------------------------------------------------------------------------- */

enum { ENTRIES_AT_MOST = 4096 };

static int unknown_entry(const input_file *in, const char *name)
{
    const char *names[ENTRIES_AT_MOST];
    int n = 0;
    for (; n < fx_count(in->entries) && n < ENTRIES_AT_MOST; n++)
        names[n] = fx_child_name(in->entries, n);
    const char *near = nearest(name, names, n);
    return fail(EXIT_BAD_INPUT, "%s has no entry \"%s\"%s%s%s", in->path, name,
                near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

/* Those of --only. */
static int choose(input_file *in)
{
    void *chosen[TEXTS_AT_MOST];
    for (int i = 0; i < only.n; i++) {
        chosen[i] = model_file_entry(in->entries, only.items[i]);
        if (!chosen[i])
            return unknown_entry(in, only.items[i]);
    }
    if (only.n > 0)
        in->entries = fxi_named_tuple(only.n, only.items, chosen);
    return EXIT_FINE;
}

/* A checkpoint is more than its model. */
static int refuse_training(const input_file *in)
{
    return fail(EXIT_BAD_INPUT,
                "%s is a checkpoint: what it holds of a training run (optimiser state, counts, the "
                "random stream) has no place elsewhere; --only model converts the model",
                in->path);
}

/* ---- a model from arrays --------------------------------------------------------------------- */

static void *in_precision_of(fx_array *x, void *model)
{
    switch (fx_eltype(x)) {
    case FX_DTYPE_F64:
        return fxi_in_precision(FX_DTYPE_F64, model);
    case FX_DTYPE_F16:
    case FX_DTYPE_BF16:
        return fxi_in_precision(fx_eltype(x), model);
    default:
        return model;
    }
}

static void first_array(fx_array *x, const char *path, bool trainable, void *user)
{
    fx_array **first = user;
    (void)path;
    if (!*first || (trainable && fx_dtype_size(fx_eltype(x)) > fx_dtype_size(fx_eltype(*first))))
        *first = x;
}

static bool any_begins(void *entries, const char *prefix)
{
    for (int64_t i = 0; i < fx_count(entries); i++)
        if (strncmp(fx_child_name(entries, i), prefix, strlen(prefix)) == 0)
            return true;
    return false;
}

/* Where one array of the model would lie, alone. */
static void first_path(fx_array *x, const char *path, bool trainable, void *user)
{
    char *first = user;
    (void)x;
    (void)trainable;
    if (!*first)
        snprintf(first, 256, "%s", path);
}

/* Arrays by our paths, "model.…" or without; a state or list of Flux's; else PyTorch's names. */
static fx_status fill(const input_file *in, void *model)
{
    char path[256] = "";
    fx_visit(model, first_path, path);
    void *whole = fx_count(in->entries) == 1 ? fx_child(in->entries, 0) : NULL;
    if (any_begins(in->entries, "model."))
        return fx_load_into(in->path, "model", model);
    if (model_file_entry(in->entries, path))
        return fx_load_into(in->path, "", model);
    if (whole && !fx_is_array(whole))
        return fx_loadmodel(*fx_child_name(whole, 0) ? fx_flux_state(model) : model, whole);
    return fx_load_torch_state(model, in->entries);
}

static int make_model(input_file *in)
{
    fx_array *first = NULL;
    void *model = fx_parse_model(notation);
    if (fx_is_error(model))
        return fail_library(EXIT_BAD_INPUT);
    fx_visit(in->entries, first_array, &first);
    model = first ? in_precision_of(first, model) : model;
    if (fill(in, model) != FX_OK)
        return fail_library(EXIT_BAD_INPUT);
    in->entries = fx_named_tuple("model", model);
    return EXIT_FINE;
}

/* ---- writing --------------------------------------------------------------------------------- */

static int written(const input_file *in, const char *path)
{
    fx_file_info info;
    json_out j = {.to = stdout};
    if (fx_file_about(path, &info) != FX_OK)
        return fail_library(EXIT_FAILED);
    if (!as_json) {
        put_clean(stdout, path, 0);
        printf(": %s, %" PRId64 " bytes:", info.format, info.bytes);
        for (int64_t i = 0; i < fx_count(in->entries); i++) {
            fputs(i ? ", " : " ", stdout);
            put_clean(stdout, fx_child_name(in->entries, i), 0);
        }
        putchar('\n');
        return EXIT_FINE;
    }
    json_open(&j, NULL, '{');
    json_text(&j, "in", in->path);
    json_text(&j, "out", path);
    json_text(&j, "format", info.format);
    json_integer(&j, "bytes", info.bytes);
    json_open(&j, "entries", '[');
    for (int64_t i = 0; i < fx_count(in->entries); i++)
        json_text(&j, NULL, fx_child_name(in->entries, i));
    json_end(&j);
    return EXIT_FINE;
}

/* The names and objects of a named tuple, without the texts of a header. */
static fx_status save_arrays(const char *path, void *entries)
{
    const int n = (int)fx_count(entries);
    const void *pairs[2 * ENTRIES_AT_MOST];
    int used = 0;
    if (n > ENTRIES_AT_MOST)
        return fx_fail(FX_STATUS_UNSUPPORTED, "save", "%s: more than %d entries", path,
                       ENTRIES_AT_MOST);
    for (int i = 0; i < n; i++) {
        void *object = fx_child(entries, i);
        if (!object || fx_metadata_count(object) > 0 || fx_string_text(object))
            continue;
        pairs[used++] = fx_child_name(entries, i);
        pairs[used++] = object;
    }
    return fxi_save(path, used, pairs);
}

static fx_status save(const char *path, void *entries)
{
    void *model = model_file_entry(entries, "model");
    if (as_pytorch && !model)
        return fx_fail(FX_STATUS_ARGUMENT, "save", "there is no entry \"model\" to give PyTorch");
    if (as_pytorch)
        return fx_save(path, "", fx_torch_state(model));
    if (to_checkpoint(path) && (!model || fx_count(entries) != 1))
        return fx_fail(FX_STATUS_UNSUPPORTED, "save",
                       "%s: a checkpoint holds one entry, \"model\"; --only model leaves out the "
                       "others",
                       path);
    if (to_checkpoint(path))
        return fx_checkpoint_save(path, model, .keep = 1);
    return arrays_alone ? save_arrays(path, entries) : model_file_save(path, entries);
}

static int save_failed(const char *path)
{
    const fx_error why = fx_error_take();
    const bool theirs = why.status == FX_STATUS_IO || why.status == FX_STATUS_MEMORY ||
                        why.status == FX_STATUS_INTERNAL;
    const bool poor = why.status == FX_STATUS_UNSUPPORTED && to_arrays(path) && !arrays_alone;
    return fail(theirs ? EXIT_FAILED : EXIT_BAD_INPUT, "%s%s", failure_sentence(&why),
                poor ? "; --arrays writes its arrays alone" : "");
}

/* ---- the command ----------------------------------------------------------------------------- */

static int read_input(const char *path, input_file *in)
{
    if (!input_file_read(path, in))
        return fail_table(EXIT_BAD_INPUT, "cflux train ");
    if (*in->notice && !arrays_alone && !notation)
        return fail(EXIT_BAD_INPUT, "%s: %s; --arrays converts these", path, in->notice);
    if (in->columns && !arrays_alone)
        return fail(EXIT_BAD_INPUT,
                    "%s: the names of its columns have no place in other formats; --arrays writes "
                    "its numbers alone, into .safetensors, .npz or .npy",
                    path);
    if (strcmp(in->format, "checkpoint") == 0 && only.n == 0 && !notation)
        return refuse_training(in);
    const int status = choose(in);
    return status == EXIT_FINE && notation ? make_model(in) : status;
}

static int run_convert(int n, char **operands)
{
    (void)n;
    input_file in;
    const char *path = operands[1];
    if (!to_arrays(path) && !to_checkpoint(path) && !ends_with(path, ".bson"))
        return fail(EXIT_BAD_INPUT,
                    "%s: the extension says no format; known are .bson, .safetensors, .npz, .npy, "
                    ".checkpoint, .ckpt",
                    path);
    if ((arrays_alone || as_pytorch) && (!to_arrays(path) || to_checkpoint(path)))
        return fail(EXIT_BAD_INPUT, "--%s is for .safetensors, .npz and .npy",
                    arrays_alone ? "arrays" : "pytorch");
    int status = check_outputs(&(output_path){path, "OUT"}, 1, NULL, 0);
    if (status == EXIT_FINE)
        status = read_input(operands[0], &in);
    if (status != EXIT_FINE)
        return status;
    interrupt_begin(); /* no half-written file stays beside OUT */
    status = save(path, in.entries) == FX_OK ? written(&in, path) : save_failed(path);
    return interrupt_caught() ? 128 + interrupt_caught() : status;
}

const command command_convert = {
    .name = "convert",
    .summary = "Convert a file of models or arrays into another format",
    .operands = "IN OUT",
    .least = 2,
    .most = 2,
    .about =
        "IN is anything that cflux inspect reads; the extension of OUT says the format: .bson, "
        ".safetensors, .npz, .npy, .checkpoint. A safetensors file keeps the notation of a "
        "model in its header, so that the model comes back. What a format cannot say is an "
        "error, and then nothing is written; an OUT that is there is replaced only by a whole "
        "new file.",
    .options = options,
    .run = run_convert,
};
