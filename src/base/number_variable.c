/* number_variable.c: see number_variable.h. */
#include "number_variable.h"

#include <cflux/base.h>
#include <stdlib.h>

int64_t fxi_number_variable(const char *name, int64_t least, int64_t most, int64_t otherwise,
                            bool *io_warned)
{
    const char *text = getenv(name);
    char *end;
    if (!text || !*text)
        return otherwise;
    const int64_t n = strtoll(text, &end, 10);
    if (end != text && !*end && n >= least && n <= most)
        return n;
    if (!__atomic_exchange_n(io_warned, true, __ATOMIC_RELAXED))
        fx_message(1, "%s: \"%s\" is not a whole number from %lld to %lld; %lld is used.", name,
                   text, (long long)least, (long long)most, (long long)otherwise);
    return otherwise;
}
