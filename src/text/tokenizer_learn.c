/* tokenizer_learn.c: learns a tokenizer from files: see cflux/tokenizer.h.
 *
 * The distinct words of the files are counted. Each word is a list of tokens, first its bytes. An
 * entry of a queue is a pair of tokens, its count, and the words in which it may occur; the pair
 * with the highest count becomes a merge. In the words that contain the merged pair the counts of
 * the neighbouring pairs change, and the pairs that arise are queued with these words. An entry of
 * the queue whose count is out of date is queued again with the current one, so that no entry has
 * to be found and changed. (Sennrich, Haddow, Birch, 2016; the queue as in PyPI's `tokenizers`.)
 */
#include "csv_lines.h"
#include "error.h"
#include "memory.h"
#include "tokenizer_parts.h"
#include "utf8.h"
#include "words.h"

#include <string.h>

static const char *const OP = "tokenizer_learn";

/* Numbers of words, ascending, without repetition. */
typedef struct word_list {
    int32_t *words;
    int32_t count, capacity;
} word_list;

typedef struct pair_state {
    uint64_t pair;
    int64_t count;
    int32_t list; /* words in which this round made the pair; −1: none */
} pair_state;

typedef struct learner {
    fx_tokenizer t;
    fxi_strings words;
    int64_t *counts; /* of each word */
    int32_t counts_capacity;
    int32_t *symbols;   /* the tokens of all words, one after another */
    size_t *start;      /* of each word in `symbols` */
    int32_t *length;    /* tokens of each word */
    fxi_pair_map pairs; /* pair → position in states */
    pair_state *states;
    int32_t nstates, states_capacity;
    word_list *lists;
    int32_t nlists, lists_capacity;
    int32_t *touched; /* states with a list of this round */
    int32_t ntouched, touched_capacity;
    fxi_queue queue;
} learner;

static fx_status no_memory(void)
{
    return fx_fail(FX_STATUS_MEMORY, OP, "no memory for the words of the files");
}

/* ---- counting words -------------------------------------------------------------------------- */

static fx_status count_line(learner *l, const unsigned char *line, size_t n)
{
    for (size_t at = 0, end; at < n; at = end) {
        end = fxi_word_end(line, n, at);
        const int32_t known = l->words.count,
                      word = fxi_strings_add(&l->words, line + at, end - at);
        if (word < 0 || !fxi_grow(&l->counts, &l->counts_capacity, word + 1, sizeof *l->counts))
            return no_memory();
        l->counts[word] = word == known ? 1 : l->counts[word] + 1;
    }
    return FX_OK;
}

static fx_status count_file(learner *l, const char *path)
{
    fxi_lines lines;
    bool more = true;
    fx_status status = fxi_lines_open(&lines, OP, path);
    while (status == FX_OK && (status = fxi_lines_next(&lines, &more)) == FX_OK && more) {
        size_t bad;
        unsigned char *line = (unsigned char *)lines.line;
        if (!fxi_is_utf8(line, lines.length, &bad)) {
            status = fx_fail(FX_STATUS_FORMAT, OP, "%s: line %lld: byte %zu (0x%02X) is not UTF-8",
                             path, (long long)lines.number, bad + 1, line[bad]);
            break;
        }
        if (lines.newline) /* replaces the final 0 */
            line[lines.length] = '\n';
        status = count_line(l, line, lines.length + lines.newline);
    }
    fxi_lines_close(&lines);
    return status;
}

static fx_status count_files(learner *l, int n, const char *const *paths)
{
    fx_status status = FX_OK;
    for (int i = 0; status == FX_OK && i < n; i++)
        status = count_file(l, paths[i]);
    if (status == FX_OK && l->words.count == 0)
        status = fx_fail(FX_STATUS_FORMAT, OP, "%s%s no text", paths[0],
                         n > 1 ? " and the other files have" : " has");
    return status;
}

/* Splits the words into the tokens of their bytes. */
static bool split_words(learner *l)
{
    const size_t n = (size_t)l->words.count;
    l->symbols = fxi_malloc((l->words.used + 1) * sizeof *l->symbols);
    l->start = fxi_malloc((n + 1) * sizeof *l->start);
    l->length = fxi_malloc((n + 1) * sizeof *l->length);
    if (!l->symbols || !l->start || !l->length)
        return false;
    size_t at = 0;
    for (int32_t w = 0; w < l->words.count; w++) {
        size_t length;
        const unsigned char *s = fxi_strings_get(&l->words, w, &length);
        if (length > INT32_MAX)
            return false;
        l->start[w] = at;
        l->length[w] = (int32_t)length;
        for (size_t i = 0; i < length; i++)
            l->symbols[at++] = l->t.byte_ids[s[i]];
    }
    return true;
}

/* ---- counting pairs -------------------------------------------------------------------------- */

/* The state of a pair, with count 0 if it is new; NULL: out of memory. */
static pair_state *state_of(learner *l, uint64_t pair)
{
    int64_t *at = fxi_pair_put(&l->pairs, pair);
    if (!at)
        return NULL;
    if (*at < 0) {
        if (!fxi_grow(&l->states, &l->states_capacity, l->nstates + 1, sizeof *l->states))
            return NULL;
        *at = l->nstates;
        l->states[l->nstates++] = (pair_state){pair, 0, -1};
    }
    return &l->states[*at];
}

static bool begin_list(learner *l, pair_state *state)
{
    if (!fxi_grow(&l->lists, &l->lists_capacity, l->nlists + 1, sizeof *l->lists) ||
        !fxi_grow(&l->touched, &l->touched_capacity, l->ntouched + 1, sizeof *l->touched))
        return false;
    l->touched[l->ntouched++] = (int32_t)(state - l->states);
    l->lists[l->nlists] = (word_list){0};
    state->list = l->nlists++;
    return true;
}

/* Adds `change` to the count of the pair; a pair that arises also gets the word into its list. */
static bool count_pair(learner *l, int32_t a, int32_t b, int32_t word, int64_t change)
{
    pair_state *state = state_of(l, fxi_pair(a, b));
    if (!state)
        return false;
    state->count += change;
    if (change < 0)
        return true;
    if (state->list < 0 && !begin_list(l, state))
        return false;
    word_list *list = &l->lists[state->list];
    if (list->count > 0 && list->words[list->count - 1] == word)
        return true;
    if (!fxi_grow(&list->words, &list->capacity, list->count + 1, sizeof *list->words))
        return false;
    list->words[list->count++] = word;
    return true;
}

static bool queue_state(learner *l, const pair_state *state, int32_t list)
{
    return fxi_queue_push(&l->queue,
                          (fxi_queued){UINT64_MAX - (uint64_t)state->count, state->pair, list});
}

static void free_list(learner *l, int32_t list)
{
    fxi_free(l->lists[list].words);
    l->lists[list] = (word_list){0};
}

/* Queues the pairs that this round made. */
static bool queue_touched(learner *l)
{
    for (int32_t i = 0; i < l->ntouched; i++) {
        pair_state *state = &l->states[l->touched[i]];
        if (state->count <= 0)
            free_list(l, state->list);
        else if (!queue_state(l, state, state->list))
            return false;
        state->list = -1;
    }
    l->ntouched = 0;
    return true;
}

static bool count_pairs(learner *l)
{
    for (int32_t w = 0; w < l->words.count; w++)
        for (int32_t i = 0; i + 1 < l->length[w]; i++) {
            const int32_t *s = l->symbols + l->start[w] + i;
            if (!count_pair(l, s[0], s[1], w, l->counts[w]))
                return false;
        }
    return queue_touched(l);
}

/* ---- merges ---------------------------------------------------------------------------------- */

/* Joins the pair everywhere in a word, from left to right, and counts the pairs that change. */
static bool merge_in_word(learner *l, int32_t w, fxi_merge m)
{
    int32_t *s = l->symbols + l->start[w], kept = 0;
    const int32_t n = l->length[w];
    const int64_t count = l->counts[w];
    bool good = true;
    for (int32_t i = 0; i < n; i++, kept++) {
        if (i + 1 == n || s[i] != m.a || s[i + 1] != m.b) {
            s[kept] = s[i];
            continue;
        }
        if (kept > 0)
            good = good && count_pair(l, s[kept - 1], m.a, w, -count) &&
                   count_pair(l, s[kept - 1], m.joined, w, count);
        s[kept] = m.joined;
        i++;
        if (i + 1 < n)
            good = good && count_pair(l, m.b, s[i + 1], w, -count) &&
                   count_pair(l, m.joined, s[i + 1], w, count);
    }
    l->length[w] = kept;
    return good;
}

static bool merge_entry(learner *l, fxi_queued entry)
{
    fxi_merge m = {.a = (int32_t)(entry.second >> 32), .b = (int32_t)(uint32_t)entry.second};
    if (!fxi_tokenizer_add_merge(&l->t, OP, m.a, m.b, &m.joined))
        return false;
    bool good = true;
    for (int32_t i = 0; good && i < l->lists[entry.value].count; i++)
        good = merge_in_word(l, l->lists[entry.value].words[i], m);
    free_list(l, entry.value);
    return good && queue_touched(l);
}

static bool learn_merges(learner *l, int64_t vocabulary, int64_t min_frequency)
{
    bool good = split_words(l) && count_pairs(l);
    for (fxi_queued entry;
         good && l->t.tokens.count < vocabulary && fxi_queue_pop(&l->queue, &entry);) {
        const pair_state *state = state_of(l, entry.second);
        if (!state || state->count < 1)
            free_list(l, entry.value);
        else if (UINT64_MAX - entry.first != (uint64_t)state->count)
            good = queue_state(l, state, entry.value);
        else if (state->count < min_frequency)
            break;
        else
            good = merge_entry(l, entry);
    }
    return good;
}

static void free_learner(learner *l)
{
    fxi_strings_free(&l->words);
    fxi_free(l->counts);
    fxi_free(l->symbols);
    fxi_free(l->start);
    fxi_free(l->length);
    fxi_pair_map_free(&l->pairs);
    fxi_free(l->states);
    for (int32_t i = 0; i < l->nlists; i++)
        fxi_free(l->lists[i].words);
    fxi_free(l->lists);
    fxi_free(l->touched);
    fxi_queue_free(&l->queue);
}

static fx_status check(int n, const char *const *paths, int64_t vocabulary)
{
    if (n < 1)
        return fx_fail(FX_STATUS_ARGUMENT, OP, "expected at least one file, got %d", n);
    if (fxi_check_list(OP, "files", n, paths) != FX_OK)
        return FX_STATUS_ARGUMENT;
    if (vocabulary < 256 || vocabulary > FXI_STRINGS_MOST)
        return fx_fail(FX_STATUS_ARGUMENT, OP,
                       "expected a vocabulary of 256 to %d tokens, got %lld", (int)FXI_STRINGS_MOST,
                       (long long)vocabulary);
    return FX_OK;
}

fx_tokenizer *fx_tokenizer_learn(int n, const char *const *paths, int64_t vocabulary,
                                 int64_t min_frequency)
{
    learner l = {0};
    bool good = check(n, paths, vocabulary) == FX_OK && count_files(&l, n, paths) == FX_OK;
    if (good && !(fxi_tokenizer_add_bytes(&l.t) && learn_merges(&l, vocabulary, min_frequency))) {
        good = false;
        no_memory();
    }
    free_learner(&l);
    return fxi_tokenizer_finish(&l.t, good);
}
