/* sim_build.h: makes a shared library of a kernel's text with the host's C++ compiler. */
#ifndef SIM_BUILD_H
#define SIM_BUILD_H

#include <stdbool.h>
#include <stddef.h>

typedef struct sim_text {
    const char *source;
    const char *macros; /* lines before sim_shim.h: what the device's own compiler defines */
    const char *target; /* part of the library's name */
    int warp;
} sim_text;

/* Returns the path of the text's library, which is kept in SIM_CACHE, named by its content. False:
 * the text does not compile; `log` is what the compiler printed. */
bool sim_build(const sim_text *t, char *library, size_t library_size, char *log, size_t log_size);

#endif
