/* preferences.h: the preferred GPU backend as the project's preference file has it. Internal. */
#ifndef CFLUX_PREFERENCES_H
#define CFLUX_PREFERENCES_H

#include <cflux/base.h>

/* The value of gpu_backend in [MLDataDevices], else in [Flux], when it was first asked for in this
 * process; "" when there is none or the file is corrupt (a warning says its line). */
const char *fxi_preferred_backend(void);
/* Writes the preference; the process keeps its own. */
fx_status fxi_preference_store(const char *backend);
/* Forgets what was read. For tests. */
FX_API void fxi_preferences_reset(void);

#endif
