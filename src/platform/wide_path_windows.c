/* wide_path_windows.c: see wide_path.h. */
#include "wide_path.h"

#include <errno.h>
#include <windows.h>

bool fxi_wide_path(const char *path, wchar_t out[FXI_WIDE_PATH])
{
    if (MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, out, FXI_WIDE_PATH) > 0)
        return true;
    errno = GetLastError() == ERROR_INSUFFICIENT_BUFFER ? ENAMETOOLONG : EILSEQ;
    return false;
}

bool fxi_narrow_path(const wchar_t *path, char *out, size_t size)
{
    if (WideCharToMultiByte(CP_UTF8, 0, path, -1, out, (int)size, NULL, NULL) <= 0)
        return false;
    for (char *c = out; *c; c++)
        *c = *c == '\\' ? '/' : *c;
    return true;
}

int fxi_windows_failed(void)
{
    static const struct {
        DWORD code;
        int is;
    } known[] = {{ERROR_FILE_NOT_FOUND, ENOENT},    {ERROR_PATH_NOT_FOUND, ENOENT},
                 {ERROR_INVALID_NAME, ENOENT},      {ERROR_ACCESS_DENIED, EACCES},
                 {ERROR_SHARING_VIOLATION, EACCES}, {ERROR_FILE_EXISTS, EEXIST},
                 {ERROR_ALREADY_EXISTS, EEXIST},    {ERROR_DISK_FULL, ENOSPC},
                 {ERROR_NOT_ENOUGH_MEMORY, ENOMEM}, {ERROR_TOO_MANY_OPEN_FILES, EMFILE},
                 {ERROR_DIRECTORY, ENOTDIR},        {ERROR_INVALID_HANDLE, EBADF}};
    const DWORD code = GetLastError();
    errno = EIO;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].code == code)
            errno = known[i].is;
    return -1;
}
