/* fmap_n.c: one map over several trees of the same structure: Functors' fmap(f, x, y, …).
 *
 * A first walk over all trees side by side collects the arrays that correspond to each array of the
 * first tree, and reports differences in structure; then fx_fmap maps the first tree. So nothing is
 * computed when the trees differ. An array that the first tree reaches twice is mapped once, with
 * the arrays of the other trees at its first position.
 */
#include "error.h"
#include "identity_map.h"
#include "memory.h"
#include "object_types.h"

#include <stdio.h>
#include <string.h>

enum { MOST_TREES = 8, PATH = 400 };

typedef struct parallel_walk {
    fx_map_n_fn f;
    void *user;
    int n;
    int32_t count, capacity;
    fx_array *(*rows)[MOST_TREES]; /* for each array of the first tree: the arrays of all trees */
    fxi_identity_map row_of; /* array → its row, counted from 1; objects already walked: NULL */
    char path[PATH];
    fx_status status;
} parallel_walk;

static void walk(parallel_walk *b, void *const *xs, int depth);

static bool is_opaque(const void *x)
{
    return (fx_type_of(x)->flags & (FX_TYPE_FUNCTION | FX_TYPE_LEAF)) || fx_is_error(x);
}

static void differ(parallel_walk *b, const void *x, const void *y, int tree)
{
    char one[160], other[160];
    fx_summary((void *)(uintptr_t)x, one, sizeof one);
    fx_summary((void *)(uintptr_t)y, other, sizeof other);
    if (b->status == FX_OK)
        b->status = fx_fail(FX_STATUS_ARGUMENT, "fmap",
                            "the trees differ at \"%s\": %s in the first, "
                            "%s in number %d",
                            b->path, one, other, tree + 1);
}

static void no_memory(parallel_walk *b)
{
    b->status = fx_fail(FX_STATUS_MEMORY, "fmap", "no memory for the list of visited objects");
}

/* Adds an array of the first tree. Another tree may have NULL there, as gradients do. */
static void add_row(parallel_walk *b, void *const *xs)
{
    if (!fxi_grow(&b->rows, &b->capacity, b->count + 1, sizeof *b->rows) ||
        !fxi_identity_put(&b->row_of, xs[0], (void *)(intptr_t)(b->count + 1))) {
        no_memory(b);
        return;
    }
    for (int i = 0; i < b->n; i++) {
        if (xs[i] && !fx_is_array(xs[i]))
            differ(b, xs[0], xs[i], i);
        b->rows[b->count][i] = xs[i];
    }
    b->count++;
}

static bool same_structure(const void *x, const void *y)
{
    if (!y || fx_is_array(y) || is_opaque(y) || fx_count(x) != fx_count(y))
        return false;
    for (int64_t i = 0; i < fx_count(x); i++)
        if (strcmp(fx_child_name(x, i), fx_child_name(y, i)) != 0)
            return false;
    return true;
}

static void walk_child(parallel_walk *b, void *const *xs, int64_t i, int depth)
{
    void *children[MOST_TREES];
    const size_t length = strlen(b->path);
    const char *name = fx_child_name(xs[0], i);
    if (*name)
        snprintf(b->path + length, PATH - length, "%s%s", length ? "." : "", name);
    else
        snprintf(b->path + length, PATH - length, "%s%lld", length ? "." : "", (long long)i);
    for (int k = 0; k < b->n; k++)
        children[k] = fx_child(xs[k], i);
    walk(b, children, depth + 1);
    b->path[length] = 0;
}

static void walk(parallel_walk *b, void *const *xs, int depth)
{
    void *unused;
    if (b->status != FX_OK || !xs[0] || (!fx_is_array(xs[0]) && is_opaque(xs[0])) ||
        fxi_identity_get(&b->row_of, xs[0], &unused))
        return;
    if (fx_is_array(xs[0])) {
        add_row(b, xs);
        return;
    }
    for (int i = 1; i < b->n; i++)
        if (!same_structure(xs[0], xs[i]))
            differ(b, xs[0], xs[i], i);
    if (depth > FXI_MAX_DEPTH && b->status == FX_OK)
        b->status =
            fx_fail(FX_STATUS_ARGUMENT, "fmap", "nested more than %d levels deep", FXI_MAX_DEPTH);
    if (b->status == FX_OK && !fxi_identity_put(&b->row_of, xs[0], NULL))
        no_memory(b);
    for (int64_t i = 0; b->status == FX_OK && i < fx_count(xs[0]); i++)
        walk_child(b, xs, i, depth);
}

static fx_array *map_row(fx_array *x, void *user)
{
    const parallel_walk *b = user;
    void *row;
    if (!fxi_identity_get(&b->row_of, x, &row) || !row)
        return x;
    return b->f(b->n, b->rows[(intptr_t)row - 1], b->user);
}

void *fx_fmap_n(fx_map_n_fn f, void *user, int n, void *const *trees)
{
    parallel_walk b = {.f = f, .user = user, .n = n};
    if (!f || n < 1 || n > MOST_TREES)
        b.status =
            fx_fail(FX_STATUS_ARGUMENT, "fmap",
                    f ? "takes 1 to %d trees, got %d" : "the function is NULL", MOST_TREES, n);
    else
        b.status = fxi_check_list("fmap", "trees", n, trees);
    for (int i = 0; b.status == FX_OK && i < n; i++)
        if (!trees[i] || fx_is_error(trees[i]))
            b.status = trees[i] ? fxi_object_status(trees[i])
                                : fx_fail(FX_STATUS_ARGUMENT, "fmap", "tree %d is NULL", i + 1);
    if (b.status == FX_OK)
        walk(&b, trees, 0);
    void *y = b.status == FX_OK                 ? fx_fmap_with(map_row, &b, trees[0])
              : f && n > 0 && trees && trees[0] ? fx_error_object(fx_type_of(trees[0]))
                                                : fx_error_array(b.status);
    fxi_identity_free(&b.row_of);
    fxi_free(b.rows);
    return y;
}

static fx_array *two(int n, fx_array *const *xs, void *user)
{
    (void)n;
    return (*(fx_map2_fn *)user)(xs[0], xs[1]);
}

void *fxi_fmap2(fx_map2_fn f, void *x, void *y)
{
    void *const both[] = {x, y};
    return fx_fmap_n(f ? two : NULL, &f, 2, both);
}
