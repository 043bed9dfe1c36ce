/* cflux/io.h: files: models and arrays saved, loaded, and shared with other programs.
 *
 * Saving writes a new file beside the old one and lets it take the name when all of it is on the
 * disk. If anything before that fails, the old file is unchanged. If only the last call fails,
 * which makes the name survive a power failure, the new file is in place. The error says which it
 * is. Loading runs nothing that a file says and opens no other file; a file that is not what it
 * should be is an error with format, path, offset and reason (FX_STATUS_FORMAT), one that the
 * system refuses is FX_STATUS_IO.
 *
 * Formats, by the extension when saving and by the content, then the extension, when loading:
 *
 *   .safetensors   arrays by name, read by memory map; PyTorch and others read and write it
 *   .npy           one array, as NumPy keeps it; loading gives the array, under no name
 *   .npz           arrays by name, as NumPy keeps them; read deflated or not, written as they are
 *   .bson          models of Flux, whole: layers with their settings (docs/bson.md)
 *
 * Sizes: a file's array of shape (a, b, c) in C order, as NumPy and PyTorch say it, is the array
 * c×b×a with the same bytes. Element types that cflux has not are widened: Int8, Int16, UInt16 to
 * Int32, UInt32 and UInt64 to Int64 (UInt64 with values beyond it to Float64), Float8 to Float32;
 * complex numbers get a first axis of 2.
 */
#ifndef CFLUX_IO_H
#define CFLUX_IO_H

#include <cflux/data.h>

FXI_BEGIN_C

/* Saves objects under names; names and objects alternate: fx_save("m.safetensors", "model", m).
 * Arrays are written as host data, whatever device they are on. Formats of arrays write an array
 * that several paths reach under each of them, and refuse more than 1,000,000 names
 * (FX_STATUS_UNSUPPORTED); BSON keeps it once. They keep the arrays of a model, named
 * "model.layers.0.weight" by the paths of fx_visit (an object saved under the name "" gives the
 * paths alone); numbers and functions are the program's, which makes the model before it loads it.
 *
 * An object in the place of a name or of the path, and a text in the place of an object, are
 * FX_STATUS_ARGUMENT, and the error says which argument it is. fx_load_into, fx_metadata,
 * fx_named_tuple, fx_tuple, fx_chain and fx_chain_of check their arguments the same way. */
FX_API fx_status fxi_save(const char *path, int n, const void *const *names_and_objects);

/* What a file holds as a named tuple (an .npy: the array), owned by the scope; an error array when
 * it cannot be read.
 * Arrays that are read by memory map use the file's own bytes until they are released: a program
 * that changes the file in place changes them. */
FX_API void *fx_load(const char *path);

/* Chooses the version of Flux, "0.14" or "0.16.10", whose formulas the layers of BSON files have
 * that the calling thread loads from now on; NULL (default): the newest version that could have
 * written the file. Only LayerNorm differs (fx_layernorm_layer in nn.h): its layout says nothing,
 * but other structs of the file may. */
FX_API fx_status fx_load_flux_version(const char *version);

/* One entry of a file. Where there is none of that name, but arrays "name.…": a named tuple of
 * these, without "name.". */
FX_API void *fx_load_key(const char *path, const char *name);

/* Gives objects like those that were saved the values in the file: fx_load_into(path, "model", m).
 * The arrays of m keep their element types, devices and ties. All of m's arrays must be in the
 * file, of the same sizes, and the file may hold no others under that name; on failure that object
 * is unchanged. Stops at the first object that fails. */
FX_API fx_status fxi_load_into(const char *path, int n, const void *const *names_and_objects);

/* Pairs of texts for a file: fx_save(path, "model", m, "", fx_metadata("author", "me")). They are
 * in the header of a safetensors file; in an .npz they are the member "__metadata__", bytes of JSON
 * that NumPy reads as an array. An .npy holds none. The texts are copied. A loaded file that has
 * such texts has an entry "__metadata__". fx_metadata_text gives the text of a key, NULL without;
 * it lives as long as the object. */
FX_API void *fxi_metadata(int n, const void *const *keys_and_texts);
FX_API const char *fx_metadata_text(const void *metadata, const char *key);
FX_API int64_t fx_metadata_count(const void *metadata);
FX_API const char *fx_metadata_key(const void *metadata, int64_t i);

/* What a file is: fx_file_about(path, &info). Of BSON, npy and npz no arrays are made; safetensors
 * are opened as fx_load does it, and a checkpoint is read whole, for its sum. FX_STATUS_FORMAT when
 * the file is of no format of this header, or damaged in what is looked at (an npy's header, an
 * npz's directory); what was found out by then is filled in. */
typedef struct fx_file_info {
    size_t fxi_size;
    int64_t bytes;
    const char *format; /* "BSON", "safetensors", "checkpoint", "npy", "npz"; "": none of them */
    /* What its layout says of who wrote it, "Flux 0.13 or later, Julia 1.9.4"; often "". */
    char origin[120];
} fx_file_info;
FX_API fx_status fxi_file_about(const char *path, fx_file_info *out);
static inline fx_status fx_file_about(const char *path, fx_file_info *out)
{
    out->fxi_size = sizeof *out;
    return fxi_file_about(path, out);
}

/* A text as an object of the scope, for entries such as the names of classes: BSON keeps it as a
 * String. The text is copied. fx_string_text gives it back, NULL when the object is none; it lives
 * as long as the object. Texts that a BSON file holds are such objects. */
FX_API void *fx_string(const char *text);
FX_API const char *fx_string_text(const void *object);

/* Gives the type of `object`, a struct of the program (FX_FUNCTOR and its like), a name in Julia:
 * fx_julia_name(m, "MyModels.Encoder"). BSON files then say this name when they are saved (default:
 * the C type's name, in Main), and a struct of this name in a BSON file is read as the program's
 * struct, its fields in the declared order. A name without modules, or NULL for the C type's own
 * name, is written as one of Main and read from every module. The object is an example, and the
 * files must have objects of the same types in its fields, or nothing; where the example has NULL,
 * they must have nothing. A further example of the type adds the fields that it has. For the whole
 * process, from every thread. */
FX_API fx_status fx_julia_name(const void *object, const char *name);

/* ---- checkpoints ----------------------------------------------------------------------------- */
/* One file with all that training needs to go on as if nothing had happened: the arrays of the
 * model, the optimiser state, the thread's random stream, the loader's position, counts and
 * metrics. It is a safetensors file (fx_load_into(path, "model", m) takes the model alone), ends
 * with the CRC-32 of its bytes, and takes its name when it is complete on the disk; the ones before
 * it are kept as path.1, path.2, … */
/* clang-format off */
#define FXI_CHECKPOINT_ARGS(F)                                                                          \
    F(void *, model, FXI_NULL)                                                                     \
    F(void *, state, FXI_NULL)           /* of fx_setup; NULL: none */                             \
    F(fx_loader *, data, FXI_NULL)       /* NULL: none */                                          \
    F(const fx_batch *, batch, FXI_NULL) /* the batch in use; NULL: between passes */              \
    F(int64_t, epoch, 0)                 /* what the program counts */                             \
    F(int64_t, step, 0)                                                                            \
    F(void *, metrics, FXI_NULL)         /* a named tuple of arrays; NULL: none */                 \
    F(int, keep, 2)                      /* files to keep, this one counted */
/* clang-format on */
FXI_OPTION_STRUCT(fx_checkpoint_args, FXI_CHECKPOINT_ARGS);
/* fx_checkpoint_save("run.safetensors", model, .state = opt, .step = n). On failure the newest file
 * is what it was, unless the error says that the new file is in place (see the top of this header).
 */
FX_API fx_status fxi_checkpoint_save(const char *path, const fx_checkpoint_args *c);
/* fx_checkpoint_load, of a struct that begins with its size. */
FX_API fx_status fxi_checkpoint_load(const char *path, fx_checkpoint_args *io);

/* Puts what was saved into a model, a state and a loader like those of then (the loader's next pass
 * begins where the saved one stood), and the random stream into the calling thread; fills in epoch,
 * step and metrics (owned by the scope). A file that is damaged or missing gives way to the one
 * before, with a message that says why; FX_STATUS_IO when there is none. On failure nothing has
 * changed. */
#define fx_checkpoint_load(path, io)                                                               \
    __extension__({                                                                                \
        FXI_HERE;                                                                                  \
        fx_checkpoint_args *fxi_io = (io);                                                         \
        if (fxi_io)                                                                                \
            fxi_io->fxi_size = sizeof *fxi_io;                                                     \
        fxi_checkpoint_load((path), fxi_io);                                                       \
    })
/* Is there such a file, or one before it? */
FX_API bool fx_checkpoint_exists(const char *path);

/* The state of a model as Flux.state gives it: every field of every layer by Flux's name. Saved as
 * BSON it is what Flux.loadmodel! takes; a state that was read goes into a model by
 * fx_loadmodel(model, state). The arrays are those of the model, not copies. */
FX_API void *fx_flux_state(void *model);

/* The state of a model as PyTorch's state_dict() has it: a named tuple of "0.weight", "0.bias",
 * "1.running_mean", …, in PyTorch's layout: a Chain goes by the places or names of its layers,
 * BatchNorm has weight, bias, running_mean, running_var and num_batches_tracked (0: nobody counts
 * here), LayerNorm weight and bias, other objects their own fields. Weights of Dense are transposed
 * (in×out here is out × in there), kernels of Conv flipped, as PyTorch's convolution does not flip
 * them: both are copies, the rest are the model's arrays. Saved under no name,
 * fx_save("m.safetensors", "", fx_torch_state(m)), it is a file that PyTorch's load_state_dict
 * takes. */
FX_API void *fx_torch_state(void *model);
/* Gives a model the values of such a state: fx_load_torch_state(m, fx_load("m.safetensors")). The
 * layers must stand where they stand in PyTorch: activations count as modules there, so they are
 * functions of the chain, not of the layer before. The names must be the model's, none missing and
 * none left over (num_batches_tracked is passed over); on failure the model is unchanged. */
FX_API fx_status fx_load_torch_state(void *model, void *state);

/* The state for fx_update of a model, from what a file of Flux's holds of its optimiser: the tree
 * of Flux.setup (Optimisers.jl), or the older Flux.Optimise.ADAM(…), which remembers arrays and not
 * places: they are recognised by being the same, or having the same values, as the model's. A state
 * that fits the model already is returned as it is. Owned by the scope; an error array when the two
 * do not fit or the rule is none of the library's. Where a file holds the model too, fx_load and
 * fx_load_key have done this. */
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
