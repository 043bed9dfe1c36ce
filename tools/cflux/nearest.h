/* nearest.h: suggests the name that a user may have meant. */
#ifndef CFLUX_TOOL_NEAREST_H
#define CFLUX_TOOL_NEAREST_H

/* The first of the names with the smallest distance to `word`; NULL if none is near. A swap of
 * neighbours counts as one change, and upper and lower case are equal. A third of the letters may
 * differ, or one if a third is less, but never all. */
const char *nearest(const char *word, const char *const *names, int n);

#endif
