/* call_site_windows.c: returns the address of fxi_call_site, because a program cannot use the
 * thread-local variables of a DLL. */
#include "error.h"

FX_API const char **fxi_call_site_of_thread(void);

const char **fxi_call_site_of_thread(void)
{
    return &fxi_call_site;
}
