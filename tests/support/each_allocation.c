/* each_allocation.c: makes every allocation of a reader fail: see each_allocation.h. */
#include "each_allocation.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <cflux.h>

#include "context.h"
#include "evaluate.h"
#include "memory.h"

/* Reads once; allocation number nth fails. Returns whether it was reached: a call may do without
 * the memory of some allocations, so success does not mean that all of them were tried. */
static bool read_with_fault(void *(*read)(const char *path), const char *path, int64_t nth)
{
    FX_SCOPE;
    fxi_fault_set(nth);
    const void *object = read(path);
    const bool reached = nth >= 0 && fxi_fault_seen() > nth, failed = fx_is_error(object);
    fxi_fault_set(-1);
    assert_int_equal(fx_error_take().status, failed ? FX_STATUS_MEMORY : FX_OK);
    assert_true(reached || !failed);
    return reached;
}

static int64_t live(void)
{
    fxi_reclaim_all();
    return fxi_live_allocations();
}

void each_allocation_of(void *(*read)(const char *path), const char *path, int at_least)
{
    read_with_fault(read, path, -1); /* allocates what remains: caches */
    const int64_t before = live();
    int faults = 0;
    while (read_with_fault(read, path, faults)) {
        assert_int_equal(live(), before);
        assert_in_range(++faults, 1, 100000);
    }
    assert_int_equal(live(), before);
    print_message("%d allocations fail in turn\n", faults);
    assert_true(faults >= at_least);
}
