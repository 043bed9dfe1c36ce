/* sorted_names.h: the names of a tuple in alphabetical order, to find one of very many quickly. */
#ifndef CFLUX_TOOL_SORTED_NAMES_H
#define CFLUX_TOOL_SORTED_NAMES_H

#include <stdint.h>

/* A name, owned by the tuple, and the position of its object in the tuple. */
typedef struct sorted_name {
    const char *text;
    int64_t index;
} sorted_name;

/* One entry per object of the tuple; the caller frees the list. NULL if out of memory. */
sorted_name *sorted_names(void *tuple);

/* The position in the tuple, among n names; −1 if there is no such name. */
int64_t index_of_name(const sorted_name *names, int64_t n, const char *wanted);

#endif
