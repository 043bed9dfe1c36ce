/* preferences.h: values of the project's preference file. Internal: fx_preference is public. */
#ifndef CFLUX_PREFERENCES_H
#define CFLUX_PREFERENCES_H

#include <cflux/base.h>

/* The value of gpu_backend in [MLDataDevices], else in [Flux], read once in this process; "" if
 * there is none or the file is invalid (a warning names the line). */
const char *fxi_preferred_backend(void);
/* Writes the preference to the file. It takes effect in the next process. */
fx_status fxi_preference_store(const char *backend);
/* The preference `key` of Flux, which is true or false. If the value is another one, warns and
 * returns false. */
bool fxi_preference_is_true(const char *key);
/* Forgets the values that were read. For tests. */
FX_API void fxi_preferences_reset(void);

#endif
