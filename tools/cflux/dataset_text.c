/* dataset_text.c: text files as observations: see dataset_text.h. */
#include "dataset_text.h"
#include "failure.h"
#include "system.h"
#include "text_bytes.h"
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

static const char LABEL[] = "__label__", MARK[] = "\xEF\xBB\xBF"; /* a byte order mark */
enum { LABEL_BYTES = sizeof LABEL - 1, MARK_BYTES = sizeof MARK - 1 };

bool holds_labelled_text(const char *path)
{
    char head[MARK_BYTES + LABEL_BYTES + 1] = "";
    gzFile f = kind_of_path(path) == PATH_FILE ? gzdopen(open_to_read(path), "rb") : NULL;
    if (!f)
        return false;
    gzread(f, head, sizeof head - 1);
    gzclose(f);
    const int skip = strncmp(head, MARK, MARK_BYTES) == 0 ? MARK_BYTES : 0;
    return strncmp(head + skip, LABEL, LABEL_BYTES) == 0;
}

int refuse_without_model(const char *path)
{
    FILE *f = kind_of_path(path) == PATH_FILE ? open_file(path, "rb") : NULL;
    const bool empty = f && fgetc(f) == EOF;
    if (f)
        fclose(f);
    return empty ? fail(EXIT_BAD_INPUT, "%s is empty", path)
                 : fail(EXIT_BAD_INPUT,
                        "--model is missing: only texts have a default model, with --text or with "
                        "lines that begin with __label__; a table with 4 features and 3 classes "
                        "can use --model 'Chain(Dense(4 => 32, relu), Dense(32 => 3))'");
}

/* ---- the file -------------------------------------------------------------------------------- */

/* A whole file, and the text and label of each line in it. */
typedef struct text_lines {
    const char *path;
    text_bytes file;
    const char **texts, **labels; /* NULL: the line has no label */
    int64_t n;
} text_lines;

static void free_lines(text_lines *l)
{
    free(l->file.bytes);
    free(l->texts);
    free(l->labels);
}

/* ---- the lines ------------------------------------------------------------------------------- */

static int bad_line(const text_lines *l, const char *what)
{
    return fail(EXIT_BAD_INPUT, "%s: line %lld %s", l->path, (long long)l->n + 1, what);
}

static const char white[] = " \t\r\v\f";

/* Divides a line, which ends with 0, into its label and its text. */
static int take_line(text_lines *l, char *line, bool labelled)
{
    char *text = line + strspn(line, white), *label = NULL;
    const bool has = strncmp(text, LABEL, LABEL_BYTES) == 0;
    if (!*text)
        return bad_line(l, "is empty");
    if (labelled && !has)
        return bad_line(l, "has no label: it must begin with __label__NAME");
    if (has) {
        label = text + LABEL_BYTES;
        text = label + strcspn(label, white);
        const size_t n = strspn(text, white);
        *text = 0;
        text += n;
        if (!*label)
            return bad_line(l, "has a label without a name");
        if (strncmp(text, LABEL, LABEL_BYTES) == 0)
            return bad_line(l, "has several labels, but an observation has one class");
        if (n == 0 || !*text)
            return bad_line(l, "has a label but no text");
    }
    l->labels[l->n] = label;
    l->texts[l->n++] = text;
    return EXIT_FINE;
}

static int divide(text_lines *l, bool labelled)
{
    char *at = l->file.text, *end = l->file.bytes + l->file.size;
    size_t most = 1;
    for (const char *s = at; (s = memchr(s, '\n', (size_t)(end - s))); s++)
        most++;
    l->texts = calloc(most, sizeof *l->texts);
    l->labels = calloc(most, sizeof *l->labels);
    int status = l->texts && l->labels ? EXIT_FINE : no_text_memory(l->path);
    while (status == EXIT_FINE && at < end) {
        char *stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop ? stop : end;
        *stop = 0;
        status = check_utf8(l->path, l->n + 1, at, (size_t)(stop - at));
        if (status == EXIT_FINE)
            status = take_line(l, at, labelled);
        at = stop + 1;
    }
    if (status == EXIT_FINE && l->n == 0)
        status = fail(EXIT_BAD_INPUT, "%s is empty", l->path);
    return status;
}

/* ---- labels ---------------------------------------------------------------------------------- */

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* A named tuple of the different labels, in alphabetical order, with the number of lines of each.
 * `sorted` has the label of each line; the call moves the *out_n different labels to its front. */
static void *different(const char **sorted, int64_t lines, int64_t *out_n)
{
    void **counts = calloc((size_t)lines, sizeof *counts);
    int64_t n = 0, same = 0;
    qsort(sorted, (size_t)lines, sizeof *sorted, by_text);
    for (int64_t i = 0; counts && i < lines; i++) {
        same = n > 0 && strcmp(sorted[n - 1], sorted[i]) == 0 ? same + 1 : 1;
        n += same == 1;
        sorted[n - 1] = sorted[i];
        if (i + 1 == lines || strcmp(sorted[i], sorted[i + 1]) != 0)
            counts[n - 1] = fx_scalar((double)same);
    }
    void *tuple = counts ? fx_named_tuple_from((int)n, sorted, counts) : memory_error();
    free(counts);
    *out_n = n;
    return tuple;
}

static int take_labels(const text_lines *l, dataset *d)
{
    const char **names = calloc((size_t)l->n, sizeof *names);
    float *numbers = calloc((size_t)l->n, sizeof *numbers);
    int64_t n = 0;
    d->labels = NULL;
    if (names && numbers) {
        memcpy(names, l->labels, (size_t)l->n * sizeof *names);
        d->labels = different(names, l->n, &n);
    }
    for (int64_t i = 0; d->labels && i < l->n; i++) {
        const char **at = bsearch(&l->labels[i], names, (size_t)n, sizeof *names, by_text);
        numbers[i] = (float)(at - names);
    }
    d->y = d->labels ? fx_from(FX_DTYPE_F32, numbers, l->n) : NULL;
    d->target = "label";
    free(names);
    free(numbers);
    if (!d->labels)
        return no_text_memory(l->path);
    return fx_is_error(d->labels) || fx_is_error(d->y) ? fail_library(EXIT_FAILED) : EXIT_FINE;
}

/* ---- ids ------------------------------------------------------------------------------------- */

int learn_tokenizer(data_request *r, int64_t vocabulary)
{
    const int n = r->more + 1;
    if (vocabulary < 256)
        return fail(EXIT_BAD_INPUT,
                    "--vocabulary %lld: a vocabulary has at least 256 tokens, one for each byte",
                    (long long)vocabulary);
    const char **paths = calloc((size_t)n, sizeof *paths);
    if (!paths)
        return no_text_memory(r->path);
    bool stream = false;
    for (int i = 0; i < n; i++) {
        paths[i] = dataset_path(r, i);
        stream |= strcmp(paths[i], "-") == 0;
    }
    r->tokenizer = stream ? NULL : fx_tokenizer_learn(n, paths, vocabulary, 2);
    free(paths);
    if (stream)
        return fail(EXIT_BAD_INPUT, "texts are read twice: give a file instead of standard input");
    return fx_is_error(r->tokenizer) ? fail_library(EXIT_BAD_INPUT) : EXIT_FINE;
}

static int64_t full_lines(fx_array *ids, int64_t most)
{
    const int32_t *v = fx_data(ids);
    const int64_t rows = fx_size(ids, 0);
    int64_t full = 0;
    for (int64_t i = 0; v && rows == most && i < fx_size(ids, 1); i++)
        full += v[(i + 1) * rows - 1] >= 0;
    return full;
}

static int take_ids(const data_request *r, const text_lines *l, dataset *d)
{
    const int64_t most = r->features ? r->features : LINE_TOKENS;
    d->x = fx_tokenizer_encode_texts(r->tokenizer, l->n, l->texts, most);
    if (fx_is_error(d->x))
        return fail_library(EXIT_FAILED);
    const int64_t full = full_lines(d->x, most);
    if (full > 0)
        warn("%s: only the first %lld tokens of a line are used; %lld line%s that length", l->path,
             (long long)most, (long long)full, full == 1 ? " reaches" : "s reach");
    return EXIT_FINE;
}

int read_text_lines(const data_request *r, dataset *d)
{
    const bool labelled = !r->unlabelled && !r->no_target;
    text_lines l = {.path = r->path};
    int status = check_text_options(r, "one observation per line");
    d->kind = "text";
    d->line = 1;
    if (status == EXIT_FINE)
        status = read_text_bytes(l.path, &l.file);
    if (status == EXIT_FINE)
        status = divide(&l, labelled);
    if (status == EXIT_FINE && labelled)
        status = take_labels(&l, d);
    if (status == EXIT_FINE)
        status = take_ids(r, &l, d);
    free_lines(&l);
    return status;
}

void align_texts(dataset *parts, int n)
{
    int64_t rows = 0;
    for (int i = 0; i < n; i++)
        rows = fx_size(parts[i].x, 0) > rows ? fx_size(parts[i].x, 0) : rows;
    for (int i = 0; i < n; i++) {
        const int64_t missing = rows - fx_size(parts[i].x, 0);
        const int64_t sizes[] = {missing, parts[i].n};
        if (missing > 0)
            parts[i].x = fx_concat(0, parts[i].x, fxi_full(FX_DTYPE_I32, -1, 2, sizes));
    }
}
