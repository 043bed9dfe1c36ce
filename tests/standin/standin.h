/* standin.h: devices for tests: the example backend of docs/guide/adding-a-backend.md under the
 * names CUDA and AMDGPU, with scripted failures and counters.
 *
 * libcflux-cuda.so and libcflux-amdgpu.so are in STANDIN_FOLDER of the build tree and are found if
 * FX_PLUGIN_PATH names it (standin_path). With STANDIN_ASYNC=1 in the environment when they are
 * opened, each device has a thread that runs its steps after `run` has returned. With
 * STANDIN_BUFFERS=N, a step that needs more than N buffers fails.
 */
#ifndef CFLUX_TEST_STANDIN_H
#define CFLUX_TEST_STANDIN_H

#include <cflux.h>
#include <cflux/backend.h>
#include <stdlib.h>

#define STANDIN_FOLDER CFLUX_BUILD_DIR "/tests/standin"

typedef enum standin_call {
    STANDIN_ALLOC,
    STANDIN_FREE,
    STANDIN_WRITE,
    STANDIN_READ,
    STANDIN_COPY, /* counted at the destination device */
    STANDIN_FILL,
    STANDIN_LAUNCH,
    STANDIN_MARK,
    STANDIN_WAIT, /* for a mark */
    STANDIN_CALLS
} standin_call;

/* Masks for standin.refuse. */
enum {
    STANDIN_ALLOCS = 1 << STANDIN_ALLOC,
    STANDIN_LAUNCHES = 1 << STANDIN_LAUNCH,
    STANDIN_MARKS = 1 << STANDIN_MARK | 1 << STANDIN_WAIT,
    STANDIN_COPIES = 1 << STANDIN_WRITE | 1 << STANDIN_READ | 1 << STANDIN_COPY | 1 << STANDIN_FILL
};

/* The result of proc("standin"). Devices are given by their id. */
typedef struct standin {
    /* Makes calls in the mask `which` fail: `times` of them, starting with the n-th from now (0:
     * the next one). times 0: no call fails. */
    void (*refuse)(int device, unsigned which, int64_t n, int64_t times);
    /* Loses the device at its n-th call from now (0: the next one; releases are not counted): that
     * call and all later ones fail. −1: the device works, also after it was lost, unlike a real
     * one. */
    void (*lose)(int device, int64_t n);
    /* True if a call failed as scripted since the latest `refuse` or `lose`. */
    bool (*failed)(int device);
    /* Sets the memory in bytes; 0: the default. */
    void (*capacity)(int device, int64_t bytes);
    /* Sets the additional work space in bytes of each step prepared from now on; default: 100. */
    void (*work)(int device, int64_t bytes);
    /* Calls since the start, and their total bytes. */
    int64_t (*calls)(int device, standin_call call);
    int64_t (*bytes)(int device, standin_call call);
    /* Sets whether devices run collective steps, on their own memory. */
    void (*collectives)(bool taken);
    /* Number of live allocations. */
    int64_t (*blocks)(int device);
    /* Makes `prepare` refuse steps of the classes in the mask `classes` (1 << FX_CLASS_ROW) from
     * now on.
     */
    void (*lacks)(int device, unsigned classes);
    /* The precision of the latest product prepared, -1 before the first. */
    int (*precision)(int device);
} standin;

/* Call it before the first fx_use. */
static inline void standin_path(void)
{
    setenv("FX_PLUGIN_PATH", STANDIN_FOLDER, 1);
}

/* NULL if the device is not a stand-in. */
static inline const standin *standin_of(const fx_device *device)
{
    return device->backend->proc ? device->backend->proc("standin") : NULL;
}

#endif
