/* cgroup_linux.c: the limits of the process's cgroups; see cgroup.h. Versions 1 and 2 are both
 * read, because a system may use version 1 for some controllers and version 2 for others. Inside a
 * container the root is the container's own, and the path in /proc/self/cgroup may not exist there;
 * folders that do not exist have no limit.
 */
#include "cgroup.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH = 1200 };

/* The path in a line "4:memory,cpu:/path" of /proc/self/cgroup; NULL: of another controller. */
static const char *path_of(const char *line, const char *controller)
{
    const char *list = strchr(line, ':'), *end = list ? strchr(list + 1, ':') : NULL;
    if (!end)
        return NULL;
    const size_t n = strlen(controller);
    for (const char *at = list + 1;; at++) {
        const size_t length = strcspn(at, ",:");
        if (length == n && memcmp(at, controller, n) == 0)
            return end + 1;
        at += length;
        if (at == end)
            return NULL;
    }
}

void fxi_cgroup_visit(const char *root, const char *controller, fxi_cgroup_fn visit, void *user)
{
    char line[600], group[512] = "", path[PATH];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f)) {
        const char *found = path_of(line, controller);
        if (found)
            snprintf(group, sizeof group, "%.*s", (int)strcspn(found, "\n"), found);
    }
    if (f)
        fclose(f);
    for (;;) {
        snprintf(path, sizeof path, "%s/sys/fs/cgroup%s%s%s", root, *controller ? "/" : "",
                 controller, group);
        visit(path, user);
        char *end = strrchr(group, '/');
        if (!end)
            return;
        *end = 0;
    }
}

void fxi_cgroup_line(const char *folder, const char *name, char *text, int size)
{
    char path[PATH + 40];
    text[0] = 0;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "r");
    if (!f)
        return;
    if (!fgets(text, size, f))
        text[0] = 0;
    text[strcspn(text, "\n")] = 0;
    fclose(f);
}

/* ---- memory ---------------------------------------------------------------------------------- */

typedef struct memory_files {
    const char *controller, *limit, *usage, *droppable; /* droppable: a line of memory.stat */
} memory_files;

typedef struct memory_found {
    const memory_files *files;
    int64_t limit, left;
    bool wants_left;
} memory_found;

/* A number of bytes in a file; −1 if there is none ("max"). */
static int64_t bytes_in(const char *folder, const char *name)
{
    char line[64], *end;
    fxi_cgroup_line(folder, name, line, sizeof line);
    const int64_t n = strtoll(line, &end, 10);
    return end == line ? -1 : n;
}

static int64_t droppable(const char *folder, const char *key)
{
    char path[PATH + 40], line[100];
    const size_t n = strlen(key);
    int64_t bytes = 0;
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, key, n) == 0 && line[n] == ' ')
            bytes = strtoll(line + n, NULL, 10);
    if (f)
        fclose(f);
    return bytes;
}

static void least(int64_t *io, int64_t bytes)
{
    *io = *io < 0 || bytes < *io ? bytes : *io;
}

static void read_memory(const char *folder, void *user)
{
    memory_found *m = user;
    const int64_t limit = bytes_in(folder, m->files->limit);
    if (limit < 0)
        return;
    least(&m->limit, limit);
    const int64_t used = m->wants_left ? bytes_in(folder, m->files->usage) : -1;
    if (used < 0)
        return;
    const int64_t kept = used - droppable(folder, m->files->droppable);
    least(&m->left, kept < 0 ? limit : kept < limit ? limit - kept : 0);
}

void fxi_cgroup_memory(const char *root, int64_t *out_limit, int64_t *out_left)
{
    static const memory_files versions[] = {
        {"", "memory.max", "memory.current", "inactive_file"},
        {"memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"}};
    memory_found m = {.limit = -1, .left = -1, .wants_left = out_left};
    for (int i = 0; i < 2; i++) {
        m.files = &versions[i];
        fxi_cgroup_visit(root, versions[i].controller, read_memory, &m);
    }
    *out_limit = m.limit;
    if (out_left)
        *out_left = m.left;
}
