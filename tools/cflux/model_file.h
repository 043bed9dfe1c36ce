/* model_file.h: reads and writes files of models for all commands, in any format.
 *
 * A BSON file holds models completely. Files of arrays (safetensors, npz, checkpoints) hold the
 * arrays under their paths, "model.layers.0.weight", and texts (fx_metadata) hold the rest, so that
 * a load gives the same entries:
 *
 *     notation.NAME   an entry that has layers, in Flux's notation
 *     text.PATH       a text of an entry, "text.classes.0"
 *     tuple.NAME      an entry that is a tuple, a list or a dictionary of arrays
 *     pytorch.NAME    like notation.NAME; the arrays of the file have PyTorch's names and layouts
 *     array.PATH      an array as text (array_text.h); used with PyTorch's names, because PyTorch
 *                     refuses other arrays in its file
 */
#ifndef CFLUX_TOOL_MODEL_FILE_H
#define CFLUX_TOOL_MODEL_FILE_H

#include "loss_list.h"
#include <cflux.h>

#define MODEL_FILE_METADATA "__metadata__"
#define MODEL_FILE_NOTATION "notation."
#define MODEL_FILE_TEXT     "text."
#define MODEL_FILE_TUPLE    "tuple."
#define MODEL_FILE_PYTORCH  "pytorch."
#define MODEL_FILE_ARRAY    "array."

/* The entries of a file as a named tuple owned by the scope; an error array (recorded) if the file
 * cannot be read or its arrays do not fit its notation. Arrays that belong to no notation become
 * entries under their own names; an .npy file gives the entry "array". The remaining texts become
 * the entry "__metadata__". `notation`: the model to which the arrays belong, which becomes the
 * entry "model" and overrides the file (the arrays are named "model.…", or by their paths, or as in
 * PyTorch). NULL: use the notation in the file. */
void *model_file_load(const char *path, const char *notation);

/* How to write a file, if not completely and in the format of its extension. */
typedef struct model_file_form {
    bool checkpoint; /* write a checkpoint, whatever the extension */
    bool pytorch;    /* use PyTorch's names and layouts for the model */
    bool arrays;     /* only arrays by name, no texts */
    bool lossy;      /* omit what the format cannot hold */
} model_file_form;

/* Writes the entries of a named tuple in the format of the extension. *out_lost (NULL: not needed)
 * lists what the format cannot hold: a layer without Flux notation, a setting that the notation
 * omits, shared arrays, a text in an .npy. If the list is not empty, nothing is written and the
 * status is FX_STATUS_UNSUPPORTED, unless the form has `lossy` or `arrays`. form NULL: the complete
 * file. */
fx_status model_file_save(const char *path, void *entries, const model_file_form *form,
                          losses *out_lost);

/* True if both arrays have the same shape. */
bool same_sizes(const fx_array *a, const fx_array *b);
/* The entry with this name; NULL if there is none. */
void *model_file_entry(void *entries, const char *name);
/* The position of the entry that is_model accepts: the one named "model", or the only one. −1 if
 * there is none, or several. */
int64_t model_file_index(void *entries, bool (*is_model)(void *object));

#endif
