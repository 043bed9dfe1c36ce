/* option_struct.h: reads the option struct that a program passes. Internal.
 *
 * The program may have been compiled with an older header, whose struct is shorter, or with a newer
 * one, whose struct is longer. fxi_take_options starts with the defaults of this library and copies
 * the program's members over them. Members that an older struct lacks keep their defaults. A newer
 * struct is accepted if the part that this library does not know is zero.
 */
#ifndef CFLUX_OPTION_STRUCT_H
#define CFLUX_OPTION_STRUCT_H

#include <cflux/base.h>

/* The largest option struct that is accepted, in bytes. */
enum { FXI_LARGEST_OPTIONS = 4096 };

/* Copies the options of `given` over the defaults in `out`, a struct of `size` bytes. False if the
 * struct has an impossible size or is too new (FX_STATUS_ARGUMENT is recorded under the name `op`);
 * `out` then holds the defaults. */
bool fxi_take_options(const char *op, void *out, size_t size, const void *given);

/* The reverse: copies to the caller's struct `io` the members of `values` that it has. */
void fxi_give_options(void *io, const void *values, size_t size);

/* Declares `name`, a T with the defaults of its list. */
#define FXI_DEFAULT_OPTIONS(T, MEMBERS, name) T name = {.fxi_size = sizeof(T), MEMBERS(FXI_DEFAULT)}
/* The same, then takes the options of `given`; `name_ok` says whether that worked. */
#define FXI_TAKE_OPTIONS(T, MEMBERS, name, op, given)                                              \
    FXI_DEFAULT_OPTIONS(T, MEMBERS, name);                                                         \
    const bool name##_ok = fxi_take_options((op), &name, sizeof name, (given))

#endif
