/* cflux/io.h: saves and loads models and arrays, and exchanges them with other programs.
 *
 * Saving writes a new file beside the old one, flushes it to disk, and then renames it. If anything
 * fails before the rename, the old file is unchanged. A final system call makes the new name
 * survive a power failure; if only that call fails, the new file is in place. The message says
 * which file is in place. Files are untrusted: loading checks everything, runs no code from a file
 * and opens no other file. FX_STATUS_FORMAT: a damaged file, or one of another format, with format,
 * path, offset and reason. FX_STATUS_IO: the operating system reported an error.
 *
 * Formats. The extension selects the format when a file is saved. When it is loaded, the content
 * decides, or the extension if the content does not show the format:
 *
 *   .safetensors   arrays by name; PyTorch and others read and write it
 *   .npy           one array in NumPy's format; loading returns the array, without a name
 *   .npz           arrays by name in NumPy's format; compressed files are read, never written
 *   .bson          Flux models: layers with their settings (docs/bson.md)
 *
 * Shapes: an array of shape (a, b, c) in C order, as NumPy and PyTorch write it, is the array c×b×a
 * with the same bytes. Unsupported element types are widened: Int8, Int16 and UInt16 to Int32,
 * UInt32 and UInt64 to Int64 (UInt64 with larger values to Float64), Float8 to Float32; complex
 * numbers get a first axis of size 2. */
#ifndef CFLUX_IO_H
#define CFLUX_IO_H

#include <cflux/data.h>
#include <cflux/dist.h>

FXI_BEGIN_C

/* fx_save("m.safetensors", "model", m, …): saves objects under names; names and objects alternate.
 * Arrays on any device are saved.
 *
 * All formats but BSON store arrays (and texts of fx_metadata), named by the paths of fx_visit:
 * "model.layers.0.weight" (an object with the name "" gets the paths alone). They store an array
 * with several paths once per path, and at most 1,000,000 names (FX_STATUS_UNSUPPORTED). Numbers
 * and functions are not stored: the program builds the model before it loads the arrays. Exception:
 * the numbers of an optimiser state, such as its learning rate and Adam's powers of β, are the
 * array "state.cflux.numbers" (not in .npy files). BSON stores models with their settings, and each
 * array once.
 *
 * FX_STATUS_ARGUMENT: an unknown extension, a name that is used twice, an argument of the wrong
 * kind (an object instead of a name, a text instead of an object; the message says which argument),
 * or for BSON one of the names "", "tag" and "_backrefs". FX_STATUS_UNSUPPORTED: for BSON, a layer
 * that Flux does not have. fx_load_into, fx_metadata, fx_named_tuple, fx_tuple, fx_chain and
 * fx_chain_of check the kinds of their arguments the same way. */
FX_API fx_status fxi_save(const char *path, int n, const void *const *names_and_objects);

/* Tries fx_save for n names and objects, and loads what it would have written. Uses a file without
 * a name in the folder of `path`: a file at `path` is unchanged, and nothing is left if the process
 * is killed. Returns the status of writing. *out_loaded is the result of loading as of fx_load;
 * NULL if the file could not be written. For programs that check before a long training whether
 * they can save its result. */
FX_API fx_status fx_save_try(const char *path, int n, const void *const *names_and_objects,
                             void **out_loaded);

/* Loads a file as a named tuple (.npy: the array), which the scope owns; an error array on failure.
 * Files are mapped into memory where the system allows it (not on Windows; compressed arrays of
 * .npz are copied). Then the arrays, and those that they were copied into by fx_load_into and
 * similar functions, use the bytes of the file until they get other values or are released. If
 * another program changes the file in place, their values change; if it makes the file shorter,
 * reading them ends the process (SIGBUS). Replace a file by renaming another one, as fx_save does.
 */
FX_API void *fx_load(const char *path);
/* fx_load for a file whose `size` bytes are in memory, e.g. in the program itself or in a message.
 * The content decides the format. Arrays use the bytes without a copy where they are aligned for
 * the element type; a BSON file is rarely aligned. The bytes must stay valid and unchanged until
 * cflux calls release(bytes, user), which may be NULL: when the last array that uses them is freed
 * or has other values, or before the call returns if no array uses them or the call fails. cflux
 * never writes to them. FX_STATUS_ARGUMENT if `bytes` is NULL; other errors as for fx_load.
 *
 * Pass the result to fx_loadmodel(model, result) if a file of arrays was saved with the name "", to
 * fx_load_torch_state, or to fx_predictor; fx_child_named(result, "model") is the model of a BSON
 * file. */
FX_API void *fx_load_bytes(const void *bytes, size_t size, fx_release_fn release, void *user);

/* Selects the version of Flux, e.g. "0.14" or "0.16.10", whose formulas are used for layers of BSON
 * files that the calling thread loads from now on. NULL (default): the newest version that can have
 * written the file. Only LayerNorm differs between versions (fx_layernorm_layer in nn.h).
 * FX_STATUS_ARGUMENT if it is not a version. */
FX_API fx_status fx_load_flux_version(const char *version);

/* Loads one entry of a file, or a part of one: `name` is a path such as "model.layers.0.weight" or
 * "model.0". Its parts are the names of the entry and of its children, or their numbers from 0 if
 * they have no names. A path with the names of all lists ("layers") is valid for every format; in
 * objects of BSON files these names may be omitted. If arrays are named "name.…", as in files of
 * arrays, returns a named tuple of these, without the prefix. An error array on failure:
 * FX_STATUS_ARGUMENT if the path leads to nothing, with the names that exist; other errors as for
 * fx_load. */
FX_API void *fx_load_key(const char *path, const char *name);

/* fx_load_into(path, "model", m, …): copies values from a file into existing objects. The arrays
 * keep their element types, devices and ties. A name is a path, as in fx_load_key. The file must
 * have exactly the arrays of the object under its name, with the same sizes; otherwise the object
 * is unchanged. Stops at the first object that fails; the objects before it have the new values.
 * An optimiser state gets its arrays and its numbers, also from the entry "state" of a checkpoint.
 * If the file has no numbers, or those of another rule, the state keeps its own, and a message says
 * so. Which parameters are frozen does not change. FX_STATUS_FORMAT if names differ,
 * FX_STATUS_SHAPE if sizes differ; other errors as for fx_load. The objects of BSON files and the
 * array of an .npy file are copied as by fx_loadmodel, with its rules and its errors. */
FX_API fx_status fxi_load_into(const char *path, int n, const void *const *names_and_objects);

/* Loads what matches: copies each array of the file that has the name and the sizes of an array of
 * `object` into that array. The other arrays of the object are unchanged. For a new head on a
 * trained body, or after a change of the model. `name` is a path, as in fx_load_key. Returns a
 * report, which the scope owns; fx_show prints it, one array per line. Its children are three named
 * tuples. Their items have the names of arrays, as in fx_load_into, and are texts (fx_string_text):
 *   missing       arrays of the object that are not in the file
 *   unused        arrays of the file that are not in the object
 *   other_sizes   arrays of both whose sizes differ
 * fx_count(fx_child_named(report, "missing")) is the number of missing arrays. An optimiser state
 * gets its numbers too (fx_load_into), but only if all arrays match; otherwise a message says so,
 * because a parameter without its moments must not get Adam's powers of β. PyTorch's
 * load_state_dict(strict=False) is similar, but fails if sizes differ. On failure an error array,
 * and the object is unchanged: FX_STATUS_FORMAT if no array matches; FX_STATUS_ARGUMENT for an .npy
 * file, whose array has no name; other errors as for fx_load_into. fx_load_torch_matching does the
 * same with a state in PyTorch's layout (fx_load_torch_state). */
FX_API void *fx_load_matching(const char *path, const char *name, void *object);
FX_API void *fx_load_torch_matching(void *model, void *state);

/* fx_metadata("author", "me", …): an object with pairs of texts to save: fx_save(path, "model", m,
 * "", fx_metadata("author", "me")). A safetensors file stores them in its header; an .npz in the
 * member "__metadata__", bytes of JSON that NumPy reads as an array. Saving them as .npy is
 * FX_STATUS_ARGUMENT, as .bson FX_STATUS_UNSUPPORTED. A loaded file with these texts has an entry
 * "__metadata__". Texts are copied. FX_STATUS_ARGUMENT for NULL, a key without a text or a key
 * that is used twice. fx_metadata_text returns the text of a key, NULL if there is none;
 * fx_metadata_count the number of keys (0 for another object); fx_metadata_key the i-th key, NULL
 * if i is too large. These texts are valid while the object exists. */
FX_API void *fxi_metadata(int n, const void *const *keys_and_texts);
FX_API const char *fx_metadata_text(const void *metadata, const char *key);
FX_API int64_t fx_metadata_count(const void *metadata);
FX_API const char *fx_metadata_key(const void *metadata, int64_t i);

/* fx_file_about(path, &info): finds the format of a file, and the program that wrote it. Reads the
 * directory of BSON, npy and npz files, opens safetensors as fx_load does, and reads a checkpoint
 * completely to verify its checksum. FX_STATUS_FORMAT if the file has none of these formats or the
 * inspected part is damaged; members known by then are set. */
typedef struct fx_file_info {
    size_t fxi_size;
    int64_t bytes;
    const char *format; /* "BSON", "safetensors", "checkpoint", "npy", "npz"; "": none */
    /* Writer according to the file's layout, "Flux 0.13 or later, Julia 1.9.4"; "" if unknown. */
    char origin[120];
} fx_file_info;
FX_API fx_status fxi_file_about(const char *path, fx_file_info *out);
static inline fx_status fx_file_about(const char *path, fx_file_info *out)
{
    out->fxi_size = sizeof *out;
    return fxi_file_about(path, out);
}

/* A text as an object that the scope owns, e.g. for names of classes; BSON stores it as a String.
 * The text is copied. FX_STATUS_ARGUMENT for NULL. fx_string_text returns the text, NULL for
 * another object; it is valid while the object exists. Texts in BSON files are loaded as objects of
 * this type. */
FX_API void *fx_string(const char *text);
FX_API const char *fx_string_text(const void *object);

/* Sets the Julia name of a struct type of the program (FX_FUNCTOR, FX_LAYER, …): fx_julia_name(m,
 * "MyModels.Encoder"). Saving BSON writes this name (default: the C type's name, in module Main),
 * and loading BSON reads a struct of this name as the program's struct, with its fields in declared
 * order. A name without modules is written with module Main and read with every module; NULL: the C
 * type's name.
 *
 * `object` is an example of the struct. If a field of the example contains an object, the file must
 * have an object of the same type there, or nothing. If a field is NULL, the file must have nothing
 * there. To accept more types in a field, call the function again with another example. Applies to
 * the whole process; may be called from every thread. FX_STATUS_ARGUMENT if the object is not a
 * struct of the program or the name is not a Julia name; FX_STATUS_UNSUPPORTED for more than 32
 * fields. */
FX_API fx_status fx_julia_name(const void *object, const char *name);

/* ---- checkpoints ----------------------------------------------------------------------------- */
/* A checkpoint is one file with everything that is needed to resume training: the arrays of the
 * model, the optimiser state, the thread's random stream, the loader's position, counts and
 * metrics. It is a safetensors file (fx_load_into(path, "model", m) loads the model alone) that
 * ends with a CRC-32 of its bytes. Earlier checkpoints are kept as path.1, path.2, … A group of
 * processes can save one file of each process (.dist). */
/* clang-format off */
#define FXI_CHECKPOINT_ARGS(F)                                                                     \
    F(void *, model, FXI_NULL)           /* the model */                                           \
    F(void *, state, FXI_NULL)           /* from fx_setup; NULL: none */                           \
    F(fx_loader *, data, FXI_NULL)       /* the loader; NULL: none */                              \
    F(const fx_batch *, batch, FXI_NULL) /* the current batch; NULL: between passes */             \
    F(int64_t, epoch, 0)                 /* the program's count of epochs */                       \
    F(int64_t, step, 0)                  /* the program's count of updates */                      \
    F(void *, metrics, FXI_NULL)         /* a named tuple of arrays; NULL: none */                 \
    F(int, keep, 2)                      /* files to keep, including this one: 1 to 1000 */        \
    F(fx_dist *, dist, FXI_NULL)         /* processes that each save a file; NULL: only this one */
/* clang-format on */
FXI_OPTION_STRUCT(fx_checkpoint_args, FXI_CHECKPOINT_ARGS);
/* fx_checkpoint_save("run.safetensors", model, .state = opt, .step = n): saves a checkpoint. On
 * failure the latest file is unchanged, unless the message says that the new file is in place (see
 * the top of this header). FX_STATUS_ARGUMENT if the state is divided among processes and .dist is
 * NULL.
 *
 * With .dist, all members of the group must call it, with the same .step and .keep. The member of
 * rank r saves its model, its state (which may be divided, see fx_dist_optimiser) and the rest as
 * path.rank0, path.rank1, …; the members may name different folders. The call returns on all
 * members when all files are complete. The previous files are replaced only after all new ones have
 * been written, so the processes can be killed at any moment: there is always one checkpoint of
 * which all members have a file. If a member fails, all return its status. If a member needs longer
 * than the time limit of fx_dist_init to write its file, the call fails on the others. */
FX_API fx_status fxi_checkpoint_save(const char *path, const fx_checkpoint_args *c);
/* Called by the macro fx_checkpoint_load; io->fxi_size must be set. */
FX_API fx_status fxi_checkpoint_load(const char *path, fx_checkpoint_args *io);

/* fx_checkpoint_load(path, &io): restores a checkpoint. Copies the saved values into io's model,
 * state and loader, which must match the saved ones (the loader's next pass starts at the saved
 * position), and restores the calling thread's random stream. Sets epoch, step and metrics (the
 * scope owns them). If the file is damaged or missing, the latest intact one of path.1, path.2, …
 * is used, with a message; if none is intact, the status is that of the first file (FX_STATUS_IO if
 * it is missing). FX_STATUS_FORMAT if the names of the arrays differ from the saved ones,
 * FX_STATUS_SHAPE if their sizes do; FX_STATUS_ARGUMENT if a state or a loader is given but was not
 * saved, if the state has another rule, or if the file was saved with .dist. On failure nothing is
 * changed.
 *
 * With .dist, all members of the group must call it. They load the newest checkpoint of which all
 * of them have an intact file. A failure is the same on all members: FX_STATUS_FORMAT if their
 * files were not saved together, with the files and their training steps; FX_STATUS_ARGUMENT if the
 * files are those of another number of members; FX_STATUS_IO if a member has no file. If only one
 * member cannot restore its file, the others have already restored theirs. */
#define fx_checkpoint_load(path, io)                                                               \
    __extension__({                                                                                \
        FXI_HERE;                                                                                  \
        fx_checkpoint_args *fxi_io = (io);                                                         \
        if (fxi_io)                                                                                \
            fxi_io->fxi_size = sizeof *fxi_io;                                                     \
        fxi_checkpoint_load((path), fxi_io);                                                       \
    })
/* Returns true if the file, or the previous checkpoint (path.1), exists. */
FX_API bool fx_checkpoint_exists(const char *path);
/* Returns true on all members if any of them has a file that fx_checkpoint_save has saved with
 * .dist. All must call it. False if the members cannot exchange their answers; the error is
 * recorded. d NULL: fx_checkpoint_exists(path). */
FX_API bool fx_dist_checkpoint_exists(fx_dist *d, const char *path);

/* The state of a model as Flux.state returns it: every field of every layer with Flux's name. Saved
 * as BSON it is an argument for Flux.loadmodel!; a loaded state is an argument for
 * fx_loadmodel(model, state). Contains the model's arrays, not copies. The scope owns it; an error
 * array on failure. */
FX_API void *fx_flux_state(void *model);

/* The state of a model as PyTorch's state_dict(): a named tuple "0.weight", "0.bias",
 * "1.running_mean", …, in PyTorch's layout. A Chain uses the positions or names of its layers. The
 * names of the arrays:
 *   BatchNorm, InstanceNorm       weight, bias, running_mean, running_var,
 *                                 num_batches_tracked (always 0)
 *   LayerNorm, GroupNorm, Scale   weight, bias
 *   RMSNorm                       weight
 *   recurrent layers and cells    see recurrent.h
 *   MultiHeadAttention            in_proj_weight, in_proj_bias, if PyTorch allows its sizes
 *   other objects                 their own fields
 * Weights of Dense, Bilinear and recurrent cells are transposed, and kernels of Conv and
 * ConvTranspose flipped (PyTorch does not flip kernels). These arrays and the joined ones of
 * MultiHeadAttention are copies; all others are the model's own arrays. Save it without a name,
 * fx_save("m.safetensors", "", fx_torch_state(m)), to load it in PyTorch with load_state_dict. */
FX_API void *fx_torch_state(void *model);
/* Copies a state in PyTorch's layout into a model: fx_load_torch_state(m,
 * fx_load("m.safetensors")). Layers must have the same positions as in PyTorch, where activations
 * are modules: make them separate functions of the chain instead of options of a layer. The names
 * must be exactly the model's, otherwise FX_STATUS_FORMAT (num_batches_tracked is ignored; the
 * projections of a MultiHeadAttention may be separate layers q_proj, k_proj and v_proj; a chain of
 * recurrent layers may be one module with num_layers). Other sizes are FX_STATUS_SHAPE. On failure
 * the model is unchanged.
 */
FX_API fx_status fx_load_torch_state(void *model, void *state);

/* Converts optimiser state loaded from a Flux file to the state for fx_update. Accepts the tree of
 * Flux.setup (Optimisers.jl) and the older Flux.Optimise.ADAM(…), which stores arrays without
 * positions; these are matched with the model's arrays by identity or by equal values. A state that
 * already fits the model is returned unchanged. The scope owns the result; an error array
 * (FX_STATUS_ARGUMENT) if the state does not fit, or its rule is not one of the library's. If the
 * file also contains the model, fx_load and fx_load_key do this conversion. */
FX_API void *fx_flux_optimiser(void *optimiser, void *model);

#define fx_save(path, ...)      fxi_save((path), FXI_PAIRS(__VA_ARGS__))
#define fx_load_into(path, ...) fxi_load_into((path), FXI_PAIRS(__VA_ARGS__))
#define fx_metadata(...)        fxi_metadata(FXI_PAIRS(__VA_ARGS__))
#define fx_checkpoint_save(path, ...)                                                              \
    FXI_CALL(fxi_checkpoint_save(                                                                  \
        (path),                                                                                    \
        FXI_OPTIONS(fx_checkpoint_args, FXI_CHECKPOINT_ARGS(FXI_DEFAULT).model = __VA_ARGS__)))

FXI_END_C
#endif
