/* check.h: the checking backend "check:NAME", which computes with another backend and verifies how
 * memory is used. check.c is its table, check_memory.c keeps the allocations, check_step.c verifies
 * steps. Internal. */
#ifndef CFLUX_CHECK_H
#define CFLUX_CHECK_H

#include "thread.h"
#include <cflux/backend.h>

#include <stdint.h>

/* The size of a buffer for the text of an error. */
enum { FXI_CHECK_TEXT = 320 };

/* Bytes of the guard after the work space of each step (fxi_check_work_guard). */
enum { FXI_CHECK_WORK_GUARD = 256 };

typedef struct fxi_check_block fxi_check_block;

/* One checking backend. `lock` protects the members below it. */
typedef struct fxi_checker {
    fx_backend table; /* first, so that a device's backend is its checker */
    const fx_backend *inner;
    fx_device *const *devices; /* of the inner backend */
    int count;
    bool thorough; /* FX_CHECK=all */
    fxi_mutex lock;
    fxi_check_block **blocks; /* allocations, live and released, sorted by device and address */
    int32_t nblocks, capacity;
    fxi_check_block *oldest, *newest; /* released allocations, oldest first */
    size_t held;                      /* bytes of the released ones */
    uint32_t key;                     /* differs for each allocation; part of its guards */
    uint64_t steps;                   /* steps that have run */
    const char *latest;               /* the operation of the latest step */
} fxi_checker;

static inline fxi_checker *fxi_checker_of(const fx_device *device)
{
    return (fxi_checker *)(uintptr_t)device->backend;
}
static inline fx_device *fxi_check_inner(const fx_device *device)
{
    return device->data;
}

/* A range of device memory, from its first byte to just after its last one. */
typedef struct fxi_span {
    uintptr_t low, high;
} fxi_span;
static inline bool fxi_spans_meet(fxi_span a, fxi_span b)
{
    return a.low < b.high && b.low < a.high;
}

/* The patterns with which memory is filled and later compared. */
typedef enum fxi_check_fill { FXI_CHECK_GUARD, FXI_CHECK_POISON, FXI_CHECK_ZERO } fxi_check_fill;

/* ---- memory ---------------------------------------------------------------------------------- */

void *fxi_check_alloc(fx_device *device, size_t bytes);
void fxi_check_free(fx_device *device, void *ptr);
/* Records an error with this text; does nothing if it is "". */
fx_status fxi_check_report(const fx_device *device, const char *why);
/* Verifies all memory of the device, live and released; `why` is "" if nothing is wrong. */
void fxi_check_all(fx_device *device, char *why);

/* True if a range is not inside a live allocation of the device; then `why` says where it is: "is
 * at bytes -4 to 59 of an allocation of 64 bytes". False for memory of the program if the inner
 * backend computes in host memory. */
bool fxi_check_is_outside(fx_device *device, fxi_span range, char *why);
/* True if the allocation that holds the range is damaged: its guards were written, or its contents
 * after it was freed. */
bool fxi_check_is_damaged(fx_device *device, fxi_span range, char *why);
/* Fills a range of a live allocation; true on success. Does nothing if no allocation holds it. */
bool fxi_check_fill_range(fx_device *device, fxi_span range, fxi_check_fill fill);
/* The first byte of a range that differs from its fill, counted from the beginning of the range; −1
 * if none does, or no allocation holds the range. */
int64_t fxi_check_changed(fx_device *device, fxi_span range, fxi_check_fill fill);
/* The number of elements of `size` bytes that still hold FXI_CHECK_POISON; 0 if no allocation holds
 * the range. */
int64_t fxi_check_untouched(fx_device *device, fxi_span range, size_t size);

/* ---- steps ----------------------------------------------------------------------------------- */

fx_status fxi_check_run(fx_device *device, const fx_step *step, const void *const *in, void *out,
                        fx_run *run);

#endif
