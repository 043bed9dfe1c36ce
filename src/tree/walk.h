/* walk.h: a visit that reports tied arrays, walks that give positions values, and paths by parts.
 * Internal.
 */
#ifndef CFLUX_WALK_H
#define CFLUX_WALK_H

#include <cflux/tree.h>

/* Like fx_visit, without the paths, which cost time. `of` is the array of the same object that x is
 * a view of, and that is not a view itself; NULL if there is none. */
typedef void (*fxi_visit_tied_fn)(fx_array *x, fx_array *of, bool trainable, void *user);
fx_status fxi_visit_tied(void *x, fxi_visit_tied_fn visit, void *user);

/* A walk over one tree that gives each position a value, for example its copy. `meet` or `leave`
 * sets `value`; before, it is the object itself. In `leave`, `children` has the values of all
 * children, also of those that are NULL; `leave` may overwrite them. */
typedef struct fxi_valued_walk {
    fx_tree_walker walker; /* of one tree; every_path and trained_only are not set */
    void *value;
    void **children;
    int32_t nchildren;
    const struct walking *state;
} fxi_valued_walk;
/* Like fx_tree_walk. Afterwards `value` is that of x. */
fx_status fxi_tree_walk_valued(fxi_valued_walk *v, void *x);
/* During the walk: the value of an object. False if the walk has not met it. */
bool fxi_walk_value(const fxi_valued_walk *v, void *x, void **out_value);

/* Writes the path of a position, given that the path of its parent is in dst already and has
 * `before` characters. Returns the length of the path, as fx_spot_path. */
size_t fxi_spot_part(const fx_spot *at, size_t before, char *dst, size_t capacity);

#endif
