/* kernel_pack_write.c: fx_kernels_pack, which writes a pack from the cache on disk, and
 * fx_kernels_list. kernel_pack.h describes the file.
 */
#include "error.h"
#include "file_out.h"
#include "kernel_cache.h"
#include "kernel_pack.h"
#include "memory.h"

#include <cflux/device.h>

#include <stdlib.h>
#include <string.h>

/* ---- what the cache holds -------------------------------------------------------------------- */

typedef struct item {
    uint64_t key[2];
    fxi_cached_kernel kernel;
} item;

typedef struct collection {
    item *items;
    int32_t n, capacity;
    bool failed; /* no memory */
} collection;

static bool collect(fxi_cached_kernel *kernel, void *user)
{
    collection *c = user;
    if (!*kernel->key.target)
        return true;
    if (!fxi_grow(&c->items, &c->capacity, c->n + 1, sizeof *c->items)) {
        c->failed = true;
        return false;
    }
    item *i = &c->items[c->n++];
    i->kernel = *kernel;
    fxi_pack_key(&kernel->key, i->key);
    kernel->memory = NULL;
    return true;
}

static void free_collection(collection *c)
{
    for (int32_t k = 0; k < c->n; k++)
        fxi_free(c->items[k].kernel.memory);
    fxi_free(c->items);
}

static int by_number(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

/* By key, then by target; of kernels that are equal in both, the most recently used one first. */
static int compare(const void *a, const void *b)
{
    const item *x = a, *y = b;
    int c = by_number(x->key[0], y->key[0]);
    c = c ? c : by_number(x->key[1], y->key[1]);
    c = c ? c : strcmp(x->kernel.key.target, y->kernel.key.target);
    return c ? c : (x->kernel.used < y->kernel.used) - (x->kernel.used > y->kernel.used);
}

/* Sorts. Kernels with equal key and target come from different compilers: keeps only the most
 * recently used one. */
static void sort(collection *c)
{
    int32_t n = 0;
    if (c->n > 0)
        qsort(c->items, (size_t)c->n, sizeof *c->items, compare);
    for (int32_t k = 0; k < c->n; k++) {
        item *i = &c->items[k];
        const bool again = n > 0 && memcmp(c->items[n - 1].key, i->key, sizeof i->key) == 0 &&
                           strcmp(c->items[n - 1].kernel.key.target, i->kernel.key.target) == 0;
        if (again)
            fxi_free(i->kernel.memory);
        else
            c->items[n++] = *i;
    }
    c->n = n;
}

static fx_status collect_all(const char *op, collection *c)
{
    if (fxi_kernel_cache_each(collect, c) && !c->failed) {
        sort(c);
        return FX_OK;
    }
    free_collection(c);
    return fx_fail(FX_STATUS_MEMORY, op, "no memory for the kernels of the cache");
}

/* ---- writing --------------------------------------------------------------------------------- */

static size_t texts_of(const item *i)
{
    return strlen(i->kernel.key.backend) + strlen(i->kernel.key.target) +
           strlen(i->kernel.key.compiler) + 3;
}

/* At least one zero byte follows every code. */
static size_t padded(size_t size)
{
    return (size + 16) & ~(size_t)15;
}

/* Appends a text, and writes its offset. */
static size_t put_text(unsigned char *bytes, size_t at, const char *text, unsigned char *offset)
{
    const size_t n = strlen(text) + 1;
    memcpy(bytes + at, text, n);
    fxi_pack_put(offset, at, 4);
    return at + n;
}

static void put_items(unsigned char *bytes, const collection *c, size_t texts, size_t codes)
{
    for (int32_t k = 0; k < c->n; k++) {
        const item *i = &c->items[k];
        unsigned char *e = bytes + FXI_PACK_HEADER + (size_t)k * FXI_PACK_ENTRY;
        const char *const names[3] = {i->kernel.key.backend, i->kernel.key.target,
                                      i->kernel.key.compiler};
        fxi_pack_put(e, i->key[0], 8);
        fxi_pack_put(e + 8, i->key[1], 8);
        fxi_pack_put(e + FXI_PACK_AT_CODE, codes, 8);
        fxi_pack_put(e + FXI_PACK_AT_SIZE, i->kernel.size, 8);
        for (int t = 0; t < 3; t++)
            texts = put_text(bytes, texts, names[t], e + FXI_PACK_AT_NAMES + 4 * t);
        memcpy(bytes + codes, i->kernel.code, i->kernel.size);
        codes += padded(i->kernel.size);
    }
}

/* The whole file in memory; NULL: no memory. Texts begin after the entries, codes at `codes`. */
static unsigned char *make_file(const collection *c, size_t *out_size)
{
    const size_t texts = FXI_PACK_HEADER + (size_t)c->n * FXI_PACK_ENTRY;
    size_t length = 0, codes = 0;
    for (int32_t k = 0; k < c->n; k++) {
        length += texts_of(&c->items[k]);
        codes += padded(c->items[k].kernel.size);
    }
    /* Zero bytes fill the texts up to a multiple of 16, where the codes begin. */
    length = padded(texts + length) - texts;
    const size_t size = *out_size = texts + length + codes;
    unsigned char *h = fxi_calloc(1, size);
    if (!h)
        return NULL;
    memcpy(h, fxi_pack_mark, sizeof fxi_pack_mark);
    fxi_pack_put(h + FXI_PACK_AT_FORM, FXI_PACK_FORM, 4);
    fxi_pack_put(h + FXI_PACK_AT_COUNT, (uint64_t)c->n, 4);
    fxi_pack_put(h + FXI_PACK_AT_BYTES, size, 8);
    fxi_pack_put(h + FXI_PACK_AT_TEXTS, length, 8);
    _Static_assert(sizeof FX_VERSION_STRING <= FXI_PACK_VERSION, "the version fits");
    memcpy(h + FXI_PACK_AT_VERSION, FX_VERSION_STRING, sizeof FX_VERSION_STRING);
    put_items(h, c, texts, texts + length);
    fxi_pack_put(h + FXI_PACK_AT_HASH, fxi_pack_hash(h, size), 8);
    return h;
}

static fx_status write_pack(const char *path, const collection *c)
{
    size_t size;
    unsigned char *bytes = make_file(c, &size);
    const fx_status status =
        bytes ? fxi_file_write("kernels_pack", path, bytes, size)
              : fx_fail(FX_STATUS_MEMORY, "kernels_pack", "no memory for the pack");
    fxi_free(bytes);
    return status;
}

fx_status fx_kernels_pack(const char *path)
{
    collection c = {.n = 0};
    if (!path)
        return fx_fail(FX_STATUS_ARGUMENT, "kernels_pack", "the path is NULL");
    if (!fxi_kernels_cached())
        return fx_fail(FX_STATUS_STATE, "kernels_pack",
                       "FX_CACHE=off: compiled kernels are not kept on disk");
    fx_status status = collect_all("kernels_pack", &c);
    if (status)
        return status;
    status = c.n == 0 ? fx_fail(FX_STATUS_STATE, "kernels_pack",
                                "the cache has no kernels of cflux %s: run the program on its "
                                "device first",
                                FX_VERSION_STRING)
                      : write_pack(path, &c);
    free_collection(&c);
    return status;
}

/* ---- lists ----------------------------------------------------------------------------------- */

typedef struct groups {
    fx_kernels_info *items;
    int32_t n, capacity;
    bool failed; /* no memory */
} groups;

static int compare_groups(const void *a, const void *b)
{
    const fx_kernels_info *x = a, *y = b;
    int c = strcmp(x->backend, y->backend);
    c = c ? c : strcmp(x->target, y->target);
    return c ? c : strcmp(x->compiler, y->compiler);
}

/* Adds one kernel to its group. The texts must stay valid. */
static void count(groups *g, const fx_kernels_info *one)
{
    int32_t k = 0;
    while (k < g->n && compare_groups(&g->items[k], one) != 0)
        k++;
    if (k == g->n && fxi_grow(&g->items, &g->capacity, k + 1, sizeof *g->items)) {
        g->items[g->n++] = *one;
        return;
    }
    if (k == g->n)
        g->failed = true;
    else {
        g->items[k].count++;
        g->items[k].bytes += one->bytes;
    }
}

static fx_status visit_groups(groups *g, fx_kernels_fn visit, void *user)
{
    if (!g->failed && g->n > 0)
        qsort(g->items, (size_t)g->n, sizeof *g->items, compare_groups);
    for (int32_t k = 0; k < g->n && !g->failed; k++)
        visit(&g->items[k], user);
    fxi_free(g->items);
    return g->failed ? fx_fail(FX_STATUS_MEMORY, "kernels_list", "no memory for the list") : FX_OK;
}

static fx_status list_cache(fx_kernels_fn visit, void *user)
{
    collection c = {.n = 0};
    groups g = {.n = 0};
    fx_status status = collect_all("kernels_list", &c);
    if (status)
        return status;
    for (int32_t k = 0; k < c.n; k++) {
        const fxi_cached_kernel *i = &c.items[k].kernel;
        count(&g, &(fx_kernels_info){i->key.backend, i->key.target, i->key.compiler, 1,
                                     (int64_t)i->size});
    }
    status = visit_groups(&g, visit, user);
    free_collection(&c);
    return status;
}

static fx_status list_pack(const char *path, fx_kernels_fn visit, void *user)
{
    char why[FXI_PACK_WHY];
    fxi_pack p;
    groups g = {.n = 0};
    fx_status status = fxi_pack_read(path, &p, why);
    if (status)
        return fx_fail(status, "kernels_list", "%s: %s", path, why);
    for (uint32_t k = 0; k < p.count; k++) {
        const fxi_packed e = fxi_pack_entry(&p, k);
        count(&g, &(fx_kernels_info){e.backend, e.target, e.compiler, 1, (int64_t)e.size});
    }
    status = visit_groups(&g, visit, user);
    fxi_free(p.bytes);
    return status;
}

fx_status fx_kernels_list(const char *path, fx_kernels_fn visit, void *user)
{
    if (!visit)
        return fx_fail(FX_STATUS_ARGUMENT, "kernels_list", "visit is NULL");
    return path ? list_pack(path, visit, user) : list_cache(visit, user);
}
