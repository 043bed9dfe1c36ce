/* test_plan_counts.c: the steps and the memory between steps of training networks, which the page
 * about performance states. Plans are made and not run, so their cost is that of the planner.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <cflux.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "networks.h"

static fx_chain_layer *attention(void)
{
    return (fx_chain_layer *)fx_multiheadattention(FX_DIMS(256), .nheads = 4, .bias = true);
}

static const struct network {
    const char *name;
    fx_chain_layer *(*make)(void);
    int64_t x[4];
    int ndims;
    bool causal; /* attention */
    int steps;
    double arena; /* MiB */
} networks[] = {
    {"VGG with BatchNorm", vgg, {32, 32, 3, 64}, 4, false, 45, 63.6},
    {"LeNet", lenet, {28, 28, 1, 128}, 4, false, 28, 3.9},
    {"attention", attention, {256, 128, 8}, 3, true, 19, 6.1},
};

/* The value of a network that is trained, and its gradients of all parameters. */
static void *training(const struct network *n)
{
    void *m = n->make();
    assert_int_equal(fx_trainmode(m), FX_OK);
    fx_array *x = fxi_rand(FX_DTYPE_F32, n->ndims, n->x);
    assert_int_equal(fx_eval(fx_tuple(m, x)), FX_OK);
    fx_array *y = n->causal ? fx_child(fx_attend(m, x, .causal = true), 0) : fx_call(m, x);
    fx_array *loss = fx_mean(fx_square(y));
    return fx_tuple(loss, fx_gradient(loss, m));
}

static void plans_are_small(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof networks / sizeof *networks; k++) {
        FX_SCOPE;
        const struct network *n = &networks[k];
        static char text[1 << 16];
        double arena = 0;
        fx_plan_text(training(n), text, sizeof text);
        const char *in = strstr(text, " nodes in "), *of = strstr(text, " MiB of arena");
        if (!in || !of)
            fail_msg("no counts in\n%.200s", text);
        const long steps = strtol(in + strlen(" nodes in "), NULL, 10);
        while (of > text && of[-1] != ' ')
            of--;
        arena = strtod(of, NULL);
        printf("%s: %ld steps, %.1f MiB\n", n->name, steps, arena);
        if (steps > n->steps || arena > n->arena)
            fail_msg("%s: %ld steps and %.1f MiB, more than %d and %.1f", n->name, steps, arena,
                     n->steps, n->arena);
    }
}

int main(void)
{
    unsetenv("FX_EAGER");
    const struct CMUnitTest tests[] = {cmocka_unit_test(plans_are_small)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
