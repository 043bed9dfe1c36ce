/* sim.h: a simulated driver: libraries with the functions of NVIDIA's or AMD's driver that the
 * plugins use, and of NVRTC or hipRTC (src/backends/gpurt/gpurt_api.h). The plugins do not know of
 * it. Kernels are compiled, as they are delivered, by the host's C++ compiler behind sim_shim.h,
 * and computed on the CPU. docs/design/0047 describes what it checks.
 *
 * Environment:
 *   SIM_DEVICES=3         number of devices
 *   SIM_ARCHITECTURE=90   of all devices: 75, gfx90a, …
 *   SIM_MEMORY=1024       MiB of a device
 *   SIM_VERSION=13000     the driver's version
 *   SIM_DEFER=1           queued work runs only when something waits for it
 *   SIM_SEED=1            of every order that is not determined
 *   SIM_FAIL=name@3=2,…   the third call of a function fails with error 2; "=719!": and the device
 *                         is lost from then on
 *   SIM_CACHE=folder      compiled kernels, by content
 */
#ifndef SIM_H
#define SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SIM_DEVICES_MOST = 8,
    SIM_GROUP_MOST = 1024,
    SIM_SHARED_MOST = 48 << 10,
    SIM_ARGUMENTS_MOST = 4096
};
enum {
    SIM_OK = 0,
    SIM_INVALID_VALUE = 1,
    SIM_OUT_OF_MEMORY = 2,
    SIM_NOT_INITIALIZED = 3,
    SIM_NO_DEVICE = 100,
    SIM_INVALID_DEVICE = 101,
    SIM_INVALID_IMAGE = 200,
    SIM_INVALID_CONTEXT = 201,
    SIM_NO_BINARY = 209,
    SIM_UNSUPPORTED_PTX = 222,
    SIM_INVALID_HANDLE = 400,
    SIM_NOT_FOUND = 500,
    SIM_ILLEGAL_ADDRESS = 700,
    SIM_PEER_ALREADY = 704,
    SIM_LAUNCH_FAILED = 719
};

typedef struct sim_device sim_device;
typedef struct sim_stream sim_stream;

/* ---- memory (sim_memory.c) ------------------------------------------------------------------- */

typedef struct sim_block {
    struct sim_block *next;  /* by address */
    size_t at, bytes, whole; /* whole: with the gap behind it */
} sim_block;

struct sim_device {
    int id;
    int error; /* sticky: every later call fails with it; 0: the device works */
    /* One file, mapped twice: device addresses, which nothing may touch unless the device's kernels
     * run, and where the simulator itself reads and writes the same bytes. */
    char *addresses, *bytes;
    size_t capacity, used, next, high;
    sim_block *blocks;
};

bool sim_memory_open(sim_device *d, size_t capacity);
int sim_memory_alloc(sim_device *d, size_t bytes, void **out);
int sim_memory_free(sim_device *d, const void *address);
/* Are these bytes within one allocation? */
bool sim_memory_has(const sim_device *d, const void *address, size_t bytes);
/* Where the simulator finds them; NULL with a sentence if they are not the device's. */
char *sim_memory_at(sim_device *d, const void *address, size_t bytes, const char *what);
/* May the device's addresses be used? */
void sim_memory_show(sim_device *d, bool shown);
bool sim_pinned_alloc(size_t bytes, void **out);
bool sim_pinned_free(const void *address);
bool sim_is_pinned(const void *address);
int sim_pinned_count(void);

/* ---- kernels (sim_module.c) ------------------------------------------------------------------ */

typedef struct sim_kernel {
    const char *name;
    const int *sizes; /* of the arguments, ends with 0; negative: a pointer */
    void (*entry)(void *const *arguments);
    char *shared; /* the group's memory */
    size_t shared_bytes;
    unsigned *positions; /* of the item, of the group, items of a group, groups: 3 numbers each */
    const struct sim_calls **calls;
    sim_device *device;
    int warp;
} sim_kernel;

typedef struct sim_launch {
    const sim_kernel *kernel;
    unsigned groups[3], items[3];
    void *arguments[128];
    char bytes[SIM_ARGUMENTS_MOST];
} sim_launch;

typedef struct sim_module {
    void *library;
    sim_device *device;
} sim_module;
int sim_module_load(sim_device *d, const char *image, sim_module **out);
int sim_module_function(const sim_module *m, const char *name, sim_kernel **out);

/* ---- running (sim_run.c) --------------------------------------------------------------------- */

/* Functions that kernels call (sim_shim.h has the same struct). */
typedef struct sim_calls {
    void (*barrier)(void);
    /* Gives `value` to the warp and returns, in it, that of another work-item's. */
    void (*exchange)(void *value, int bytes, int lane);
    const void *(*share)(const void *value, int bytes);
} sim_calls;

/* Runs a launch to its end; returns an error that stays. The device's addresses are shown. */
int sim_run(sim_launch *l);
unsigned sim_random(unsigned below);
/* Prints a sentence about a mistake in the host's code or in a kernel. */
void sim_say(const char *form, ...) __attribute__((format(printf, 1, 2)));

/* ---- work (sim_queue.c) ---------------------------------------------------------------------- */

typedef enum sim_kind {
    SIM_COPY,
    SIM_WRITE,
    SIM_READ,
    SIM_FILL,
    SIM_LAUNCH,
    SIM_RECORD,
    SIM_WAIT,
    SIM_CALL
} sim_kind;

/* A call of a simulated library, which allocates it. When it runs, `at` are the places of the bytes
 * that it uses. */
enum { SIM_USES = 5 };
typedef struct sim_call {
    const char *name;
    void (*run)(struct sim_call *c);
    struct {
        const void *address; /* NULL: none */
        size_t bytes;
    } uses[SIM_USES];
    char *at[SIM_USES];
} sim_call;

/* A point in a stream that an event was recorded at. */
typedef struct sim_point {
    sim_stream *stream;
    int users;
    bool reached;
} sim_point;

typedef struct sim_op {
    struct sim_op *next;
    sim_kind kind;
    sim_device *to_device, *from_device;
    void *to;
    const void *from;
    size_t bytes;
    unsigned char value;
    sim_point *point;
    sim_launch *launch;
    sim_call *call;
    char *copy; /* of pageable memory */
} sim_op;

struct sim_stream {
    struct sim_stream *next;
    sim_device *device;
    sim_op *first, **last;
};

typedef struct sim_event {
    sim_device *device;
    sim_point *point;
} sim_event;

/* The caller holds the simulator's lock. */
sim_stream *sim_stream_new(sim_device *d);
/* Takes *op over. */
int sim_queue(sim_stream *s, const sim_op *op);
int sim_drain(sim_stream *s);
void sim_point_release(sim_point *p);
int sim_event_wait(sim_event *e);
/* Does queued work use these bytes? */
bool sim_is_used(const sim_device *d, const char *address, size_t bytes);

/* For simulated libraries, which find them in the driver's library (sim_driver.c): the number of
 * the calling thread's device, −1 if it has none; queues a call, which must be of that device, and
 * takes it over. */
int sim_current_device(void);
int sim_queue_call(void *stream, sim_call *call);

/* ---- scripts (sim_script.c) ------------------------------------------------------------------ */

/* The error with which this call of a function is to fail; 0: none. */
int sim_script(const char *function, bool *out_lost);
int64_t sim_setting(const char *name, int64_t usual);

#endif
