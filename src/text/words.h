/* words.h: splits a text into words as GPT-2 does, before they are split into tokens. Internal. */
#ifndef CFLUX_WORDS_H
#define CFLUX_WORDS_H

#include <stddef.h>

/* The end of the word that begins at byte `at` < n of the text; see tokenizer.h for the pattern. A
 * byte that is not UTF-8 is a character that is neither letter, number nor white space. */
size_t fxi_word_end(const unsigned char *text, size_t n, size_t at);

#endif
