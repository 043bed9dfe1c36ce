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

static bool read_fails(void *(*read)(const char *path), const char *path, int64_t nth)
{
    FX_SCOPE;
    fxi_fault_set(nth);
    const void *object = read(path);
    fxi_fault_set(-1);
    const bool failed = fx_is_error(object);
    assert_int_equal(fx_error_take().status, failed ? FX_STATUS_MEMORY : FX_OK);
    return failed;
}

static int64_t live(void)
{
    fxi_reclaim_all();
    return fxi_live_allocations();
}

void each_allocation_of(void *(*read)(const char *path), const char *path, int at_least)
{
    assert_false(read_fails(read, path, -1)); /* allocates what remains: caches */
    const int64_t before = live();
    int failures = 0;
    while (read_fails(read, path, failures)) {
        assert_int_equal(live(), before);
        assert_in_range(++failures, 1, 1000);
    }
    assert_int_equal(live(), before);
    print_message("%d allocations fail in turn\n", failures);
    assert_true(failures >= at_least);
}
