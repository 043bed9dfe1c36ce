/* shared_library.h: opens shared libraries and finds their folders. Internal. Only this header and
 * the files shared_library_*.c know how a system does this. Plugins compile them too, to open
 * libraries of vendors.
 */
#ifndef CFLUX_SHARED_LIBRARY_H
#define CFLUX_SHARED_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

/* FXI_LIST_SEPARATOR separates the folders in an environment variable. FXI_LIBRARY_FILE chooses
 * between the names that a vendor's library has on Linux and on Windows. */
#if defined(_WIN32)
#define FXI_LIBRARY_FILE(linux, windows) windows
#else
#define FXI_LIBRARY_FILE(linux, windows) linux
#endif
#if defined(_WIN32)
#define FXI_LIBRARY_SUFFIX ".dll"
#define FXI_LIST_SEPARATOR ";"
#elif defined(__APPLE__)
#define FXI_LIBRARY_SUFFIX ".dylib"
#define FXI_LIST_SEPARATOR ":"
#else
#define FXI_LIBRARY_SUFFIX ".so"
#define FXI_LIST_SEPARATOR ":"
#endif

/* Opens a shared library, which is never closed. NULL: failed, with the reason in `why`. A
 * truncated file is refused too; mapping it would kill the process. A program that is linked with
 * -static cannot open any library. */
void *fxi_library_open(const char *path, char *why, size_t size);
/* The address of a symbol; NULL if the library does not export it. */
void *fxi_library_symbol(void *library, const char *name);
/* The folder of the shared library or program that contains an address. False if unknown. */
bool fxi_library_folder(const void *address, char *folder, size_t size);

#endif
