/* model_file.h: writes files of models for all commands, in any format. fx_load_entries reads them,
 * and its comment describes the texts of files of arrays. */
#ifndef CFLUX_TOOL_MODEL_FILE_H
#define CFLUX_TOOL_MODEL_FILE_H

#include "loss_list.h"
#include <cflux.h>

/* How to write a file. Default (all members false): the complete file, in the format of its
 * extension. */
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

/* Tries to write the complete file, without leaving a file behind, and loads it again. *out_loaded:
 * what fx_load returns for the file; NULL if it cannot be written, which is the status. */
fx_status model_file_try(const char *path, void *entries, void **out_loaded);

/* The entry with this name; NULL if there is none. */
void *model_file_entry(void *entries, const char *name);
/* The position of the entry that is_model accepts: the one named "model", or the only one. −1 if
 * there is none, or several. */
int64_t model_file_index(void *entries, bool (*is_model)(void *object));

#endif
