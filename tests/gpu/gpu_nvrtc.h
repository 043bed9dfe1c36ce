/* gpu_nvrtc.h: the compilers of CUDA text that a machine without a device may have. */
#ifndef GPU_NVRTC_H
#define GPU_NVRTC_H

#include <stdbool.h>
#include <stddef.h>

/* "clang-15", "clang", or NULL. */
const char *gpu_clang(void);
/* Can NVRTC be loaded, or ptxas be run? */
bool gpu_nvrtc_open(void);
bool gpu_ptxas_works(void);
/* The PTX of a text for an architecture, such as "90"; a warning is a failure: NULL. The caller
 * frees it. The second compiles with clang, for sm_75. */
char *gpu_nvrtc_ptx(const char *text, const char *arch);
char *gpu_clang_ptx(const char *text);
/* Assembles PTX; true where there is no ptxas. *out_report, unless NULL, is what ptxas says of
 * registers and spills, or NULL; the caller frees it. */
bool gpu_ptxas(const char *ptx, const char *arch, char **out_report);
/* The number before or after a word of such a report, the greatest of all lines; −1: the word is
 * missing. */
int gpu_reported(const char *report, const char *format, const char *word);

/* A clang that knows the newer devices of AMD; NULL if there is none. */
const char *gpu_clang_new(void);
/* The machine code of a HIP text as assembly, which the caller frees; NULL if it does not compile.
 */
char *gpu_hip_assembly(const char *compiler, const char *text, const char *arch);

#endif
