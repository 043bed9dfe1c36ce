/* option_struct.c: reads option structs of programs that were compiled with an older or newer
 * header. See option_struct.h.
 */
#include "option_struct.h"

#include <string.h>

/* Members are aligned to 8 bytes, so every size is a multiple of 8. A struct that was filled in by
 * neither a macro nor C++ usually begins with another number, most often 0. */
enum { ALIGNMENT = 8 };

static bool all_zero(const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i])
            return false;
    return true;
}

bool fxi_take_options(const char *op, void *out, size_t size, const void *given)
{
    size_t theirs = 0;
    if (given)
        memcpy(&theirs, given, sizeof theirs);
    const bool too_short = theirs < sizeof theirs || (theirs == sizeof theirs && size > theirs);
    if (too_short || theirs > FXI_LARGEST_OPTIONS || theirs % ALIGNMENT) {
        fx_fail(FX_STATUS_ARGUMENT, op,
                "the option struct must begin with its size: .fxi_size is %zu, expected %zu",
                theirs, size);
        return false;
    }
    if (theirs > size && !all_zero((const char *)given + size, theirs - size)) {
        fx_fail(FX_STATUS_ARGUMENT, op,
                "the program was compiled for a newer cflux: it sets options that this library (%s)"
                " does not have",
                fx_version());
        return false;
    }
    const size_t n = theirs < size ? theirs : size, head = sizeof theirs;
    memcpy((char *)out + head, (const char *)given + head, n - head);
    return true;
}

void fxi_give_options(void *io, const void *values, size_t size)
{
    size_t theirs;
    memcpy(&theirs, io, sizeof theirs);
    const size_t n = theirs < size ? theirs : size, head = sizeof theirs;
    memcpy((char *)io + head, (const char *)values + head, n - head);
}
