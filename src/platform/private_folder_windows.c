/* private_folder_windows.c: private folders on Windows; see private_folder.h.
 *
 * There are no names relative to an open folder, so a folder is an index in a table of paths. The
 * folder of a user's program data can be changed only by that user and by administrators. So only
 * the owner is checked, and that a folder or file is not a link. */
#include "private_folder.h"
#include "files.h"
#include "this_process.h"
#include "thread.h"
#include "wide_path.h"

#include <aclapi.h>
#include <errno.h>
#include <string.h>
#include <windows.h>

bool fxi_cache_folder(char *path, size_t size)
{
    const char *base = fxi_trusted_variable("XDG_CACHE_HOME");
    if (!base || !*base)
        base = fxi_trusted_variable("LOCALAPPDATA");
    if (!base || !*base)
        return false;
    const int n = snprintf(path, size, "%s", base);
    return n >= 0 && (size_t)n < size;
}

/* ---- owners ---------------------------------------------------------------------------------- */

/* Does it belong to the user of this process, or to the owner of this user's new files (for an
 * administrator: the group of administrators)? */
static bool owned_by_user(PSID owner)
{
    static const TOKEN_INFORMATION_CLASS classes[] = {TokenUser, TokenOwner};
    union {
        TOKEN_USER user;
        TOKEN_OWNER owner;
        char bytes[512];
    } info;
    HANDLE token;
    DWORD n;
    bool same = false;
    if (!OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &token))
        return false;
    for (int i = 0; i < 2 && !same; i++)
        if (GetTokenInformation(token, classes[i], &info, sizeof info, &n))
            same = EqualSid(owner, i == 0 ? info.user.User.Sid : info.owner.Owner);
    CloseHandle(token);
    return same;
}

/* True if it must not be used; then `why` tells the reason. */
static bool unsafe(const wchar_t *path, bool folder, char why[FXI_PRIVATE_WHY])
{
    PSECURITY_DESCRIPTOR rights = NULL;
    PSID owner = NULL;
    wchar_t copy[FXI_WIDE_PATH];
    const DWORD is = GetFileAttributesW(path);
    wcscpy(copy, path);
    if (is == INVALID_FILE_ATTRIBUTES)
        return true;
    if (is & FILE_ATTRIBUTE_REPARSE_POINT)
        snprintf(why, FXI_PRIVATE_WHY, "it is a link");
    else if (folder != !!(is & FILE_ATTRIBUTE_DIRECTORY))
        snprintf(why, FXI_PRIVATE_WHY,
                 folder ? "it is a file, not a folder" : "it is not a regular file");
    else if (GetNamedSecurityInfoW(copy, SE_FILE_OBJECT, OWNER_SECURITY_INFORMATION, &owner, NULL,
                                   NULL, NULL, &rights) == ERROR_SUCCESS &&
             !owned_by_user(owner))
        snprintf(why, FXI_PRIVATE_WHY, "it belongs to another user");
    if (rights)
        LocalFree(rights);
    return *why != 0;
}

/* ---- the folder ------------------------------------------------------------------------------ */

enum { FOLDERS = 8, FOLDER_BYTES = 2048 };
static char folders[FOLDERS][FOLDER_BYTES];
static fxi_mutex lock = FXI_MUTEX_INIT;

static void make_folders(const char *path)
{
    char above[FOLDER_BYTES];
    wchar_t wide[FXI_WIDE_PATH];
    snprintf(above, sizeof above, "%s", path);
    for (char *c = above;; c++) {
        const char here = *c;
        if (here && here != '/' && here != '\\')
            continue;
        *c = 0;
        if (fxi_wide_path(above, wide))
            CreateDirectoryW(wide, NULL);
        *c = here;
        if (!here)
            return;
    }
}

static int entry_of(const char *path)
{
    int at = -1;
    fxi_mutex_lock(&lock);
    for (int i = 0; i < FOLDERS && at < 0; i++)
        if (!*folders[i]) {
            strcpy(folders[i], path);
            at = i;
        }
    fxi_mutex_unlock(&lock);
    return at;
}

int fxi_private_folder_open(const char *path, bool make, char why[FXI_PRIVATE_WHY])
{
    wchar_t wide[FXI_WIDE_PATH];
    *why = 0;
    if (strlen(path) >= FOLDER_BYTES || !fxi_wide_path(path, wide))
        return -1;
    if (make)
        make_folders(path);
    return unsafe(wide, true, why) ? -1 : entry_of(path);
}

void fxi_private_folder_close(int folder)
{
    fxi_mutex_lock(&lock);
    *folders[folder] = 0;
    fxi_mutex_unlock(&lock);
}

/* ---- its files ------------------------------------------------------------------------------- */

static void path_of(int folder, const char *name, char path[FXI_PATH_MOST])
{
    snprintf(path, FXI_PATH_MOST, "%s/%s", folders[folder], name);
}

FILE *fxi_private_file_read(int folder, const char *name, char why[FXI_PRIVATE_WHY])
{
    char path[FXI_PATH_MOST];
    wchar_t wide[FXI_WIDE_PATH];
    *why = 0;
    path_of(folder, name, path);
    if (!fxi_wide_path(path, wide) || unsafe(wide, false, why))
        return NULL;
    const int fd = fxi_os_open(path, FXI_OS_READ | FXI_OS_NO_LINK);
    FILE *f = fd >= 0 ? fxi_os_stream(fd, "rb") : NULL;
    if (!f && fd >= 0)
        fxi_os_close(fd);
    return f;
}

FILE *fxi_private_file_new(int folder, const char *name)
{
    char path[FXI_PATH_MOST];
    path_of(folder, name, path);
    const int fd = fxi_os_open(path, FXI_OS_WRITE | FXI_OS_CREATE | FXI_OS_NEW | FXI_OS_NO_LINK);
    FILE *f = fd >= 0 ? fxi_os_stream(fd, "wb") : NULL;
    if (!f && fd >= 0)
        fxi_os_close(fd);
    return f;
}

/* No effect: changing the time needs a file that is open for writing, and this one is read. */
void fxi_private_file_used(FILE *f)
{
    (void)f;
}

bool fxi_private_file_rename(int folder, const char *from, const char *to)
{
    char old[FXI_PATH_MOST], new[FXI_PATH_MOST];
    path_of(folder, from, old);
    path_of(folder, to, new);
    return fxi_os_rename(old, new) == 0;
}

void fxi_private_file_remove(int folder, const char *name)
{
    char path[FXI_PATH_MOST];
    path_of(folder, name, path);
    fxi_os_remove(path);
}

/* ---- all of them ----------------------------------------------------------------------------- */

void fxi_private_folder_each(int folder, bool (*visit)(const fxi_private_file *file, void *user),
                             void *user)
{
    char pattern[FXI_PATH_MOST], name[MAX_PATH * 4];
    wchar_t wide[FXI_WIDE_PATH];
    WIN32_FIND_DATAW found;
    bool more = true;
    path_of(folder, "*", pattern);
    const HANDLE all =
        fxi_wide_path(pattern, wide) ? FindFirstFileW(wide, &found) : INVALID_HANDLE_VALUE;
    if (all == INVALID_HANDLE_VALUE)
        return;
    do {
        fxi_private_file f;
        if (found.dwFileAttributes & (FILE_ATTRIBUTE_DIRECTORY | FILE_ATTRIBUTE_REPARSE_POINT) ||
            !fxi_narrow_path(found.cFileName, name, sizeof name) || strlen(name) >= sizeof f.name)
            continue;
        strcpy(f.name, name);
        f.bytes = ((int64_t)found.nFileSizeHigh << 32) + found.nFileSizeLow;
        f.used = (((int64_t)found.ftLastWriteTime.dwHighDateTime << 32) +
                  found.ftLastWriteTime.dwLowDateTime) *
                 100;
        more = visit(&f, user);
    } while (more && FindNextFileW(all, &found));
    FindClose(all);
}
