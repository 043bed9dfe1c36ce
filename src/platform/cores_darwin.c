/* cores_darwin.c: counts the cores of macOS; see cores.h. macOS has neither affinity masks nor
 * quotas of cores. */
#include "cores.h"

#include <unistd.h>

int fxi_system_cores(void)
{
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : (int)n;
}
