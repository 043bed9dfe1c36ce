/* each_allocation.h: every allocation of a reader failing in turn. */
#ifndef CFLUX_TEST_EACH_ALLOCATION_H
#define CFLUX_TEST_EACH_ALLOCATION_H

/* Reads the file until no allocation fails any more: each failure is an error object with a record
 * of FX_STATUS_MEMORY, nothing leaks, and there are at least so many of them. */
void each_allocation_of(void *(*read)(const char *path), const char *path, int at_least);

#endif
