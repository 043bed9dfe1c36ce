/* utf8.h: is a text UTF-8? Internal. */
#ifndef CFLUX_UTF8_H
#define CFLUX_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Are n bytes UTF-8 without a zero byte? *out_at: where they are not. */
bool fxi_is_utf8(const unsigned char *s, size_t n, size_t *out_at);

#endif
