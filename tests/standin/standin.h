/* standin.h: devices for tests: the example backend of docs/guide/adding-a-backend.md under the
 * names CUDA and AMDGPU, with scripted failures and counters.
 *
 * libcflux-cuda.so and libcflux-amdgpu.so lie in STANDIN_FOLDER of the build tree and are found
 * when FX_PLUGIN_PATH names it (standin_path). STANDIN_ASYNC=1 in the environment when they are
 * opened gives each device a thread that runs its steps after `run` has returned. STANDIN_BUFFERS=N
 * gives each device kernels of N buffers at most: a step of more fails.
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
    STANDIN_COPY, /* counted at the device that is copied to */
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

/* What the table's proc("standin") gives. Devices by their id. */
typedef struct standin {
    /* Of the calls in the mask `which`, those from the n-th on (0: the next one) fail, `times` of
     * them; times 0: none. */
    void (*refuse)(int device, unsigned which, int64_t n, int64_t times);
    /* The device is lost at its n-th call from now (0: the next one; releases are not counted): it
     * and all later ones fail.
     * −1: it is not; a device that was lost is there again, as none of a real machine would be. */
    void (*lose)(int device, int64_t n);
    /* Did a call fail as it was told to, since the last `refuse` or `lose`? */
    bool (*failed)(int device);
    /* Its memory from now on, in bytes; 0: as much as at first. */
    void (*capacity)(int device, int64_t bytes);
    /* Bytes of work space of each step that is prepared from now on, besides what its kernel needs;
     * 100 at first. */
    void (*work)(int device, int64_t bytes);
    /* Calls that were made and bytes that they were about, since the beginning. */
    int64_t (*calls)(int device, standin_call call);
    int64_t (*bytes)(int device, standin_call call);
    /* Do its devices run collective steps from now on, on their own memory? */
    void (*collectives)(bool taken);
    /* Allocations that live. */
    int64_t (*blocks)(int device);
    /* From now on `prepare` takes no step of the classes in the mask `classes` (1 << FX_CLASS_ROW).
     */
    void (*lacks)(int device, unsigned classes);
    /* The precision of the product that was prepared last, -1 before the first. */
    int (*precision)(int device);
} standin;

/* To be called before the first fx_use. */
static inline void standin_path(void)
{
    setenv("FX_PLUGIN_PATH", STANDIN_FOLDER, 1);
}

/* NULL: the device is none of a stand-in. */
static inline const standin *standin_of(const fx_device *device)
{
    return device->backend->proc ? device->backend->proc("standin") : NULL;
}

#endif
