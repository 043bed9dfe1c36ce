/* command_generate.c: cflux generate: continues a text with a language model. */
#include "clean_text.h"
#include "failure.h"
#include "input_file.h"
#include "model_file.h"
#include "options.h"
#include "system.h"
#include <string.h>

static const char *prompt, *device_text = "cpu";
static int64_t length = 200, top_k, seed;
static double temperature = 1;

static option_row options[] = {
    {"prompt", 'p', OPTION_TEXT, &prompt, "TEXT",
     "The beginning of the text, which is printed first (default: a newline, which is not "
     "printed)",
     0, 0},
    {"length", 'n', OPTION_INTEGER, &length, "N",
     "The number of tokens to add; a token is a byte unless the model has a larger vocabulary "
     "(default: 200)",
     1, 1e9},
    {"temperature", 'T', OPTION_NUMBER, &temperature, "T",
     "Draw the next token with the probabilities softmax(scores / T). A smaller T prefers more "
     "likely tokens; 0 always takes the most likely one (default: 1)",
     0, 1e6},
    {"top-k", 'k', OPTION_INTEGER, &top_k, "K",
     "Draw among the K most likely tokens (default: all)", 1, 1e9},
    {"seed", 's', OPTION_INTEGER, &seed, "N",
     "Seed for the random choices (default: 0). The same seed gives the same text", 0, 9e15},
    OPTION_DEVICE(&device_text),
    OPTIONS_END};

/* Prints the bytes of a token. On a terminal, control characters are printed as "?", so that the
 * terminal does not interpret them. */
static bool print_token(const char *bytes, size_t n, void *user)
{
    const bool *terminal = user;
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)bytes[i];
        const bool control = (c < ' ' && c != '\n' && c != '\t') || c == 127;
        putchar(*terminal && control ? '?' : c);
    }
    fflush(stdout);
    return !ferror(stdout);
}

static int run_generate(int n, char **operands)
{
    FX_SCOPE;
    (void)n;
    bool terminal = is_own_terminal("/dev/stdout");
    const char *path = operands[0];
    fx_device *device = fx_device_find(device_text);
    if (fx_error_status() != FX_OK)
        return fail_library(EXIT_BAD_INPUT);
    void *predictor =
        input_file_has_end(path) ? fx_predictor(path, fx_load_entries(path, NULL)) : NULL;
    if (!predictor || fx_is_error(predictor))
        return fail_library(EXIT_BAD_INPUT);
    void *about = model_file_entry(predictor, "about");
    const char *kind = about ? fx_string_text(model_file_entry(about, "kind")) : NULL;
    if (!kind || strcmp(kind, "language") != 0)
        return fail(EXIT_BAD_INPUT, "%s is not a language model: cflux train --text trains one",
                    path);
    fx_seed((uint64_t)seed);
    if (prompt)
        print_token(prompt, strlen(prompt), &terminal);
    fx_array *ids = fx_generate(fx_to(device, predictor), .prompt = prompt, .length = length,
                                .temperature = temperature, .top_k = top_k, .on_token = print_token,
                                .user = &terminal);
    putchar('\n');
    return fx_is_error(ids) ? fail_library(EXIT_FAILED) : EXIT_FINE;
}

const command command_generate = {
    .name = "generate",
    .summary = "Continue a text with a language model",
    .operands = "MODEL",
    .least = 1,
    .most = 1,
    .examples = "cflux generate story.bson --prompt \"Once upon a time\" --length 100\n",
    .about = "Prints the prompt and its continuation. MODEL was saved by cflux train --text.",
    .options = options,
    .run = run_generate,
};
