/* system_posix.c: operating system functions on POSIX systems: see system.h. */
#include "system_posix.h"
#include "system.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

_Static_assert(FILE_PATH_BYTES >= PATH_MAX, "realpath writes up to PATH_MAX bytes");

/* A file that the command opens must not get the number of a closed standard stream: the texts for
 * the stream would be written into it. Reads and writes of the replacement fail, as before. */
static void occupy_standard_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            (void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

void system_begin(int *io_argc, char ***io_argv)
{
    (void)io_argc, (void)io_argv;
    occupy_standard_streams();
    setlocale(LC_CTYPE, "C.UTF-8"); /* needed for the widths of characters */
}

double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

long process_number(void)
{
    return (long)getpid();
}

bool same_start_ignoring_case(const char *a, const char *b, size_t n)
{
    return strncasecmp(a, b, n) == 0;
}

/* ---- signals --------------------------------------------------------------------------------- */

static volatile sig_atomic_t caught;
static struct sigaction before[2];
static const int signals[2] = {SIGINT, SIGTERM};

/* A launcher and the programs that it starts may both pass on one Ctrl-C, so an equal signal that
 * follows at once counts as the same one. */
static const double SAME_SECONDS = 0.25;
static double caught_at;

/* Both signals may have arrived before this handler runs for one of them. */
static void note(int number)
{
    const double now = seconds_now();
    if (caught == number && now - caught_at < SAME_SECONDS)
        return;
    if (!caught) {
        caught_at = now;
        caught = number;
        return;
    }
    for (int i = 0; i < 2; i++)
        signal(signals[i], SIG_DFL);
    raise(number);
}

void interrupt_begin(void)
{
    struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < 2; i++) {
        sigaction(signals[i], NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN) /* keep signals ignored, as under nohup */
            sigaction(signals[i], &action, NULL);
    }
}

int interrupt_caught(void)
{
    return caught;
}

void interrupt_end(void)
{
    for (int i = 0; i < 2; i++)
        sigaction(signals[i], &before[i], NULL);
}

/* ---- paths ----------------------------------------------------------------------------------- */

static path_kind kind_of(const struct stat *s)
{
    return S_ISREG(s->st_mode)                          ? PATH_FILE
           : S_ISDIR(s->st_mode)                        ? PATH_FOLDER
           : S_ISCHR(s->st_mode) || S_ISBLK(s->st_mode) ? PATH_DEVICE
                                                        : PATH_OTHER;
}

path_kind kind_of_path(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 ? kind_of(&s) : PATH_ABSENT;
}

path_kind kind_without_links(const char *path)
{
    struct stat s;
    return lstat(path, &s) == 0 ? kind_of(&s) : PATH_ABSENT;
}

bool is_own_terminal(const char *path)
{
    struct stat s, in;
    return isatty(STDIN_FILENO) && fstat(STDIN_FILENO, &in) == 0 && stat(path, &s) == 0 &&
           in.st_rdev == s.st_rdev;
}

bool may_write(const char *path)
{
    return access(path, W_OK) == 0;
}

bool may_make_files_in(const char *folder)
{
    return access(folder, W_OK | X_OK) == 0;
}

bool real_path(const char *path, char out[FILE_PATH_BYTES])
{
    return realpath(path, out) != NULL;
}

void each_file(const char *folder, void (*visit)(const char *name, void *user), void *user)
{
    DIR *all = opendir(folder);
    for (struct dirent *e = all ? readdir(all) : NULL; e; e = readdir(all))
        visit(e->d_name, user);
    if (all)
        closedir(all);
}

/* ---- streams --------------------------------------------------------------------------------- */

FILE *open_file(const char *path, const char *mode)
{
    char own[8];
    snprintf(own, sizeof own, "%.4se", mode);
    return fopen(path, own);
}

int open_to_read(const char *path)
{
    return open(path, O_RDONLY | O_CLOEXEC);
}

void open_text(text_stream *t)
{
    t->text = NULL;
    t->to = open_memstream(&t->text, &t->size);
}

char *close_text(text_stream *t)
{
    if (!t->to)
        return NULL;
    const bool good = !ferror(t->to);
    if (fclose(t->to) == 0 && good)
        return t->text;
    free(t->text);
    return NULL;
}

int character_columns(const char *character, size_t n)
{
    wchar_t c;
    mbstate_t state = {0};
    const size_t got = mbrtowc(&c, character, n, &state);
    return got > 0 && got <= n ? wcwidth(c) : 1;
}

/* ---- the disk -------------------------------------------------------------------------------- */

bool sync_stream(FILE *f)
{
    return fsync(fileno(f)) == 0;
}

/* Some file systems do not support this and return EINVAL. */
bool sync_folder(const char *folder)
{
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool done = fd >= 0 && (fsync(fd) == 0 || errno == EINVAL);
    const int why = errno;
    if (fd >= 0)
        close(fd);
    errno = why;
    return done;
}

/* ---- other programs -------------------------------------------------------------------------- */

void host_name(char *text, size_t size)
{
    if (gethostname(text, size) != 0)
        snprintf(text, size, "an unknown machine");
    text[size - 1] = 0;
}

const char *signal_name(int number)
{
    return strsignal(number);
}

void set_variable(const char *name, const char *value)
{
    setenv(name, value, 1);
}

void remove_file(const char *path)
{
    remove(path);
}

bool replace_file(const char *from, const char *to)
{
    return rename(from, to) == 0;
}

static int make_temporary(char out_path[FILE_PATH_BYTES])
{
    const char *folder = getenv("TMPDIR");
    snprintf(out_path, FILE_PATH_BYTES, "%.3000s/cflux-XXXXXX",
             folder && *folder ? folder : "/tmp");
    return mkstemp(out_path);
}

bool temporary_file(char out_path[FILE_PATH_BYTES])
{
    const int fd = make_temporary(out_path);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

FILE *nameless_file(char out_path[FILE_PATH_BYTES])
{
    const int fd = make_temporary(out_path);
    if (fd < 0)
        return NULL;
    remove(out_path);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    path_of_descriptor(fd, out_path, FILE_PATH_BYTES);
    FILE *f = fdopen(fd, "r+");
    if (!f)
        close(fd);
    return f;
}

static bool is_program(const char *path)
{
    return kind_of_path(path) == PATH_FILE && access(path, X_OK) == 0;
}

bool find_program(const char *name, char out[FILE_PATH_BYTES])
{
    if (strchr(name, '/')) {
        snprintf(out, FILE_PATH_BYTES, "%s", name);
        return is_program(out);
    }
    for (const char *folder = getenv("PATH"); folder && *folder;) {
        const int n = (int)strcspn(folder, ":");
        snprintf(out, FILE_PATH_BYTES, "%.*s/%s", n, folder, name);
        if (n > 0 && is_program(out))
            return true;
        folder += n + (folder[n] == ':');
    }
    return false;
}

/* ---- the guard ------------------------------------------------------------------------------- */

/* The guard reads a pipe to which only this process writes. A signal handler writes the number of
 * the signal to it, or 0 for a signal that is to end the program. So if the pipe ends and is empty,
 * this process was killed by a signal without a handler, which is almost always SIGKILL. This
 * process keeps the end for reading open too: if the guard has been killed, a write must not end
 * this process by SIGPIPE. */
static int guard_pipe = -1, guard_reads = -1;
static pid_t guard;

static void tell_guard(int number)
{
    const int error = errno;
    const unsigned char byte = (unsigned char)number;
    if (guard_pipe >= 0)
        (void)!write(guard_pipe, &byte, 1);
    errno = error;
}

/* Signals that a launcher or a terminal sends to end a program. */
static const int ending[] = {SIGINT, SIGTERM, SIGHUP};
enum { ENDING = sizeof ending / sizeof *ending };

/* Ends this process by the signal, as without a handler. */
static void tell_and_end(int number)
{
    bool ends = false;
    for (int i = 0; i < ENDING; i++)
        ends = ends || number == ending[i];
    tell_guard(ends ? 0 : number);
    signal(number, SIG_DFL);
    raise(number);
}

static void handle(int number)
{
    if (signal(number, tell_and_end) == SIG_IGN)
        signal(number, SIG_IGN);
}

/* Returns false when the other process has ended. */
static bool read_byte(int from, unsigned char *byte)
{
    ssize_t n;
    do
        n = read(from, byte, 1);
    while (n < 0 && errno == EINTR);
    return n == 1;
}

/* A session of its own keeps it from the signals that a launcher or a terminal sends to the others.
 */
static void be_guard(int from, void (*killed)(int number, void *user), void *user)
{
    static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
    unsigned char why, rest;
    setsid();
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        signal(ignored[i], SIG_IGN);
    if (!read_byte(from, &why))
        why = SIGKILL;
    while (read_byte(from, &rest))
        ;
    if (why != 0)
        killed(why, user);
    fflush(NULL);
    _exit(0);
}

bool guard_begin(void (*killed)(int number, void *user), void *user)
{
    static const int fatal[] = {SIGQUIT, SIGILL,  SIGTRAP, SIGABRT, SIGBUS,  SIGFPE,
                                SIGUSR1, SIGSEGV, SIGUSR2, SIGALRM, SIGXCPU, SIGXFSZ};
    int ends[2];
    fflush(NULL);
    if (pipe(ends) != 0)
        return false;
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    guard_reads = ends[0];
    guard_pipe = ends[1];
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++)
        handle(fatal[i]);
    for (int i = 0; i < ENDING; i++) /* until the program runs, which then gets them */
        handle(ending[i]);
    guard = fork();
    if (guard == 0) {
        close(guard_pipe);
        guard_pipe = -1;
        be_guard(guard_reads, killed, user);
    }
    return guard > 0;
}

void guard_end(void)
{
    tell_guard(0);
    close(guard_pipe);
    close(guard_reads);
    guard_pipe = guard_reads = -1;
    while (guard > 0 && waitpid(guard, NULL, 0) < 0 && errno == EINTR)
        ;
}

/* ---- running a program ----------------------------------------------------------------------- */

static volatile sig_atomic_t running, passed;

/* A signal of the terminal reaches the other program too: it is in the group of this one. */
static void pass_on(int number, siginfo_t *from, void *unused)
{
    (void)unused;
    passed = number;
    tell_guard(0);
    if (running > 0 && from->si_code <= 0)
        kill((pid_t)running, number);
}

int passed_on(void)
{
    return passed;
}

static int status_of(int status)
{
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static int wait_for(pid_t child)
{
    int status = 0;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return EXIT_NOT_STARTED;
    return status_of(status);
}

/* Waits for the child, and ends it if the watch says so. */
static int wait_and_watch(pid_t child, program_watch *watch)
{
    static const int by[] = {SIGTERM, SIGKILL};
    double noticed = 0;
    int status = 0, sent = 0;
    for (pid_t found; (found = waitpid(child, &status, WNOHANG)) != child;) {
        if (found < 0 && errno != EINTR)
            return EXIT_NOT_STARTED;
        /* After a signal of the user, the program has all the time that it needs. */
        if (noticed == 0 && !passed_on() && watch->failed(watch->user))
            noticed = seconds_now();
        if (noticed > 0 && sent < 2 && seconds_now() - noticed > (sent + 1) * watch->grace) {
            kill(child, by[sent++]);
            watch->ended = true;
        }
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    return status_of(status);
}

/* watch: NULL for none. */
static int run(char **words, bool killed, program_watch *watch)
{
    struct sigaction action = {.sa_sigaction = pass_on, .sa_flags = SA_SIGINFO}, old[ENDING];
    sigset_t held, mask, arrived;
    sigemptyset(&action.sa_mask);
    sigemptyset(&held);
    fflush(NULL);
    for (int i = 0; i < ENDING; i++) {
        sigaction(ending[i], &action, &old[i]);
        sigaddset(&held, ending[i]);
    }
    /* Until the child has its own handlers it would ignore a signal that is passed on to it. */
    sigprocmask(SIG_BLOCK, &held, &mask);
    const pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < ENDING; i++)
            sigaction(ending[i], &old[i], NULL);
        end_with_parent(killed);
        sigprocmask(SIG_SETMASK, &mask, NULL);
        execvp(words[0], words);
        _exit(EXIT_NOT_STARTED);
    }
    /* A signal may have come before the number of the child was known. */
    sigpending(&arrived);
    bool early = passed != 0;
    for (int i = 0; i < ENDING; i++)
        early = early || sigismember(&arrived, ending[i]) == 1;
    running = early ? 0 : (sig_atomic_t)child;
    sigprocmask(SIG_SETMASK, &mask, NULL);
    if (early && child > 0)
        kill(child, SIGTERM);
    running = (sig_atomic_t)child;
    const int status = child <= 0 ? EXIT_NOT_STARTED
                       : watch    ? wait_and_watch(child, watch)
                                  : wait_for(child);
    running = 0;
    for (int i = 0; i < ENDING; i++)
        sigaction(ending[i], &old[i], NULL);
    return status;
}

int run_program(char **words, bool killed)
{
    return run(words, killed, NULL);
}

int run_watched(char **words, program_watch *watch)
{
    watch->ended = false;
    return run(words, false, watch);
}

/* read(), repeated if a signal interrupts it. */
static ssize_t read_some(int file, void *to, size_t size)
{
    ssize_t n;
    do
        n = read(file, to, size);
    while (n < 0 && errno == EINTR);
    return n;
}

bool read_program(char **words, char *text, size_t size)
{
    int ends[2];
    size_t got = 0;
    char rest[512];
    if (pipe(ends) != 0)
        return false;
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        execvp(words[0], words);
        _exit(EXIT_NOT_STARTED);
    }
    close(ends[1]);
    for (ssize_t n = 1; n > 0 && got + 1 < size; got += n > 0 ? (size_t)n : 0)
        n = read_some(ends[0], text + got, size - 1 - got);
    text[got] = 0;
    /* Without a reader the program would get SIGPIPE. */
    while (read_some(ends[0], rest, sizeof rest) > 0)
        ;
    close(ends[0]);
    return child > 0 && wait_for(child) == 0;
}
