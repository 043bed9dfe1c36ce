/* same_tree.h: tests whether an object has not changed since it was walked. Internal. A walk over a
 * model reads a few dozen words: types, pointers to children, lengths of lists. A recorded training
 * step (tape.h) keeps them and compares them instead of walking again.
 */
#ifndef CFLUX_SAME_TREE_H
#define CFLUX_SAME_TREE_H

#include "identity_map.h"
#include "node.h"

#include <cflux/tree.h>

/* A word in memory, and its value when it was noted. */
typedef struct fxi_tree_word {
    const void *at;
    uintptr_t was;
} fxi_tree_word;

typedef struct fxi_tree_array {
    fx_array *array;
    uint8_t dtype;
} fxi_tree_array;

/* The results of walks below an object: the words, in an order in which equality of all earlier
 * words proves that the memory of the next word still exists; the arrays, each once; and the
 * objects with children, each once and after its children. */
typedef struct fxi_tree_record {
    fxi_tree_word *words;
    fxi_tree_array *arrays;
    void **objects;
    int32_t nwords, narrays, nobjects, word_capacity, array_capacity, object_capacity;
    fxi_identity_map seen; /* only while it is noted */
} fxi_tree_record;

/* Fills in an empty record. False: the object contains views of arrays or error objects, or is
 * nested more than 64 levels deep, or the allocation failed; the record must be freed then, too. */
bool fxi_tree_note(fxi_tree_record *r, void *root);
/* Would walks over the noted object find the same? */
bool fxi_tree_same(const fxi_tree_record *r);
void fxi_tree_record_free(fxi_tree_record *r);

#endif
