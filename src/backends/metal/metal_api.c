/* metal_api.c: opens Metal and the Objective-C runtime, and names Metal's errors; see metal_api.h.
 */
#include "metal_api.h"
#include "shared_library.h"
#include "this_process.h"

#include <stdio.h>
#include <string.h>

fxi_mtl_api fxi_mtl;

typedef struct entry {
    const char *name;
    void **to;
} entry;

/* Names and pointers come from one list, so that none can be forgotten. */
static const entry functions[] = {
#define ENTRY(name, result, symbol, arguments) {#symbol, (void **)&fxi_mtl.name},
    FXI_OBJC_FUNCTIONS(ENTRY)
#undef ENTRY
};
static const struct {
    const char *name;
    fxi_sel *to;
} selectors[] = {
#define ENTRY(name, result, selector, arguments) {selector, &fxi_mtl.sel.name},
    FXI_MTL_MESSAGES(ENTRY)
#undef ENTRY
};
typedef struct class_entry {
    const char *name;
    fxi_id *to;
} class_entry;
#define ENTRY(name) {#name, &fxi_mtl.class.name},
static const class_entry classes[] = {FXI_MTL_CLASSES(ENTRY)},
                         mps_classes[] = {FXI_MPS_CLASSES(ENTRY)};
#undef ENTRY
#define COUNT(a) (sizeof(a) / sizeof *(a))

/* Without CoreGraphics in the process, Metal finds no device in programs for the terminal. */
enum { FILES = 3 };
#ifdef __APPLE__
#define FRAMEWORK(name) "/System/Library/Frameworks/" name ".framework/" name
static const char *const files[FILES] = {"/usr/lib/libobjc.A.dylib", FRAMEWORK("Metal"),
                                         FRAMEWORK("CoreGraphics")};
static const char *const mps_file = FRAMEWORK("MetalPerformanceShaders");
#else
static const char *const files[FILES] = {NULL};
static const char *const mps_file = NULL;
#endif

/* A function may be in any of the files. */
static bool find_functions(void *const *libraries, const char *file, char *why, size_t size)
{
    for (size_t k = 0; k < COUNT(functions); k++) {
        *functions[k].to = NULL;
        for (int i = 0; i < FILES && !*functions[k].to; i++)
            if (libraries[i])
                *functions[k].to = fxi_library_symbol(libraries[i], functions[k].name);
        if (!*functions[k].to) {
            snprintf(why, size, "%s has no %s", file, functions[k].name);
            return false;
        }
    }
    return true;
}

static bool find_classes(const class_entry *list, size_t n, char *why, size_t size)
{
    for (size_t k = 0; k < n; k++)
        if (!(*list[k].to = fxi_mtl.class_of(list[k].name))) {
            snprintf(why, size, "the system has no class %s", list[k].name);
            return false;
        }
    return true;
}

/* Ignored in programs with raised privileges: the file is code that the process runs. */
static const char *file_of_variable(void)
{
    return fxi_trusted_variable("FX_METAL_LIBRARY");
}

bool fxi_mtl_open(char *why, size_t size)
{
    const char *wanted = file_of_variable();
    const char *const other[FILES] = {wanted};
    const char *const *chosen = wanted && *wanted ? other : files;
    void *libraries[FILES] = {NULL};
    char reason[256];
    if (!chosen[0]) {
        snprintf(why, size, "Metal needs macOS; use another backend on this system");
        return false;
    }
    for (int k = 0; k < FILES && chosen[k]; k++)
        if (!(libraries[k] = fxi_library_open(chosen[k], reason, sizeof reason))) {
            snprintf(why, size, "%s cannot be opened: %s", chosen[k], reason);
            return false;
        }
    if (!find_functions(libraries, chosen[0], why, size))
        return false;
    for (size_t k = 0; k < COUNT(selectors); k++)
        *selectors[k].to = fxi_mtl.selector(selectors[k].name);
    return find_classes(classes, COUNT(classes), why, size);
}

bool fxi_mps_open(char *why, size_t size)
{
    const char *wanted = fxi_trusted_variable("FX_MPS_LIBRARY"), *metal = file_of_variable(),
               *file = wanted && *wanted ? wanted
                       : metal && *metal ? metal
                                         : mps_file;
    char reason[256];
    if (wanted && strcmp(wanted, "off") == 0) {
        snprintf(why, size, "FX_MPS_LIBRARY=off");
        return false;
    }
    void *library = fxi_library_open(file, reason, sizeof reason);
    if (!library) {
        snprintf(why, size, "%s cannot be opened: %s", file, reason);
        return false;
    }
    *(void **)&fxi_mtl.suits_mps = fxi_library_symbol(library, "MPSSupportsMTLDevice");
    if (!fxi_mtl.suits_mps) {
        snprintf(why, size, "%s has no MPSSupportsMTLDevice", file);
        return false;
    }
    return find_classes(mps_classes, COUNT(mps_classes), why, size);
}

/* MTLCommandBufferError. Users search for these names, so messages contain them. */
const char *fxi_mtl_error_name(int error)
{
    static const char *const names[] = {[1] = "Internal",
                                        [FXI_MTL_TIMEOUT] = "Timeout",
                                        [FXI_MTL_PAGE_FAULT] = "PageFault",
                                        [FXI_MTL_ACCESS_REVOKED] = "AccessRevoked",
                                        [7] = "NotPermitted",
                                        [FXI_MTL_OUT_OF_MEMORY] = "OutOfMemory",
                                        [9] = "InvalidResource",
                                        [10] = "Memoryless",
                                        [FXI_MTL_DEVICE_REMOVED] = "DeviceRemoved",
                                        [12] = "StackOverflow"};
    /* Valid until the next call in the same thread. */
    static _Thread_local char text[64];
    if (error == FXI_MTL_NO_COMMAND)
        return "no command buffer";
    if (error == FXI_MTL_NO_OBJECT)
        return "no object";
    if (error > 0 && (size_t)error < COUNT(names) && names[error])
        snprintf(text, sizeof text, "MTLCommandBufferError%s", names[error]);
    else
        snprintf(text, sizeof text, "Metal error %d", error);
    return text;
}
