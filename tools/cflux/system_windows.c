/* system_windows.c: operating system functions on Windows: see system.h. */
#include "system.h"
#include <direct.h>
#include <errno.h>
#include <fcntl.h>
#include <io.h>
#include <process.h>
#include <stdlib.h>
#include <string.h>
#include <windows.h>

/* ---- texts ----------------------------------------------------------------------------------- */

static bool wide(const char *text, wchar_t out[FILE_PATH_BYTES])
{
    return MultiByteToWideChar(CP_UTF8, 0, text, -1, out, FILE_PATH_BYTES) > 0;
}

static bool narrow(const wchar_t *text, char *out, size_t size)
{
    return WideCharToMultiByte(CP_UTF8, 0, text, -1, out, (int)size, NULL, NULL) > 0;
}

static void take_arguments(int *io_argc, char ***io_argv)
{
    int n;
    wchar_t **given = CommandLineToArgvW(GetCommandLineW(), &n);
    char **all = given ? calloc((size_t)n + 1, sizeof *all) : NULL;
    for (int i = 0; all && i < n; i++) {
        const size_t size = 4 * wcslen(given[i]) + 1;
        all[i] = malloc(size);
        if (!all[i] || !narrow(given[i], all[i], size))
            return;
    }
    if (!all)
        return;
    *io_argc = n;
    *io_argv = all;
}

void system_begin(int *io_argc, char ***io_argv)
{
    take_arguments(io_argc, io_argv);
    SetConsoleOutputCP(CP_UTF8);
    for (int i = 0; i < 3; i++)
        _setmode(i, _O_BINARY);
}

bool same_start_ignoring_case(const char *a, const char *b, size_t n)
{
    return _strnicmp(a, b, n) == 0;
}

/* Two columns for characters of East Asia, and for all characters beyond U+FFFF, such as emoji. */
int character_columns(const char *character, size_t n)
{
    wchar_t c[4];
    const int units = MultiByteToWideChar(CP_UTF8, 0, character, (int)n, c, 4);
    if (units != 1)
        return units == 2 ? 2 : 1;
    if (c[0] < 32 || (c[0] >= 0x7f && c[0] < 0xa0))
        return -1;
    if (c[0] >= 0x300 && c[0] < 0x370) /* accents over the character before */
        return 0;
    return (c[0] >= 0x1100 && c[0] < 0x1160) || (c[0] >= 0x2e80 && c[0] < 0xd7a4) ||
                   (c[0] >= 0xf900 && c[0] < 0xfb00) || (c[0] >= 0xff00 && c[0] < 0xff61)
               ? 2
               : 1;
}

/* ---- the process ----------------------------------------------------------------------------- */

double seconds_now(void)
{
    LARGE_INTEGER now, rate;
    QueryPerformanceCounter(&now);
    QueryPerformanceFrequency(&rate);
    return (double)now.QuadPart / (double)rate.QuadPart;
}

long process_number(void)
{
    return (long)GetCurrentProcessId();
}

static volatile LONG caught; /* numbers of POSIX's signals */
enum { INTERRUPT = 2, TERMINATE = 15 };

/* Runs in a thread of its own. FALSE: the default action. */
static BOOL WINAPI note(DWORD event)
{
    if (InterlockedCompareExchange(&caught, event == CTRL_C_EVENT ? INTERRUPT : TERMINATE, 0) != 0)
        return FALSE;
    return event == CTRL_C_EVENT || event == CTRL_BREAK_EVENT;
}

void interrupt_begin(void)
{
    SetConsoleCtrlHandler(note, TRUE);
}

int interrupt_caught(void)
{
    return (int)caught;
}

void interrupt_end(void)
{
    SetConsoleCtrlHandler(note, FALSE);
}

/* ---- paths ----------------------------------------------------------------------------------- */

static path_kind absent(void)
{
    errno = ENOENT;
    return PATH_ABSENT;
}

path_kind kind_without_links(const char *path)
{
    wchar_t name[FILE_PATH_BYTES];
    const DWORD is = wide(path, name) ? GetFileAttributesW(name) : INVALID_FILE_ATTRIBUTES;
    if (is == INVALID_FILE_ATTRIBUTES)
        return absent();
    if (is & FILE_ATTRIBUTE_REPARSE_POINT)
        return PATH_OTHER;
    return is & FILE_ATTRIBUTE_DIRECTORY ? PATH_FOLDER
           : is & FILE_ATTRIBUTE_DEVICE  ? PATH_DEVICE
                                         : PATH_FILE;
}

static HANDLE open_handle(const char *path, DWORD access)
{
    wchar_t name[FILE_PATH_BYTES];
    return wide(path, name)
               ? CreateFileW(name, access, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE,
                             NULL, OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS, NULL)
               : INVALID_HANDLE_VALUE;
}

path_kind kind_of_path(const char *path)
{
    BY_HANDLE_FILE_INFORMATION info;
    const HANDLE h = open_handle(path, 0);
    if (h == INVALID_HANDLE_VALUE)
        return absent();
    const bool on_disk = GetFileType(h) == FILE_TYPE_DISK;
    const bool known = on_disk && GetFileInformationByHandle(h, &info);
    CloseHandle(h);
    return !known                                             ? PATH_DEVICE
           : info.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY ? PATH_FOLDER
                                                              : PATH_FILE;
}

bool is_own_terminal(const char *path)
{
    return _isatty(0) && _stricmp(path, "CON") == 0;
}

bool may_write(const char *path)
{
    const HANDLE h = open_handle(path, GENERIC_WRITE);
    if (h != INVALID_HANDLE_VALUE)
        CloseHandle(h);
    return h != INVALID_HANDLE_VALUE;
}

/* FILE_ADD_FILE is the right to make files in a folder. */
bool may_make_files_in(const char *folder)
{
    const HANDLE h = open_handle(*folder ? folder : ".", FILE_ADD_FILE);
    if (h != INVALID_HANDLE_VALUE)
        CloseHandle(h);
    return h != INVALID_HANDLE_VALUE;
}

bool real_path(const char *path, char out[FILE_PATH_BYTES])
{
    wchar_t name[FILE_PATH_BYTES];
    const HANDLE h = open_handle(path, 0);
    if (h == INVALID_HANDLE_VALUE) {
        errno = ENOENT;
        return false;
    }
    const DWORD n = GetFinalPathNameByHandleW(h, name, FILE_PATH_BYTES, 0);
    CloseHandle(h);
    const wchar_t *from = wcsncmp(name, L"\\\\?\\", 4) == 0 && name[5] == L':' ? name + 4 : name;
    if (n == 0 || n >= FILE_PATH_BYTES || !narrow(from, out, FILE_PATH_BYTES))
        return false;
    for (char *c = out; *c; c++)
        *c = *c == '\\' ? '/' : *c;
    return true;
}

void each_file(const char *folder, void (*visit)(const char *name, void *user), void *user)
{
    char pattern[FILE_PATH_BYTES], file[FILE_PATH_BYTES];
    wchar_t name[FILE_PATH_BYTES];
    WIN32_FIND_DATAW found;
    snprintf(pattern, sizeof pattern, "%.4000s/*", folder);
    const HANDLE all = wide(pattern, name) ? FindFirstFileW(name, &found) : INVALID_HANDLE_VALUE;
    if (all == INVALID_HANDLE_VALUE)
        return;
    do
        if (narrow(found.cFileName, file, sizeof file))
            visit(file, user);
    while (FindNextFileW(all, &found));
    FindClose(all);
}

/* ---- streams --------------------------------------------------------------------------------- */

/* The file can be renamed while it is open, as on other systems. */
FILE *open_file(const char *path, const char *mode)
{
    wchar_t name[FILE_PATH_BYTES];
    char binary[8];
    const DWORD access = *mode == 'r' && !strchr(mode, '+') ? GENERIC_READ
                         : strchr(mode, '+')                ? GENERIC_READ | GENERIC_WRITE
                                                            : GENERIC_WRITE;
    const DWORD make = *mode == 'w' ? CREATE_ALWAYS : *mode == 'a' ? OPEN_ALWAYS : OPEN_EXISTING;
    const HANDLE h =
        wide(path, name)
            ? CreateFileW(name, access, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE,
                          NULL, make, FILE_ATTRIBUTE_NORMAL, NULL)
            : INVALID_HANDLE_VALUE;
    if (h == INVALID_HANDLE_VALUE) {
        const DWORD why = GetLastError();
        errno = why == ERROR_ACCESS_DENIED || why == ERROR_SHARING_VIOLATION ? EACCES : ENOENT;
        return NULL;
    }
    snprintf(binary, sizeof binary, "%.3s%s", mode, strchr(mode, 'b') ? "" : "b");
    const int fd =
        _open_osfhandle((intptr_t)h, _O_BINARY | _O_NOINHERIT | (*mode == 'a' ? _O_APPEND : 0));
    FILE *f = fd >= 0 ? _fdopen(fd, binary) : NULL;
    if (!f && fd >= 0)
        _close(fd);
    return f;
}

int open_to_read(const char *path)
{
    FILE *f = open_file(path, "rb");
    const int fd = f ? _dup(_fileno(f)) : -1;
    if (f)
        fclose(f);
    return fd;
}

/* Windows has no streams in memory: a temporary file is read back. */
void open_text(text_stream *t)
{
    t->text = NULL;
    t->to = tmpfile();
}

char *close_text(text_stream *t)
{
    if (!t->to)
        return NULL;
    const long n = fflush(t->to) == 0 && !ferror(t->to) ? ftell(t->to) : -1;
    t->text = n >= 0 ? calloc((size_t)n + 1, 1) : NULL;
    rewind(t->to);
    if (t->text && fread(t->text, 1, (size_t)n, t->to) != (size_t)n) {
        free(t->text);
        t->text = NULL;
    }
    t->size = t->text ? (size_t)n : 0;
    fclose(t->to);
    return t->text;
}

bool sync_stream(FILE *f)
{
    return _commit(_fileno(f)) == 0;
}

/* Nothing to do: Windows writes the names in a folder without a request. */
bool sync_folder(const char *folder)
{
    (void)folder;
    return true;
}

/* ---- other programs -------------------------------------------------------------------------- */

void host_name(char *text, size_t size)
{
    DWORD n = (DWORD)size;
    if (!GetComputerNameA(text, &n))
        snprintf(text, size, "an unknown machine");
}

const char *signal_name(int number)
{
    static char text[24];
    snprintf(text, sizeof text, "signal %d", number);
    return text;
}

void set_variable(const char *name, const char *value)
{
    _putenv_s(name, value);
}

FILE *nameless_file(char out_path[FILE_PATH_BYTES])
{
    *out_path = 0; /* no other program can open it */
    return tmpfile();
}

void remove_file(const char *path)
{
    wchar_t name[FILE_PATH_BYTES];
    if (wide(path, name))
        _wremove(name);
}

bool replace_file(const char *from, const char *to)
{
    wchar_t old[FILE_PATH_BYTES], new[FILE_PATH_BYTES];
    const bool moved =
        wide(from, old) && wide(to, new) && MoveFileExW(old, new, MOVEFILE_REPLACE_EXISTING);
    if (!moved)
        errno = GetLastError() == ERROR_ACCESS_DENIED ? EACCES : EIO;
    return moved;
}

bool temporary_file(char out_path[FILE_PATH_BYTES])
{
    wchar_t folder[MAX_PATH + 1], name[MAX_PATH + 1];
    return GetTempPathW(MAX_PATH + 1, folder) > 0 &&
           GetTempFileNameW(folder, L"cfl", 0, name) != 0 &&
           narrow(name, out_path, FILE_PATH_BYTES);
}

bool find_program(const char *name, char out[FILE_PATH_BYTES])
{
    wchar_t wanted[FILE_PATH_BYTES], found[FILE_PATH_BYTES];
    return wide(name, wanted) &&
           SearchPathW(NULL, wanted, L".exe", FILE_PATH_BYTES, found, NULL) > 0 &&
           narrow(found, out, FILE_PATH_BYTES);
}

bool own_path(char out[FILE_PATH_BYTES])
{
    wchar_t name[FILE_PATH_BYTES];
    return GetModuleFileNameW(NULL, name, FILE_PATH_BYTES) > 0 &&
           narrow(name, out, FILE_PATH_BYTES);
}

/* No signal is passed on: Ctrl-C reaches every program of the console. */
int passed_on(void)
{
    return 0;
}

/* A program of Windows gets one line, which it splits into words by the rules of the C library. So
 * every word is put in quotes, and quotes in a word are escaped. */
static bool add_word(wchar_t *line, size_t capacity, const char *word)
{
    wchar_t w[FILE_PATH_BYTES];
    size_t n = wcslen(line), slashes = 0;
    if (!wide(word, w) || n + 2 * wcslen(w) + 4 > capacity)
        return false;
    if (n)
        line[n++] = L' ';
    line[n++] = L'"';
    for (const wchar_t *c = w; *c; c++) {
        if (*c == L'"') /* backslashes before a quote are doubled */
            for (slashes++; slashes > 0; slashes--)
                line[n++] = L'\\';
        slashes = *c == L'\\' ? slashes + 1 : 0;
        line[n++] = *c;
    }
    for (; slashes > 0; slashes--)
        line[n++] = L'\\';
    line[n++] = L'"';
    line[n] = 0;
    return true;
}

enum { LINE = 32768 };

/* `output`: where standard output and error go; NULL: to those of this program. Returns NULL if the
 * program cannot be started. */
static HANDLE start(char **words, HANDLE output)
{
    static wchar_t line[LINE];
    STARTUPINFOW how = {.cb = sizeof how};
    PROCESS_INFORMATION child;
    *line = 0;
    for (char **w = words; *w; w++)
        if (!add_word(line, LINE, *w))
            return NULL;
    fflush(NULL);
    if (output) {
        how.dwFlags = STARTF_USESTDHANDLES;
        how.hStdInput = GetStdHandle(STD_INPUT_HANDLE);
        how.hStdOutput = how.hStdError = output;
    }
    if (!CreateProcessW(NULL, line, NULL, NULL, TRUE, 0, NULL, NULL, &how, &child))
        return NULL;
    CloseHandle(child.hThread);
    return child.hProcess;
}

static int wait_for(HANDLE child)
{
    DWORD status = EXIT_NOT_STARTED;
    if (!child)
        return EXIT_NOT_STARTED;
    WaitForSingleObject(child, INFINITE);
    GetExitCodeProcess(child, &status);
    CloseHandle(child);
    return (int)status;
}

int run_program(char **words, bool killed)
{
    (void)killed;
    return wait_for(start(words, NULL));
}

bool guard_begin(void (*killed)(int number, void *user), void *user)
{
    (void)killed, (void)user;
    return true;
}

void guard_end(void) {}

int run_watched(char **words, program_watch *watch)
{
    const HANDLE child = start(words, NULL);
    double noticed = 0;
    watch->ended = false;
    while (child && !watch->ended && WaitForSingleObject(child, 20) == WAIT_TIMEOUT) {
        if (noticed == 0 && watch->failed(watch->user))
            noticed = seconds_now();
        watch->ended =
            noticed > 0 && seconds_now() - noticed > watch->grace && TerminateProcess(child, 1);
    }
    return wait_for(child);
}

/* The output is read while the program runs, because a program waits while its pipe is full. What
 * does not fit into the text is read and dropped. Reading ends when no process has the pipe's other
 * end, so this one closes its own. */
bool read_program(char **words, char *text, size_t size)
{
    SECURITY_ATTRIBUTES inherited = {sizeof inherited, NULL, TRUE};
    HANDLE from, to;
    size_t got = 0;
    char rest[512];
    DWORD n = 0;
    *text = 0;
    if (!CreatePipe(&from, &to, &inherited, 0))
        return false;
    SetHandleInformation(from, HANDLE_FLAG_INHERIT, 0);
    const HANDLE child = start(words, to);
    CloseHandle(to);
    while (got + 1 < size && ReadFile(from, text + got, (DWORD)(size - 1 - got), &n, NULL))
        got += n;
    text[got] = 0;
    while (ReadFile(from, rest, sizeof rest, &n, NULL))
        ;
    CloseHandle(from);
    return wait_for(child) == 0;
}
