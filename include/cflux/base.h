/* cflux/base.h: status codes, errors, messages, counters, random seeds, CPU threads.
 *
 * A function that makes an object never returns NULL. If it fails, it returns an error object of
 * the same type, or an error array if the type is not known (fx_load, fx_setup). Functions that
 * receive an error object return an error object too, without a second report. Functions that act
 * (evaluate, update, copy, save) return an fx_status and leave their arguments unchanged if they
 * fail, except fx_train and fx_load_into (see there), and updates on a GPU with an index out of
 * range (ops.h). Each thread keeps a record of its first failure until fx_error_take or
 * fx_error_print removes it. The library never exits or aborts. */
#ifndef CFLUX_BASE_H
#define CFLUX_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Version of these headers. fx_version returns the version of the library that is linked. */
#define FX_VERSION_MAJOR  0
#define FX_VERSION_MINOR  2
#define FX_VERSION_PATCH  0
#define FX_VERSION_STRING "0.2.0"

#if defined(_MSC_VER) && !defined(CFLUX_STATIC)
#define FX_API __declspec(dllimport)
#elif defined(_WIN32) && defined(FXI_BUILD)
#define FX_API __declspec(dllexport)
#elif defined(_WIN32) /* MinGW's linker finds functions and data of a DLL by itself */
#define FX_API
#else
#define FX_API __attribute__((visibility("default")))
#endif
#if defined(__MINGW32__) && !defined(__clang__) /* the formats of C99, as on other systems */
#define FXI_PRINTF(fmt, arg) __attribute__((format(gnu_printf, fmt, arg)))
#elif defined(__GNUC__) || defined(__clang__)
#define FXI_PRINTF(fmt, arg) __attribute__((format(printf, fmt, arg)))
#else
#error "cflux needs gcc, clang or clang-cl: scopes use the cleanup attribute"
#endif

#define FXI_CAT_(a, b) a##b
#define FXI_CAT(a, b)  FXI_CAT_(a, b)

/* Maximum number of axes of an array. */
#define FX_MAX_DIMS 8

/* ---- C and C++ ------------------------------------------------------------------------------- */
/* A C++ program includes <cflux.h>, which also includes <cflux/cflux.hpp>. There, functions and
 * overloads replace the call macros of the other headers (fx_add, fx_dense, …). If a C++ program
 * includes only one of the other headers, it gets the types and functions, but the call macros do
 * not compile. This section contains the code that differs between C and C++. */
#ifdef __cplusplus
#define FXI_BEGIN_C  extern "C" {
#define FXI_END_C    }
#define FXI_CXX(...) __VA_ARGS__
#define FXI_NULL     nullptr
/* A conversion without C's cast, about which clang's -Wold-style-cast warns in programs. */
#define FXI_TO(type, x)    static_cast<type>(x)
#define FXI_NO_CONST(T, x) const_cast<T *>(static_cast<const T *>(x))
/* In C++ an option struct has no size member; cflux.hpp adds it when it calls the library. */
#define FXI_MEMBER(type, name, value)                                                              \
    alignas(8) type name = value;                                                                  \
    auto with_##name(type v)->decltype(*this)                                                      \
    {                                                                                              \
        name = v;                                                                                  \
        return *this;                                                                              \
    }
#define FXI_OPTION_STRUCT(T, MEMBERS)                                                              \
    struct T {                                                                                     \
        MEMBERS(FXI_MEMBER)                                                                        \
    }
#define FXI_HERE ((void)0)
#else
#define FXI_BEGIN_C
#define FXI_END_C
#define FXI_CXX(...)
#define FXI_NULL                      NULL
#define FXI_TO(type, x)               ((type)(x))
#define FXI_NO_CONST(T, x)            ((T *)(uintptr_t)(x))
#define FXI_MEMBER(type, name, value) _Alignas(8) type name;
#define FXI_OPTION_STRUCT(T, MEMBERS)                                                              \
    typedef struct T {                                                                             \
        size_t fxi_size;                                                                           \
        MEMBERS(FXI_MEMBER)                                                                        \
    } T
#ifdef FXI_INSIDE
#define FXI_HERE ((void)0)
#else
/* Location ("file:line") of the cflux macro that the thread used most recently. The messages about
 * loops without a scope and, with FX_HANDLES=1, about freed objects name it. Only macros in C
 * programs set it. */
#ifdef _WIN32 /* a program cannot use a thread-local variable of a DLL */
FX_API const char **fxi_call_site_of_thread(void);
#define fxi_call_site (*fxi_call_site_of_thread())
#else
extern FX_API _Thread_local const char *fxi_call_site;
#endif
#define FXI_TEXT_(x) #x
#define FXI_TEXT(x)  FXI_TEXT_(x)
#define FXI_HERE     fxi_pass(__FILE__ ":" FXI_TEXT(__LINE__))
static inline void fxi_pass(const char *location)
{
    fxi_call_site = location;
}
#endif
#endif

/* ---- named options: fx_dense(10, 5, .bias = false) ------------------------------------------- */
/* A function with options takes a pointer to a struct whose first member is the struct's size. A
 * macro FXI_NAME_ARGS(F) lists the other members with their defaults: F(type, name, default). This
 * list generates the struct and its default values: the C macro writes them before the caller's
 * values (so 0 is an ordinary value), the library adds them for a program compiled with an older
 * and shorter struct, and in C++ they are default member initialisers. Members are aligned to 8
 * bytes, so that a new member never occupies the padding of an older struct.
 *
 * The first argument of a macro has no name, because the macro writes the name of its member before
 * it: fx_dropout(0.5), not fx_dropout(.p = 0.5).
 *
 * In C++20: fx_dense({.in = 10, .out = 5, .bias = false}). In C++11 to C++17:
 * fx_dense(fx_dense_args().with_in(10).with_out(5).with_bias(false)). */
#define FXI_DEFAULT(type, name, value) .name = value,
/* Makes a call with options. The pragmas allow a value to replace a default. They also make two
 * mistakes compile errors, whatever the compiler's settings: a number where a struct is expected
 * (.dims = 3 instead of FX_AXES(3)), and a pointer where a number is expected (.bias = array
 * instead of .bias_array). */
#define FXI_CALL(...)                                                                              \
    __extension__({                                                                                \
        FXI_HERE;                                                                                  \
        _Pragma("GCC diagnostic push");                                                            \
        _Pragma("GCC diagnostic ignored \"-Woverride-init\"");                                     \
        _Pragma("GCC diagnostic error \"-Wmissing-braces\"");                                      \
        _Pragma("GCC diagnostic error \"-Wint-conversion\"");                                      \
        __VA_ARGS__;                                                                               \
        _Pragma("GCC diagnostic pop")                                                              \
    })
#define FXI_OPTIONS(T, ...) (&(const T){.fxi_size = sizeof(T), __VA_ARGS__})

FXI_BEGIN_C

/* Result of a call. The message of the error record (fx_error) has the details. */
typedef enum fx_status {
    FX_OK = 0,          /* success */
    FX_STATUS_MEMORY,   /* an allocation failed, on the host or a device */
    FX_STATUS_SHAPE,    /* sizes do not fit; the message names them */
    FX_STATUS_DTYPE,    /* the operation does not support this element type */
    FX_STATUS_DEVICE,   /* arrays on different devices; a device that does not exist or failed */
    FX_STATUS_ARGUMENT, /* an argument out of range or of the wrong type */
    FX_STATUS_STATE,    /* the value is gone (freed, or its parameter was rebound), or is pending in
                           another thread; or the call is not allowed now (fx_allowscalar) */
    FX_STATUS_IO,       /* a read or write failed, or another process of a group did not answer */
    FX_STATUS_FORMAT,   /* a damaged file, a file of another format, or a text with an error */
    FX_STATUS_NONFINITE,   /* a loss or a gradient is NaN or Inf */
    FX_STATUS_UNSUPPORTED, /* the backend, the plugin or the file format cannot do this */
    FX_STATUS_INTERNAL     /* a bug in cflux: please report it; on a check: device, an invalid
                              memory access (device.h) */
} fx_status;

/* Name of a status, e.g. "FX_STATUS_SHAPE"; "FX_STATUS_?" if unknown. Static storage: do not
 * free. */
FX_API const char *fx_status_name(fx_status status);

/* One failure. `op` is the operation that failed, `message` the text "op: reason". `file`:`line` is
 * where the program opened its innermost scope; NULL and 0 outside of all scopes. */
typedef struct fx_error {
    fx_status status;
    char op[40];
    char message[472];
    const char *file;
    int line;
} fx_error;

/* Returns the calling thread's error record and clears it; status FX_OK if there is none. */
FX_API fx_error fx_error_take(void);

/* Returns the status of the calling thread's error record, FX_OK if there is none. Keeps the
 * record. */
FX_API fx_status fx_error_status(void);

/* Prints the calling thread's error record to `out` as one line and clears it. Returns 1, or 0 if
 * there was no record: `return fx_error_print(stderr);` is a suitable end of main. */
FX_API int fx_error_print(FILE *out);

/* Reports a failure with the message "op: formatted text" and returns `status`. The text becomes
 * the thread's error record, unless the thread has one already. The error hook is called in both
 * cases. A message that does not fit in fx_error is cut off. `status` must not be FX_OK. For code
 * that extends cflux (custom operations, layers, bindings). */
FX_API fx_status fx_fail(fx_status status, const char *op, const char *format, ...)
    FXI_PRINTF(3, 4);

/* fx_error_set_hook sets a function that is called for every failure, e.g. to set a breakpoint. It
 * is called in the thread of the program whose call of cflux fails, or in a worker of a loader
 * (data.h), and in several threads at the same time. Other threads of the library, which compute,
 * compile or exchange gradients, never call it: if they fail, the thread that waits for them
 * reports it. The function may call cflux, but must return: a thread whose evaluation it leaves by
 * longjmp or an exception can no longer evaluate. A language binding raises its exception after the
 * call that failed, from fx_error_take. NULL removes the function (default: none). `user` is passed
 * on to it. */
typedef void (*fx_error_fn)(const fx_error *error, void *user);
FX_API void fx_error_set_hook(fx_error_fn hook, void *user);

/* fx_message_set_hook sets the function that receives messages that are not errors (warnings,
 * "running on the CPU"). `level`: 0 info, 1 warning. Default: print "[ Info: text" or "[ Warning:
 * text" to stderr. NULL discards all messages. `user` is passed on to the function. It is called in
 * the same threads as an error hook, except warnings about files of the cache of compiled kernels,
 * which may come from a thread that compiles. It may call cflux, but must return. Messages that it
 * causes in its own thread are printed to stderr as by default, because the function would
 * otherwise call itself without end. If the message comes from an evaluation, the function cannot
 * evaluate arrays: FX_STATUS_STATE. */
typedef void (*fx_message_fn)(int level, const char *text, void *user);
FX_API void fx_message_set_hook(fx_message_fn hook, void *user);

/* Sends a message (printf format, at most 1023 bytes) to the message hook. */
FX_API void fx_message(int level, const char *format, ...) FXI_PRINTF(2, 3);

/* Counters of the whole process since its start, for tests and tuning. To measure a piece of code,
 * subtract two readings. */
typedef struct fx_counters {
    uint64_t nodes;           /* graph nodes created */
    uint64_t plans_built;     /* plans built because no cached plan matched the graph */
    uint64_t plan_hits;       /* evaluations that used a cached plan */
    uint64_t plans_evicted;   /* plans removed to keep the cache within its limits */
    uint64_t steps_run;       /* steps (kernel calls) run, all backends */
    uint64_t fused_steps;     /* of those: steps that compute several nodes */
    uint64_t bytes_moved;     /* bytes read and written by these steps; each operand counts once */
    uint64_t bytes_saved;     /* bytes that one step per node would have read and written, minus
                                 bytes_moved */
    uint64_t allocations;     /* host memory blocks requested from the system's malloc */
    uint64_t evals;           /* plans run */
    uint64_t implicit_evals;  /* of those: started because pending results took too much memory,
                                 without a read or an update */
    uint64_t donations;       /* results written into the buffer of the value that they replace */
    uint64_t donation_misses; /* updated values that needed a new buffer; FX_TRACE=donation prints
                                 the reason for each */
    uint64_t transfers;       /* arrays copied from one device to another */
    uint64_t bytes_transferred; /* bytes of these arrays */
    uint64_t repeated_evals;    /* of `evals`: repeated from a recorded training step (FX_RECORD) */
    /* Recordings of plans on CUDA and AMDGPU devices (graphs): made, replayed with one call instead
     * of one for each kernel, and freed because their addresses had become invalid. */
    uint64_t graphs_captured, graphs_replayed, graphs_invalidated;
    int64_t live_bytes; /* bytes of array memory in use, all devices */
    int64_t peak_bytes; /* maximum of live_bytes so far */
} fx_counters;
/* Returns the counters. Other threads may change them at any time; each counter is read
 * atomically. */
FX_API fx_counters fx_stats(void);

/* Restarts the calling thread's random stream with `seed`. With the same seed, a program computes
 * the same bits each time that it runs on the same machine. On a GPU, set FX_GPU_MEASURE=0 for
 * this: otherwise the first run measures which of several kernels is the fastest. Large results of
 * fx_scatter, and large gradients of fx_gather and Embedding, can still differ on a GPU. Without
 * the oneDNN plugin the bits do not depend on the number of CPU threads either. Default: seed 0,
 * and a separate stream for each thread, numbered in the order in which they first draw numbers or
 * call fx_seed. */
FX_API void fx_seed(uint64_t seed);

/* Returns 64 random bits of the calling thread's stream, for host code that must be reproducible
 * (e.g. shuffling). */
FX_API uint64_t fx_rand_u64(void);

/* The state of a thread's random stream. The members are private. */
typedef struct fx_random_state {
    uint64_t fxi_seed, fxi_name, fxi_count;
    bool fxi_named;
} fx_random_state;
/* Returns the state of the calling thread's stream. After fx_random_set with this state, the thread
 * draws the same numbers as after fx_random_get, whatever it drew in between. Julia's
 * `copy(Random.default_rng())` and `copy!`. */
FX_API fx_random_state fx_random_get(void);
/* Restores a state that fx_random_get returned, in this thread or another one. */
FX_API void fx_random_set(fx_random_state state);

/* Sets how many threads the CPU backend uses, including the calling thread, for the whole process.
 * 1: no other threads; 0: the default, which is the environment variable FX_NUM_THREADS, otherwise
 * the number of cores that the process may use (CPU affinity and cgroup quota). Numbers above 255
 * count as 255. Without the oneDNN plugin, the results have the same bits for every n. Threads are
 * created when a step is first large enough to benefit; small steps run on the calling thread. If
 * several threads evaluate at the same time, one of them uses the other cores and the rest compute
 * alone. May be called at any time from any thread. Errors: FX_STATUS_ARGUMENT if n is negative. */
FX_API fx_status fx_set_num_threads(int n);
FX_API int fx_num_threads(void); /* the number of threads in use */

/* Sets whether the CPU backend flushes denormal numbers to zero, in operands and in results, for
 * the whole process. Denormal numbers are closer to 0 than 2⁻¹²⁶ (Float32, BFloat16) or 2⁻¹⁰²²
 * (Float64). Calculating with them takes up to a hundred times as long, which slows down deep
 * networks whose gradients vanish. Denormal Float16 numbers are kept. Only steps of the CPU backend
 * flush, on every thread that takes part: the mode of the program's own threads does not change.
 * Takes effect with the next step. Default: the environment variable FX_FLUSH_DENORMALS (1: on),
 * otherwise off. Returns whether the processor can flush (x86-64 and 64-bit ARM can); if not, the
 * call has no effect. Like torch.set_flush_denormal. May be called at any time from any thread. */
FX_API bool fx_flush_denormals(bool on);

/* Version of the linked library, e.g. "0.2.0". Static storage. */
FX_API const char *fx_version(void);

FXI_END_C
#endif
