/* digits.c: trains a small network to read handwritten digits, on the preferred device.
 *
 * The data are 1,797 images of 8×8 pixels (see data/README.md). Every fifth image is kept for the
 * test and never trained on. The environment variable CFLUX_DIGITS can name another file (default:
 * data/digits.csv.gz of the source tree).
 */
#include <cflux.h>
#include <stdlib.h>

#ifndef CFLUX_SOURCE_DATA_DIR
#define CFLUX_SOURCE_DATA_DIR "data"
#endif
enum { SIDE = 8, PIXELS = SIDE * SIDE, DIGITS = 10, EPOCHS = 12 };
enum { SHOWN = 8, SHOWN_COLUMNS = 4 }; /* number of test images drawn, evenly spread */

/* Reads the images as an 8×8×1×n array in [0, 1], and their digits: (pixels, digit). */
static void *read_digits(void)
{
    const char *path = getenv("CFLUX_DIGITS");
    fx_array *table = fx_read_csv(path ? path : CFLUX_SOURCE_DATA_DIR "/digits.csv.gz");
    fx_array *pixels = fx_clamp(fx_div(fx_slice(table, 0, 0, PIXELS), 16), 0, 1);
    fx_array *digit = fx_cast(fx_vec(fx_slice(table, 0, PIXELS, PIXELS + 1)), FX_DTYPE_I64);
    fx_onehotbatch(digit, DIGITS); /* refuses invalid digits, so the code below need not check */
    return fx_tuple(fx_reshape(pixels, SIDE, SIDE, 1, fx_length(digit)), digit);
}

/* The observations whose number is 4 modulo 5, or all others. */
static void *every_fifth(void *data, bool chosen)
{
    const int64_t total = fx_num_obs(data);
    int64_t n = 0, *numbers = calloc((size_t)total + 1, sizeof *numbers);
    for (int64_t i = 0; numbers && i < total; i++)
        if ((i % 5 == 4) == chosen)
            numbers[n++] = i;
    void *part = fx_get_obs(data, fx_from(FX_DTYPE_I64, numbers, n));
    free(numbers);
    return part;
}

static fx_array *loss(void *model, const fx_batch *b, void *user)
{
    (void)user;
    return fx_logitcrossentropy(fx_call(model, b->x), fx_onehot(b->y, DIGITS));
}

/* Draws one line of an image, two characters per pixel. */
static void draw_line(const float *pixels)
{
    static const char *const ink[] = {" ", "░", "▒", "▓", "█"};
    for (int i = 0; i < SIDE; i++) {
        const char *cell = ink[(int)(pixels[i] * 4 + 0.5f)];
        printf("%s%s", cell, cell);
    }
    printf("   ");
}

/* Draws a few test images side by side, each above its true and its predicted digit. */
static void draw(const float *images, const double *digits, const double *guesses, int64_t n)
{
    for (int first = 0; first < SHOWN; first += SHOWN_COLUMNS) {
        for (int line = 0; line < SIDE; line++, printf("\n"))
            for (int64_t k = first; k < first + SHOWN_COLUMNS; k++)
                draw_line(images + k * n / SHOWN * PIXELS + line * SIDE);
        for (int64_t k = first; k < first + SHOWN_COLUMNS; k++) {
            const double digit = digits[k * n / SHOWN], guess = guesses[k * n / SHOWN];
            printf("%.0f, predicted %.0f %-4s", digit, guess, digit == guess ? "" : "(!)");
        }
        printf("\n\n");
    }
}

/* Prints a line for each digit: how often it was predicted as each of the ten. */
static void print_confusion(const double *digits, const double *guesses, int64_t n)
{
    int count[DIGITS][DIGITS] = {{0}};
    for (int64_t i = 0; i < n; i++)
        count[(int)digits[i]][(int)guesses[i]]++;
    printf("rows: actual digit, columns: predicted digit\n      ");
    for (int guess = 0; guess < DIGITS; guess++)
        printf("%4d", guess);
    for (int digit = 0; digit < DIGITS; digit++) {
        printf("\n%5d ", digit);
        for (int guess = 0; guess < DIGITS; guess++)
            count[digit][guess] ? printf("%4d", count[digit][guess]) : printf("   ·");
    }
    printf("\n\n");
}

int main(void)
{
    fx_use_all();
    fx_seed(1);
    fx_device *device = fx_get_device();
    printf("device: %s\n", fx_device_name(device));

    void *data = read_digits(), *train = every_fifth(data, false), *test = every_fifth(data, true);
    if (fx_error_status() != FX_OK)
        return fx_error_print(stderr);
    fx_chain_layer *model =
        fx_chain(fx_conv(FX_DIMS(3, 3), 1, 16, FX_RELU, .pad = FX_SAME), fx_maxpool(FX_DIMS(2, 2)),
                 fx_conv(FX_DIMS(3, 3), 16, 32, FX_RELU, .pad = FX_SAME), fx_maxpool(FX_DIMS(2, 2)),
                 FX_FLATTEN, fx_dense(128, DIGITS));
    model = fx_to(device, model);
    fx_show(model);

    void *opt = fx_setup(fx_adam(.eta = 0.003), model);
    fx_loader *loader = fx_dataloader(train, .batchsize = 32, .shuffle = true, .device = device);
    if (fx_train(loss, model, loader, opt, .epochs = EPOCHS, .progress = true,
                 .progress_to = stdout) != FX_OK)
        return fx_error_print(stderr);

    fx_array *images = fx_child(test, 0), *digit = fx_child(test, 1);
    fx_array *guess = fx_onecold(fx_call(model, fx_to(device, images)));
    const int64_t n = fx_length(digit);
    double *digits = calloc((size_t)n + 1, sizeof *digits),
           *guesses = calloc((size_t)n + 1, sizeof *guesses);
    if (n > 0 && digits && guesses && fx_read_as(digit, FX_DTYPE_F64, digits, n) == FX_OK &&
        fx_read_as(guess, FX_DTYPE_F64, guesses, n) == FX_OK) {
        draw(fx_data(images), digits, guesses, n);
        print_confusion(digits, guesses, n);
        printf("test accuracy: %.1f %%\n", 100 * fx_item(fx_mean(fx_eq(fx_cpu(guess), digit))));
    }
    free(digits);
    free(guesses);
    return fx_error_print(stderr);
}
