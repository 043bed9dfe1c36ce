/* predict_cases.c: predicts as `cflux predict --probabilities` does, with the calls of a C program:
 * predict_cases MODEL FILE, where FILE is a CSV, npy or IDX file, or a .txt file with a text in
 * each line. Prints a line for each observation: the name of its class and the probabilities, or
 * the numbers. For a language model FILE is "prompt:TEXT", and it prints the text and 57 more
 * tokens, the most likely ones. The exit status is 2 on failure, with the message on stderr. */
#include <cflux.h>
#include <stdlib.h>
#include <string.h>

static const char PROMPT[] = "prompt:";

static fx_array *predict_lines(void *predictor, const char *path)
{
    enum { LINES = 100, BYTES = 1000 };
    static char lines[LINES][BYTES];
    const char *texts[LINES];
    int n = 0;
    FILE *f = fopen(path, "r");
    for (; f && n < LINES && fgets(lines[n], BYTES, f); n++)
        texts[n] = lines[n];
    if (f)
        fclose(f);
    return fx_predict_texts(predictor, n, texts);
}

static int print_text(void *predictor, const char *prompt)
{
    char text[1000];
    size_t bytes;
    fx_array *ids = fx_generate(predictor, .prompt = prompt, .length = 57, .temperature = 0);
    if (fx_predicted_text(predictor, ids, text, sizeof text, &bytes) != FX_OK)
        return 2;
    printf("%s%s\n", prompt, text);
    return 0;
}

static fx_array *predict(void *predictor, const char *path)
{
    if (strstr(path, ".txt"))
        return predict_lines(predictor, path);
    if (strstr(path, ".npy"))
        return fx_predict(predictor, fx_load(path));
    if (strstr(path, "idx"))
        return fx_predict(predictor, fx_div(fx_cast(fx_read_idx(path), FX_DTYPE_F32), 255));
    return fx_predict_csv(predictor, path);
}

static int print(void *predictor, fx_array *y)
{
    const bool named = fx_class_name(predictor, 0) != NULL;
    fx_array *classes = named ? fx_predicted_classes(predictor, y) : NULL;
    y = named ? fx_predicted_probabilities(predictor, y) : y;
    const float *values = fx_data(y);
    const int64_t *guesses = named ? fx_data(classes) : NULL;
    if (!values || (named && !guesses))
        return 2;
    for (int64_t i = 0; i < fx_size(y, 1); i++) {
        if (named)
            printf("%s,", fx_class_name(predictor, guesses[i]));
        for (int64_t k = 0; k < fx_size(y, 0); k++)
            printf("%s%.9g", k ? "," : "", (double)values[i * fx_size(y, 0) + k]);
        puts("");
    }
    return 0;
}

int main(int n, char **arguments)
{
    FX_SCOPE;
    if (n != 3)
        return 1;
    void *predictor = fx_load_predictor(arguments[1]);
    const char *file = arguments[2];
    const bool prompt = strncmp(file, PROMPT, sizeof PROMPT - 1) == 0;
    const int status = fx_is_error(predictor) ? 2
                       : prompt               ? print_text(predictor, file + sizeof PROMPT - 1)
                                              : print(predictor, predict(predictor, file));
    if (status)
        fprintf(stderr, "%s\n", fx_error_take().message);
    return status;
}
