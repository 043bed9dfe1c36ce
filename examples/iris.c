/* iris.c: classifies iris flowers by the sizes of their petals and sepals, with one dense layer.
 *
 *   iris FILE [EPOCHS]
 *
 * FILE is a table without column names: four numbers and the class (0, 1 or 2) in each line, after
 * one line of other contents, such as iris.csv of scikit-learn. A third of each class is for the
 * test: 94.1 % of these 51 flowers are classified correctly, after less than 0.1 s. Source of the
 * data: R. Fisher, The use of multiple measurements in taxonomic problems, 1936.
 */
#include <cflux.h>
#include <stdlib.h>

enum { FEATURES = 4, CLASSES = 3 };

int main(int argc, char **argv)
{
    const int epochs = argc > 2 ? atoi(argv[2]) : 300;
    if (argc < 2 || argc > 3 || epochs < 1) {
        fprintf(stderr, "usage: %s FILE [EPOCHS]\n", argv[0]);
        return 2;
    }
    fx_seed(1);
    fx_array *table = fx_child_named(fx_read_table(argv[1], .skip = 1), "values"); /* 5×150 */
    fx_array *flower = fx_cast(fx_vec(fx_slice(table, 0, FEATURES, FEATURES + 1)), FX_DTYPE_I64);
    void *data = fx_tuple(fx_slice(table, 0, 0, FEATURES), flower);
    void *parts = fx_splitobs(data, FX_FRACTIONS(2.0 / 3), .stratified = flower);
    void *train = fx_getobs(fx_child(parts, 0)), *test = fx_getobs(fx_child(parts, 1));

    fx_array *x = fx_child(train, 0);
    fx_array *mean = fx_mean(x, .dims = FX_AXES(1)), *std = fx_std(x, .dims = FX_AXES(1));
    fx_array *input = fx_div(fx_sub(x, mean), std);
    fx_array *target = fx_onehotbatch(fx_child(train, 1), CLASSES);

    void *model = fx_dense(FEATURES, CLASSES);
    fx_show(model);
    void *opt = fx_setup(fx_descent(.eta = 0.5), model);
    fx_eval(fx_tuple(input, target));
    for (int epoch = 1; epoch <= epochs && fx_error_status() == FX_OK; epoch++) {
        FX_RECORD;
        fx_array *loss = fx_logitcrossentropy(fx_call(model, input), target);
        fx_want(loss);
        fx_update(opt, model, fx_gradient(loss, model));
        if (epoch % 100 == 0)
            printf("epoch %d: loss %.3f\n", epoch, fx_item(loss));
    }

    fx_array *guess = fx_onecold(fx_call(model, fx_div(fx_sub(fx_child(test, 0), mean), std)));
    fx_array *right = fx_eq(guess, fx_child(test, 1));
    const double accuracy = fx_item(fx_mean(right));
    if (fx_error_status() != FX_OK)
        return fx_error_print(stderr);
    printf("test accuracy: %.1f %% of %d flowers\n", 100 * accuracy, (int)fx_length(right));
    return 0;
}
