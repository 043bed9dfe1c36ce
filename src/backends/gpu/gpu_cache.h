/* gpu_cache.h: compiled kernels on disk, for all GPU backends. Internal.
 *
 * Each program is one file in $XDG_CACHE_HOME/cflux, or else in ~/.cache/cflux. A file contains the
 * whole key and a hash of its contents: it is used only if both are right, and otherwise ignored.
 * It is written under another name first, so that other processes see the whole file or none.
 * Beyond 512 MB, or FX_CACHE=MEGABYTES, the files used longest ago are removed.
 *
 * The folder and its files must belong to the user, must not be writable by any other user, and
 * must not be links, because a driver would run what they contain; others are ignored, which is
 * reported once. cflux creates both for the user alone. FX_CACHE=off: nothing is read or written. A
 * failure with a file is not an error: the caller compiles the program.
 */
#ifndef CFLUX_GPU_CACHE_H
#define CFLUX_GPU_CACHE_H

#include <cflux/backend.h>

/* Loads what was stored with this key, into memory of host->alloc; NULL if there is nothing. `kind`
 * begins the file's name ("opencl"). The key is a text with everything on which the compiled form
 * depends. */
void *fxi_gpu_cache_load(const fx_host *host, const char *kind, const char *key, size_t *out_size);
void fxi_gpu_cache_store(const fx_host *host, const char *kind, const char *key, const void *bytes,
                         size_t size);

/* May files be read and written? */
bool fxi_gpu_cache_on(void);

/* A hash for files, and for tables in memory. */
uint64_t fxi_gpu_hash(const void *bytes, size_t size, uint64_t seed);

#endif
