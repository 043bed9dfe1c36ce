/* terminal_windows.c: asks about the console of Windows; see terminal.h. */
#include "terminal.h"

#include <io.h>
#include <windows.h>

bool fxi_is_terminal(FILE *stream)
{
    const int descriptor = _fileno(stream);
    return descriptor >= 0 && _isatty(descriptor);
}

int fxi_terminal_columns(FILE *stream)
{
    CONSOLE_SCREEN_BUFFER_INFO info;
    const HANDLE h = (HANDLE)_get_osfhandle(_fileno(stream));
    return GetConsoleScreenBufferInfo(h, &info) ? info.srWindow.Right - info.srWindow.Left + 1 : 0;
}
