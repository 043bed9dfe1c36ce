/* checkpoint_set.c: checkpoints of a group of processes, one file of each member.
 *
 * A member's optimiser state may be a part of the whole one, so a file alone is useless, and files
 * of different training steps do not match. Therefore the files that are saved together, a set,
 * contain the same number, and loading uses the newest set of which all members have an intact
 * file. The files of rank 0 are PATH.rank0, PATH.rank0.1 (the previous one) and so on, and
 * PATH.rank0.new while it is saved.
 *
 * The job may be killed at any moment, and its members at different calls. So saving has two
 * phases:
 *
 *   1. Each member writes PATH.rank0.new. Its older files do not change.
 *   2. When all have written theirs, each renames it to PATH.rank0.
 *
 * In phase 1 all members have the previous set. In phase 2 all have the new one, under one of the
 * two names, and loading gives it the final name. So a complete set always exists after phase 2 of
 * the first save has begun, even with .keep = 1: if a member has a file with a final name, there is
 * a set to load.
 *
 * The members may save to disks of their own: no member reads the file of another one, and they
 * exchange numbers only. Every decision depends only on numbers that all members have, so all
 * decide the same.
 */
#include "checkpoint_files.h"
#include "clock.h"
#include "error.h"
#include "files.h"
#include "memory.h"
#include "primitives.h"

#include <stdio.h>
#include <string.h>

enum { MAX_PATH = FXI_CHECKPOINT_PATH, LONGEST_PATH = MAX_PATH - 48 };

/* ---- what the members tell each other -------------------------------------------------------- */

/* `all` has n numbers for each member. A member fills in its own ones; the call sets the others. */
static fx_status exchange(fx_dist *d, int64_t n, int64_t *all)
{
    FXI_SCOPE;
    const int64_t total = n * fx_dist_total_workers(d), own = n * fx_dist_rank(d);
    for (int64_t i = 0; i < total; i++)
        if (i < own || i >= own + n)
            all[i] = INT64_MIN;
    fx_array *most = fx_dist_allreduce(d, fxi_from(FX_DTYPE_I64, all, 1, &total), FX_REDUCE_MAX);
    return fx_read_as(most, FX_DTYPE_I64, all, total);
}

/* Replaces a number by the largest of all members. */
static fx_status largest(fx_dist *d, int64_t *io)
{
    FXI_SCOPE;
    const int64_t one = 1;
    fx_array *most = fx_dist_allreduce(d, fxi_from(FX_DTYPE_I64, io, 1, &one), FX_REDUCE_MAX);
    return fx_read_as(most, FX_DTYPE_I64, io, 1);
}

/* Returns on all members the status of the lowest rank that failed; the others get its reason. */
static fx_status together(fx_dist *d, fx_status mine)
{
    const int64_t rank = fx_dist_rank(d), size = fx_dist_total_workers(d);
    int64_t failed = mine == FX_OK ? 0 : size - rank;
    const fx_status status = largest(d, &failed);
    if (status != FX_OK)
        return mine != FX_OK ? mine : status;
    if (failed == 0)
        return FX_OK;
    if (failed == size - rank) {
        fx_dist_refuse(d, mine);
        return mine;
    }
    fx_error_take();
    return fx_dist_barrier(d);
}

/* ---- names ----------------------------------------------------------------------------------- */

static fx_status name_of(const char *op, const char *path, int64_t rank, char out[MAX_PATH])
{
    if (!path || !*path)
        return fx_fail(FX_STATUS_ARGUMENT, op, "the path is NULL or empty");
    if (strlen(path) > LONGEST_PATH)
        return fx_fail(FX_STATUS_ARGUMENT, op, "the path has %zu bytes, at most %d are allowed",
                       strlen(path), LONGEST_PATH);
    snprintf(out, MAX_PATH, "%s.rank%lld", path, (long long)rank);
    return FX_OK;
}

/* The k-th file of a member, the newest first. */
static void candidate(char out[MAX_PATH], const char *name, int64_t k)
{
    if (k > 0)
        fxi_checkpoint_numbered(out, name, (int)k - 1);
    else
        snprintf(out, MAX_PATH, "%.*s.new", MAX_PATH - 5, name);
}

bool fx_dist_checkpoint_exists(fx_dist *d, const char *path)
{
    char name[MAX_PATH];
    if (!d)
        return fx_checkpoint_exists(path);
    int64_t exists = name_of("dist_checkpoint_exists", path, fx_dist_rank(d), name) == FX_OK &&
                     fx_checkpoint_exists(name);
    return largest(d, &exists) == FX_OK && exists;
}

/* ---- saving ---------------------------------------------------------------------------------- */

/* Chooses the number of the new set, and refuses if the members save different training steps. */
static fx_status begin_set(const char *op, const fx_checkpoint_args *c, fxi_checkpoint_part *out)
{
    const int64_t size = fx_dist_total_workers(c->dist);
    int64_t *all = fxi_calloc(2 * (size_t)size, sizeof *all);
    fx_status status =
        together(c->dist, all ? FX_OK : fx_fail(FX_STATUS_MEMORY, op, "out of memory"));
    *out = (fxi_checkpoint_part){.rank = fx_dist_rank(c->dist), .ranks = size};
    if (status == FX_OK) {
        all[2 * out->rank] = fxi_clock_since_1970();
        all[2 * out->rank + 1] = c->step;
        status = exchange(c->dist, 2, all);
    }
    for (int64_t r = 1; r < size && status == FX_OK; r++)
        if (all[2 * r + 1] != all[1])
            status = fx_fail(FX_STATUS_ARGUMENT, op,
                             "rank %lld saves training step %lld, but rank 0 saves training step "
                             "%lld",
                             (long long)r, (long long)all[2 * r + 1], (long long)all[1]);
    if (status == FX_OK)
        out->set = all[0];
    fxi_free(all);
    return status;
}

static fx_status save_set(const char *op, const char *path, const fx_checkpoint_args *c,
                          fx_status checked)
{
    char name[MAX_PATH], fresh[MAX_PATH];
    fxi_checkpoint_part part;
    if (checked == FX_OK)
        checked = name_of(op, path, fx_dist_rank(c->dist), name);
    fx_status status = together(c->dist, checked);
    if (status == FX_OK)
        status = begin_set(op, c, &part);
    if (status != FX_OK)
        return status;
    candidate(fresh, name, 0);
    status = together(c->dist, fxi_checkpoint_write(op, fresh, c, &part, 1));
    if (status == FX_OK)
        return together(c->dist, fxi_checkpoint_commit(op, fresh, name, c->keep));
    fxi_os_remove(fresh);
    return status;
}

fx_status fxi_checkpoint_set_save(const char *op, const char *path, const fx_checkpoint_args *c,
                                  fx_status checked)
{
    const fx_error earlier = checked == FX_OK ? fxi_error_begin() : (fx_error){.status = FX_OK};
    const fx_status status = save_set(op, path, c, checked);
    fxi_error_end(&earlier);
    return status;
}

/* ---- loading --------------------------------------------------------------------------------- */

/* A file of a member. set 0: it is missing or damaged, or belongs to another rank or to a group of
 * another size. */
typedef struct found {
    int64_t set, step;
} found;

typedef struct sets {
    const char *op, *path;
    char name[MAX_PATH];
    fx_dist *d;
    int64_t size, rank, n; /* n files of each member */
    found *all;            /* those of member r at r·n */
} sets;

static fx_status look(sets *s, int64_t k, found *out)
{
    FXI_SCOPE;
    void *file;
    char path[MAX_PATH];
    fxi_checkpoint_part part;
    candidate(path, s->name, k);
    *out = (found){0};
    const fx_status status = fxi_checkpoint_open(s->op, path, &file, &part);
    if (status != FX_OK)
        return status;
    if (part.rank != s->rank || part.ranks != s->size)
        return fx_fail(FX_STATUS_ARGUMENT, s->op,
                       "%s is the part of rank %lld of %lld, expected the part of rank %lld of "
                       "%lld. Only the same number of processes can load it",
                       path, (long long)part.rank, (long long)part.ranks, (long long)s->rank,
                       (long long)s->size);
    *out = (found){part.set, part.step};
    return FX_OK;
}

/* Lists the files of all members. *out_why is the reason why this member's newest file cannot be
 * used. */
static fx_status list(sets *s, fx_error *out_why)
{
    char path[MAX_PATH];
    s->n = 2; /* the new and the newest file may be missing although older files exist */
    while (fxi_checkpoint_numbered(path, s->name, (int)s->n - 1) && fxi_file_exists(path))
        s->n++;
    fx_status status = largest(s->d, &s->n);
    s->all = status == FX_OK ? fxi_calloc((size_t)(s->n * s->size), sizeof *s->all) : NULL;
    if (status == FX_OK && !s->all)
        status = fx_fail(FX_STATUS_MEMORY, s->op, "out of memory");
    for (int64_t k = 0; k < s->n && status == FX_OK; k++) {
        const fx_status looked = look(s, k, &s->all[s->rank * s->n + k]);
        const fx_error error = fx_error_take();
        if (k == 1)
            *out_why = error;
        if (looked == FX_STATUS_MEMORY) {
            fxi_error_carry(&error);
            status = looked;
        }
    }
    status = together(s->d, status);
    return status == FX_OK ? exchange(s->d, 2 * s->n, &s->all[0].set) : status;
}

/* The index of a set among the files of a member; −1: it has none. */
static int64_t index_of(const sets *s, int64_t rank, int64_t set)
{
    for (int64_t k = 0; k < s->n; k++)
        if (s->all[rank * s->n + k].set == set)
            return k;
    return -1;
}

/* The newest set, by the order of rank 0's files, of which all members have a file; 0: none. */
static int64_t newest_complete(const sets *s)
{
    for (int64_t k = 0; k < s->n; k++) {
        const int64_t set = s->all[k].set;
        int64_t r = 0;
        while (set && r < s->size && index_of(s, r, set) >= 0)
            r++;
        if (set && r == s->size)
            return set;
    }
    return 0;
}

/* "rank 0 has run.rank0 of training step 30" */
static void say_newest(const sets *s, int64_t rank, char *text, size_t size)
{
    char name[MAX_PATH];
    name_of(s->op, s->path, rank, name);
    snprintf(text, size, "rank %lld has %s of training step %lld", (long long)rank, name,
             (long long)s->all[rank * s->n + 1].step);
}

/* Refuses, with the same status on all members. */
static fx_status none_is_complete(const sets *s, const fx_error *why)
{
    fxi_error_carry(why);
    const fx_status status = together(s->d, why->status);
    if (status != FX_OK)
        return status;
    /* The newest files of all members are intact, and at least one is not of rank 0's set. */
    int64_t other = 1;
    while (other + 1 < s->size && s->all[other * s->n + 1].set == s->all[1].set)
        other++;
    char first[MAX_PATH + 80], second[MAX_PATH + 80];
    say_newest(s, 0, first, sizeof first);
    say_newest(s, other, second, sizeof second);
    return fx_fail(FX_STATUS_FORMAT, s->op,
                   "%s, %s, and there is no checkpoint of which all ranks have a file", first,
                   second);
}

/* Gives this member's file of the set its final name. A new file of another set is removed. */
static fx_status settle(const sets *s, int64_t k, int keep)
{
    char fresh[MAX_PATH];
    candidate(fresh, s->name, 0);
    if (k == 0)
        return fxi_checkpoint_commit(s->op, fresh, s->name, keep);
    fxi_os_remove(fresh);
    return FX_OK;
}

static fx_status take(const sets *s, int64_t k, fx_checkpoint_args *io)
{
    char path[MAX_PATH];
    void *file;
    fxi_checkpoint_part part;
    fxi_checkpoint_numbered(path, s->name, k > 0 ? (int)k - 1 : 0);
    const fx_status status = fxi_checkpoint_open(s->op, path, &file, &part);
    return status == FX_OK ? fxi_checkpoint_take(s->op, path, file, io) : status;
}

static fx_status load_set(sets *s, fx_checkpoint_args *io, fx_status checked)
{
    fx_error why = {.status = FX_OK};
    if (checked == FX_OK)
        checked = name_of(s->op, s->path, s->rank, s->name);
    fx_status status = together(s->d, checked);
    if (status == FX_OK)
        status = list(s, &why);
    if (status != FX_OK)
        return status;
    const int64_t set = newest_complete(s), k = index_of(s, s->rank, set);
    if (!set)
        return none_is_complete(s, &why);
    if (s->rank == 0 && (k > 1 || (k == 1 && s->all[0].set)))
        fx_message(1,
                   "%s: not all ranks have the newest checkpoint. The checkpoint of training step "
                   "%lld is used.",
                   s->path, (long long)s->all[k].step);
    status = together(s->d, settle(s, k, io->keep));
    return status == FX_OK ? together(s->d, take(s, k, io)) : status;
}

fx_status fxi_checkpoint_set_load(const char *op, const char *path, fx_checkpoint_args *io,
                                  fx_status checked)
{
    FXI_SCOPE;
    const fx_error earlier = checked == FX_OK ? fxi_error_begin() : (fx_error){.status = FX_OK};
    sets s = {.op = op,
              .path = path,
              .d = io->dist,
              .size = fx_dist_total_workers(io->dist),
              .rank = fx_dist_rank(io->dist)};
    const fx_status status = load_set(&s, io, checked);
    fxi_free(s.all);
    fxi_error_end(&earlier);
    return status;
}
