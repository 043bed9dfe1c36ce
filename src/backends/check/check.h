/* check.h: the checking wrapper. check.c is its table, check_memory.c knows the allocations,
 * check_step.c looks at steps. Internal. */
#ifndef CFLUX_CHECK_H
#define CFLUX_CHECK_H

#include "thread.h"
#include <cflux/backend.h>

#include <stdint.h>

/* Room for a sentence; as much as a kernel may say. */
enum { FXI_CHECK_TEXT = 320 };

/* Bytes of a guard behind the work space of each step (fxi_check_work_guard). */
enum { FXI_CHECK_WORK_GUARD = 256 };

typedef struct fxi_check_block fxi_check_block;

/* One wrapper. Everything below `lock` is under it. */
typedef struct fxi_checker {
    fx_backend table; /* the first, so that a device's backend is its checker */
    const fx_backend *inner;
    fx_device *const *devices; /* of the inner backend */
    int count;
    bool thorough; /* FX_CHECK=all */
    fxi_mutex lock;
    fxi_check_block **blocks; /* live and released, by device, then by address */
    int32_t nblocks, capacity;
    fxi_check_block *oldest, *newest; /* released, in that order */
    size_t held;                      /* bytes of those */
    uint32_t key;                     /* of the next allocation's guards */
    uint64_t steps;                   /* that have run */
    const char *last;                 /* the operation of the newest */
} fxi_checker;

static inline fxi_checker *fxi_checker_of(const fx_device *device)
{
    return (fxi_checker *)(uintptr_t)device->backend;
}
static inline fx_device *fxi_check_inner(const fx_device *device)
{
    return device->data;
}

/* A range of device memory, from its first byte to behind its last one. */
typedef struct fxi_span {
    uintptr_t low, high;
} fxi_span;
static inline bool fxi_spans_meet(fxi_span a, fxi_span b)
{
    return a.low < b.high && b.low < a.high;
}

/* The patterns that memory is given, and compared with. */
typedef enum fxi_check_fill { FXI_CHECK_GUARD, FXI_CHECK_POISON, FXI_CHECK_ZERO } fxi_check_fill;

/* ---- memory ---------------------------------------------------------------------------------- */

void *fxi_check_alloc(fx_device *device, size_t bytes);
void fxi_check_free(fx_device *device, void *ptr);
/* Records what was found; "": nothing was. */
fx_status fxi_check_report(const fx_device *device, const char *why);
/* Verifies all memory of the device, live and released; "" when nothing is wrong. */
void fxi_check_all(fx_device *device, char *why);

/* What is wrong with touching a range: "lies at bytes -4 to 59 of an allocation of 64 bytes".
 * False: nothing is. */
bool fxi_check_range(fx_device *device, fxi_span range, char *why);
/* Were the guards of the allocation that holds the range written? */
bool fxi_check_guards(fx_device *device, fxi_span range, char *why);
/* Fills a range of a live allocation; nothing happens to memory that is no allocation. True when
 * it is done. */
bool fxi_check_fill_range(fx_device *device, fxi_span range, fxi_check_fill fill);
/* The first byte of a range of a live allocation that is not as filled, counted from its begin; -1:
 * all are, or there is no allocation. */
int64_t fxi_check_changed(fx_device *device, fxi_span range, fxi_check_fill fill);
/* How many elements of `size` bytes are as FXI_CHECK_POISON leaves them; 0 where there is no
 * allocation. */
int64_t fxi_check_untouched(fx_device *device, fxi_span range, size_t size);

/* ---- steps ----------------------------------------------------------------------------------- */

fx_status fxi_check_run(fx_device *device, const fx_step *step, const void *const *in, void *out,
                        fx_run *run);

#endif
