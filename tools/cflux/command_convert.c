/* command_convert.c: cflux convert: converts a file to another format. If the format cannot hold
 * everything, the losses are listed, and the user must allow them. */
#include "clean_text.h"
#include "failure.h"
#include "input_file.h"
#include <cflux/json_out.h>
#include "model_file.h"
#include "name_pairs.h"
#include "nearest.h"
#include "options.h"
#include "output_paths.h"
#include "system.h"
#include "text_parts.h"
#include "tree_text.h"
#include <inttypes.h>
#include <string.h>

static bool as_json, as_checkpoint, as_pytorch, arrays_alone, lossy;
static const char *notation;
static text_list only;
static const char *flux_version;
static option_row options[] = {
    {"only", 'k', OPTION_TEXTS, &only, "NAME",
     "Convert only the entry with this name; may be given several times", 0, 0},
    {"model", 'm', OPTION_TEXT, &notation, "NOTATION",
     "The model, in Flux's notation, to which the arrays of IN belong. Needed for files without a "
     "notation: only arrays, Flux.state, a list of parameters, or PyTorch's state_dict",
     0, 0},
    {"arrays", 'a', OPTION_FLAG, &arrays_alone, NULL,
     "Write the arrays under their names, without the structure of models and without texts", 0, 0},
    {"lossy", 0, OPTION_FLAG, &lossy, NULL,
     "Leave out everything that OUT cannot hold, and list it (default: fail)", 0, 0},
    {"pytorch", 0, OPTION_FLAG, &as_pytorch, NULL,
     "Write the model's arrays with the names and layouts that PyTorch expects", 0, 0},
    {"checkpoint", 0, OPTION_FLAG, &as_checkpoint, NULL,
     "Write a checkpoint, for any extension of OUT (default: for .checkpoint and .ckpt)", 0, 0},
    OPTION_FLUX_VERSION(&flux_version),
    OPTION_JSON(&as_json),
    OPTIONS_END,
};

/* True for formats that cannot hold models, or hold them as text. */
static bool to_arrays(const char *path)
{
    return ends_with(path, ".safetensors") || ends_with(path, ".npz") || ends_with(path, ".npy");
}

static bool to_checkpoint(const char *path)
{
    return as_checkpoint || ends_with(path, ".checkpoint") || ends_with(path, ".ckpt");
}

/* ---- selected entries ------------------------------------------------------------------------ */

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

/* Selects the entries named by --only. */
static int choose(input_file *in)
{
    void *chosen[TEXTS_AT_MOST];
    for (int i = 0; i < only.n; i++) {
        chosen[i] = model_file_entry(in->entries, only.items[i]);
        if (!chosen[i])
            return unknown_entry(in, only.items[i]);
    }
    if (only.n > 0)
        in->entries = fx_named_tuple_from(only.n, only.items, chosen);
    return EXIT_FINE;
}

/* ---- a model from arrays --------------------------------------------------------------------- */

static void widest_type(fx_array *x, const char *path, bool trainable, void *user)
{
    fx_dtype *widest = user;
    (void)path;
    if (trainable && fx_dtype_size(fx_eltype(x)) > fx_dtype_size(*widest))
        *widest = fx_eltype(x);
    else if (fx_eltype(x) == FX_DTYPE_F16 || fx_eltype(x) == FX_DTYPE_BF16)
        *widest = *widest == FX_DTYPE_BOOL ? fx_eltype(x) : *widest;
}

/* Makes a model of an entry that holds its arrays in order: Flux.state, a list of parameters, or
 * another model.
 */
static void *model_of_object(void *object)
{
    fx_dtype type = FX_DTYPE_BOOL; /* the smallest type */
    void *model = fx_parse_model(notation);
    if (fx_is_error(model))
        return NULL;
    fx_visit(object, widest_type, &type);
    if (type == FX_DTYPE_F64 || type == FX_DTYPE_F16 || type == FX_DTYPE_BF16)
        model = fxi_in_precision(type, model);
    const bool state = tree_kind_of(object) == TREE_TUPLE && *fx_child_name(object, 0);
    return fx_loadmodel(state ? fx_flux_state(model) : model, object) == FX_OK ? model : NULL;
}

/* True if the entry has arrays but is neither an array nor texts. If there is no such entry, the
 * arrays of the file are the entries. */
static bool holds_arrays(void *object)
{
    return tree_kind_of(object) >= TREE_TUPLE && fx_metadata_count(object) <= 0 &&
           fx_parameter_count(object) != 0;
}

/* Replaces the entry that model_file_index finds by a model; all other entries stay. If it finds
 * none, the model gets the arrays of the file. */
static int make_model(input_file *in)
{
    const int64_t index = model_file_index(in->entries, holds_arrays), n = fx_count(in->entries);
    if (index < 0) {
        in->entries = fx_load_entries(in->path, notation);
        return fx_is_error(in->entries) ? fail_library(EXIT_BAD_INPUT) : EXIT_FINE;
    }
    void *model = model_of_object(fx_child(in->entries, index));
    name_pairs all = {0};
    for (int64_t i = 0; model && i < n; i++)
        pairs_add(&all, i == index ? "model" : fx_child_name(in->entries, i),
                  i == index ? model : fx_child(in->entries, i));
    if (all.failed)
        memory_error();
    else
        in->entries = fxi_named_pairs(all.n, all.items);
    pairs_free(&all);
    return fx_error_status() == FX_OK ? EXIT_FINE : fail_library(EXIT_BAD_INPUT);
}

/* ---- the written file ------------------------------------------------------------------------ */

enum { NAMES_SHOWN = 12 };

/* Only the model of a checkpoint is shown; its other entries are internal. */
static bool is_shown(const input_file *out, const char *name)
{
    return strcmp(out->format, "checkpoint") != 0 ||
           (strncmp(name, "cflux.", 6) != 0 && strncmp(name, "__", 2) != 0);
}

static void print_written(const input_file *out, losses *lost)
{
    int shown = 0, more = 0;
    put_clean(stdout, out->path, 0);
    printf(": %s, %" PRId64 " bytes:", out->format, out->bytes);
    for (int64_t i = 0; i < fx_count(out->entries); i++) {
        const char *name = fx_child_name(out->entries, i);
        if (!is_shown(out, name))
            continue;
        if (shown == NAMES_SHOWN) {
            more++;
            continue;
        }
        fputs(shown++ ? ", " : " ", stdout);
        put_clean(stdout, name, 0);
    }
    printf(more ? ", and %d more\n" : "\n", more);
    if (lost->n > 0)
        warn("%s does not contain everything: %s", out->path, losses_sentence(lost));
}

static void json_written(const input_file *in, const input_file *out, losses *lost)
{
    fx_json j = {.to = stdout};
    fx_json_open(&j, NULL, '{');
    fx_json_text(&j, "in", in->path);
    fx_json_text(&j, "out", out->path);
    fx_json_text(&j, "format", out->format);
    fx_json_integer(&j, "bytes", out->bytes);
    fx_json_open(&j, "entries", '[');
    for (int64_t i = 0; i < fx_count(out->entries); i++)
        if (is_shown(out, fx_child_name(out->entries, i)))
            fx_json_text(&j, NULL, fx_child_name(out->entries, i));
    fx_json_close(&j);
    fx_json_text(&j, "lost", lost->n > 0 ? losses_sentence(lost) : NULL);
    fx_json_end(&j);
}

/* Reads OUT again, so that the printed contents are those of the file. */
static int written(const input_file *in, const char *path, losses *lost)
{
    input_file out;
    if (!input_file_read(path, &out))
        return fail_library(EXIT_FAILED);
    if (as_json)
        json_written(in, &out, lost);
    else
        print_written(&out, lost);
    return EXIT_FINE;
}

/* ---- writing --------------------------------------------------------------------------------- */

static int save_failed(const char *path, losses *lost)
{
    const fx_error why = fx_error_take();
    const bool theirs = why.status == FX_STATUS_IO || why.status == FX_STATUS_MEMORY ||
                        why.status == FX_STATUS_INTERNAL;
    if (why.status == FX_STATUS_UNSUPPORTED && lost->n > 0)
        return fail(EXIT_BAD_INPUT, "%s cannot hold %s; --lossy writes the rest", path,
                    losses_sentence(lost));
    return fail(theirs ? EXIT_FAILED : EXIT_BAD_INPUT, "%s", failure_sentence(&why));
}

/* ---- the command ----------------------------------------------------------------------------- */

/* Collects contents of IN that are missing from its entries or that no other file can hold. */
static int check_input(input_file *in, losses *lost)
{
    const bool training = strcmp(in->format, "checkpoint") == 0 && only.n == 0;
    if (*in->notice && !notation)
        losses_add(lost, NULL, in->notice);
    if (in->columns)
        losses_add(lost, NULL, "OUT cannot store the names and labels of its columns");
    if (training)
        losses_add(lost, NULL,
                   "it is a checkpoint, and OUT cannot store the state of its training run "
                   "(optimiser, counts, random stream)");
    if (lost->n == 0 || lossy || (arrays_alone && !training))
        return EXIT_FINE;
    return fail(EXIT_BAD_INPUT, "%s: %s; --lossy writes the rest%s", in->path,
                losses_sentence(lost), training ? ", --only model writes the model alone" : "");
}

/* Keeps only the model of a checkpoint whose training run may be lost. */
static void leave_training(input_file *in)
{
    void *model = model_file_entry(in->entries, "model");
    if (strcmp(in->format, "checkpoint") == 0 && only.n == 0 && model)
        in->entries = fx_named_tuple("model", model);
}

static int read_input(const char *path, input_file *in, losses *lost)
{
    if (!input_file_read(path, in))
        return fail_table(EXIT_BAD_INPUT, "cflux train ");
    int status = check_input(in, lost);
    if (status == EXIT_FINE && notation)
        status = make_model(in);
    if (status != EXIT_FINE)
        return status;
    leave_training(in);
    return choose(in);
}

static int run_convert(int n, char **operands)
{
    (void)n;
    input_file in;
    losses lost = {0};
    const char *path = operands[1];
    const model_file_form form = {.checkpoint = to_checkpoint(path),
                                  .pytorch = as_pytorch,
                                  .arrays = arrays_alone,
                                  .lossy = lossy};
    if (fx_load_flux_version(flux_version) != FX_OK)
        return fail(EXIT_BAD_INPUT, "%s", fx_error_take().message);
    if (!to_arrays(path) && !to_checkpoint(path) && !ends_with(path, ".bson"))
        return fail(
            EXIT_BAD_INPUT,
            "%s: unknown extension; use one of .bson, .safetensors, .npz, .npy, .checkpoint, .ckpt",
            path);
    if ((arrays_alone || as_pytorch) && (!to_arrays(path) || to_checkpoint(path)))
        return fail(EXIT_BAD_INPUT, "--%s works only with .safetensors, .npz and .npy",
                    arrays_alone ? "arrays" : "pytorch");
    int status = check_outputs(&(output_path){path, "OUT"}, 1, NULL, 0);
    if (status == EXIT_FINE)
        status = read_input(operands[0], &in, &lost);
    if (status != EXIT_FINE)
        return status;
    interrupt_begin(); /* the first signal must not leave a temporary file */
    status = model_file_save(path, in.entries, &form, &lost) == FX_OK ? written(&in, path, &lost)
                                                                      : save_failed(path, &lost);
    return interrupt_caught() ? 128 + interrupt_caught() : status;
}

const command command_convert = {
    .name = "convert",
    .summary = "Convert a file of models or arrays into another format",
    .operands = "IN OUT",
    .least = 2,
    .most = 2,
    .examples = "cflux convert digits.bson digits.safetensors\n"
                "cflux convert digits.bson weights.safetensors --pytorch\n",
    .about =
        "IN is any file that cflux inspect reads. The extension of OUT selects the format: .bson, "
        ".safetensors, .npz, .npy, .checkpoint, .ckpt. BSON, safetensors and npz keep everything "
        "that cflux train saves: the model, the scale of its inputs, names of columns and classes. "
        "If "
        "OUT cannot hold everything, convert names what would be lost and writes nothing, unless "
        "--lossy is given. An existing OUT is replaced only by a complete new file. After "
        "writing, convert reads OUT again and prints its entries.",
    .options = options,
    .run = run_convert,
};
