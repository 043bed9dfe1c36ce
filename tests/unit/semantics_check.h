/* semantics_check.h: what the tests test_semantics_*.c and others share: a clean start and a clean
 * end of every test, exact comparisons in double, and a look at the memory after an array.
 */
#ifndef CFLUX_SEMANTICS_CHECK_H
#define CFLUX_SEMANTICS_CHECK_H

#include "composite_check.h"

#include <cflux.h>

#include "context.h"
#include "memory.h"
#include "node.h"

/* |got − want| ≤ tolerance·(1 + |want|), in double (cmocka's comparison is in float). */
#define NEAR(got, want, tolerance) check_value(#got, 0, (got), (want), (tolerance), (tolerance))
/* Equal; NaN equals NaN. */
#define SAME(got, want) NEAR(got, want, 0)

static inline fx_array *scalar64(double value)
{
    return fxi_full(FX_DTYPE_F64, value, 0, NULL);
}

static inline fx_array *gradient1(fx_array *loss, fx_array *x)
{
    fx_array *g = NULL;
    fx_gradient_of(loss, &x, 1, &g);
    return g;
}

/* Takes the record, which has this status and contains this text. */
static inline void expect_error(fx_status status, const char *text)
{
    const fx_error e = fx_error_take();
    if (e.status != status || !strstr(e.message, text))
        fail_msg("got %s \"%s\", expected %s \"%s\"", fx_status_name(e.status), e.message,
                 fx_status_name(status), text);
}

/* Where the elements of an evaluated array are, without pinning them as fx_data does. */
static inline const void *address_of(const fx_array *x)
{
    assert_true(fx_is_evaluated(x));
    return (const char *)x->node->data->buffer->ptr +
           x->node->data->offset * (int64_t)fx_dtype_size(fx_eltype(x));
}

/* n evaluations since `before`, and no new plan. Returns the counters now. */
static inline fx_counters check_same_plans(const fx_counters *before, int n)
{
    const fx_counters after = fx_stats();
    assert_int_equal(after.plans_built, before->plans_built);
    assert_int_equal(after.evals - before->evals, n);
    return after;
}

static inline int clean_start(void **state)
{
    (void)state;
    fxi_scope_close(0); /* after a test that failed */
    fxi_fault_set(-1);
    fx_error_take();
    return 0;
}

static inline int clean_end(void **state)
{
    (void)state;
    const fx_error e = fx_error_take();
    if (e.status != FX_OK)
        fail_msg("an error was left: %s", e.message);
    assert_false(fx_training());
    return 0;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, clean_start, clean_end)

#endif
