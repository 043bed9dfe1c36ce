/* error.c: error records, messages and their hooks. Each thread has one record, which keeps the
 * first failure until it is cleared; closing a scope does not change it. Recording needs no memory,
 * so it cannot fail.
 */
#include "error.h"
#include "c_text.h"
#include "thread.h"

#include <stdarg.h>
#include <string.h>

_Thread_local const char *fxi_call_site;
static _Thread_local fx_error record;
static _Thread_local fx_status latest; /* of the latest call of fx_fail */
static _Thread_local const char *where_file;
static _Thread_local int where_line;
static _Thread_local const char *named_operation; /* by FXI_OPERATION; NULL outside */

static fxi_mutex hook_lock = FXI_MUTEX_INIT;
static fx_error_fn error_hook;
static void *error_user;

static void message_to_stderr(int level, const char *text, void *user)
{
    (void)user;
    fprintf(stderr, "[ %s: %s\n", level > 0 ? "Warning" : "Info", text);
}
static fx_message_fn message_hook = message_to_stderr;
static void *message_user;

const char *fx_status_name(fx_status status)
{
    static const char *const names[] = {"FX_OK",
                                        "FX_STATUS_MEMORY",
                                        "FX_STATUS_SHAPE",
                                        "FX_STATUS_DTYPE",
                                        "FX_STATUS_DEVICE",
                                        "FX_STATUS_ARGUMENT",
                                        "FX_STATUS_STATE",
                                        "FX_STATUS_IO",
                                        "FX_STATUS_FORMAT",
                                        "FX_STATUS_NONFINITE",
                                        "FX_STATUS_UNSUPPORTED",
                                        "FX_STATUS_INTERNAL"};
    const size_t i = (size_t)status;
    return i < sizeof names / sizeof names[0] ? names[i] : "FX_STATUS_?";
}

void fxi_error_where(const char *file, int line)
{
    where_file = file;
    where_line = line;
}

const char *fxi_operation_begin(const char *name)
{
    const char *before = named_operation;
    named_operation = before ? before : name;
    return before;
}

void fxi_operation_end(const char *const *before)
{
    named_operation = *before;
}

void fxi_error_carry(const fx_error *error)
{
    if (error->status == FX_OK || record.status != FX_OK)
        return;
    record = *error;
    if (!record.file) {
        record.file = where_file;
        record.line = where_line;
    }
}

/* Shortens a text that was cut off, so that it ends at a whole UTF-8 character. */
static void trim_utf8(char *text, size_t capacity)
{
    size_t n = strlen(text);
    if (n + 1 < capacity)
        return;
    while (n > 0 && ((unsigned char)text[n - 1] & 0xC0) == 0x80)
        n--;
    if (n > 0 && ((unsigned char)text[n - 1] & 0x80))
        text[n - 1] = 0;
}

fx_status fx_fail(fx_status status, const char *op, const char *format, ...)
{
    fx_error e = {.status = status, .file = where_file, .line = where_line};
    const char *outer = named_operation;
    op = outer ? outer : op;
    snprintf(e.op, sizeof e.op, "%s", op);
    int n = snprintf(e.message, sizeof e.message, "%s: ", op);
    if (n < 0 || (size_t)n >= sizeof e.message)
        n = 0;
    va_list args;
    va_start(args, format);
    fxi_vsnprintf(e.message + n, sizeof e.message - (size_t)n, format, args);
    va_end(args);
    trim_utf8(e.message, sizeof e.message);
    fxi_error_carry(&e);

    fxi_mutex_lock(&hook_lock);
    const fx_error_fn hook = error_hook;
    void *user = error_user;
    fxi_mutex_unlock(&hook_lock);
    named_operation = NULL; /* the hook may call operations */
    if (hook)
        hook(&e, user);
    named_operation = outer;
    latest = status; /* last, because the hook may have failed too */
    return status;
}

fx_status fxi_error_latest(void)
{
    return latest;
}

fx_status fxi_fail_text(fx_status status, const char *operation, const char *text)
{
    return fx_fail(status, operation, "%s", text);
}

fx_status fxi_refuse_list(const char *operation, const char *what, int64_t n)
{
    if (n < 0)
        return fx_fail(FX_STATUS_ARGUMENT, operation, "the number of %s is negative: %lld", what,
                       (long long)n);
    return fx_fail(FX_STATUS_ARGUMENT, operation, "the list of %lld %s is NULL", (long long)n,
                   what);
}

fx_error fx_error_take(void)
{
    const fx_error e = record;
    memset(&record, 0, sizeof record);
    return e;
}

fx_error fxi_error_begin(void)
{
    return fx_error_take();
}

fx_status fxi_error_end(const fx_error *earlier)
{
    const fx_status status = record.status;
    if (earlier->status != FX_OK)
        record = *earlier;
    return status;
}

fx_status fx_error_status(void)
{
    return record.status;
}

int fx_error_print(FILE *out)
{
    const fx_error e = fx_error_take();
    if (e.status == FX_OK)
        return 0;
    fprintf(out, "error: %s (%s", e.message, fx_status_name(e.status));
    if (e.file)
        fprintf(out, ", in the scope at %s:%d", e.file, e.line);
    fprintf(out, ")\n");
    return 1;
}

void fx_error_set_hook(fx_error_fn hook, void *user)
{
    fxi_mutex_lock(&hook_lock);
    error_hook = hook;
    error_user = user;
    fxi_mutex_unlock(&hook_lock);
}

void fx_message_set_hook(fx_message_fn hook, void *user)
{
    fxi_mutex_lock(&hook_lock);
    message_hook = hook;
    message_user = user;
    fxi_mutex_unlock(&hook_lock);
}

static _Thread_local bool in_message_hook;

void fx_message(int level, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    fxi_vsnprintf(text, sizeof text, format, args);
    va_end(args);
    trim_utf8(text, sizeof text);
    fxi_mutex_lock(&hook_lock);
    const fx_message_fn hook = message_hook;
    void *user = message_user;
    fxi_mutex_unlock(&hook_lock);
    if (!hook)
        return;
    if (in_message_hook) { /* the hook would call itself without end */
        message_to_stderr(level, text, NULL);
        return;
    }
    in_message_hook = true;
    hook(level, text, user);
    in_message_hook = false;
}

bool fxi_in_message_hook(void)
{
    return in_message_hook;
}
