/* model_file.h: files of models as the commands write and read them, whatever the format.
 *
 * A BSON file says all of it itself. Files of arrays (safetensors, checkpoints) hold the arrays
 * under their paths, "model.layers.0.weight", and in the header, as texts,
 *
 *     notation.NAME   an entry that has layers, in Flux's notation
 *     text.PATH       a text of an entry, "text.classes.0"
 *     tuple.NAME      an entry that is a tuple, a list or a dictionary of arrays
 *
 * so that the same entries come back. */
#ifndef CFLUX_TOOL_MODEL_FILE_H
#define CFLUX_TOOL_MODEL_FILE_H

#include <cflux.h>

/* The entries of a file as a named tuple of the scope; an error array (recorded) when it cannot be
 * read or its arrays do not fit its notation. Arrays that belong to no notation are entries by
 * their own names; an .npy file is the entry "array". Other texts of the header stand in the entry
 * "__metadata__". */
void *model_file_load(const char *path);

/* Writes the entries of a named tuple, in the format of the extension. What that format cannot say
 * is an error (FX_STATUS_UNSUPPORTED) that names it, and nothing is written: a layer unknown to
 * Flux's notation, a setting that the notation leaves out, shared arrays, a text in an .npz. */
fx_status model_file_save(const char *path, void *entries);

/* Its entry of that name, NULL when there is none. */
void *model_file_entry(void *entries, const char *name);

#endif
