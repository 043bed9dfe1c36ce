/* kernel_plugin.c: finds and opens a kernel library when a built-in backend first needs it; see
 * kernel_plugin.h. Opening a vendor's library takes tens of milliseconds, so backends wait until a
 * plan contains work that repays this time. */
#include "kernel_plugin.h"

#include <stdlib.h>
#include <string.h>

bool fxi_kernel_plugin_off(const fxi_kernel_plugin *k)
{
    const char *request = k->variable ? getenv(k->variable) : NULL;
    return request && strcmp(request, "0") == 0;
}

static const char *take(const fx_plugin_head *plugin, void *user)
{
    const fxi_kernel_plugin *k = user;
    return k->open(plugin);
}

const fx_plugin_head *fxi_kernel_plugin_opened(const fxi_kernel_plugin *k)
{
    return __atomic_load_n(&k->searched, __ATOMIC_ACQUIRE) ? k->plugin : NULL;
}

const fx_plugin_head *fxi_kernel_plugin_get(fxi_kernel_plugin *k)
{
    /* `searched` is stored after the other results, so a thread that finds it set needs no lock. */
    if (__atomic_load_n(&k->searched, __ATOMIC_ACQUIRE))
        return k->plugin;
    fxi_mutex_lock(&k->lock);
    if (!k->searched) {
        const fxi_plugin_request request = {.kind = FX_PLUGIN_KERNEL_LIBRARY,
                                            .name = k->name,
                                            .serves = k->serves,
                                            .sizes = k->sizes,
                                            .take = take,
                                            .user = k};
        fxi_plugin_find(&request, &k->plugin, k->why, sizeof k->why);
        __atomic_store_n(&k->searched, true, __ATOMIC_RELEASE);
    }
    fxi_mutex_unlock(&k->lock);
    return k->plugin;
}

const char *fxi_kernel_plugin_why(fxi_kernel_plugin *k)
{
    if (fxi_kernel_plugin_off(k))
        return k->off;
    return fxi_kernel_plugin_get(k) ? "" : k->why;
}

void fxi_kernel_plugin_reset(fxi_kernel_plugin *k)
{
    fxi_mutex_lock(&k->lock);
    k->searched = false;
    k->plugin = NULL;
    fxi_mutex_unlock(&k->lock);
}
