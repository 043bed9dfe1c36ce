/* cflux/base.h: status codes, error records, the log hook, counters, threads, reproducibility.
 *
 * Errors poison values, not the program. A function that builds something never returns NULL and
 * never exits: on failure it returns an error object that flows through later calls untouched, and
 * the first failure of the thread is kept as a record until somebody takes it. Functions with an
 * effect (eval, update, copy, train) return an fx_status and leave their arguments alone on
 * failure.
 */
#ifndef CFLUX_BASE_H
#define CFLUX_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The version that a program is compiled with; fx_version says which one it runs with. */
#define FX_VERSION_MAJOR  0
#define FX_VERSION_MINOR  2
#define FX_VERSION_PATCH  0
#define FX_VERSION_STRING "0.2.0"

#if defined(__GNUC__) || defined(__clang__)
#define FX_API               __attribute__((visibility("default")))
#define FXI_PRINTF(fmt, arg) __attribute__((format(printf, fmt, arg)))
#else
#error "cflux needs gcc or clang: scopes use the cleanup attribute"
#endif

#define FXI_CAT_(a, b) a##b
#define FXI_CAT(a, b)  FXI_CAT_(a, b)

/* The largest number of dimensions of an array. */
#define FX_MAX_DIMS 8

/* ---- C and C++ ------------------------------------------------------------------------------- */
/* A C++ program includes <cflux.h>, which also includes <cflux/cflux.hpp>. There the macros of the
 * other headers that are calls (fx_add, fx_dense, …) are undefined again, and functions take their
 * place. A header that a C++ program includes alone declares types and the functions that are no
 * macros. What a compiler of C++ must see in these headers themselves is in this section, and
 * nowhere else. */
#ifdef __cplusplus
#define FXI_BEGIN_C  extern "C" {
#define FXI_END_C    }
#define FXI_CXX(...) __VA_ARGS__
#define FXI_NULL     nullptr
/* An option struct has no size in C++: cflux.hpp puts it in front when it calls the library. */
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
#define FXI_MEMBER(type, name, value) _Alignas(8) type name;
#define FXI_OPTION_STRUCT(T, MEMBERS)                                                              \
    typedef struct T {                                                                             \
        size_t fxi_size;                                                                           \
        MEMBERS(FXI_MEMBER)                                                                        \
    } T
#ifdef FXI_INSIDE
#define FXI_HERE ((void)0)
#else
/* The place of the last cflux macro that the thread has passed, "file:line": messages name it. Only
 * macros of C, in programs, note their place. */
extern FX_API _Thread_local const char *fxi_place;
#define FXI_TEXT_(x) #x
#define FXI_TEXT(x)  FXI_TEXT_(x)
#define FXI_HERE     fxi_pass(__FILE__ ":" FXI_TEXT(__LINE__))
static inline void fxi_pass(const char *place)
{
    fxi_place = place;
}
#endif
#endif

/* ---- named options: fx_dense(10, 5, .bias = false) ------------------------------------------- */
/* A function with options takes a struct whose first member is the struct's size. The members are
 * listed once, with their defaults, in a macro that takes F(type, name, default). From that list
 * come the struct, the defaults that the C macro of the function writes before the caller's own
 * values (zero is therefore a value like any other), the defaults that the library fills in for a
 * program compiled with an older, shorter struct, and the default member initialisers of C++.
 * Members are aligned to 8 bytes, so that a new member never lies in the padding of an older
 * struct.
 *
 * In C++ the same struct has the defaults already: fx_dense({.in = 10, .out = 5, .bias = false})
 * with C++20, fx_dense(fx_dense_args().with_in(10).with_out(5).with_bias(false)) with C++11 to
 * C++17. */
#define FXI_DEFAULT(type, name, value) .name = value,
/* A call with options. Within it a default may be overwritten, and two mistakes are errors whatever
 * the compiler's options are: a bare number where a struct is expected (.dims = 3 instead of
 * FX_AXES(3)) and a pointer where a number is (.bias = array instead of .bias_array). */
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

/* What became of a call. The message of the record (fx_error) says the rest. */
typedef enum fx_status {
    FX_OK = 0,           /* it worked */
    FX_STATUS_MEMORY,    /* an allocation failed, on the host or a device */
    FX_STATUS_SHAPE,     /* sizes do not fit; the message names both */
    FX_STATUS_DTYPE,     /* an element type the operation does not take */
    FX_STATUS_DEVICE,    /* arrays on different devices, or a device that is not there */
    FX_STATUS_ARGUMENT,  /* an argument out of its range, or of the wrong kind */
    FX_STATUS_STATE,     /* a value that can no longer be had: rebound parameters, other threads */
    FX_STATUS_IO,        /* the system refused a read or write */
    FX_STATUS_FORMAT,    /* a file that is not what it should be */
    FX_STATUS_NONFINITE, /* a loss of NaN or Inf */
    FX_STATUS_UNSUPPORTED, /* the backend does not have it */
    FX_STATUS_INTERNAL     /* a defect of cflux: please report */
} fx_status;

/* The name of a status as in the source, "FX_STATUS_SHAPE". Static storage. */
FX_API const char *fx_status_name(fx_status status);

/* One failure. `op` is the operation that failed first, `message` the whole sentence (it begins
 * with the operation), `file`:`line` where the scope was opened in which it happened (NULL at the
 * root). */
typedef struct fx_error {
    fx_status status;
    char op[40];
    char message[472];
    const char *file;
    int line;
} fx_error;

/* Returns the thread's first unacknowledged record and clears it; status FX_OK when there is none.
 */
FX_API fx_error fx_error_take(void);

/* The status of the record that fx_error_take would return; the record stays. */
FX_API fx_status fx_error_status(void);

/* Prints the record to `out` as one line and clears it. Returns 0 when there was none, else 1:
 * `return fx_error_print(stderr);` ends a program. */
FX_API int fx_error_print(FILE *out);

/* Records a failure (the first one sticks) and returns `status`: for code that builds on cflux. The
 * record's text is "op: message". */
FX_API fx_status fx_fail(fx_status status, const char *op, const char *format, ...)
    FXI_PRINTF(3, 4);

/* Called for every failure of any thread at the moment it is recorded, e.g. to set a breakpoint or
 * to raise in a binding. NULL removes it. */
typedef void (*fx_error_fn)(const fx_error *error, void *user);
FX_API void fx_error_set_hook(fx_error_fn hook, void *user);

/* Messages that are not errors (warnings, "running on the CPU"). The default prints
 * "[ Warning: text" to stderr. NULL silences. `level` is 0 info, 1 warning. */
typedef void (*fx_message_fn)(int level, const char *text, void *user);
FX_API void fx_message_set_hook(fx_message_fn hook, void *user);

/* Sends one message through the message hook. */
FX_API void fx_message(int level, const char *format, ...) FXI_PRINTF(2, 3);

/* Counters of the process since start, for tests and tuning; take the difference of two readings.
 */
typedef struct fx_counters {
    uint64_t nodes;         /* array nodes created */
    uint64_t plans_built;   /* plans made because the graph was new */
    uint64_t plan_hits;     /* evaluations that found their plan */
    uint64_t plans_evicted; /* plans dropped to stay under the cache's bounds */
    uint64_t steps_run;     /* kernels started, all backends */
    uint64_t fused_steps;   /* of those: steps that do the work of several nodes */
    uint64_t bytes_moved; /* bytes read and written by those kernels, counting each operand once */
    uint64_t bytes_saved; /* what the same graphs would have moved with a step for every node, less
                             bytes_moved */
    uint64_t allocations; /* calls of the system allocator, host and device */
    uint64_t evals;       /* runs of a plan */
    uint64_t implicit_evals;    /* of those: caused by the bound on pending nodes, not asked for */
    uint64_t donations;         /* results written into the buffer of the value they replace */
    uint64_t donation_misses;   /* values replaced by an update that needed new memory;
                                   FX_TRACE=donation says why of each */
    uint64_t transfers;         /* arrays copied from one device to another: by moves */
    uint64_t bytes_transferred; /* their bytes */
    int64_t live_bytes;         /* array memory held now */
    int64_t peak_bytes;         /* its maximum so far */
} fx_counters;
FX_API fx_counters fx_stats(void);

/* Seeds every random stream of the calling thread: with the same seed a program gives the same bits
 * on one machine, for any number of threads. Without a call the seed is 0. */
FX_API void fx_seed(uint64_t seed);

/* 64 random bits from the thread's stream, for host code that must be reproducible with it
 * (shuffles). */
FX_API uint64_t fx_rand_u64(void);

/* How many threads the CPU works with, the calling one included: from now on, for the whole
 * process. 1 uses no further thread; 0 is the default: the environment variable FX_NUM_THREADS,
 * else the cores this process may use (its affinity mask and its cgroup's quota), at most 255.
 * Results are the same bits for any number. The library starts its threads when a step is first
 * large enough to gain by them; small steps stay on the calling thread. While several threads of a
 * program evaluate at the same time one of them has the help of the others' cores, the rest work
 * alone. FX_STATUS_ARGUMENT when n is negative. May be called from any thread at any time. */
FX_API fx_status fx_set_num_threads(int n);
FX_API int fx_num_threads(void); /* how many it works with now */

/* "0.2.0", the version of the library that is linked. */
FX_API const char *fx_version(void);

FXI_END_C
#endif
