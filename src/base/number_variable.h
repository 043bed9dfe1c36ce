/* number_variable.h: reads numbers from environment variables. Internal. */
#ifndef CFLUX_NUMBER_VARIABLE_H
#define CFLUX_NUMBER_VARIABLE_H

#include <stdbool.h>
#include <stdint.h>

/* The whole number, from `least` to `most`, in an environment variable; `otherwise` if the variable
 * is not set or empty. Any other text is ignored with a warning that names the variable, the text
 * and `otherwise`, which is used instead. io_warned: false before the first call; true after a
 * warning, which is given once. */
int64_t fxi_number_variable(const char *name, int64_t least, int64_t most, int64_t otherwise,
                            bool *io_warned);

#endif
