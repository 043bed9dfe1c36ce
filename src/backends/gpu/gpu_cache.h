/* gpu_cache.h: compiled kernels on disk, for all GPU backends. Internal.
 *
 * One file a program, in $XDG_CACHE_HOME/cflux, else ~/.cache/cflux. A file holds the whole key and
 * a hash of what it keeps: it is taken only when both are right, and else as if it were not there.
 * It is written under another name first, so that others see all of it or nothing.
 * Beyond 512 MB, or FX_CACHE=MEGABYTES, those used longest ago are removed.
 * The folder and its files must belong to the user and be writable by nobody else, and neither may
 * be a link: others are not used, which is said once. Both are made for the user alone.
 * FX_CACHE=off: nothing is read or written. What goes wrong with files is no error: the caller
 * compiles.
 */
#ifndef CFLUX_GPU_CACHE_H
#define CFLUX_GPU_CACHE_H

#include <cflux/backend.h>

/* What was stored with this key, in memory of host->alloc; NULL: nothing. `kind` begins the file's
 * name ("opencl"); the key is a text with everything the result depends on. */
void *fxi_gpu_cache_load(const fx_host *host, const char *kind, const char *key, size_t *out_size);
void fxi_gpu_cache_store(const fx_host *host, const char *kind, const char *key, const void *bytes,
                         size_t size);

/* May anything be read or written? */
bool fxi_gpu_cache_on(void);

/* Also good for tables in memory. */
uint64_t fxi_gpu_hash(const void *bytes, size_t size, uint64_t seed);

#endif
