/* loss_outputs.c: turns the outputs of a model into classes and probabilities, as the loss of its
 * training requires: see predict.h. */
#include <cflux/ops.h>
#include <cflux/predict.h>
#include <math.h>
#include <string.h>

/* threshold: with a single output, values above it mean the second of two classes; NaN: the loss
 * needs an output for each class. */
typedef struct loss_outputs {
    const char *name;
    fx_output_kind kind;
    double threshold;
} loss_outputs;

static const loss_outputs losses[] = {
    {"logitcrossentropy", FX_OUTPUT_LOGITS, NAN},
    {"crossentropy", FX_OUTPUT_PROBABILITIES, NAN},
    {"logitbinarycrossentropy", FX_OUTPUT_LOGITS, 0},
    {"binarycrossentropy", FX_OUTPUT_PROBABILITIES, 0.5},
    {"hinge_loss", FX_OUTPUT_SCORES, 0},
    {"squared_hinge_loss", FX_OUTPUT_SCORES, 0},
    {"kldivergence", FX_OUTPUT_PROBABILITIES, NAN},
    {"focal_loss", FX_OUTPUT_PROBABILITIES, NAN},
    {"binary_focal_loss", FX_OUTPUT_PROBABILITIES, 0.5},
    {"dice_coeff_loss", FX_OUTPUT_PROBABILITIES, 0.5},
    {"tversky_loss", FX_OUTPUT_PROBABILITIES, 0.5},
    {"mse", FX_OUTPUT_SCORES, 0.5},
    {"mae", FX_OUTPUT_SCORES, 0.5},
    {"msle", FX_OUTPUT_SCORES, 0.5},
    {"huber_loss", FX_OUTPUT_SCORES, 0.5},
    {"poisson_loss", FX_OUTPUT_SCORES, 0.5},
};

static loss_outputs outputs_of(const char *loss)
{
    for (size_t i = 0; loss && i < sizeof losses / sizeof losses[0]; i++)
        if (strcmp(losses[i].name, loss) == 0)
            return losses[i];
    return (loss_outputs){"", FX_OUTPUT_SCORES, NAN};
}

fx_output_kind fx_loss_output(const char *loss)
{
    return outputs_of(loss).kind;
}

/* Checks that y has an output for each class, or one output for two classes (*out_single). */
static fx_status check_outputs(const char *op, const char *loss, int64_t classes, fx_array *y,
                               bool *out_single)
{
    if (fx_is_error(y))
        return y ? fx_array_status(y) : fx_fail(FX_STATUS_ARGUMENT, op, "the outputs are NULL");
    const int64_t each = fx_ndims(y) == 2 ? fx_size(y, 0) : 0;
    *out_single = classes == 2 && each == 1 && !isnan(outputs_of(loss).threshold);
    if (classes >= 2 && (each == classes || *out_single))
        return FX_OK;
    return fx_fail(FX_STATUS_SHAPE, op,
                   "expected a matrix with an output for each of %lld classes%s, got %lld rows",
                   (long long)classes, classes == 2 ? " (one for both, if the loss allows it)" : "",
                   (long long)each);
}

fx_array *fx_output_classes(const char *loss, int64_t classes, fx_array *y)
{
    bool single;
    const fx_status status = check_outputs("output_classes", loss, classes, y, &single);
    if (status != FX_OK)
        return fx_error_array(status);
    return single ? fx_vec(fx_cast(fx_gt(y, outputs_of(loss).threshold), FX_DTYPE_I64))
                  : fx_onecold(y);
}

fx_array *fx_output_probabilities(const char *loss, int64_t classes, fx_array *y)
{
    bool single;
    const fx_output_kind kind = fx_loss_output(loss);
    fx_status status = check_outputs("output_probabilities", loss, classes, y, &single);
    if (status == FX_OK && kind == FX_OUTPUT_SCORES)
        status = fx_fail(FX_STATUS_ARGUMENT, "output_probabilities",
                         "outputs of a model trained with %s are not probabilities",
                         loss ? loss : "an unknown loss");
    if (status != FX_OK)
        return fx_error_array(status);
    if (!single)
        return kind == FX_OUTPUT_LOGITS ? fx_softmax(y) : y;
    fx_array *second = kind == FX_OUTPUT_LOGITS ? fx_sigmoid(y) : y;
    return fx_concat(0, fx_sub(1, second), second);
}
