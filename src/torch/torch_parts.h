/* torch_parts.h: arrays that PyTorch stores as parts of one array. Internal to torch.
 *
 * PyTorch's MultiheadAttention has one array in_proj_weight where Flux's has the weights of three
 * layers. The table of such a layer gives a child the name "q_proj|in_proj_0": the array "weight"
 * below it is part 0 of "in_proj_weight". If the parts differ in their number of inputs, PyTorch
 * stores them as q_proj_weight, k_proj_weight and v_proj_weight beside one in_proj_bias.
 */
#ifndef CFLUX_TORCH_PARTS_H
#define CFLUX_TORCH_PARTS_H

#include "entries.h"

enum { FXI_TORCH_PARTS = 3 };
/* The marks * and | of tables in the path of an array. */
enum { FXI_TORCH_SUFFIX = '\1', FXI_TORCH_PART = '\2' };

/* An array of the model that is part of another one in PyTorch. */
typedef struct fxi_torch_part {
    char *whole; /* "0.in_proj_weight"; NULL: it is an array of its own */
    int index;
} fxi_torch_part;

/* Removes the marks from the names of the entries, and returns a list with the meaning of
 * each entry's marks. The caller frees the list. NULL if out of memory (recorded in `own`). */
fxi_torch_part *fxi_torch_parts(fxi_entries *own);
void fxi_torch_parts_free(fxi_torch_part *parts, int32_t n);

/* `state` has the arrays of a state in the order of `own`. Joins parts to whole arrays as far as
 * PyTorch can hold them: the entry of the first part gets the whole array, the others get NULL. */
void fxi_torch_parts_join(const fxi_entries *own, const fxi_torch_part *parts, fxi_entries *state);
/* Adds one array of a state in PyTorch's layout to `out`: a whole one as its parts, under the names
 * of `own`. */
void fxi_torch_parts_add(const fxi_entries *own, const fxi_torch_part *parts, const char *name,
                         fx_array *x, fxi_entries *out);

#endif
