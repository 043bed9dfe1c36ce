/* kernel_packs.c: the packs of this process: fx_kernels_add, CFLUX_KERNELS, and the search for the
 * code of a program.
 */
#include "error.h"
#include "kernel_pack.h"
#include "memory.h"
#include "shared_library.h"
#include "this_process.h"

#include <cflux/device.h>

#include <stdio.h>
#include <string.h>

static fxi_pack *packs; /* atomic; packs are added at the front, and never removed or changed */

static fx_status add(const char *path, char why[FXI_PACK_WHY])
{
    fxi_pack *p = fxi_malloc(sizeof *p);
    if (!p) {
        snprintf(why, FXI_PACK_WHY, "no memory for it");
        return FX_STATUS_MEMORY;
    }
    const fx_status status = fxi_pack_read(path, p, why);
    if (status) {
        fxi_free(p);
        return status;
    }
    p->next = __atomic_load_n(&packs, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&packs, &p->next, p, false, __ATOMIC_RELEASE,
                                        __ATOMIC_RELAXED))
        ;
    return FX_OK;
}

fx_status fx_kernels_add(const char *path)
{
    char why[FXI_PACK_WHY];
    if (!path)
        return fx_fail(FX_STATUS_ARGUMENT, "kernels_add", "the path is NULL");
    const fx_status status = add(path, why);
    return status ? fx_fail(status, "kernels_add", "%s: %s", path, why) : FX_OK;
}

/* Adds the files of a list, which FXI_LIST_SEPARATOR separates. */
static void add_list(const char *list)
{
    enum { PATH_BYTES = 4096 };
    char path[PATH_BYTES], why[FXI_PACK_WHY];
    for (size_t n; *list; list += n + (list[n] != 0)) {
        n = strcspn(list, FXI_LIST_SEPARATOR);
        snprintf(path, sizeof path, "%.*s", (int)(n < PATH_BYTES ? n : PATH_BYTES - 1), list);
        if (n > 0 && add(path, why))
            fx_message(1, "%s, which CFLUX_KERNELS names, is ignored: %s", path, why);
    }
}

/* Called under the lock of the loader of backends. */
void fxi_kernel_packs_from_environment(void)
{
    static bool done;
    /* Programs with raised privileges ignore the variable, because a device runs what the file
     * contains. */
    const char *list = done ? NULL : fxi_trusted_variable("CFLUX_KERNELS");
    done = true;
    if (list)
        add_list(list);
}

/* ---- searches -------------------------------------------------------------------------------- */

static int compare(const fxi_packed *e, const uint64_t key[2])
{
    for (int i = 0; i < 2; i++)
        if (e->key[i] != key[i])
            return e->key[i] < key[i] ? -1 : 1;
    return 0;
}

/* The first entry whose key is not less. */
static uint32_t first_of(const fxi_pack *p, const uint64_t key[2])
{
    uint32_t low = 0, high = p->count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const fxi_packed e = fxi_pack_entry(p, middle);
        if (compare(&e, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* key NULL: all entries of the backend. */
static bool search(const fxi_pack *p, const char *backend, const uint64_t *key, fx_packed_fn take,
                   void *user)
{
    bool taken = false;
    for (uint32_t k = key ? first_of(p, key) : 0; k < p->count && !taken; k++) {
        const fxi_packed e = fxi_pack_entry(p, k);
        if (key && compare(&e, key) != 0)
            break;
        if (strcmp(e.backend, backend) == 0)
            taken = take(&(fx_packed_kernel){e.target, e.compiler, e.code, e.size}, user);
    }
    return taken;
}

bool fxi_kernel_packed(const fx_kernel_key *key, fx_packed_fn take, void *user)
{
    uint64_t hashes[2];
    const fxi_pack *p = __atomic_load_n(&packs, __ATOMIC_ACQUIRE);
    if (p && key->source)
        fxi_pack_key(key, hashes);
    while (p && !search(p, key->backend, key->source ? hashes : NULL, take, user))
        p = p->next;
    return p;
}
