/* gpt2.c: the smallest GPT-2, 124,439,808 parameters with random values. Prints the memory that a
 * training step needs, and runs two training steps in Float32 and two in BFloat16.
 *
 *   gpt2 [TOKENS]
 *
 * TOKENS is the length of the text, at most 1024 (default: 256). With 256 tokens on two shared
 * cores of a CPU with AVX2:
 *
 *              parameters and moments   gradient needs   first training step   second
 *   Float32    1424 MiB                 616 MiB          6.2 s                 3.2 s
 *   BFloat16    712 MiB                 516 MiB          5.0 s                 4.0 s
 */
#include "gpt_model.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static const sizes gpt2 = {
    .vocabulary = 50257, .context = 1024, .width = 768, .heads = 12, .blocks = 12};

/* Prints the memory of a training step, and runs two. */
static void steps_of_gpt2(fx_dtype type, int64_t length)
{
    FX_SCOPE;
    struct timespec from, to;
    char plan[300];
    fx_seed(1);
    void *model = gpt(&gpt2);
    model = type == FX_DTYPE_BF16 ? fx_bf16(model) : model;
    void *opt = fx_setup(fx_adamw(.eta = 3e-4, .lambda = 0.1), model);
    fx_array *random = fx_floor(fx_mul((double)gpt2.vocabulary, fx_rand(length + 1, 1)));
    fx_array *tokens = fx_cast(random, FX_DTYPE_I64);
    const double numbers = (double)fx_parameter_count(model), bytes = type == FX_DTYPE_F32 ? 4 : 2;
    printf("%s: %.0f parameters, with the two moments of AdamW %.0f MiB\n",
           type == FX_DTYPE_F32 ? "Float32" : "BFloat16", numbers, 3 * bytes * numbers / 1048576);
    {
        FX_SCOPE;
        fx_plan_text(fx_gradient(loss_of(model, tokens, gpt2.vocabulary), model), plan,
                     sizeof plan);
        plan[strcspn(plan, "\n")] = 0;
        printf("gradient: %s\n", plan);
    }
    for (int i = 1; i <= 2; i++) {
        clock_gettime(CLOCK_MONOTONIC, &from);
        FX_STEP;
        fx_array *loss = fx_want(loss_of(model, tokens, gpt2.vocabulary));
        fx_update(opt, model, fx_gradient(loss, model));
        clock_gettime(CLOCK_MONOTONIC, &to);
        printf("training step %d: loss %.3f, %.1f s\n", i, fx_item(loss),
               (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec));
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    const int length = argc > 1 ? atoi(argv[1]) : 256;
    if (argc > 2 || length < 1 || length > gpt2.context) {
        fprintf(stderr, "usage: %s [TOKENS]\n", argv[0]);
        return 2;
    }
    steps_of_gpt2(FX_DTYPE_F32, length);
    steps_of_gpt2(FX_DTYPE_BF16, length);
    return fx_error_print(stderr);
}
