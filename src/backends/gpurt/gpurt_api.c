/* gpurt_api.c: finds and opens the driver's library and that of its run-time compiler; see
 * gpurt_api.h.
 *
 * On Linux, names without a version are links of development packages, which users do not have, so
 * every such name here has a version. A variable may name another file: FX_CUDA_LIBRARY,
 * FX_NVRTC_LIBRARY, FX_HIP_LIBRARY, FX_HIPRTC_LIBRARY.
 */
#include "gpurt_api.h"
#include "shared_library.h"
#include "this_process.h"

#include <stdio.h>

fxi_rt_api fxi_rt;
fxi_rtc_api fxi_rtc;

enum { OPTIONAL, NEEDED };
/* Names and pointers come from one list, so that none can be forgotten. */
static const fxi_rt_entry of_driver[] = {
#define ENTRY(result, member, cuda, hip, need, arguments)                                          \
    {FXI_RT_SYMBOL(cuda, hip), (void **)&fxi_rt.member, need},
    FXI_RT_FUNCTIONS(ENTRY)
#undef ENTRY
};
static const fxi_rt_entry of_compiler[] = {
#define ENTRY(result, member, cuda, hip, need, arguments)                                          \
    {FXI_RT_SYMBOL(cuda, hip), (void **)&fxi_rtc.member, need},
    FXI_RTC_FUNCTIONS(ENTRY)
#undef ENTRY
};
const fxi_rt_names fxi_rt_name = {
#define NAME(result, member, cuda, hip, need, arguments) FXI_RT_SYMBOL(cuda, hip),
    FXI_RT_FUNCTIONS(NAME)
#undef NAME
};

#ifdef FXI_AMDGPU
/* The newest version first: a driver runs code of older compilers, but not of newer ones. */
static const char driver_variable[] = "FX_HIP_LIBRARY", compiler_variable[] = "FX_HIPRTC_LIBRARY";
static const char *const drivers[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"};
static const struct {
    const char *file;
    int major;
} compilers[] = {{"libhiprtc.so.7", 7},
                 {"libhiprtc.so.6", 6},
                 {"libhiprtc.so.5", 5},
                 /* Before ROCm 6 the driver's library contained the compiler. */
                 {"libamdhip64.so.5", 5}};
static const char no_driver[] = "AMD's ROCm is not installed",
                  install_driver[] = "install ROCm 5 or later", compiler_name[] = "hipRTC",
                  install_compiler[] = "install ROCm's package hip-runtime-amd";
static const char *const folder_variables[] = {"ROCM_PATH", "HIP_PATH"};
static const char *const folders[] = {"/opt/rocm/lib"};
static const char folder_in[] = "lib";
#else
static const char driver_variable[] = "FX_CUDA_LIBRARY", compiler_variable[] = "FX_NVRTC_LIBRARY";
static const char *const drivers[] = {FXI_LIBRARY_FILE("libcuda.so.1", "nvcuda.dll")};
static const struct {
    const char *file;
    int major;
} compilers[] = {{FXI_LIBRARY_FILE("libnvrtc.so.13", "nvrtc64_130_0.dll"), 13},
                 {FXI_LIBRARY_FILE("libnvrtc.so.12", "nvrtc64_120_0.dll"), 12},
                 {FXI_LIBRARY_FILE("libnvrtc.so.11.2", "nvrtc64_112_0.dll"), 11}};
static const char no_driver[] = "NVIDIA's driver is not installed",
                  install_driver[] = "install NVIDIA's driver", compiler_name[] = "NVRTC",
                  install_compiler[] = "install it, for example Debian's libnvrtc or the CUDA "
                                       "toolkit";
static const char *const folder_variables[] = {"CUDA_HOME", "CUDA_PATH"};
static const char *const folders[] = {"/usr/local/cuda/lib64"};
static const char folder_in[] = "lib64";
#endif
#define COUNT(list) (sizeof(list) / sizeof *(list))

/* Fills all pointers, so that an old library is refused here and not at the first call. */
bool fxi_rt_take(void *library, const char *file, const fxi_rt_entry *list, size_t n, char *why,
                 size_t size)
{
    for (size_t k = 0; k < n; k++) {
        *list[k].to = fxi_library_symbol(library, list[k].name);
        if (!*list[k].to && list[k].needed) {
            snprintf(why, size, "%s has no function %s: it is too old or damaged", file,
                     list[k].name);
            return false;
        }
    }
    return true;
}

bool fxi_rt_open(char *why, size_t size)
{
    /* Programs with raised privileges ignore the variable, because the file is code that they would
     * run. */
    const char *wanted = fxi_trusted_variable(driver_variable);
    const char *file = wanted && *wanted ? wanted : drivers[0];
    char reason[256];
    void *library = fxi_library_open(file, reason, sizeof reason);
    for (size_t k = 1; !library && file != wanted && k < COUNT(drivers); k++)
        library = fxi_library_open(file = drivers[k], reason, sizeof reason);
    if (!library && file == wanted)
        snprintf(why, size, "%s, which %s names, cannot be opened: %.100s", file, driver_variable,
                 reason);
    else if (!library)
        snprintf(why, size, "%s: there is no %s; %s", no_driver, drivers[0], install_driver);
    return library && fxi_rt_take(library, file, of_driver, COUNT(of_driver), why, size);
}

/* ---- the compiler ---------------------------------------------------------------------------- */

void *fxi_rt_open_file(const char *file, char *reason, size_t size)
{
    char path[1024];
    void *library = fxi_library_open(file, reason, size);
    for (size_t k = 0; !library && k < COUNT(folder_variables); k++) {
        const char *folder = fxi_trusted_variable(folder_variables[k]);
        if (folder && *folder &&
            snprintf(path, sizeof path, "%s/%s/%s", folder, folder_in, file) < (int)sizeof path)
            library = fxi_library_open(path, reason, size);
    }
    for (size_t k = 0; !library && k < COUNT(folders); k++) {
        snprintf(path, sizeof path, "%s/%s", folders[k], file);
        library = fxi_library_open(path, reason, size);
    }
    return library;
}

static bool take_compiler(void *library, const char *file, char *why, size_t size)
{
    return library && fxi_rt_take(library, file, of_compiler, COUNT(of_compiler), why, size);
}

/* The driver does not load code of a compiler whose major version is later than the driver's. */
bool fxi_rtc_open(int driver, char *why, size_t size)
{
    const char *wanted = fxi_trusted_variable(compiler_variable);
    char reason[256];
    *why = '\0';
    if (wanted && *wanted) {
        void *library = fxi_library_open(wanted, reason, sizeof reason);
        if (!library)
            snprintf(why, size, "%s, which %s names, cannot be opened: %.100s", wanted,
                     compiler_variable, reason);
        return take_compiler(library, wanted, why, size);
    }
    const char *newer = NULL;
    for (size_t k = 0; k < COUNT(compilers); k++) {
        void *library = fxi_rt_open_file(compilers[k].file, reason, sizeof reason);
        if (library && driver && compilers[k].major > driver)
            newer = compilers[k].file;
        else if (take_compiler(library, compilers[k].file, why, size)) {
            *why = '\0'; /* an earlier library in the list was damaged, but this one works */
            return true;
        }
    }
    if (newer)
        snprintf(why, size,
                 "the driver is older than %s (%s): it supports version %d; update the driver or "
                 "install %s %d",
                 compiler_name, newer, driver, compiler_name, driver);
    else if (!*why)
        snprintf(why, size, "%s, which compiles kernels, is not installed: there is no %s; %s",
                 compiler_name, compilers[0].file, install_compiler);
    return false;
}
