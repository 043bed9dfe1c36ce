/* nearest.h: suggests the name that a user may have meant. */
#ifndef CFLUX_TOOL_NEAREST_H
#define CFLUX_TOOL_NEAREST_H

/* The one of n names with the smallest distance to `word`; NULL if none is near. A swap of
 * neighbours counts as one change, upper and lower case are equal, and at most a third of the
 * letters, but at least one, may differ, though never all. Among equals the first wins. */
const char *nearest(const char *word, const char *const *names, int n);

#endif
