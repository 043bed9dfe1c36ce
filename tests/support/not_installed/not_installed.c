/* not_installed.c: hides the plugins of an installed cflux from a test program. Backends that a
 * test expects to be missing stay missing on a machine that has them. */
#include "plugin_file.h"

__attribute__((constructor)) static void hide_installed_plugins(void)
{
    fxi_installed_plugins = CFLUX_BUILD_DIR "/not_installed";
}
