/* words.c: splits a text into words: see words.h. The alternatives of GPT-2's pattern are tried in
 * its order:
 *
 *     's|'t|'re|'ve|'m|'ll|'d   an English ending
 *     ' ?' and a run            of letters, of numbers, or of characters of no class
 *     \s+(?!\S)                 white space; if a word follows, without the last character, which
 *                               may be the word's own blank
 *     \s+                       a single white space before a word
 */
#include "words.h"
#include "utf8.h"

#include <string.h>

typedef enum character_class { OTHER = 0, LETTER, NUMBER, SPACE } character_class;

/* Characters `first` to `last` have the class; all others are OTHER. Ordered. */
static const struct {
    uint32_t first, last;
    character_class class;
} RANGES[] = {
#include "character_classes.inc"
};
enum { NRANGES = sizeof RANGES / sizeof RANGES[0] };

static character_class class_of(uint32_t c)
{
    int low = 0, high = NRANGES;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (RANGES[middle].last < c)
            low = middle + 1;
        else
            high = middle;
    }
    return low < NRANGES && RANGES[low].first <= c ? RANGES[low].class : OTHER;
}

/* The class of the character at `at` < n, and where it ends. */
static character_class next_character(const unsigned char *s, size_t n, size_t at, size_t *out_end)
{
    size_t length;
    const uint32_t c = fxi_character(s + at, n - at, &length);
    *out_end = at + length;
    return class_of(c);
}

/* The length of an English ending at `at`; 0 if there is none. */
static size_t ending_at(const unsigned char *s, size_t n, size_t at)
{
    static const char *const endings[] = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
    for (size_t i = 0; s[at] == '\'' && i < sizeof endings / sizeof endings[0]; i++) {
        const size_t length = strlen(endings[i]);
        if (n - at >= length && memcmp(s + at, endings[i], length) == 0)
            return length;
    }
    return 0;
}

/* The end of the run of characters of this class. *out_last: where its last character begins. */
static size_t end_of_run(const unsigned char *s, size_t n, size_t at, character_class class,
                         size_t *out_last)
{
    size_t end;
    *out_last = at;
    while (at < n && next_character(s, n, at, &end) == class) {
        *out_last = at;
        at = end;
    }
    return at;
}

size_t fxi_word_end(const unsigned char *text, size_t n, size_t at)
{
    size_t end, last, start = at;
    const size_t ending = ending_at(text, n, at);
    if (ending > 0)
        return at + ending;
    character_class class = next_character(text, n, at, &end);
    if (text[at] == ' ' && end < n) {
        const character_class after = next_character(text, n, end, &last);
        start = after != SPACE ? end : at;
        class = after;
    }
    end = end_of_run(text, n, start, class, &last);
    return class == SPACE && end < n && last > start ? last : end;
}
