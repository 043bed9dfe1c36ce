/* file_node.h: a struct read from a file for which the library has no type. Internal.
 *
 * A file node keeps the name and the children of the struct, so that its arrays stay reachable by
 * path. A text is a string or a name. Both are ordinary objects: walks, maps and printing work on
 * them. A file node may be one of the layers of a chain; calling it is an error that names its
 * type.
 */
#ifndef CFLUX_FILE_NODE_H
#define CFLUX_FILE_NODE_H

#include <cflux/tree.h>

/* Makes a text; copies its n bytes. */
void *fxi_file_text(const char *text, size_t n);
/* The terminated bytes of a text; NULL if the object is not a text. */
const char *fxi_file_text_of(const void *object);

/* Makes a node; copies children and names (NULL: no names). */
void *fxi_file_node(const char *name, int n, const char *const *names, void *const *children);
/* The name of a node, "Main.Encoder"; NULL if the object is not a node. */
const char *fxi_file_node_name(const void *object);

#endif
