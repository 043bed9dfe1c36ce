/* cores_windows.c: counts the cores of Windows; see cores.h. */
#include "cores.h"

#include <windows.h>

int fxi_system_cores(void)
{
    DWORD_PTR own, all;
    int n = 0;
    if (GetProcessAffinityMask(GetCurrentProcess(), &own, &all))
        for (; own; own &= own - 1)
            n++;
    return n < 1 ? 1 : n;
}
