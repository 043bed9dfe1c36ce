/* kernel_cache.h: compiled kernels on disk, for all backends that compile. Internal.
 *
 * Each program is one file in the folder `cflux` inside the folder of fxi_cache_folder: by
 * default ~/.cache/cflux on Linux. A file contains the whole key and a hash of its contents: it is
 * used only if both are right, and otherwise ignored. It is written under another name first, so
 * that other processes see the whole file or none. If the folder has more MiB than FX_CACHE says
 * (default: 512), the files used longest ago are removed.
 *
 * The folder and its files must belong to the user, must not be writable by any other user, and
 * must not be links, because a driver would run what they contain; others are ignored, which is
 * reported once. cflux creates both for the user alone. FX_CACHE=off: nothing is read or written. A
 * failure with a file is not an error: the caller compiles the program.
 */
#ifndef CFLUX_KERNEL_CACHE_H
#define CFLUX_KERNEL_CACHE_H

#include <cflux/backend.h>

/* fx_host.kernels_cached, .kernel_load and .kernel_store. */
bool fxi_kernels_cached(void);
void *fxi_kernel_load(const fx_kernel_key *key, size_t *out_size);
void fxi_kernel_store(const fx_kernel_key *key, const void *bytes, size_t size);

/* A file of the cache. */
typedef struct fxi_cached_kernel {
    fx_kernel_key key;
    char *code; /* `size` bytes; texts and code are one allocation, which begins at `memory` */
    size_t size;
    int64_t used; /* time of the latest use, in nanoseconds since a fixed moment */
    void *memory;
} fxi_cached_kernel;
/* Calls visit for every whole file that this version of cflux wrote, until it returns false.
 * `kernel` is valid during the call, unless visit takes kernel->memory (sets it to NULL), to be
 * freed by fxi_free. False: no memory. */
bool fxi_kernel_cache_each(bool (*visit)(fxi_cached_kernel *kernel, void *user), void *user);

#endif
