/* init.c: joins the group of this process.
 *
 * The launcher's environment variables tell which MPI started the processes. A plugin for another
 * MPI would load without an error, but put every process into a group of its own, and each process
 * would train alone. So the size of the group is compared with the number of processes that the
 * launcher started.
 */
#include "dist_group.h"

#include "c_text.h"
#include "error.h"
#include "files.h"
#include "launcher.h"
#include "option_struct.h"
#include "plugin_file.h"
#include "this_process.h"

#include <stdio.h>
#include <string.h>

static fxi_mutex joining = FXI_MUTEX_INIT;
static fx_dist the_group;
/* By kind. FX_MPI: this process has joined the group. FX_NCCL: it has also opened NCCL or RCCL.
 * FX_DIST_AUTO: a call of fx_dist_init has succeeded (a process may join and then fail to open
 * NCCL). */
static bool ready[FX_DIST_AUTO + 1];
/* A failure after this process has joined. Another attempt would join a second time, and wait
 * without a limit for members that do not try again. */
typedef struct failure {
    fx_status status; /* FX_OK: none */
    char why[FXI_DIST_WHY + 200];
} failure;
static failure failed; /* of all later calls */
/* By plugin, [1]: "mpich". The plugin has joined a group without the launcher's other processes: a
 * call for the other plugin may succeed. */
static failure failed_plugin[2];

static failure *failure_of(const char *plugin)
{
    return &failed_plugin[strcmp(plugin, "mpich") == 0];
}

static fx_status fail(const failure *f)
{
    return fx_fail(f->status, "dist_init", "%s", f->why);
}

/* ---- the plugin ------------------------------------------------------------------------------ */

typedef struct joined_group {
    const void *communicator;
    const fxi_transport *transport;
    fxi_transport_group group;
    char why[FXI_PLUGIN_WHY];
} joined_group;

static const char *take(const fx_plugin_head *plugin, void *user)
{
    joined_group *j = user;
    const fxi_transport *t = (const fxi_transport *)plugin;
    if (!t->open || !t->run)
        return "its table must have open and run";
    const char *why = t->open(&fxi_dist_host, j->communicator, &j->group);
    if (!why)
        j->transport = t;
    return why;
}

static bool open_plugin(const char *name, joined_group *j)
{
    static const uint32_t sizes[] = FXI_TRANSPORT_SIZES_HERE;
    const fxi_plugin_request request = {.kind = FX_PLUGIN_TRANSPORT,
                                        .name = name,
                                        .serves = "MPI",
                                        .sizes = sizes,
                                        .take = take,
                                        .user = j};
    const fx_plugin_head *plugin;
    return fxi_plugin_find(&request, &plugin, j->why, sizeof j->why) == FXI_PLUGIN_TAKEN;
}

/* ---- joining --------------------------------------------------------------------------------- */

static fx_status check(const fx_dist_init_args *a)
{
    if (a->kind != FX_MPI && a->kind != FX_NCCL && a->kind != FX_DIST_AUTO)
        return fx_fail(FX_STATUS_ARGUMENT, "dist_init",
                       "kind is %d, expected FX_MPI, FX_NCCL or FX_DIST_AUTO", (int)a->kind);
    if (!(a->time_limit > 0))
        return fx_fail(FX_STATUS_ARGUMENT, "dist_init",
                       "the time limit must be positive, got %g seconds", a->time_limit);
    if (a->library && strcmp(a->library, "openmpi") != 0 && strcmp(a->library, "mpich") != 0)
        return fx_fail(FX_STATUS_ARGUMENT, "dist_init",
                       ".library must be \"openmpi\" or \"mpich\", got \"%s\"", a->library);
    if (a->wire != FX_DTYPE_F32 && a->wire != FX_DTYPE_BF16)
        return fx_fail(FX_STATUS_ARGUMENT, "dist_init", ".wire must be Float32 or BFloat16, got %s",
                       fx_dtype_name(a->wire));
    return FX_OK;
}

/* The library that rank 0's environment names; UNKNOWN: another name. */
enum { UNKNOWN = FX_DIST_AUTO };
static int64_t named;

static int64_t named_here(void)
{
    const char *name = fxi_trusted_variable("FX_DIST_BACKEND");
    return !name || !*name || fxi_same_ignoring_case(name, "mpi") ? FX_MPI
           : fxi_same_ignoring_case(name, "nccl")                 ? FX_NCCL
                                                                  : UNKNOWN;
}

/* Decides what all members must do alike. FX_DIST_BACKEND is that of rank 0, because a launcher may
 * pass the environment to some machines only. */
static fx_status agree(fx_dist *d)
{
    char why[FXI_DIST_WHY] = "";
    fx_status status =
        d->group.size == 1 ? FX_OK : fxi_dist_same_version(d, FX_VERSION_STRING, why, sizeof why);
    named = named_here();
    if (status == FX_OK)
        status = fxi_dist_choose(d, &named, why, sizeof why);
    if (status == FX_OK)
        return FX_OK;
    failed.status = status;
    snprintf(failed.why, sizeof failed.why, "%s, rank %d of %d: %s", d->group.library,
             (int)d->group.rank, (int)d->group.size, why);
    return fail(&failed);
}

/* The error if the launcher's processes are not in one group, because srun has connected none, or
 * the plugin or the MPI library belongs to another MPI. `plugin`: the one that has joined; NULL:
 * none. */
static fx_status not_one_group(const joined_group *j, const fxi_launcher *l, int n,
                               const char *plugin)
{
    failure none, *f = plugin ? failure_of(plugin) : &none;
    f->status = FX_STATUS_UNSUPPORTED;
    if (!l->plugin)
        snprintf(f->why, sizeof f->why,
                 "srun started %d processes without an MPI interface: use srun --mpi=pmix for Open "
                 "MPI, or srun --mpi=pmi2 for MPICH",
                 n);
    else
        snprintf(f->why, sizeof f->why,
                 "%s's launcher started %d processes, but %s sees %d: use the launcher of the same "
                 "MPI, or .library = \"%s\"",
                 l->name, n, j->group.library, (int)j->group.size, l->plugin);
    return fail(f);
}

static fx_status join(const fx_dist_init_args *a)
{
    int n;
    const fxi_launcher *l = fxi_launcher_of_process(&n);
    joined_group j = {.communicator = a->communicator,
                      .group = {.size = 1, .local_size = 1, .library = "no MPI"}};
    const char *name = a->library ? a->library : l ? l->plugin : NULL;
    const failure *earlier = failed.status == FX_OK && name ? failure_of(name) : &failed;
    if (earlier->status != FX_OK)
        return fail(earlier);
    if (a->communicator && !name)
        return fx_fail(FX_STATUS_ARGUMENT, "dist_init",
                       ".communicator needs .library, which is \"openmpi\" or \"mpich\"");
    if (name && (a->library || a->communicator || n > 1) && !open_plugin(name, &j))
        return fx_fail(FX_STATUS_UNSUPPORTED, "dist_init", "the transport %s: %s", name, j.why);
    if (l && !a->communicator && j.group.size != n)
        return not_one_group(&j, l, n, j.transport ? name : NULL);
    fxi_dist_begin(&the_group, j.transport, &j.group, a->time_limit);
    the_group.fixed_order = a->fixed_order;
    the_group.narrow = a->wire == FX_DTYPE_BF16;
    if (!fxi_dist_leave_at_exit(&the_group)) {
        failed = (failure){FX_STATUS_MEMORY, "out of memory"};
        return fail(&failed);
    }
    const char *progress = fxi_trusted_variable("FX_DIST_PROGRESS");
    the_group.progress = progress && *progress ? fxi_os_open_stream(progress, "w") : NULL;
    fxi_launcher_joined();
    return agree(&the_group);
}

/* Opens NCCL and RCCL. Host arrays still move over MPI. A group of one moves nothing, and needs no
 * library. */
static fx_status join_devices(void)
{
    char why[FXI_DIST_WHY] = "";
    const fx_status status =
        the_group.group.size > 1 ? fxi_dist_open_devices(&the_group, why, sizeof why) : FX_OK;
    return status == FX_OK ? FX_OK : fx_fail(status, "dist_init", "%s", why);
}

fx_status fxi_dist_init(const fx_dist_init_args *given)
{
    FXI_TAKE_OPTIONS(fx_dist_init_args, FXI_DIST_INIT_ARGS, a, "dist_init", given);
    fx_status status = a_ok ? check(&a) : FX_STATUS_ARGUMENT;
    if (status != FX_OK)
        return status;
    fxi_mutex_lock(&joining);
    status = ready[FX_MPI] ? FX_OK : join(&a);
    ready[FX_MPI] = ready[FX_MPI] || status == FX_OK;
    if (status == FX_OK && a.kind == FX_DIST_AUTO && named == UNKNOWN)
        status = fx_fail(FX_STATUS_ARGUMENT, "dist_init",
                         "FX_DIST_BACKEND in the environment of rank 0 must be mpi or nccl");
    if (a.kind == FX_DIST_AUTO)
        a.kind = (fx_dist_kind)named;
    if (status == FX_OK && a.kind == FX_NCCL && !ready[FX_NCCL]) {
        status = join_devices();
        ready[FX_NCCL] = status == FX_OK;
    }
    ready[FX_DIST_AUTO] = ready[FX_DIST_AUTO] || status == FX_OK;
    fxi_mutex_unlock(&joining);
    return status;
}

bool fx_dist_initialized(fx_dist_kind kind)
{
    fxi_mutex_lock(&joining);
    const bool is = (kind == FX_MPI || kind == FX_NCCL || kind == FX_DIST_AUTO) && ready[kind];
    fxi_mutex_unlock(&joining);
    return is;
}

fx_dist *fx_dist_backend(fx_dist_kind kind)
{
    if (fx_dist_initialized(kind))
        return &the_group;
    const char *name = kind == FX_NCCL ? "NCCL" : "MPI";
    if (kind == FX_DIST_AUTO)
        fx_fail(FX_STATUS_ARGUMENT, "dist_backend",
                "No backend is initialized. Call fx_dist_init(FX_DIST_AUTO) first");
    else
        fx_fail(FX_STATUS_ARGUMENT, "dist_backend",
                "Backend `%s` is not initialized. Call fx_dist_init(FX_%s) first", name, name);
    return NULL;
}

int fx_dist_rank(const fx_dist *d)
{
    return d ? d->group.rank : 0;
}

int fx_dist_local_rank(const fx_dist *d)
{
    return d ? d->group.local_rank : 0;
}

int fx_dist_total_workers(const fx_dist *d)
{
    return d ? d->group.size : 1;
}
