/* sim_script.c: failures that a test requests, and settings from the environment. */
#include "sim.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 32 };
static struct row {
    char function[48];
    long call, error;
    bool lost;
    long calls;
} rows[ROWS];
static int nrows = -1;

/* Replaces the script; NULL restores the one of SIM_FAIL. Tests find this function by dlsym. */
__attribute__((visibility("default"))) void sim_set_script(const char *text);
void sim_set_script(const char *text)
{
    text = text ? text : getenv("SIM_FAIL");
    nrows = 0;
    while (text && *text && nrows < ROWS) {
        struct row *r = &rows[nrows];
        memset(r, 0, sizeof *r);
        const size_t n = strcspn(text, ",");
        char item[128], last = ' ';
        snprintf(item, sizeof item, "%.*s", (int)n, text);
        if (sscanf(item, "%47[^@]@%ld=%ld%c", r->function, &r->call, &r->error, &last) >= 3) {
            r->lost = last == '!';
            nrows++;
        }
        text += n + (text[n] == ',');
    }
}

/* ---- counts ---------------------------------------------------------------------------------- */

/* Calls of each function since the process began. */
enum { FUNCTIONS = 64 };
static struct {
    const char *function;
    long calls;
} counts[FUNCTIONS];

static void count(const char *function)
{
    int k = 0;
    while (k < FUNCTIONS - 1 && counts[k].function && strcmp(counts[k].function, function) != 0)
        k++;
    counts[k].function = function;
    counts[k].calls++;
}

/* Prints "cuMemAlloc_v2 12 " for every function that was called; for tests, as above. */
__attribute__((visibility("default"))) void sim_print_calls(void);
void sim_print_calls(void)
{
    for (int k = 0; k < FUNCTIONS && counts[k].function; k++)
        printf("%s %ld ", counts[k].function, counts[k].calls);
}

static int next_error(const char *function, bool *out_lost)
{
    if (nrows < 0)
        sim_set_script(NULL);
    for (int k = 0; k < nrows; k++)
        /* A call number of 0 means every call. */
        if (strcmp(rows[k].function, function) == 0 &&
            (rows[k].call == 0 || ++rows[k].calls == rows[k].call)) {
            *out_lost = rows[k].lost;
            return (int)rows[k].error;
        }
    return SIM_OK;
}

int sim_script(const char *function, bool *out_lost)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    count(function);
    const int error = next_error(function, out_lost);
    pthread_mutex_unlock(&lock);
    return error;
}

int64_t sim_setting(const char *name, int64_t usual)
{
    const char *text = getenv(name);
    return text && *text ? strtoll(text, NULL, 10) : usual;
}

bool sim_computes_nothing(void)
{
    static int set = -1;
    if (set < 0)
        set = sim_setting("SIM_NOTHING", 0) != 0;
    return set;
}
