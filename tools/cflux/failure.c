/* failure.c: prints failures as one line on stderr: see failure.h. */
#include "failure.h"
#include "clean_text.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *command = "";
static bool silent, holding;
static char held[FAILURE_TEXT];

void failure_command(const char *name)
{
    command = name;
}

/* Prints one line: line ends inside the text become blanks, those at its end are removed. */
static void print_line(const char *kind, const char *text)
{
    char flat[2048], line[4096];
    size_t n = 0;
    for (; *text && n + 1 < sizeof flat; text++)
        flat[n++] = *text == '\n' || *text == '\r' ? ' ' : *text;
    while (n > 0 && flat[n - 1] == ' ')
        n--;
    flat[n] = 0;
    clean_text(flat, line, sizeof line);
    if (holding && !*kind) {
        if (!*held)
            snprintf(held, sizeof held, "%s", line);
        return;
    }
    if (silent)
        return;
    fflush(stdout); /* so that earlier output appears first */
    fprintf(stderr, "cflux%s%s: %s%s\n", *command ? " " : "", command, kind, line);
}

void failure_hold(void)
{
    holding = true;
}

const char *failure_held(void)
{
    return held;
}

void failure_discard(void)
{
    holding = false;
    *held = 0;
}

void failure_print_held(void)
{
    char text[sizeof held];
    snprintf(text, sizeof text, "%s", held);
    failure_discard();
    if (*text)
        print_line("", text);
}

void failure_silence(bool on)
{
    silent = on;
}

int fail(int status, const char *format, ...)
{
    char text[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    print_line("", text);
    return status;
}

const char *failure_sentence(const fx_error *e)
{
    const size_t n = strcspn(e->op, " "); /* "model, column 3" stays: it is a position */
    const bool named = n > 0 && strncmp(e->message, e->op, n) == 0 && e->message[n] == ':';
    return e->message + (named ? n + 1 + strspn(e->message + n + 1, " ") : 0);
}

int fail_library(int status)
{
    const fx_error e = fx_error_take();
    if (e.status == FX_OK)
        return fail(EXIT_FAILED, "failed for an unknown reason");
    print_line("", failure_sentence(&e));
    return status;
}

const char *table_sentence(const fx_error *e, const char *whose, char *text, size_t size)
{
    static const struct {
        const char *library, *option, *command;
        bool whose; /* the option is one of several commands */
    } advice[] = {{"call fx_read_table with .decimal = ',' or .separator = ",
                   "--decimal , or --separator ", "use ", true},
                  {"call fx_read_table with .separator = ", "--separator ", "use ", true},
                  {"call fx_read_table with .skip = ", "--skip ", "use ", true},
                  {"leave it out with skip", "--target", "give its number with ", false},
                  {"\" (.text); it has ", "\" (--id); it has ", "", false},
                  {".missing = true", "--missing", "cflux train ", false}};
    const char *sentence = failure_sentence(e);
    for (size_t i = 0; i < sizeof advice / sizeof advice[0]; i++) {
        const char *at = strstr(sentence, advice[i].library);
        if (!at)
            continue;
        snprintf(text, size, "%.*s%s%s%s%s", (int)(at - sentence), sentence, advice[i].command,
                 advice[i].whose ? whose : "", advice[i].option, at + strlen(advice[i].library));
        return text;
    }
    return sentence;
}

int fail_table(int status, const char *whose)
{
    char text[2048];
    if (fx_error_status() == FX_OK)
        return fail_library(status);
    const fx_error e = fx_error_take();
    return fail(status, "%s", table_sentence(&e, whose, text, sizeof text));
}

void *memory_error(void)
{
    return fx_error_array(fx_fail(FX_STATUS_MEMORY, "data", "out of memory"));
}

void warn(const char *format, ...)
{
    char text[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    print_line("warning: ", text);
}

static void print_message(int level, const char *text, void *user)
{
    (void)user;
    print_line(level > 0 ? "warning: " : "", text);
}

void failure_take_messages(void)
{
    fx_message_set_hook(print_message, NULL);
}

/* stdio does not keep the reason of an earlier failure. After one, its buffer may be empty, so that
 * only another byte can fail for the same reason. */
bool flush_stream(FILE *to)
{
    if (fflush(to) != 0)
        return false;
    if (!ferror(to))
        return true;
    if (fputc('\n', to) != EOF && fflush(to) == 0)
        errno = EIO;
    return false;
}

int finish_output(int status)
{
    const bool failed = !flush_stream(stdout);
    if (failed && status == EXIT_FINE)
        return fail(EXIT_FAILED, "cannot write to standard output: %s", strerror(errno));
    return status;
}
