/* terminal_posix.c: asks about terminals on POSIX systems; see terminal.h. */
#include "terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

bool fxi_is_terminal(FILE *stream)
{
    const int descriptor = fileno(stream);
    return descriptor >= 0 && isatty(descriptor);
}

int fxi_terminal_columns(FILE *stream)
{
    struct winsize size = {0};
    return ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}
