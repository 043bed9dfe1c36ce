/* cflux/io.h: files: models and arrays saved, loaded, and shared with other programs.
 *
 * Saving writes a new file beside the old one and lets it take the name when all of it is on the
 * disk: whatever fails, the old file stays whole. Loading runs nothing that a file says and opens
 * no other file; a file that is not what it should be is an error with format, path, offset and
 * reason (FX_STATUS_FORMAT), one that the system refuses is FX_STATUS_IO.
 *
 * Formats, by the extension when saving and by the content, then the extension, when loading:
 *
 *   .safetensors   arrays by name, read by memory map; PyTorch and others read and write it
 *
 * Sizes: a file's array of shape (a, b, c) in C order, as NumPy and PyTorch say it, is the array
 * c×b×a with the same bytes. Element types that cflux has not are widened: Int8, Int16, UInt16 to
 * Int32, UInt32 and UInt64 to Int64 (UInt64 with values beyond it to Float64), Float8 to Float32;
 * complex numbers get a first axis of 2.
 */
#ifndef CFLUX_IO_H
#define CFLUX_IO_H

#include <cflux/tree.h>

FXI_BEGIN_C

/* Saves objects under names; names and objects alternate: fx_save("m.safetensors", "model", m).
 * Arrays are written as host data, whatever device they are on. An array that two paths reach is
 * written under both. Formats of arrays keep the arrays of a model, named "model.layers.0.weight"
 * by the paths of fx_visit (an object saved under the name "" gives the paths alone); numbers and
 * functions are the program's, which makes the model before it loads it. */
FX_API fx_status fxi_save(const char *path, int n, const void *const *names_and_objects);

/* What a file holds as a named tuple, owned by the scope; an error array when it cannot be read.
 * Arrays that are read by memory map use the file's own bytes until they are released: a program
 * that changes the file in place changes them. */
FX_API void *fx_load(const char *path);

/* One entry of a file. Where there is none of that name, but arrays "name.…": a named tuple of
 * these, without "name.". */
FX_API void *fx_load_key(const char *path, const char *name);

/* Gives objects like those that were saved the values in the file: fx_load_into(path, "model", m).
 * The arrays of m keep their element types, devices and ties. All of m's arrays must be in the
 * file, of the same sizes, and the file may hold no others under that name; on failure that object
 * is unchanged. Stops at the first object that fails. */
FX_API fx_status fxi_load_into(const char *path, int n, const void *const *names_and_objects);

/* Pairs of texts for a file's header: fx_save(path, "model", m, "", fx_metadata("author", "me")).
 * The texts are copied. A loaded file that has such texts has an entry "__metadata__".
 * fx_metadata_text gives the text of a key, NULL without; it lives as long as the object. */
FX_API void *fxi_metadata(int n, const void *const *keys_and_texts);
FX_API const char *fx_metadata_text(const void *metadata, const char *key);
FX_API int64_t fx_metadata_count(const void *metadata);
FX_API const char *fx_metadata_key(const void *metadata, int64_t i);

FXI_END_C
#ifdef __cplusplus
template <class... A> inline fx_status fx_save(const char *path, A... names_and_objects)
{
    const void *const pairs[] = {nullptr, static_cast<const void *>(names_and_objects)...};
    return fxi_save(path, static_cast<int>(sizeof...(A)), pairs + 1);
}
template <class... A> inline fx_status fx_load_into(const char *path, A... names_and_objects)
{
    const void *const pairs[] = {nullptr, static_cast<const void *>(names_and_objects)...};
    return fxi_load_into(path, static_cast<int>(sizeof...(A)), pairs + 1);
}
template <class... A> inline void *fx_metadata(A... keys_and_texts)
{
    const void *const pairs[] = {nullptr, static_cast<const void *>(keys_and_texts)...};
    return fxi_metadata(static_cast<int>(sizeof...(A)), pairs + 1);
}
#else
#define fx_save(path, ...)      fxi_save((path), FXI_PAIRS(__VA_ARGS__))
#define fx_load_into(path, ...) fxi_load_into((path), FXI_PAIRS(__VA_ARGS__))
#define fx_metadata(...)        fxi_metadata(FXI_PAIRS(__VA_ARGS__))
#endif
#endif
