/* system.h: operating system functions for the command line. Only the files
 * system_*.c include headers of a particular system. A function that fails sets errno. */
#ifndef CFLUX_TOOL_SYSTEM_H
#define CFLUX_TOOL_SYSTEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { FILE_PATH_BYTES = 4096 }; /* of a path, with its terminator */

/* At the start of main. Texts and arguments are UTF-8 on every system, and standard output gets the
 * bytes that are written. */
void system_begin(int *io_argc, char ***io_argv);

/* Seconds since a moment that stays the same while the program runs. */
double seconds_now(void);
long process_number(void);

/* From now on the first SIGINT or SIGTERM is only noted, as a request to stop. The second ends the
 * program with the signal's default action (POSIX: the same signal within 0.25 s is ignored). */
void interrupt_begin(void);
/* The signal that arrived, 0 if none. */
int interrupt_caught(void);
/* Restores the previous handling of signals. */
void interrupt_end(void);

typedef enum path_kind { PATH_ABSENT, PATH_FILE, PATH_FOLDER, PATH_DEVICE, PATH_OTHER } path_kind;
/* The kind of the file to which the path and its links lead; PATH_OTHER: a pipe or a socket (on
 * Windows, PATH_DEVICE). */
path_kind kind_of_path(const char *path);
/* The same without following links; PATH_OTHER for a link. */
path_kind kind_without_links(const char *path);
/* True if the path is the terminal of standard input. */
bool is_own_terminal(const char *path);
/* Whether a file may be written, or made in a folder. */
bool may_write(const char *path);
bool may_make_files_in(const char *folder);
/* The path without links and dots. */
bool real_path(const char *path, char out[FILE_PATH_BYTES]);
/* Calls visit for the name of every file in the folder. */
void each_file(const char *folder, void (*visit)(const char *name, void *user), void *user);

/* fopen with a path in UTF-8, without changes of bytes. Programs that this one starts do not
 * inherit the file. */
FILE *open_file(const char *path, const char *mode);
/* The same as a descriptor that only reads, for gzdopen; −1 on failure. */
int open_to_read(const char *path);
/* A stream whose text is in memory. `to` is NULL if it cannot be opened. close_text returns the
 * text, which the caller frees; NULL if memory is exhausted or the stream was not opened. */
typedef struct text_stream {
    FILE *to;
    char *text;
    size_t size;
} text_stream;
void open_text(text_stream *t);
char *close_text(text_stream *t);
/* The columns that a character of n bytes takes on a terminal; −1: it is not printable. */
int character_columns(const char *character, size_t n);

/* Makes sure that everything written, or the file names in a folder, are on the disk. A file system
 * that does not support this for folders does not count as a failure. */
bool sync_stream(FILE *f);
bool sync_folder(const char *folder);

/* ---- other programs ---- */

enum { EXIT_NOT_STARTED = 127 }; /* the status of a program that could not be started */
/* Runs a program (words end with NULL) that shares the standard streams, and passes SIGINT, SIGTERM
 * and SIGHUP on to it, except those of the terminal, which reach both. If this process is killed,
 * the program gets SIGTERM, or SIGKILL if `killed` (on Linux). Returns its exit status, or −signal.
 */
int run_program(char **words, bool killed);
/* Decides when a program that may hang is ended. */
typedef struct program_watch {
    bool (*failed)(void *user); /* asked several times a second */
    void *user;
    double grace; /* seconds that the program has to end by itself after `failed` was true */
    bool ended;   /* out: the program did not end by itself, and was ended */
} program_watch;
/* run_program(words, false) for a program that may hang: after the grace it gets SIGTERM, and
 * SIGKILL after the same time again. Windows ends it at once. */
int run_watched(char **words, program_watch *watch);
/* Starts a process that waits until this one ends, and calls `killed` with the signal if a signal
 * ended it. Signals that run_program passes on do not count. False: no process could be started.
 * Windows has no signals, so there it starts none. */
bool guard_begin(void (*killed)(int number, void *user), void *user);
/* Ends the process that guard_begin started. */
void guard_end(void);
/* The signal that run_program or run_watched has received and passed on; 0: none. */
int passed_on(void);
/* Runs a program and reads the beginning of its output. False if the program fails. */
bool read_program(char **words, char *text, size_t size);
/* Finds a program in the folders of PATH; a name with '/' is a path already. False if there is
 * none. */
bool find_program(const char *name, char out[FILE_PATH_BYTES]);
/* The path of this program; false if unknown. */
bool own_path(char out[FILE_PATH_BYTES]);
void host_name(char *text, size_t size);
const char *signal_name(int number);
void set_variable(const char *name, const char *value);
/* Opens an empty file that is in no folder, so nothing is left of it when the last process that has
 * it open ends. Other programs can open it by the path while this process has it open. The path
 * contains the number of this process, because a path such as /dev/fd/3 names a file of the program
 * that opens it: the program would overwrite another file. On systems without /proc (macOS,
 * Windows) no program can open it, and the path is "". NULL on failure. */
FILE *nameless_file(char out_path[FILE_PATH_BYTES]);
void remove_file(const char *path);
/* Gives a file the path of another one, which it replaces. False with errno set. */
bool replace_file(const char *from, const char *to);
/* Makes an empty temporary file, which the caller removes. */
bool temporary_file(char out_path[FILE_PATH_BYTES]);

/* True if the first n bytes are equal, ignoring case. */
bool same_start_ignoring_case(const char *a, const char *b, size_t n);

#endif
