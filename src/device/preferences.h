/* preferences.h: the preferred GPU backend from the project's preference file. Internal. */
#ifndef CFLUX_PREFERENCES_H
#define CFLUX_PREFERENCES_H

#include <cflux/base.h>

/* The value of gpu_backend in [MLDataDevices], else in [Flux], read once in this process; "" if
 * there is none or the file is invalid (a warning names the line). */
const char *fxi_preferred_backend(void);
/* Writes the preference to the file. It takes effect in the next process. */
fx_status fxi_preference_store(const char *backend);
/* Forgets the value that was read. For tests. */
FX_API void fxi_preferences_reset(void);

#endif
