/* conform_coverage.c: checks that the table is complete.
 *
 * Every function of the headers of operations that returns an array must be named by a row (the
 * headers are read when the test runs, so that a new function fails here until it has a row), and
 * every row of op.def, with every kind of reduction, convolution and pooling, must occur in a graph
 * that a case or its gradient built.
 */
#include "conform.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "node.h"

enum { KINDS = 8, MOST_NODES = 4096 };
static bool seen[FX_OP_COUNT][KINDS];

static int kind_of(const fxi_node *n)
{
    switch (n->op) {
    case FX_OP_REDUCE:
        return (int)n->attr.reduce.fold;
    case FX_OP_SCATTER:
        return (int)n->attr.scatter.fold;
    case FX_OP_CONV:
        return n->attr.conv.kind;
    case FX_OP_POOL:
        return n->attr.pool.kind;
    case FX_OP_ATTENTION:
        return (int)n->attr.attention.kind;
    default:
        return 0;
    }
}

void cf_mark_primitives(fx_array *x)
{
    static const fxi_node *stack[MOST_NODES], *done[MOST_NODES];
    int depth = 0, count = 0;
    if (fx_is_error(x))
        return;
    stack[depth++] = x->node;
    while (depth > 0) {
        const fxi_node *n = stack[--depth];
        bool old = false;
        for (int k = 0; k < count && !old; k++)
            old = done[k] == n;
        if (old || count == MOST_NODES)
            continue;
        done[count++] = n;
        seen[n->op][kind_of(n)] = true;
        for (int k = 0; k < n->nin && !n->history_cut && depth < MOST_NODES; k++)
            if (n->in[k])
                stack[depth++] = n->in[k];
    }
}

static const char *const op_names[FX_OP_COUNT] = {
#define OP(NAME, name, inputs, cls, words, gradient) name,
#include <cflux/op.def>
};

static int check_primitives(const fx_device *device)
{
    int missing = 0;
    const int kinds[FX_OP_COUNT] = {[FX_OP_REDUCE] = 4,
                                    [FX_OP_SCATTER] = 4,
                                    [FX_OP_CONV] = 3,
                                    [FX_OP_POOL] = 5,
                                    [FX_OP_ATTENTION] = 4};
    for (int op = FX_OP_CONST + 1; op < FX_OP_COUNT; op++)
        for (int k = 0; k < (kinds[op] ? kinds[op] : 1); k++)
            /* No backend computes a TRANSFER, or an OWN_GRADIENT, which is its last input; and only
             * some have ATTENTION. */
            if (!seen[op][k] && op != FX_OP_TRANSFER && op != FX_OP_OWN_GRADIENT &&
                (op != FX_OP_ATTENTION || device->backend->attention)) {
                printf("FAIL coverage: no case reaches the primitive %s, kind %d\n", op_names[op],
                       k);
                missing++;
            }
    return missing;
}

static bool listed(const char *list, const char *name)
{
    const size_t n = strlen(name);
    for (const char *at = strstr(list, name); at; at = strstr(at + 1, name))
        if ((at == list || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0'))
            return true;
    return false;
}

static bool has_row(const char *function)
{
    char own[96];
    for (const cf_row *const *t = cf_tables; *t; t++)
        for (const cf_row *row = *t; row->name; row++) {
            snprintf(own, sizeof own, "fx_%s", row->name);
            if (listed(row->covers ? row->covers : own, function))
                return true;
        }
    return false;
}

/* The public name: fxi_add implements fx_add, fxi_any_true fx_any. */
static void public_name(const char *start, char *out, size_t size)
{
    size_t n = 0;
    start += strncmp(start, "fxi_", 4) == 0 ? 4 : 3;
    while (isalnum((unsigned char)start[n]) || start[n] == '_')
        n++;
    if (n > 5 && strncmp(start + n - 5, "_true", 5) == 0)
        n -= 5;
    snprintf(out, size, "fx_%.*s", (int)n, start);
}

/* The tests run in the root of the source tree. From other folders the header is found by the path
 * of this file. */
static FILE *open_header(const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "include/cflux/%s", name);
    FILE *f = fopen(path, "r");
    if (f)
        return f;
    snprintf(path, sizeof path, "%s", __FILE__);
    char *slash = strstr(path, "tests/conform/");
    if (slash)
        snprintf(slash, sizeof path - (size_t)(slash - path), "include/cflux/%s", name);
    return slash ? fopen(path, "r") : NULL;
}

static int check_functions(const char *header, int at_least)
{
    char line[1024], name[96];
    int missing = 0, functions = 0;
    FILE *f = open_header(header);
    while (f && fgets(line, sizeof line, f)) {
        static const char mark[] = "FX_API fx_array *";
        if (strncmp(line, mark, sizeof mark - 1) != 0)
            continue;
        public_name(line + sizeof mark - 1, name, sizeof name);
        functions++;
        if (has_row(name))
            continue;
        printf("FAIL coverage: %s of %s has no row in the table\n", name, header);
        missing++;
    }
    if (f)
        fclose(f);
    if (functions < at_least) {
        printf("FAIL coverage: found %d functions in %s, expected at least %d\n", functions, header,
               at_least);
        missing++;
    }
    return missing;
}

int cf_check_coverage(const fx_device *device, bool everything_ran)
{
    return check_functions("ops.h", 130) + check_functions("resample.h", 5) +
           (everything_ran ? check_primitives(device) : 0);
}
