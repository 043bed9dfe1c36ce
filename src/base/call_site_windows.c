/* call_site_windows.c: what programs reach by a function, because the thread-local variables of a
 * DLL are its own. */
#include "error.h"

FX_API const char **fxi_call_site_of_thread(void);

const char **fxi_call_site_of_thread(void)
{
    return &fxi_call_site;
}
