/* predictor_parts.h: the entries of a predictor, for the files that compute with it. Internal. */
#ifndef CFLUX_PREDICTOR_PARTS_H
#define CFLUX_PREDICTOR_PARTS_H

#include <cflux/predict.h>

/* The kind of a language model, in the entry "about". */
#define FXI_KIND_LANGUAGE "language"

/* The entry of a named tuple; NULL if there is no such entry, or `entries` is something else. */
void *fxi_predictor_entry(const void *entries, const char *name);
/* The entries of a file that fx_load or fx_load_bytes has read: see fx_load_entries. Returns `file`
 * if no text in it describes a model. `path`: for messages. */
void *fxi_predictor_entries(const char *path, void *file);
/* A text of the entry "about"; NULL if there is none. */
const char *fxi_predictor_about(const void *predictor, const char *name);
/* The status of an error object; FX_OK for all others and for NULL. */
static inline fx_status fxi_predictor_status(const void *predictor)
{
    return predictor && fx_is_error(predictor) ? fx_array_status(predictor) : FX_OK;
}
/* FX_OK if the object is a predictor with a model. An error object's own status, without a second
 * record; otherwise FX_STATUS_ARGUMENT, recorded under op. */
fx_status fxi_predictor_check(const char *op, const void *predictor);
/* The context of a language model; 0 for other predictors. */
int64_t fxi_predictor_context(const void *predictor);

#endif
