/* functions.h: the type of function objects. Internal. */
#ifndef CFLUX_FUNCTIONS_H
#define CFLUX_FUNCTIONS_H

#include "object_types.h"

extern const fx_type fxi_function_type;

#endif
