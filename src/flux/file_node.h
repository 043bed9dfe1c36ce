/* file_node.h: what a file holds and the library has no type for. Internal.
 *
 * A node keeps the name and the children of a struct, so that the arrays in it stay reachable by
 * path; a text is a string or a name. Both are objects like any other: walks, maps and printing
 * know them. A node may stand among layers; to call it is an error that says what it is.
 */
#ifndef CFLUX_FILE_NODE_H
#define CFLUX_FILE_NODE_H

#include <cflux/tree.h>

/* A text of n bytes, which are copied. */
void *fxi_file_text(const char *text, size_t n);
/* Its bytes, terminated; NULL when the object is no text. */
const char *fxi_file_text_of(const void *object);

/* A node; children and names (NULL: none) are copied. */
void *fxi_file_node(const char *name, int n, const char *const *names, void *const *children);
/* Its name, "Main.Encoder"; NULL when the object is no node. */
const char *fxi_file_node_name(const void *object);

#endif
