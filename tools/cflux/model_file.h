/* model_file.h: files of models as the commands write and read them, whatever the format.
 *
 * A BSON file says all of it itself. Files of arrays (safetensors, npz, checkpoints) hold the
 * arrays under their paths, "model.layers.0.weight", and texts (fx_metadata) say the rest:
 *
 *     notation.NAME   an entry that has layers, in Flux's notation
 *     text.PATH       a text of an entry, "text.classes.0"
 *     tuple.NAME      an entry that is a tuple, a list or a dictionary of arrays
 *     pytorch.NAME    like notation.NAME; the arrays of the file have PyTorch's names and layouts
 *     array.PATH      an array as text (array_text.h): beside PyTorch's names there are no others
 *
 * so that the same entries come back. */
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

/* The entries of a file as a named tuple of the scope; an error array (recorded) when it cannot be
 * read or its arrays do not fit its notation. Arrays that belong to no notation are entries by
 * their own names; an .npy file is the entry "array". Other texts of the file are the entry
 * "__metadata__". `notation`: the model that the arrays belong to, as the entry "model", whatever
 * the file says (its arrays are called "model.…", or by their paths, or as PyTorch does); NULL: the
 * file says it. */
void *model_file_load(const char *path, const char *notation);

/* How a file is written, other than whole by the extension. */
typedef struct model_file_form {
    bool checkpoint; /* whatever it is called */
    bool pytorch;    /* the model under PyTorch's names */
    bool arrays;     /* arrays by name and no texts */
    bool lossy;      /* leave out what the format cannot hold */
} model_file_form;

/* Writes the entries of a named tuple, in the format of the extension. What that format cannot hold
 * (a layer unknown to Flux's notation, a setting that the notation leaves out, shared arrays, a
 * text in an .npy) is said in *out_lost (NULL: not asked for). It is an error
 * (FX_STATUS_UNSUPPORTED), and nothing is written, unless the form is lossy or of arrays. form
 * NULL: whole. */
fx_status model_file_save(const char *path, void *entries, const model_file_form *form,
                          losses *out_lost);

/* Its entry of that name, NULL when there is none. */
void *model_file_entry(void *entries, const char *name);
/* The place of the entry that is_model accepts: that called "model", else the only one; −1: none,
 * or several. */
int64_t model_file_place(void *entries, bool (*is_model)(void *object));

#endif
