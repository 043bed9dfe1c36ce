/* plugin_record.c: records for each plugin file whether it is used, or why not; see
 * plugin_record.h. The search notes every file that it opened or rejected. fxi_plugin_records adds
 * the other files in the folders without opening them, because opening a kernel library loads a
 * vendor's library. A record is never freed; each path has one.
 */
#include "plugin_record.h"
#include "memory.h"
#include "thread.h"

#include <stdio.h>
#include <string.h>

typedef fxi_plugin_record record;

static fxi_mutex lock = FXI_MUTEX_INIT; /* protects the list and its records */
static record *first, **end = &first;
static int calls; /* number of calls of fxi_plugin_records; atomic */

/* The record of a path, created if there is none. NULL if the path is not that of a plugin, or the
 * allocation fails. */
static record *record_of(const char *path)
{
    for (record *r = first; r; r = r->next)
        if (strcmp(r->path, path) == 0)
            return r;
    const size_t n = strlen(path) + 1;
    fxi_plugin_name name;
    record *r = fxi_plugin_name_of(path, &name) ? fxi_calloc(1, sizeof *r + n) : NULL;
    if (!r)
        return NULL;
    r->name = name;
    r->path = memcpy(r + 1, path, n);
    *end = r;
    end = &r->next;
    return r;
}

void fxi_plugin_note(const char *path, const fx_plugin_head *plugin, const char *why)
{
    fxi_mutex_lock(&lock);
    record *r = record_of(path);
    if (r) {
        r->plugin = plugin;
        r->opened = true;
        snprintf(r->why, sizeof r->why, "%s", why);
    }
    fxi_mutex_unlock(&lock);
}

static void mark_found(const char *path, const fxi_plugin_name *name, void *user)
{
    (void)name;
    fxi_mutex_lock(&lock);
    record *r = record_of(path);
    if (r)
        r->seen = *(const int *)user;
    fxi_mutex_unlock(&lock);
}

/* Copies the first record from `r` on that this call shows; other threads may change the record
 * meanwhile. False if there is none. */
static bool copy_shown(const record *r, int call, record *out)
{
    fxi_mutex_lock(&lock);
    while (r && !r->opened && r->seen != call)
        r = r->next;
    if (r)
        *out = *r;
    fxi_mutex_unlock(&lock);
    return r;
}

void fxi_plugin_records(void (*visit)(const fxi_plugin_record *record, void *user), void *user)
{
    int call = __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
    fxi_plugin_each(mark_found, &call);
    fxi_mutex_lock(&lock);
    record now = {.next = first};
    fxi_mutex_unlock(&lock);
    while (copy_shown(now.next, call, &now))
        visit(&now, user);
}
