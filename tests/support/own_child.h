/* own_child.h: the test program runs itself once more, for what happens once in the life of a
 * process or ends it. */
#ifndef CFLUX_TEST_OWN_CHILD_H
#define CFLUX_TEST_OWN_CHILD_H

#include <stddef.h>

/* Runs this program with one argument and `environment` ("FX_HANDLES=1", "" for none); what it
 * prints, stderr included, is put into `out`. Returns its exit status, or −signal. */
int own_child(const char *environment, const char *argument, char *out, size_t capacity);

#endif
