/* gpurt_library.h: opens the vendors' libraries other than the driver: cuBLASLt, rocBLAS, cuDNN,
 * MIOpen. Internal.
 *
 * A library is opened when the first step that it would compute is prepared, not with the driver,
 * because opening one can take a second. If it cannot be used, one warning says why, and cflux's
 * own kernels compute such steps. docs/design/0050.
 */
#ifndef CFLUX_GPURT_LIBRARY_H
#define CFLUX_GPURT_LIBRARY_H

#include "gpu_build.h"
#include "gpurt.h"

typedef struct fxi_rt_library_file {
    const char *file;
    int major; /* the driver's major version that it needs */
} fxi_rt_library_file;

enum { FXI_RT_FILES = 4 };
typedef struct fxi_rt_library {
    const char
        *names[2];    /* "cuBLASLt", and another name by which programs may ask for it (or NULL) */
    const char *what; /* what it does: "multiplies matrices" */
    const char *slower;   /* what happens without it */
    const char *variable; /* names another file, or is "off" */
    const char *install;  /* what to install */
    fxi_rt_library_file files[FXI_RT_FILES];
    /* Does a file for this major version work with a driver of that version? */
    bool (*suits)(int major, int driver);
    const fxi_rt_entry *entries;
    size_t nentries;
    /* Makes the handle of a selected device. NULL with the call and its error in `why`. */
    void *(*begin)(fxi_rt_device *d, char *why, size_t size);
    /* Makes the handle queue its calls in another stream; returns the library's error. NULL: every
     * call names its stream. Recordings use streams of their own, so libraries whose handle has a
     * stream need this function. */
    int (*follow)(void *handle, fxi_rt_stream stream);
    /* -- set by these functions; `lock` is initialised -- */
    fxi_mutex lock;
    bool opened;
    char why[320]; /* "" if it can be used */
    int warned;    /* atomic */
} fxi_rt_library;

/* Opens the library, once. Returns "", or why it cannot be used. */
const char *fxi_rt_library_why(fxi_rt_library *l);
/* For fx_functional: fxi_rt_library_why, or NULL if it is not a name of the library. */
const char *fxi_rt_library_part(fxi_rt_library *l, const char *name);
/* Warns once in a process that cflux's kernels compute instead of the library, and why. */
void fxi_rt_library_warn(fxi_rt_library *l, const char *why);
/* Makes the device's handle if *handle has none yet; it is kept until the process ends. False if
 * the library cannot be used. */
bool fxi_rt_library_has(fxi_rt_library *l, fxi_rt_device *d, fxi_rt_library_handle *handle);
/* Fails with the library's error in a call, after which the device may be lost. */
fx_status fxi_rt_library_fail(fxi_rt_device *d, const char *operation, const char *call,
                              const char *error);
/* For steps with several ways (fxi_gpu_compare). */
extern const fxi_gpu_trial fxi_rt_trial;
/* Are ways with cflux's kernels measured on this device? Not without a compiler for these kernels,
 * not if the driver reports no times, and not with FX_GPU_MEASURE=0. */
bool fxi_rt_measures(fxi_rt_device *d);
/* Appends to the key of a decision, a text of FXI_RT_KEY_BYTES. */
enum { FXI_RT_KEY_BYTES = 1024 };
void fxi_rt_append(char *key, const char *format, ...) FXI_PRINTF(2, 3);
/* Begins a call: selects the device for the thread, and counts a launch. */
fx_status fxi_rt_library_enter(fxi_rt_device *d, const char *operation);

#endif
