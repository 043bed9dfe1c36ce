/* consumer.c: a program that uses cflux, built in every way that users have. */
#include <cflux.h>
#include <string.h>

int main(void)
{
    fx_seed(1);
    fx_array *x = fx_rand(1, 64), *y = fx_add(fx_mul(x, 2), 1);
    fx_dense_layer *model = fx_dense(1, 1);
    void *opt = fx_setup(fx_descent(.eta = 0.5), model);
    for (int i = 0; i < 400; i++) {
        FX_STEP;
        fx_update(opt, model, fx_gradient(fx_mse(fx_call(model, x), y), model));
    }
    printf("version %s\n", fx_version());
    printf("2 x + 1: %.3f x + %.3f\n", fx_item(model->weight), fx_item(model->bias));
    /* Through libbson, which a static program must have found too. */
    fx_save("consumer.bson", "model", model);
    fx_dense_layer *loaded = fx_child_named(fx_load("consumer.bson"), "model");
    printf("loaded: %.3f x + %.3f\n", fx_item(loaded->weight), fx_item(loaded->bias));
    remove("consumer.bson");
    /* A driver may be missing here; the plugin itself must be found. */
    fx_use("OpenCL");
    const char *why = fx_why_not("OpenCL");
    printf("plugin: %s\n", strstr(why, "not installed") || strstr(why, "-static") ? why : "there");
    return fx_error_print(stderr);
}
