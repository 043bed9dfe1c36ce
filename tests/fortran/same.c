/* same.c: same.f90 in C. */
#include <cflux.h>

static void print(double x)
{
    printf("%24.16E\n", x);
}

int main(void)
{
    float grid[64][2], products[64], values[64];
    for (int i = 0; i < 64; i++) {
        grid[i][0] = (float)((i + 1) * 7 % 16) / 16;
        grid[i][1] = (float)(i + 1) / 64;
        products[i] = grid[i][0] * grid[i][1];
    }
    fx_seed(5);
    void *model = fx_parse_model("Chain(Dense(2 => 8, tanh), BatchNorm(8), Dense(8 => 1))");
    void *state = fx_setup(fx_adamw(.eta = 0.01, .lambda = 0.001), model);
    fx_array *x = fx_from(FX_DTYPE_F32, grid, 2, 64);
    fx_array *y = fx_from(FX_DTYPE_F32, products, 1, 64);
    fx_loader *loader = fx_dataloader(fx_tuple(x, y), .batchsize = 24, .shuffle = true);
    for (int epoch = 1; epoch <= 5; epoch++) {
        for (fx_batch b = {0}; fx_next(loader, &b);) {
            FX_RECORD;
            fx_array *loss = fx_mse(fx_call(model, b.x), b.y);
            loss = fx_add(loss, fx_mul(0.01f, fx_mean(fx_abs(b.x))));
            fx_update(state, model, fx_gradient(loss, model));
            print(fx_item(loss));
        }
    }
    {
        FX_TEST;
        fx_read_as(fx_sub(1, fx_call(model, x)), FX_DTYPE_F32, values, 64);
    }
    for (int i = 0; i < 64; i++)
        print(values[i]);
    return fx_error_print(stderr);
}
