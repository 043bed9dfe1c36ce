/* files_windows.c: files and folders on Windows; see files.h.
 *
 * A file is opened so that it can be renamed and removed while it is open, as on other systems. */
#include "files.h"
#include "wide_path.h"

#include <errno.h>
#include <fcntl.h>
#include <io.h>
#include <stdlib.h>
#include <string.h>
#include <windows.h>

/* ---- opening --------------------------------------------------------------------------------- */

static HANDLE handle_of(int fd)
{
    return (HANDLE)_get_osfhandle(fd);
}

static DWORD disposition(int mode)
{
    if (mode & FXI_OS_NEW)
        return CREATE_NEW;
    if (mode & FXI_OS_CREATE)
        return mode & FXI_OS_EMPTY ? CREATE_ALWAYS : OPEN_ALWAYS;
    return mode & FXI_OS_EMPTY ? TRUNCATE_EXISTING : OPEN_EXISTING;
}

/* Is the open file of the kind that the mode wants? */
static bool is_wanted(HANDLE h, int mode)
{
    BY_HANDLE_FILE_INFORMATION info;
    if (!GetFileInformationByHandle(h, &info))
        return !(mode & (FXI_OS_FOLDER | FXI_OS_NO_LINK)); /* a pipe or a device */
    const bool folder = info.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY,
               link = info.dwFileAttributes & FILE_ATTRIBUTE_REPARSE_POINT;
    errno = mode & FXI_OS_NO_LINK && link ? ELOOP : mode & FXI_OS_FOLDER ? ENOTDIR : EISDIR;
    if (mode & FXI_OS_NO_LINK && link)
        return false;
    return mode & FXI_OS_FOLDER ? folder : !folder || !(mode & (FXI_OS_WRITE | FXI_OS_READ_WRITE));
}

int fxi_os_open(const char *path, int mode)
{
    wchar_t wide[FXI_WIDE_PATH];
    const DWORD access = mode & FXI_OS_READ_WRITE ? GENERIC_READ | GENERIC_WRITE
                         : mode & FXI_OS_WRITE    ? GENERIC_WRITE
                                                  : GENERIC_READ;
    const DWORD link = mode & FXI_OS_NO_LINK ? FILE_FLAG_OPEN_REPARSE_POINT : 0;
    if (!fxi_wide_path(path, wide))
        return -1;
    const HANDLE h =
        CreateFileW(wide, access, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL,
                    disposition(mode), FILE_FLAG_BACKUP_SEMANTICS | link, NULL);
    if (h == INVALID_HANDLE_VALUE)
        return fxi_windows_failed();
    if (!is_wanted(h, mode)) {
        const int why = errno;
        CloseHandle(h);
        errno = why;
        return -1;
    }
    const int append = mode & FXI_OS_APPEND ? _O_APPEND : 0;
    const int fd = _open_osfhandle((intptr_t)h, append | _O_BINARY | _O_NOINHERIT);
    if (fd < 0)
        CloseHandle(h);
    return fd;
}

int fxi_os_open_temporary(void)
{
    wchar_t folder[MAX_PATH + 1], name[MAX_PATH + 1];
    if (!GetTempPathW(MAX_PATH + 1, folder) || !GetTempFileNameW(folder, L"cfx", 0, name))
        return fxi_windows_failed();
    const HANDLE h = CreateFileW(
        name, GENERIC_READ | GENERIC_WRITE, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE,
        NULL, CREATE_ALWAYS, FILE_ATTRIBUTE_TEMPORARY | FILE_FLAG_DELETE_ON_CLOSE, NULL);
    if (h == INVALID_HANDLE_VALUE)
        return fxi_windows_failed();
    const int fd = _open_osfhandle((intptr_t)h, _O_APPEND | _O_BINARY | _O_NOINHERIT);
    if (fd < 0)
        CloseHandle(h);
    return fd;
}

/* The system deletes the file with its last handle, also if the process is killed. */
int fxi_os_open_nameless(const char *beside)
{
    char name[FXI_PATH_MOST];
    wchar_t wide[FXI_WIDE_PATH];
    snprintf(name, sizeof name, "%s.%lu", beside, (unsigned long)GetCurrentProcessId());
    if (!fxi_wide_path(name, wide))
        return -1;
    const HANDLE h = CreateFileW(wide, GENERIC_READ | GENERIC_WRITE | DELETE,
                                 FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL,
                                 CREATE_NEW, FILE_FLAG_DELETE_ON_CLOSE, NULL);
    if (h == INVALID_HANDLE_VALUE)
        return fxi_windows_failed();
    const int fd = _open_osfhandle((intptr_t)h, _O_BINARY | _O_NOINHERIT);
    if (fd < 0)
        CloseHandle(h);
    return fd;
}

int fxi_os_duplicate(int fd)
{
    HANDLE copy, self = GetCurrentProcess();
    if (!DuplicateHandle(self, handle_of(fd), self, &copy, 0, FALSE, DUPLICATE_SAME_ACCESS))
        return fxi_windows_failed();
    return _open_osfhandle((intptr_t)copy, _O_BINARY | _O_NOINHERIT);
}

int fxi_os_close(int fd)
{
    return _close(fd);
}

FILE *fxi_os_stream(int fd, const char *mode)
{
    char binary[8];
    snprintf(binary, sizeof binary, "%.3s%s", mode, strchr(mode, 'b') ? "" : "b");
    return _fdopen(fd, binary);
}

FILE *fxi_os_open_stream(const char *path, const char *mode)
{
    const bool more = strchr(mode, '+') != NULL;
    const int access = more ? FXI_OS_READ_WRITE : *mode == 'r' ? FXI_OS_READ : FXI_OS_WRITE;
    const int make = *mode == 'w'   ? FXI_OS_CREATE | FXI_OS_EMPTY
                     : *mode == 'a' ? FXI_OS_CREATE | FXI_OS_APPEND
                                    : 0;
    const int fd = fxi_os_open(path, access | make);
    FILE *f = fd >= 0 ? fxi_os_stream(fd, mode) : NULL;
    if (!f && fd >= 0)
        _close(fd);
    return f;
}

/* ---- reading and writing --------------------------------------------------------------------- */

enum { PART = 1 << 30 }; /* the most bytes of a call, whose size has 32 bits */

int64_t fxi_os_read(int fd, void *dst, size_t n)
{
    return _read(fd, dst, n < PART ? (unsigned)n : PART);
}

int64_t fxi_os_read_at(int fd, void *dst, size_t n, int64_t offset)
{
    OVERLAPPED at = {.Offset = (DWORD)offset, .OffsetHigh = (DWORD)(offset >> 32)};
    DWORD got = 0;
    if (ReadFile(handle_of(fd), dst, n < PART ? (DWORD)n : PART, &got, &at))
        return got;
    return GetLastError() == ERROR_HANDLE_EOF ? 0 : fxi_windows_failed();
}

int64_t fxi_os_write(int fd, const void *data, size_t n)
{
    return _write(fd, data, n < PART ? (unsigned)n : PART);
}

int fxi_os_resize(int fd, int64_t bytes)
{
    FILE_END_OF_FILE_INFO end = {.EndOfFile.QuadPart = bytes};
    return SetFileInformationByHandle(handle_of(fd), FileEndOfFileInfo, &end, sizeof end)
               ? 0
               : fxi_windows_failed();
}

int fxi_os_rewind(int fd)
{
    return _lseeki64(fd, 0, SEEK_SET) == 0 ? 0 : -1;
}

/* Windows writes the names in a folder without a request, and refuses to flush a folder. */
int fxi_os_sync(int fd)
{
    fxi_os_facts facts;
    if (fxi_os_facts_of(fd, &facts) == 0 && facts.folder)
        return 0;
    return FlushFileBuffers(handle_of(fd)) ? 0 : fxi_windows_failed();
}

void fxi_os_reserve(int fd, int64_t offset, int64_t bytes)
{
    (void)fd, (void)offset, (void)bytes;
}

void fxi_os_begin_writing(int fd, int64_t offset, int64_t bytes)
{
    (void)fd, (void)offset, (void)bytes;
}

/* Windows refuses to replace a file that is mapped: a program could not save a model under the name
 * that it was loaded from. So files are read. */
void *fxi_os_map(int fd, size_t bytes)
{
    (void)fd, (void)bytes;
    return NULL;
}

void fxi_os_unmap(void *data, size_t bytes)
{
    (void)data, (void)bytes;
}

/* ---- facts ----------------------------------------------------------------------------------- */

int fxi_os_facts_of(int fd, fxi_os_facts *out)
{
    BY_HANDLE_FILE_INFORMATION info;
    const HANDLE h = handle_of(fd);
    *out = (fxi_os_facts){.bytes = 0};
    if (h == INVALID_HANDLE_VALUE)
        return -1;
    if (GetFileType(h) != FILE_TYPE_DISK || !GetFileInformationByHandle(h, &info))
        return 0;
    out->folder = info.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY;
    out->regular = !out->folder;
    out->bytes = ((int64_t)info.nFileSizeHigh << 32) + info.nFileSizeLow;
    return 0;
}

int fxi_os_facts_of_stream(FILE *f, fxi_os_facts *out)
{
    return fxi_os_facts_of(_fileno(f), out);
}

/* The lock is on a byte far beyond the end, because locked bytes cannot be read by others. */
bool fxi_os_lock(int fd)
{
    OVERLAPPED at = {.OffsetHigh = 0x40000000};
    return LockFileEx(handle_of(fd), LOCKFILE_EXCLUSIVE_LOCK | LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0,
                      &at) ||
           (GetLastError() != ERROR_LOCK_VIOLATION && GetLastError() != ERROR_IO_PENDING);
}

bool fxi_os_is_named(int fd, const char *path)
{
    BY_HANDLE_FILE_INFORMATION a, b;
    const int other = fxi_os_open(path, FXI_OS_READ);
    const bool same = other >= 0 && GetFileInformationByHandle(handle_of(fd), &a) &&
                      GetFileInformationByHandle(handle_of(other), &b) &&
                      a.dwVolumeSerialNumber == b.dwVolumeSerialNumber &&
                      a.nFileIndexHigh == b.nFileIndexHigh && a.nFileIndexLow == b.nFileIndexLow;
    if (other >= 0)
        _close(other);
    return same;
}

bool fxi_os_stream_is_named(FILE *f, const char *path)
{
    return fxi_os_is_named(_fileno(f), path);
}

/* A new file inherits the rights of its folder. */
int fxi_os_copy_rights(int fd, const char *from)
{
    (void)fd, (void)from;
    return 0;
}

/* ---- names ----------------------------------------------------------------------------------- */

bool fxi_file_exists(const char *path)
{
    wchar_t wide[FXI_WIDE_PATH];
    return fxi_wide_path(path, wide) && GetFileAttributesW(wide) != INVALID_FILE_ATTRIBUTES;
}

int fxi_os_real_path(const char *path, char out[FXI_PATH_MOST])
{
    wchar_t wide[FXI_WIDE_PATH];
    const int fd = fxi_os_open(path, FXI_OS_READ);
    if (fd < 0)
        return -1;
    const DWORD n = GetFinalPathNameByHandleW(handle_of(fd), wide, FXI_WIDE_PATH, 0);
    _close(fd);
    if (n == 0 || n >= FXI_WIDE_PATH)
        return fxi_windows_failed();
    /* "\\?\C:\folder", where the first four characters only permit a long path */
    const wchar_t *from = wcsncmp(wide, L"\\\\?\\", 4) == 0 && wide[5] == L':' ? wide + 4 : wide;
    return fxi_narrow_path(from, out, FXI_PATH_MOST) ? 0 : -1;
}

int fxi_os_rename(const char *from, const char *to)
{
    wchar_t old[FXI_WIDE_PATH], new[FXI_WIDE_PATH];
    if (!fxi_wide_path(from, old) || !fxi_wide_path(to, new))
        return -1;
    return MoveFileExW(old, new, MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH)
               ? 0
               : fxi_windows_failed();
}

int fxi_os_link(const char *from, const char *to)
{
    wchar_t old[FXI_WIDE_PATH], new[FXI_WIDE_PATH];
    if (!fxi_wide_path(from, old) || !fxi_wide_path(to, new))
        return -1;
    if (CreateHardLinkW(new, old, NULL) || MoveFileExW(old, new, 0))
        return 0;
    return fxi_windows_failed();
}

int fxi_os_remove(const char *path)
{
    wchar_t wide[FXI_WIDE_PATH];
    return fxi_wide_path(path, wide) && DeleteFileW(wide) ? 0 : fxi_windows_failed();
}

bool fxi_folder_each(const char *folder, bool (*visit)(const char *file, void *user), void *user)
{
    char pattern[FXI_PATH_MOST], name[MAX_PATH * 4];
    wchar_t wide[FXI_WIDE_PATH];
    WIN32_FIND_DATAW found;
    bool done = false;
    snprintf(pattern, sizeof pattern, "%s/*", folder);
    const HANDLE all =
        fxi_wide_path(pattern, wide) ? FindFirstFileW(wide, &found) : INVALID_HANDLE_VALUE;
    if (all == INVALID_HANDLE_VALUE)
        return false;
    do
        done = fxi_narrow_path(found.cFileName, name, sizeof name) && visit(name, user);
    while (!done && FindNextFileW(all, &found));
    FindClose(all);
    return done;
}
