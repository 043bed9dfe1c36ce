/* shared_library.h: shared objects, and the folders they lie in, as the system at hand has them.
 * Internal.
 *
 * Only this header and shared_library.c know how a system opens a shared object. Plugins compile
 * the file too, for the libraries of vendors.
 */
#ifndef CFLUX_SHARED_LIBRARY_H
#define CFLUX_SHARED_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

#define FXI_LIBRARY_SUFFIX ".so"
/* Separates the folders in an environment variable. */
#define FXI_LIST_SEPARATOR ":"

/* Opens a shared object; it is never closed. Returns NULL with the reason in `why` if that fails,
 * also for a file that ends too early, which would otherwise end the process when it is mapped. */
void *fxi_library_open(const char *path, char *why, size_t size);
/* The address of a symbol; NULL if the library does not export it. */
void *fxi_library_symbol(void *library, const char *name);
/* The folder of the shared object or program that contains an address. Returns false if unknown. */
bool fxi_library_folder(const void *address, char *folder, size_t size);

#endif
