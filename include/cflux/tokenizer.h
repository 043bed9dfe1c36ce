/* cflux/tokenizer.h: byte-pair tokenizers, which turn texts into numbers (ids) and back. */
#ifndef CFLUX_TOKENIZER_H
#define CFLUX_TOKENIZER_H

#include <cflux/array.h>

FXI_BEGIN_C

/* A byte-level BPE tokenizer of GPT-2's kind (Radford et al., 2019). It splits a text into words
 * with GPT-2's pattern
 *
 *     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *
 * with the classes of Unicode 16, each word into bytes, and then joins pairs of neighbours, of all
 * possible merges always the first of its list and the leftmost. Each of the 256 bytes is a token
 * too, so that every text has ids and comes back unchanged. A byte that is not UTF-8 counts as a
 * character that is neither letter, number nor white space.
 *
 * A tokenizer does not change: several threads may use it. The scope owns it; fx_keep and
 * fx_release apply. */
typedef struct fx_tokenizer fx_tokenizer;

/* Learns a tokenizer from n text files, plain or gzip: starts with the 256 bytes, and joins the
 * pair of tokens that occurs most often, of equals the pair with the smaller ids, until there are
 * `vocabulary` tokens or no pair occurs at least `min_frequency` times. Pairs do not cross words,
 * and words do not cross lines. 256 tokens: bytes without merges. The same files give the merges of
 * PyPI's `tokenizers`. FX_STATUS_IO; FX_STATUS_FORMAT with the line if a file is not UTF-8, or if
 * all files together are empty; FX_STATUS_ARGUMENT if vocabulary < 256 or n < 1. */
FX_API fx_tokenizer *fx_tokenizer_learn(int n, const char *const *paths, int64_t vocabulary,
                                        int64_t min_frequency);

/* Loads a tokenizer from GPT-2's two files: `vocab`, a JSON object of all tokens with their ids
 * from 0 without gaps, and `merges`, a pair of tokens in each line. In both files a byte is written
 * as a printable character, e.g. Ġ is a space. A token that contains other characters, such as a
 * space, counts as its own text. Only fx_tokenizer_id finds tokens that no merge makes, such as
 * <|endoftext|>. FX_STATUS_IO; FX_STATUS_FORMAT with the offset or line if a file is damaged, a
 * token of a merge is missing, or a byte has no token. */
FX_API fx_tokenizer *fx_tokenizer_load(const char *vocab, const char *merges);

/* Writes the two files of fx_tokenizer_load, each completely or not at all. FX_STATUS_IO. */
FX_API fx_status fx_tokenizer_save(const fx_tokenizer *t, const char *vocab, const char *merges);

/* The ids of a text of `bytes` bytes, an Int64 vector on the CPU; the scope owns it. */
FX_API fx_array *fx_tokenizer_encode(const fx_tokenizer *t, const char *text, size_t bytes);

/* The text of ids, an array of integers of any shape. Writes at most `capacity` bytes to `dst`: as
 * much of the text as fits, and a 0 behind it if it fits completely. *out_bytes is the length of
 * the whole text without the 0. dst may be NULL if capacity is 0. FX_STATUS_DTYPE if ids are not
 * integers; FX_STATUS_ARGUMENT for an id that is not in 0 … fx_tokenizer_count−1. */
FX_API fx_status fx_tokenizer_decode(const fx_tokenizer *t, fx_array *ids, char *dst,
                                     size_t capacity, size_t *out_bytes);

/* The number of tokens, including the 256 bytes; 0 for an error object. */
FX_API int64_t fx_tokenizer_count(const fx_tokenizer *t);

/* The id of the token with exactly these bytes; −1 if there is none. */
FX_API int64_t fx_tokenizer_id(const fx_tokenizer *t, const char *token, size_t bytes);

FXI_END_C
#endif
