/* shared_library_windows.c: opens DLLs; see shared_library.h. */
#include "shared_library.h"
#include "wide_path.h"

#include <stdio.h>
#include <string.h>
#include <windows.h>

/* Opens no dialog. By default, Windows shows one for a missing DLL and waits for the user. */
void *fxi_library_open(const char *path, char *why, size_t size)
{
    wchar_t wide[FXI_WIDE_PATH];
    DWORD mode;
    HMODULE pinned;
    if (!fxi_wide_path(path, wide)) {
        snprintf(why, size, "its name is not UTF-8, or too long");
        return NULL;
    }
    for (wchar_t *c = wide; *c; c++)
        *c = *c == L'/' ? L'\\' : *c;
    SetThreadErrorMode(SEM_FAILCRITICALERRORS, &mode);
    HMODULE library = LoadLibraryW(wide);
    const DWORD error = GetLastError();
    SetThreadErrorMode(mode, NULL);
    if (!library) {
        snprintf(why, size, "LoadLibrary failed with error %lu%s", error,
                 error == ERROR_MOD_NOT_FOUND    ? " (it, or a library that it needs, is missing)"
                 : error == ERROR_BAD_EXE_FORMAT ? " (it is not a library for this processor)"
                                                 : "");
        return NULL;
    }
    /* It is never unloaded. */
    GetModuleHandleExW(GET_MODULE_HANDLE_EX_FLAG_PIN | GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS,
                       (LPCWSTR)(const void *)library, &pinned);
    return library;
}

void *fxi_library_symbol(void *library, const char *name)
{
    const FARPROC function = GetProcAddress(library, name);
    void *address;
    memcpy(&address, &function, sizeof address);
    return address;
}

bool fxi_library_folder(const void *address, char *folder, size_t size)
{
    wchar_t wide[FXI_WIDE_PATH];
    HMODULE module;
    if (!GetModuleHandleExW(GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT |
                                GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS,
                            address, &module) ||
        GetModuleFileNameW(module, wide, FXI_WIDE_PATH) == 0 ||
        !fxi_narrow_path(wide, folder, size))
        return false;
    char *slash = strrchr(folder, '/');
    if (slash)
        *slash = 0;
    return slash != NULL;
}
