/* char_rnn.c: trains a recurrent network to predict the next character of a text, and writes a new
 * text with it.
 *
 *   char_rnn TEXT [EPOCHS [CHARACTERS]]
 *
 * TEXT is a file, e.g. Karpathy's tinyshakespeare. With CHARACTERS the program trains on that many
 * characters from its beginning. 5 epochs of the whole text of tinyshakespeare give a cross-entropy
 * of 1.472 nats per character on the first 2,500 characters, which are part of the training, in 76
 * s of one core of an x86-64 processor. Source: A. Karpathy, The unreasonable effectiveness of
 * recurrent neural networks, 2015.
 */
#include <cflux.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH = 50, BATCH = 50, EMBEDDED = 32, HIDDEN = 128, BYTES = 256 };

/* The distinct bytes of a text: byte[k] for k < size. number[b]: k + 1 for the byte b; 0 if the
 * text does not contain it. */
typedef struct alphabet {
    int size, number[BYTES];
    unsigned char byte[BYTES];
} alphabet;

static fx_array *read_text(const char *path, int64_t most, alphabet *out)
{
    static int64_t numbers[1 << 22];
    int64_t n = 0;
    FILE *f = fopen(path, "rb");
    memset(out, 0, sizeof *out);
    for (int c;
         f && n < most && n < (int64_t)(sizeof numbers / sizeof *numbers) && (c = fgetc(f)) != EOF;
         n++) {
        if (out->number[c] == 0) {
            out->byte[out->size] = (unsigned char)c;
            out->number[c] = ++out->size;
        }
        numbers[n] = out->number[c] - 1;
    }
    if (f)
        fclose(f);
    return fx_from(FX_DTYPE_I64, numbers, n);
}

static fx_array *loss(void *model, const fx_batch *b, void *user)
{
    const alphabet *a = user;
    return fx_logitcrossentropy(fx_call(model, b->x), fx_onehot(b->y, a->size));
}

/* Draws a number with the probabilities softmax(logits). */
static int draw(fx_array *logits, int n)
{
    float p[BYTES];
    double at = fx_item(fx_rand(1));
    if (fx_read_as(fx_softmax(fx_vec(logits)), FX_DTYPE_F32, p, n) != FX_OK)
        return 0;
    int i = 0;
    while (i < n - 1 && (at -= (double)p[i]) > 0)
        i++;
    return i;
}

/* Prints `length` characters, each drawn from the network's prediction of the next one. */
static void write_text(void *model, const alphabet *a, int length)
{
    const fx_recurrent_layer *lstm = fx_child(model, 1);
    int64_t c = a->number['\n'] ? a->number['\n'] - 1 : 0;
    FX_SCOPE;
    void *state = fx_initialstates(lstm->cell);
    for (int i = 0; i < length; i++) {
        fx_array *x = fx_call(fx_child(model, 0), fx_from(FX_DTYPE_I64, &c, 1));
        void *result = fx_call(lstm->cell, fx_vec(x), state);
        state = fx_child(result, 1);
        c = draw(fx_call(fx_child(model, 2), fx_child(result, 0)), a->size);
        putchar(a->byte[c]);
    }
    putchar('\n');
}

int main(int argc, char **argv)
{
    const int epochs = argc > 2 ? atoi(argv[2]) : 5;
    const int64_t most = argc > 3 ? atoll(argv[3]) : INT64_MAX;
    if (argc < 2 || argc > 4 || epochs < 1 || most < LENGTH + 1) {
        fprintf(stderr, "usage: %s TEXT [EPOCHS [CHARACTERS]]\n", argv[0]);
        return 2;
    }
    fx_seed(1);
    static alphabet letters;
    fx_array *text = read_text(argv[1], most, &letters);
    const int64_t pieces = (fx_length(text) - 1) / LENGTH;
    if (pieces < 1) {
        fprintf(stderr, "%s: cannot read at least %d characters of %s\n", argv[0], LENGTH + 1,
                argv[1]);
        return 1;
    }
    printf("%lld characters, %d of them distinct\n", (long long)fx_length(text), letters.size);
    /* Pieces of LENGTH characters; the target of each character is the next one. */
    fx_array *x = fx_reshape(fx_slice(text, 0, 0, pieces * LENGTH), LENGTH, pieces);
    fx_array *y = fx_reshape(fx_slice(text, 0, 1, pieces * LENGTH + 1), LENGTH, pieces);

    void *model = fx_chain(fx_embedding(letters.size, EMBEDDED), fx_lstm(EMBEDDED, HIDDEN),
                           fx_dense(HIDDEN, letters.size));
    fx_show(model);
    void *opt = fx_setup(fx_adam(.eta = 3e-3), model);
    fx_loader *loader =
        fx_dataloader(fx_tuple(x, y), .batchsize = BATCH, .shuffle = true, .partial = false);
    if (fx_error_status() != FX_OK)
        return fx_error_print(stderr);
    fx_train(loss, model, loader, opt, .epochs = epochs, .progress = true, .progress_to = stdout,
             .user = &letters);

    write_text(model, &letters, 300);
    fx_batch all = {.x = fx_slice(x, 1, 0, BATCH), .y = fx_slice(y, 1, 0, BATCH)};
    const double nats = fx_item(loss(model, &all, &letters));
    if (fx_error_status() != FX_OK)
        return fx_error_print(stderr);
    printf("cross-entropy: %.3f nats per character (all characters equally likely: %.3f)\n", nats,
           log(letters.size));
    return 0;
}
