/* planning.c: graphs of one family with any number of parts, for check_planning.py.
 *
 *     planning dense 100
 */
#include <cflux.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A training step of n dense layers: an update of 2·n arrays. */
static void dense(int n)
{
    FX_SCOPE;
    void **layers = malloc((size_t)n * sizeof *layers);
    for (int i = 0; i < n; i++)
        layers[i] = fx_dense(4, 4, FX_RELU);
    fx_chain_layer *model = fxi_chain(n, layers);
    free(layers);
    fx_array *x = fx_randn(4, 2), *y = fx_randn(4, 2);
    void *state = fx_setup(fx_descent(0.01), model);
    FX_STEP;
    fx_update(state, model, fx_gradient(fx_mse(fx_call(model, x), y), model));
}

/* Row steps, one after the other, and their gradients. */
static void softmax(int n)
{
    FX_SCOPE;
    fx_array *x = fx_randn(8, 4), *y = x;
    for (int i = 0; i < n; i++)
        y = fx_add(fx_softmax(y), x);
    fx_eval(fx_gradient(fx_sum(fx_mul(y, y)), x));
}

/* Row steps of several passes, and their gradients. */
static void norms(int n)
{
    FX_SCOPE;
    fx_array *x = fx_randn(8, 4), *y = x;
    for (int i = 0; i < n; i++)
        y = fx_tanh(fx_normalise(y, FX_AXES(0), 1e-5));
    fx_eval(fx_gradient(fx_sum(y), x));
}

/* Reductions of one array. */
static void sums(int n)
{
    FX_SCOPE;
    fx_array *x = fx_randn(8, 4), *y = fx_sum(x);
    for (int i = 0; i < n; i++)
        y = fx_add(y, fx_sum(fx_mul(x, fx_add(x, fx_scalar(i)))));
    fx_eval(y);
}

static void elementwise(int n)
{
    FX_SCOPE;
    fx_array *x = fx_randn(8, 4), *y = x;
    for (int i = 0; i < n; i++)
        y = fx_tanh(fx_add(y, x));
    fx_eval(y);
}

/* Products and the gradient of an array that all of them read. */
static void products(int n)
{
    FX_SCOPE;
    fx_array *x = fx_randn(4, 4), *y = x;
    for (int i = 0; i < n; i++)
        y = fx_tanh(fx_matmul(y, x));
    fx_eval(fx_gradient(fx_sum(y), x));
}

/* Products of different arrays that are added. */
static void branches(int n)
{
    FX_SCOPE;
    fx_array *x = fx_randn(4, 4), *y = x;
    for (int i = 0; i < n; i++)
        y = fx_add(y, fx_tanh(fx_matmul(x, fx_randn(4, 4))));
    fx_eval(y);
}

/* Results of different shapes that have nothing in common, two row reductions among them. */
static void results(int n)
{
    FX_SCOPE;
    fx_array **all = malloc((size_t)(3 * n) * sizeof *all);
    for (int i = 0; i < n; i++) {
        fx_array *x = fx_rand(2 + i % 7, 3);
        all[3 * i] = fx_sum(fx_exp(x));
        all[3 * i + 1] = fx_softmax(x);
        all[3 * i + 2] = fx_transpose(fx_sin(x));
    }
    fx_eval(fxi_tuple(3 * n, (void **)all));
    free(all);
}

/* Values that many later ones read, at growing distance. */
static void shared(int n)
{
    FX_SCOPE;
    fx_array *x = fx_randn(8, 4), *early = fx_tanh(x), *y = x, *before = x;
    for (int i = 0; i < n; i++) {
        fx_array *next = fx_add(fx_mul(y, before), fx_sub(early, fx_sum(y, FX_AXES(1))));
        before = y;
        y = next;
    }
    fx_eval(y);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(int n);
    } families[] = {{"dense", dense},       {"softmax", softmax},         {"norms", norms},
                    {"sums", sums},         {"elementwise", elementwise}, {"products", products},
                    {"branches", branches}, {"results", results},         {"shared", shared}};
    const int n = argc > 2 ? atoi(argv[2]) : 0;
    for (size_t i = 0; i < sizeof families / sizeof families[0] && n > 0; i++)
        if (strcmp(argv[1], families[i].name) == 0) {
            families[i].run(n);
            return fx_error_print(stderr);
        }
    fprintf(stderr, "planning FAMILY N\n");
    return 2;
}
