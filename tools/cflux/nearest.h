/* nearest.h: the name that somebody may have meant. */
#ifndef CFLUX_TOOL_NEAREST_H
#define CFLUX_TOOL_NEAREST_H

/* The one of n names that takes the fewest changed letters to become `word` (a swap of neighbours
 * is one change, case counts nothing); NULL when none is near: a third of the letters, at least
 * one, may differ. Ties go to the first. */
const char *nearest(const char *word, const char *const *names, int n);

#endif
