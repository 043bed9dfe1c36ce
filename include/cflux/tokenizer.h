/* cflux/tokenizer.h: tokenizers, which convert texts to numbers (ids) and back. */
#ifndef CFLUX_TOKENIZER_H
#define CFLUX_TOKENIZER_H

#include <cflux/array.h>

FXI_BEGIN_C

/* A byte-level BPE tokenizer of GPT-2's kind (byte-pair encoding; Radford et al., 2019). A token is
 * a string of bytes with an id. Each of the 256 bytes is a token, and a list of merges says which
 * pairs of tokens are joined into longer ones. To encode a text, the tokenizer first splits it into
 * words with GPT-2's pattern
 *
 *     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *
 * where letters, numbers and white space are those of Unicode 16. Each word begins as its bytes.
 * Then neighbouring tokens are joined until no merge applies: each time by the applicable merge
 * that is first in the list, at its leftmost position. Every text has ids, and decoding them gives
 * the same bytes. A byte that is not UTF-8 counts as a character that is neither a letter, a number
 * nor white space.
 *
 * A tokenizer does not change, so several threads may use it. The scope owns it; fx_keep,
 * fx_retain and fx_release apply. */
typedef struct fx_tokenizer fx_tokenizer;

/* Learns a tokenizer from n text files, plain or gzip. It starts with the 256 bytes, and joins the
 * pair of tokens that occurs most often in the files. If several pairs occur equally often, it
 * joins the pair with the smaller ids. It stops when there are `vocabulary` tokens, or when no pair
 * occurs at least `min_frequency` times. A vocabulary of 256 has no merges. Pairs do not extend
 * over two words, and words do not extend over two lines. The Python package `tokenizers` learns
 * the same merges from the same files.
 *
 * Errors: FX_STATUS_IO; FX_STATUS_FORMAT if a file is not UTF-8 (the message names the line), or if
 * all files together are empty; FX_STATUS_ARGUMENT if n < 1, paths is NULL, or vocabulary is not
 * from 256 to 2^29. */
FX_API fx_tokenizer *fx_tokenizer_learn(int n, const char *const *paths, int64_t vocabulary,
                                        int64_t min_frequency);

/* Loads a tokenizer from GPT-2's two files. `vocab` is a JSON object of all tokens with their ids,
 * which must be 0 to count − 1. `merges` has a pair of tokens in each line. In both files each byte
 * is written as a printable character: Ġ is a space, for example. A token with another character,
 * such as a real space, is read as plain text. Only fx_tokenizer_id finds tokens that are neither a
 * byte nor the result of a merge, such as <|endoftext|>; fx_tokenizer_encode never returns them.
 *
 * Errors: FX_STATUS_IO; FX_STATUS_FORMAT, with the offset or the line, if a file is damaged, a
 * token of a merge is missing, or a byte has no token; FX_STATUS_ARGUMENT if a path is NULL. */
FX_API fx_tokenizer *fx_tokenizer_load(const char *vocab, const char *merges);

/* Writes the two files that fx_tokenizer_load reads, each completely or not at all. Errors:
 * FX_STATUS_IO; FX_STATUS_ARGUMENT if t is not a tokenizer or a path is NULL. */
FX_API fx_status fx_tokenizer_save(const fx_tokenizer *t, const char *vocab, const char *merges);

/* Returns the ids of a text of `bytes` bytes: an Int64 vector on the CPU, which the scope owns. The
 * text may contain zero bytes. FX_STATUS_ARGUMENT if `text` is NULL and bytes > 0. */
FX_API fx_array *fx_tokenizer_encode(const fx_tokenizer *t, const char *text, size_t bytes);

/* Writes the text of `ids`, integers of any shape, to `dst`: at most `capacity` bytes, and a
 * terminating 0 if there is space for it. *out_bytes is the length of the whole text without the 0;
 * a length of `capacity` or more means that the text was cut or has no 0. If dst is
 * NULL, nothing is written. Evaluates ids. Errors: FX_STATUS_DTYPE if ids are not integers;
 * FX_STATUS_ARGUMENT for an id outside 0 … fx_tokenizer_count − 1. On failure *out_bytes is 0. */
FX_API fx_status fx_tokenizer_decode(const fx_tokenizer *t, fx_array *ids, char *dst,
                                     size_t capacity, size_t *out_bytes);

/* The merges in their order, an Int32 matrix of shape (2, merges): the ids of the two tokens that
 * each merge joins. The scope owns it. A file of arrays can keep a tokenizer in this form.
 * The ids of a learned tokenizer count first the 256 bytes in GPT-2's order, then the tokens of the
 * merges in their order. FX_STATUS_ARGUMENT if a tokenizer of fx_tokenizer_load has other ids, or
 * if the tokens of n merges together have more than 4 MiB + n·256 bytes. */
FX_API fx_array *fx_tokenizer_merges(const fx_tokenizer *t);

/* Makes a tokenizer from the result of fx_tokenizer_merges. FX_STATUS_ARGUMENT if `merges` is not a
 * matrix of integers with 2 rows, contains an id that no earlier merge makes, or describes tokens
 * of more bytes than fx_tokenizer_merges permits. */
FX_API fx_tokenizer *fx_tokenizer_from_merges(fx_array *merges);

/* The ids of n texts, an Int32 matrix of shape (longest, n) on the CPU: column i has the ids of
 * text i, and then −1. ASCII white space at the ends of a text is ignored. A space is added before
 * each text, so that its first word has the same ids as elsewhere. If `most` is above 0, only the
 * first `most` ids of a text are kept. The scope owns the result. FX_STATUS_ARGUMENT if n < 1, or
 * if a text is NULL or empty. */
FX_API fx_array *fx_tokenizer_encode_texts(const fx_tokenizer *t, int64_t n,
                                           const char *const *texts, int64_t most);

/* Turns ids of fx_tokenizer_encode_texts into the input of EmbeddingBag, with a bag for each text:
 * a tuple (data, at) of Int64 vectors on the CPU, see fx_embeddingbag. Reads the ids, so they are
 * evaluated. The scope owns the result. FX_STATUS_ARGUMENT if `ids` is not a matrix of integers, or
 * if a column has no id. */
FX_API void *fx_token_bags(fx_array *ids);

/* The number of tokens, including the 256 bytes; 0 for an error object. */
FX_API int64_t fx_tokenizer_count(const fx_tokenizer *t);

/* The id of the token with exactly these bytes; −1 if there is none. */
FX_API int64_t fx_tokenizer_id(const fx_tokenizer *t, const char *token, size_t bytes);

FXI_END_C
#endif
