/* cpu_parallel.h: work of a kernel on several threads. Internal.
 *
 * A kernel divides its work into parts by the shapes alone, never by the number of threads, and
 * every part writes elements of its own: so results are the same bits for any number of threads.
 * The caller takes part; each thread takes a range of neighbouring parts and then helps others.
 * Nothing is allocated but the scratch that is asked for. A call from within a part, or while
 * another thread uses the pool, runs all parts in the caller. How it works: cpu_parallel.c.
 *
 *     const int64_t parts = fxi_cpu_parts(rows, fxi_cpu_cost(bytes, flops));
 *     fxi_cpu_parallel(parts, body, &job);      body: fxi_cpu_range(rows, parts, part, &from, &to)
 */
#ifndef CFLUX_CPU_PARALLEL_H
#define CFLUX_CPU_PARALLEL_H

#include "step.h"

/* Runs body(user, part) for every part below `parts`. */
void fxi_cpu_parallel(int64_t parts, void (*body)(void *user, int64_t part), void *user);

/* The same with `bytes` of memory for each thread that takes part, aligned to 64. A part finds in
 * it what the thread's part before left; the first one finds zeros in the first 64 bytes. Parts
 * themselves should take no memory: which thread runs them is chance, and a steady step must not
 * allocate. FX_STATUS_MEMORY before anything ran, or FX_OK. */
fx_status fxi_cpu_parallel_scratch(int64_t parts, size_t bytes,
                                   void (*body)(void *user, int64_t part, void *scratch),
                                   void *user);

/* Nanoseconds that one thread takes for so many bytes through memory and floating point operations
 * of a good kernel; roughly, but on every machine alike. A slow kernel states more. */
static inline double fxi_cpu_cost(double bytes, double flops)
{
    static const double CACHED = 4 << 20; /* what a cache may still hold from the step before */
    const double near = bytes < CACHED ? bytes : CACHED;
    return 0.02 * near + 0.06 * (bytes - near) + 0.01 * flops;
}

/* How many parts `items` pieces of work are worth that cost `cost` nanoseconds together: 1 where
 * threads do not pay, never more than there are items. Depends on its arguments only. */
int64_t fxi_cpu_parts(int64_t items, double cost);
/* For tests: threads pay from so many nanoseconds on; 0: always, in as many parts as may be. */
void fxi_cpu_parts_from(int64_t nanoseconds);
enum { FXI_PARTS_FROM = 20000 };

/* The items of a part: [*from, *to). */
static inline void fxi_cpu_range(int64_t items, int64_t parts, int64_t part, int64_t *from,
                                 int64_t *to)
{
    const int64_t each = items / parts, more = items % parts;
    *from = part * each + (part < more ? part : more);
    *to = *from + each + (part < more);
}

#endif
