/* sim.h: a simulated driver: libraries with the functions of NVIDIA's or AMD's driver that the
 * plugins use, and of NVRTC or hipRTC (src/backends/gpurt/gpurt_api.h). The plugins are not
 * changed for it. The host's C++ compiler compiles the unchanged text of a kernel after sim_shim.h,
 * and the CPU runs it. docs/design/0047 describes what the simulator checks.
 *
 * Environment:
 *   SIM_DEVICES=3         number of devices
 *   SIM_ARCHITECTURE=90   of all devices: 75, gfx90a, …
 *   SIM_MEMORY=1024       MiB of a device
 *   SIM_VERSION=13000     the driver's version
 *   SIM_ITEMS=1024        work-items of a group, at most, because kernels need so many registers;
 *                         also at most what a kernel's text declares
 *   SIM_DEFER=1           queued work runs only when something waits for it, and the streams
 *                         proceed in any order that events allow
 *   SIM_NOTHING=1         kernels, graphs and calls of libraries compute nothing: the time that is
 *                         left is the host's
 *   SIM_SLOW=1            cuDNN's calls take 20 ms on the simulated clock, and those of cuBLASLt 40
 *                         for 16-bit matrices with odd leading dimensions
 *   SIM_SLOW_KERNEL=x:10  a launch of the kernel x takes 10 ms on the simulated clock
 *   SIM_CHANNELS_FIRST=1  cuDNN's calls with channels first take 10 ms on the simulated clock
 *   SIM_SEED=1            seed of the random choices wherever the driver promises no order
 *   SIM_FAIL=name@3=2,…   the third call of a function fails with error 2; "=719!": with error 719,
 *                         and the device is lost from then on
 *   SIM_CACHE=folder      where compiled kernels are kept, named by their content
 *   SIM_COLLECT=1         kernels that the folder lacks compute nothing, and are compiled together
 *                         when the process ends, in a fifth of the time
 *   SIM_OPTIMIZE=1        level of the compiler's optimisation: 0 for kernels that run a few times
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
    SIM_ASKED_MOST = 227 << 10, /* sm_90, if a launch asks for them */
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
    SIM_NOT_READY = 600,
    SIM_ILLEGAL_ADDRESS = 700,
    SIM_PEER_ALREADY = 704,
    SIM_LAUNCH_FAILED = 719
};

typedef struct sim_device sim_device;
typedef struct sim_graph sim_graph;
typedef struct sim_capture sim_capture;
typedef struct sim_stream sim_stream;

/* ---- memory (sim_memory.c) ------------------------------------------------------------------- */

typedef struct sim_block {
    struct sim_block *next;  /* by address */
    size_t at, bytes, whole; /* bytes: as requested; whole: with the gap after the block */
} sim_block;

struct sim_device {
    int id;
    int error; /* every later call fails with this error; 0: the device works */
    /* One file, mapped twice: `addresses` are the device's addresses, which cannot be accessed
     * except while its kernels run; at `bytes` the simulator itself reads and writes the same
     * memory. */
    char *addresses, *bytes;
    size_t capacity, used, next, high;
    sim_block *blocks;
};

bool sim_memory_open(sim_device *d, size_t capacity);
int sim_memory_alloc(sim_device *d, size_t bytes, void **out);
int sim_memory_free(sim_device *d, const void *address);
/* Are these bytes within one allocation? */
bool sim_memory_has(const sim_device *d, const void *address, size_t bytes);
/* The simulator's own address of these bytes; NULL, after a printed message, if they are not memory
 * of the device. */
char *sim_memory_at(sim_device *d, const void *address, size_t bytes, const char *what);
/* Permits (true) or forbids access to the device's addresses. */
void sim_memory_show(sim_device *d, bool shown);
bool sim_pinned_alloc(size_t bytes, void **out);
bool sim_pinned_free(const void *address);
bool sim_is_pinned(const void *address);
int sim_pinned_count(void);

/* ---- kernels (sim_module.c) ------------------------------------------------------------------ */

typedef struct sim_kernel {
    const char *name;
    const int *sizes; /* bytes of each argument, ending with 0; negative: a pointer */
    void (*entry)(void *const *arguments); /* NULL: computes nothing */
    char *shared;                          /* the group's memory */
    size_t shared_bytes;
    unsigned *positions; /* four triples: position of the work-item, of the group, work-items of a
                            group, groups */
    const struct sim_calls **calls;
    sim_device *device;
    int warp;
    unsigned asked_most;     /* bytes that a launch may ask for, besides the usual ones */
    unsigned group_most;     /* work-items of a group that the text declares */
    struct sim_kernel *next; /* of the module's kernels */
} sim_kernel;

typedef struct sim_launch {
    const sim_kernel *kernel;
    unsigned groups[3], items[3];
    void *arguments[128];
    char bytes[SIM_ARGUMENTS_MOST];
} sim_launch;

typedef struct sim_module {
    void *library; /* NULL: the text was collected, and its kernels compute nothing */
    sim_device *device;
    char id[20];         /* of the text: part of its symbols' names */
    sim_kernel *kernels; /* that the driver gave out; Metal's belong to its objects */
} sim_module;

/* Work-items of a group of the kernel, at most. */
unsigned sim_kernel_items(const sim_kernel *k);
int sim_module_load(sim_device *d, const char *image, sim_module **out);
/* Makes a kernel; the caller frees it and its name. */
int sim_module_function(const sim_module *m, const char *name, sim_kernel **out);

/* ---- running (sim_run.c) --------------------------------------------------------------------- */

/* Functions that kernels call (sim_shim.h has the same struct). */
typedef struct sim_calls {
    void (*barrier)(void);
    /* Exchanges values within a warp: `value` is replaced by the value of the work-item number
     * `lane`. */
    void (*exchange)(void *value, int bytes, int lane);
    const void *(*share)(const void *value, int bytes);
} sim_calls;

/* Runs a launch to its end. The caller has permitted access to the device's addresses. Returns 0,
 * or the error that the device has from then on. */
int sim_run(sim_launch *l);
unsigned sim_random(unsigned below);
/* Prints a message about a mistake in the host's code or in a kernel. */
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
    SIM_CALL,
    SIM_GRAPH
} sim_kind;

/* A call of a simulated library, allocated by that library. While it runs, at[k] is the simulator's
 * address of uses[k]. */
enum { SIM_USES = 5 };
typedef struct sim_call {
    const char *name;
    void (*run)(struct sim_call *c);
    struct {
        const void *address; /* NULL: none */
        size_t bytes;
    } uses[SIM_USES];
    char *at[SIM_USES];
    double milliseconds; /* as in sim_op */
} sim_call;

/* A point in a stream at which an event was recorded. */
typedef struct sim_point {
    sim_stream *stream;
    int users;
    bool reached;
    double milliseconds; /* the simulated clock when it was reached */
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
    sim_graph *graph;
    double milliseconds; /* on the simulated clock, in addition to WORK_TIME */
    char *copy;          /* copy of the source, if that is pageable memory */
    size_t skipped;      /* bytes of it that earlier parts have read */
} sim_op;

/* Nodes of a capture (sim_graph.c) after which the next one comes. */
enum { SIM_TAILS = 32 };
typedef struct sim_tails {
    int n, nodes[SIM_TAILS];
} sim_tails;

struct sim_stream {
    struct sim_stream *next;
    sim_device *device;
    sim_op *first, **last;
    int capture; /* the number of the capture that it belongs to; 0: none */
    sim_tails tails;
};

typedef struct sim_event {
    bool timed; /* created for measuring times */
    sim_device *device;
    sim_point *point;
    int capture; /* the capture in which it was recorded last; 0: none */
    sim_tails tails;
} sim_event;

/* The caller holds the simulator's lock. */
sim_stream *sim_stream_new(sim_device *d);
/* Adds work to a stream; takes over what *op points to. */
int sim_queue(sim_stream *s, const sim_op *op);
int sim_drain(sim_stream *s);
/* Does one piece of the stream's work. SIM_NOT_READY if work remains, SIM_OK if none does, else the
 * error of the device. */
int sim_poll(sim_stream *s);
void sim_point_release(sim_point *p);
int sim_event_wait(sim_event *e);
/* Runs one piece of work; returns an error that stays. */
int sim_run_op(sim_op *o);
bool sim_op_uses(const sim_op *o, const sim_device *d, const char *address, size_t bytes);
/* Ends the capture of all streams that belong to it. */
void sim_streams_uncaptured(int capture);
/* Does queued work use these bytes? */
bool sim_is_used(const sim_device *d, const char *address, size_t bytes);

/* The simulated libraries find the following functions in the driver's library (sim_driver.c). */
/* The number of the calling thread's device; −1: none. */
int sim_current_device(void);
/* Queues a call for the calling thread's device, and takes the call over. */
int sim_queue_call(void *stream, sim_call *call);
/* Queues first[k] in streams[k], for the device of that stream, and then second[k], which runs
 * after all of the first calls. Takes the calls over. */
int sim_queue_group(int n, void *const *streams, sim_call *const *first, sim_call *const *second);
/* 1: the stream is captured. */
int sim_is_capturing(const void *stream);

/* ---- beginning and ending a call (sim_driver.c) ---------------------------------------------- */

/* Takes the lock. Returns the error with which the call fails at once. */
int sim_begin(const char *function, bool needs_device);
/* Releases the lock and returns the error. */
int sim_end(int error);
/* The calling thread's device; NULL: none. */
sim_device *sim_current(void);
/* Selects another device, or none, for the thread after a launch, as another library in the process
 * might do. The plugins must therefore select their device at the beginning of every call. */
void sim_select_another(void);

/* ---- captures and graphs (sim_graph.c) ------------------------------------------------------- */

/* The following functions return the error of a call that a capture forbids, and the capture then
 * fails too; 0: the call is allowed. They look for a capture of this thread, of the stream, or of
 * the event. */
int sim_capture_forbids(const char *function);
int sim_capture_stream(const sim_stream *s, const char *function);
int sim_capture_event(const sim_event *e, const char *function);
/* Capture work of a captured stream, a record of an event there, and a wait for an event that was
 * recorded in a capture. */
int sim_capture_op(sim_stream *s, const sim_op *op);
int sim_capture_record(sim_stream *s, sim_event *e);
int sim_capture_wait(sim_stream *s, const sim_event *e);
int sim_graph_run(sim_graph *g);
/* A graph that was queued has run. */
void sim_graph_ran(sim_graph *g);
bool sim_graph_uses(const sim_graph *g, const sim_device *d, const char *address, size_t bytes);
int sim_graphs_live(void);

/* ---- scripts (sim_script.c) ------------------------------------------------------------------ */

/* The error with which this call of a function is to fail; 0: none. */
int sim_script(const char *function, bool *out_lost);
int64_t sim_setting(const char *name, int64_t usual);
/* Is SIM_NOTHING set? */
bool sim_computes_nothing(void);

#endif
