/* own_child.h: runs the test program again as a child, for tests of behaviour that happens once per
 * process or ends it. */
#ifndef CFLUX_TEST_OWN_CHILD_H
#define CFLUX_TEST_OWN_CHILD_H

#include <stddef.h>

/* Runs this program with one argument and `environment` ("FX_HANDLES=1", "" for none). Its output,
 * stderr included, is written to `out`. Returns its exit status, or −signal. */
int own_child(const char *environment, const char *argument, char *out, size_t capacity);

#endif
