/* cpu_plugin.c: finds, checks and opens the plugin that computes large contractions.
 *
 * Opening a vendor's library costs tens of milliseconds, so it waits until a plan holds a
 * contraction that repays it; a program of small networks never pays. The file is looked for in the
 * folders of FX_PLUGIN_PATH (separated by colons), then beside the library (or the program it is
 * linked into), in a folder cflux there, and where it was to be installed. FX_ONEDNN=0 does
 * without. A file that is not there is no matter; one that does not fit or does not load is
 * reported once, and the CPU's own kernels do its work. Nothing is ever unloaded.
 */
#include "cpu_plugin.h"
#include "cpu_kernels.h"
#include "cpu_parallel.h"
#include "memory.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
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

/* Opens the file if it is there. True when the search is over. */
static bool try_file(const char *path, const fxi_plugin **out)
{
    if (access(path, F_OK) != 0)
        return false;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    const fxi_plugin *p = library ? dlsym(library, FXI_PLUGIN_SYMBOL) : NULL;
    const char *why = p ? misfit(p) : dlerror();
    if (!why)
        why = p->open(&host);
    if (why)
        fx_message(1, "the plugin %s is not used: %s", path, why);
    else
        *out = p;
    return true;
}

static bool try_folder(const char *folder, size_t length, const char *below, const fxi_plugin **out)
{
    char path[1024];
    const int n = snprintf(path, sizeof path, "%.*s%s/" FILE_NAME, (int)length, folder, below);
    return length > 0 && n > 0 && (size_t)n < sizeof path && try_file(path, out);
}

static const fxi_plugin *find(void)
{
    const fxi_plugin *p = NULL;
    const char *list = secure_getenv("FX_PLUGIN_PATH");
    while (list && *list) {
        const size_t n = strcspn(list, ":");
        if (try_folder(list, n, "", &p))
            return p;
        list += n + (list[n] == ':');
    }
    Dl_info self;
    const char *slash = dladdr(&state, &self) ? strrchr(self.dli_fname, '/') : NULL;
    const size_t n = slash ? (size_t)(slash - self.dli_fname) : 0;
    if (slash &&
        (try_folder(self.dli_fname, n, "", &p) || try_folder(self.dli_fname, n, "/cflux", &p)))
        return p;
    try_folder(CFLUX_PLUGIN_DIR, strlen(CFLUX_PLUGIN_DIR), "", &p);
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

void fxi_cpu_plugin_forget(void)
{
    pthread_mutex_lock(&state.lock);
    state.asked = false;
    state.plugin = NULL;
    pthread_mutex_unlock(&state.lock);
}

/* ---- which steps ----------------------------------------------------------------------------- */

/* Multiplications and additions of a matrix product or convolution. */
static double work(const fxi_step *s)
{
    if (s->op == FXI_OP_MATMUL)
        return 2 * (double)fxi_tensor_length(&s->out) *
               (double)s->in[0].shape[s->attr.i[0] ? 0 : 1];
    const int kind = s->attr.conv.kind;
    const fxi_tensor *y = kind == FXI_CONV_FORWARD ? &s->out : &s->in[kind == FXI_CONV_WEIGHT];
    const fxi_tensor *w = kind == FXI_CONV_WEIGHT ? &s->out : &s->in[1];
    return 2 * (double)fxi_tensor_length(y) * (double)fxi_length(w->ndim - 1, w->shape);
}

/* With few channels the vectors of a channels-last kernel are mostly empty, and ours is faster: it
 * wants 16 on both sides, or many on the output's (the first layer of a deep network). */
static bool wide(const fxi_step *s)
{
    const fxi_tensor *w = s->attr.conv.kind == FXI_CONV_WEIGHT ? &s->out : &s->in[1];
    const int64_t in = w->shape[s->attr.conv.spatial], out = w->shape[s->attr.conv.spatial + 1];
    return out >= (in >= 16 ? 16 : 32);
}

/* Is a step worth opening a library for? A plan runs many times; below these sizes the time to gain
 * in a whole run is less than the library takes to load. Our own Float32 products are as fast as
 * any; those of BFloat16 convert to Float32 first. */
static bool repays(const fxi_step *s)
{
    const bool half = s->out.dtype == FX_DTYPE_BF16;
    if (s->op == FXI_OP_MATMUL)
        return half && work(s) >= 4e6;
    return (half || s->out.dtype == FX_DTYPE_F32) && wide(s) && work(s) >= 16e6;
}

fx_status fxi_cpu_plugin_prepare(const fxi_step *step, fxi_plugin_ready **out_ready)
{
    const char *wish = getenv("FX_ONEDNN");
    const bool all = wish && strcmp(wish, "all") == 0, none = wish && strcmp(wish, "0") == 0;
    const fxi_plugin *p = !none && work(step) > 0 && (all || repays(step)) ? plugin() : NULL;
    return p ? p->prepare(step, out_ready) : FX_STATUS_UNSUPPORTED;
}

void fxi_cpu_plugin_release(fxi_plugin_ready *ready)
{
    ready->plugin->release(ready);
}

fx_status fxi_cpu_plugin_run(const fxi_plugin_ready *ready, const fxi_step *step,
                             const void *const *in, void *out, fxi_run *run)
{
    return ready->plugin->run(ready, step, in, out, run);
}
