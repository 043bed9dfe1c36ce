/* cpu_parallel.h: runs the work of a kernel on several threads. Internal.
 *
 * A kernel divides its sums by shapes and strides, never by the number of threads, and every part
 * writes its own elements: so results have the same bits for any number of threads. The caller
 * works too; each thread takes a range of neighbouring parts and then helps others. Nothing is
 * allocated but the scratch that a caller asks for. A call from within a part, or while another
 * thread uses the thread pool, runs all parts in the caller. How it works: cpu_parallel.c.
 *
 *     const int64_t parts = fxi_cpu_parts(rows, fxi_cpu_cost(bytes, flops));
 *     fxi_cpu_parallel(parts, body, &job);      body: fxi_cpu_range(rows, parts, part, &from, &to)
 */
#ifndef CFLUX_CPU_PARALLEL_H
#define CFLUX_CPU_PARALLEL_H

#include "step.h"

/* Runs body(user, part) for every part below `parts`. */
void fxi_cpu_parallel(int64_t parts, void (*body)(void *user, int64_t part), void *user);

/* Runs the parts on threads that do not sleep, for parts of fxi_cpu_parts_if_awake, which take less
 * time than waking a thread. Returns false, and runs nothing, if no other thread can take part. */
bool fxi_cpu_parallel_if_awake(int64_t parts, void (*body)(void *user, int64_t part), void *user);

/* fxi_cpu_parallel with `bytes` of memory for each thread that takes part, aligned to 64. A part
 * finds the contents that the previous part of the same thread left; the first part of each thread
 * finds zeros in the first 64 bytes. Parts themselves should not allocate: chance decides which
 * thread runs them, and a repeated step must not allocate from the system. Returns FX_OK, or
 * FX_STATUS_MEMORY before the first part ran. */
fx_status fxi_cpu_parallel_scratch(int64_t parts, size_t bytes,
                                   void (*body)(void *user, int64_t part, void *scratch),
                                   void *user);

/* The nanoseconds that one thread needs to move `bytes` through memory and to do `flops` floating
 * point operations in a good kernel. The estimate is rough, but the same on every machine, and so
 * is the division into parts. A slow kernel adds its own cost. */
static inline double fxi_cpu_cost(double bytes, double flops)
{
    static const double CACHED =
        4 << 20; /* bytes that a cache may still hold from the previous step */
    const double near = bytes < CACHED ? bytes : CACHED;
    return 0.02 * near + 0.06 * (bytes - near) + 0.01 * flops;
}

/* The number of parts for `items` pieces of work that take `cost` nanoseconds together: 1 if one
 * thread is faster, never more than the number of items. Depends on its arguments only. */
int64_t fxi_cpu_parts(int64_t items, double cost);
int64_t fxi_cpu_parts_if_awake(int64_t items, double cost); /* for fxi_cpu_parallel_if_awake */
/* For tests: sets the nanoseconds from which work is divided. 0: always, into as many parts as
 * possible. */
void fxi_cpu_parts_from(int64_t nanoseconds);
enum { FXI_PARTS_FROM = 20000 };

static inline int64_t fxi_cpu_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t fxi_cpu_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* ⌈a / b⌉ for b > 0; 0 if a is negative. */
static inline int64_t fxi_cpu_divide_up(int64_t a, int64_t b)
{
    return a <= 0 ? 0 : (a + b - 1) / b;
}

static inline int64_t fxi_cpu_round_up(int64_t a, int64_t b)
{
    return fxi_cpu_divide_up(a, b) * b;
}

/* The items of a part: [*from, *to). Parts differ by one item at most, and the longer ones are
 * spread evenly: any number of neighbouring parts has about its share of the items, and so has each
 * thread (14 items in 4 parts: 3 + 4 and 3 + 4). */
static inline void fxi_cpu_range(int64_t items, int64_t parts, int64_t part, int64_t *from,
                                 int64_t *to)
{
    const int64_t each = items / parts, more = items % parts;
    *from = part * each + part * more / parts;
    *to = (part + 1) * each + (part + 1) * more / parts;
}

#endif
