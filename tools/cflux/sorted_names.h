/* sorted_names.h: the names of a tuple in alphabetical order, to find one among very many. */
#ifndef CFLUX_TOOL_SORTED_NAMES_H
#define CFLUX_TOOL_SORTED_NAMES_H

#include <stdint.h>

/* A name, which is the tuple's, and the place of its object there. */
typedef struct sorted_name {
    const char *text;
    int64_t place;
} sorted_name;

/* As many as the tuple has objects, in memory that is the caller's; NULL: there is none. */
sorted_name *sorted_names(void *tuple);

/* The place in the tuple of n names; −1: there is no such name. */
int64_t place_of_name(const sorted_name *names, int64_t n, const char *wanted);

#endif
