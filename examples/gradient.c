/* gradient.c: the first example of Flux's manual: a linear predictor, its loss, and the gradient of
 * the loss with respect to the weights. Runs on a GPU if there is one.
 */
#include <cflux.h>

static fx_array *predict(fx_array *W, fx_array *b, fx_array *x)
{
    return fx_add(fx_matmul(W, x), b);
}

int main(void)
{
    fx_use("CUDA"); /* loads the backend, if it is installed; in Julia: using CUDA */

    fx_array *W = fx_cu(fx_rand(2, 5)), *b = fx_cu(fx_rand(2));
    fx_array *x = fx_cu(fx_rand(5)), *y = fx_cu(fx_rand(2));
    fx_array *loss = fx_sum(fx_square(fx_sub(predict(W, b, x), y)));
    fx_show(loss); /* computes the broadcast chain and the sum in one kernel */

    fx_array *g[2];
    fx_gradient_of(loss, (fx_array *[]){W, b}, 2, g); /* d loss / d W, d loss / d b */
    fx_show(g[0]);
    return fx_error_print(stderr); /* returns 0 if nothing failed */
}
