/* cpu_plugin.c: finds, checks and opens the plugin that computes large contractions.
 *
 * Opening a vendor's library costs tens of milliseconds, so it waits until a plan holds a
 * contraction that repays it; a program of small networks never pays. The file is looked for in the
 * folders of FX_PLUGIN_PATH and those of every plugin (plugin_file.h). FX_ONEDNN=0 does without. A
 * file that is not there is no matter; one that does not fit or does not load is reported once, and
 * the CPU's own kernels do its work. Nothing is ever unloaded.
 */
#include "cpu_plugin.h"
#include "cpu_kernels.h"
#include "cpu_parallel.h"
#include "memory.h"
#include "plugin_file.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define FILE_NAME "libcflux-onednn.so"

static struct {
    pthread_mutex_t lock;
    bool asked;               /* atomic: `plugin` is settled */
    const fxi_plugin *plugin; /* NULL: none */
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const fxi_plugin_host host = {fxi_aligned, fxi_free, fxi_cpu_parallel_scratch};

/* ---- opening --------------------------------------------------------------------------------- */

/* Why the table does not fit, or NULL. */
static const char *misfit(const fxi_plugin *p)
{
    static const uint32_t sizes[] = FXI_PLUGIN_SIZES_HERE;
    if (p->abi != FXI_PLUGIN_ABI)
        return "it was built for another version of cflux";
    if (memcmp(p->sizes, sizes, sizeof sizes) != 0)
        return "it was built with other options than this cflux";
    return NULL;
}

/* Opens the file if the folder has it. True when the search is over. */
static bool try_folder(const char *folder, void *out)
{
    char path[4096];
    const int n = snprintf(path, sizeof path, "%s/" FILE_NAME, folder);
    if (n < 0 || (size_t)n >= sizeof path || access(path, F_OK) != 0)
        return false;
    const char *why;
    const fxi_plugin *p = fxi_plugin_open(path, FXI_PLUGIN_SYMBOL, &why);
    if (p)
        why = misfit(p);
    if (p && !why)
        why = p->open(&host);
    if (why)
        fx_message(1, "the plugin %s is not used: %s", path, why);
    else
        *(const fxi_plugin **)out = p;
    return true;
}

static const fxi_plugin *find(void)
{
    const fxi_plugin *p = NULL;
    fxi_plugin_folders("FX_PLUGIN_PATH", try_folder, &p);
    return p;
}

static const fxi_plugin *plugin(void)
{
    if (__atomic_load_n(&state.asked, __ATOMIC_ACQUIRE))
        return state.plugin;
    pthread_mutex_lock(&state.lock);
    if (!state.asked) {
        state.plugin = find();
        __atomic_store_n(&state.asked, true, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&state.lock);
    return state.plugin;
}

const char *fxi_cpu_plugin_name(bool open)
{
    const bool asked = __atomic_load_n(&state.asked, __ATOMIC_ACQUIRE);
    const fxi_plugin *p = asked || open ? plugin() : NULL;
    return p ? p->name : NULL;
}

static bool refused(void)
{
    const char *wish = getenv("FX_ONEDNN");
    return wish && strcmp(wish, "0") == 0;
}

const char *fxi_cpu_plugin_why(const char *name)
{
    if (strcasecmp(name, "oneDNN") != 0)
        return NULL;
    if (refused())
        return "FX_ONEDNN is 0";
    return plugin() ? "" : "there is no " FILE_NAME " that works in the folders of plugins";
}

void fxi_cpu_plugin_forget(void)
{
    pthread_mutex_lock(&state.lock);
    state.asked = false;
    state.plugin = NULL;
    pthread_mutex_unlock(&state.lock);
}

/* ---- which steps ----------------------------------------------------------------------------- */

/* Multiplications and additions of a matrix product or convolution. */
static double work(const fx_step *s)
{
    if (s->op == FX_OP_MATMUL)
        return 2 * (double)fx_tensor_length(&s->out) * (double)s->in[0].shape[s->attr.i[0] ? 0 : 1];
    const int kind = s->attr.conv.kind;
    const fx_tensor *y = kind == FX_CONV_FORWARD ? &s->out : &s->in[kind == FX_CONV_WEIGHT];
    const fx_tensor *w = kind == FX_CONV_WEIGHT ? &s->out : &s->in[1];
    return 2 * (double)fx_tensor_length(y) * (double)fxi_length(w->ndim - 1, w->shape);
}

/* With few channels the vectors of a channels-last kernel are mostly empty, and ours is faster: it
 * wants 16 on both sides, or many on the output's (the first layer of a deep network). */
static bool wide(const fx_step *s)
{
    const fx_tensor *w = s->attr.conv.kind == FX_CONV_WEIGHT ? &s->out : &s->in[1];
    const int64_t in = w->shape[s->attr.conv.spatial], out = w->shape[s->attr.conv.spatial + 1];
    return out >= (in >= 16 ? 16 : 32);
}

/* Is a step worth opening a library for? A plan runs many times; below these sizes the time to gain
 * in a whole run is less than the library takes to load. Our own Float32 products are as fast as
 * any; those of BFloat16 convert to Float32 first. */
static bool repays(const fx_step *s)
{
    const bool half = s->out.dtype == FX_DTYPE_BF16;
    if (s->op == FX_OP_MATMUL)
        return half && work(s) >= 4e6;
    return (half || s->out.dtype == FX_DTYPE_F32) && wide(s) && work(s) >= 16e6;
}

fx_status fxi_cpu_plugin_prepare(const fx_step *step, fxi_plugin_ready **out_ready)
{
    const char *wish = getenv("FX_ONEDNN");
    const bool all = wish && strcmp(wish, "all") == 0;
    const fxi_plugin *p = !refused() && work(step) > 0 && (all || repays(step)) ? plugin() : NULL;
    return p ? p->prepare(step, out_ready) : FX_STATUS_UNSUPPORTED;
}

void fxi_cpu_plugin_release(fxi_plugin_ready *ready)
{
    ready->plugin->release(ready);
}

fx_status fxi_cpu_plugin_run(const fxi_plugin_ready *ready, const fx_step *step,
                             const void *const *in, void *out, fx_run *run)
{
    return ready->plugin->run(ready, step, in, out, run);
}
