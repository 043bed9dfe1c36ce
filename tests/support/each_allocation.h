/* each_allocation.h: makes every allocation of a reader fail, one after another. */
#ifndef CFLUX_TEST_EACH_ALLOCATION_H
#define CFLUX_TEST_EACH_ALLOCATION_H

/* Reads the file repeatedly until no allocation fails. Checks that each failure returns an error
 * object with a record of FX_STATUS_MEMORY, that nothing leaks, and that at least `at_least`
 * allocations failed. */
void each_allocation_of(void *(*read)(const char *path), const char *path, int at_least);

#endif
