/* each_allocation.h: makes every allocation of a reader fail, one after another. */
#ifndef CFLUX_TEST_EACH_ALLOCATION_H
#define CFLUX_TEST_EACH_ALLOCATION_H

/* Reads the file repeatedly: in each read another allocation fails, until one read has fewer
 * allocations. Checks that a read that fails returns an error object with a record of
 * FX_STATUS_MEMORY, that nothing leaks, and that at least `at_least` allocations failed. */
void each_allocation_of(void *(*read)(const char *path), const char *path, int at_least);

#endif
