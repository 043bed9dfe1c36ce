/* gpu_ways.c: remembers which of several ways to compute a step is the fastest (gpu_build.h), in
 * memory and in the cache of kernels on disk, whose files have a checksum and contain their key.
 *
 * Ways that add in different orders give different bits. So all steps of a process with the same
 * key use the same way: two steps of one plan, which are both prepared before the first of them
 * runs, and the plans of two threads. A program that finds the decision on disk computes the same
 * bits as the program that stored it. Different machines, or programs without a cache, may decide
 * differently where two ways take nearly the same time.
 */
#include "gpu_text.h"
#include "thread.h"

#include <stdlib.h>
#include <string.h>

typedef struct decision decision;
struct decision {
    decision *next;
    int32_t name; /* of the way */
    char key[];
};
/* Kept until the process ends: a program has few different convolutions and products with several
 * ways. */
static decision *decisions;
static fxi_mutex lock = FXI_MUTEX_INIT;

/* Without a target: packs of kernels contain no decisions. */
static fx_kernel_key key_of(const char *key)
{
    return (fx_kernel_key){"gpu-ways", "", "", "", key};
}

/* The list is searched when a step with several ways is prepared and when it first runs, so it
 * needs no order. */
static decision *find(const char *key)
{
    decision *d = decisions;
    while (d && strcmp(d->key, key) != 0)
        d = d->next;
    return d;
}

/* Returns whether this is the first decision for the key. */
static bool keep(const fx_host *host, const char *key, int32_t name)
{
    const size_t size = strlen(key) + 1;
    /* One allocation for the decision and its key, which are never freed. */
    decision *d = find(key) ? NULL : host->alloc(sizeof *d + size);
    /* Without memory for it, the next plan measures again. */
    if (!d)
        return false;
    d->next = decisions;
    d->name = name;
    memcpy(d->key, key, size);
    decisions = d;
    return true;
}

/* The cache has checked that the file is whole and has this key. The caller ignores numbers
 * other than the names of its ways. */
static bool load(const fx_host *host, const char *key, int32_t *out_name)
{
    const fx_kernel_key whole = key_of(key);
    size_t size = 0;
    void *bytes = host->kernels_cached() ? host->kernel_load(&whole, &size) : NULL;
    const bool found = bytes && size == sizeof *out_name;
    if (found)
        memcpy(out_name, bytes, sizeof *out_name);
    host->free(bytes);
    return found;
}

/* A choice that was read from a file is kept in memory too, so that a process does not change from
 * one way to the other when another process replaces the file. */
bool fxi_gpu_way_known(const fx_host *host, const char *key, int32_t *out_name)
{
    fxi_mutex_lock(&lock);
    const decision *d = find(key);
    bool known = d != NULL;
    if (d)
        *out_name = d->name;
    else if ((known = load(host, key, out_name)))
        keep(host, key, *out_name);
    fxi_mutex_unlock(&lock);
    return known;
}

/* The first decision of a process stays: plans that ran with it must keep their bits. Two devices
 * of one kind may measure at the same time. */
void fxi_gpu_way_remember(const fx_host *host, const char *key, int32_t name)
{
    const fx_kernel_key whole = key_of(key);
    fxi_mutex_lock(&lock);
    if (keep(host, key, name) && host->kernels_cached())
        host->kernel_store(&whole, &name, sizeof name);
    fxi_mutex_unlock(&lock);
}

/* Only in memory: on disk the decision stays, as the next process may be able to compile. */
bool fxi_gpu_way_change(const fx_host *host, const char *key, int32_t name)
{
    fxi_mutex_lock(&lock);
    decision *d = find(key);
    if (d)
        d->name = name;
    const bool changed = d || keep(host, key, name);
    fxi_mutex_unlock(&lock);
    return changed;
}
