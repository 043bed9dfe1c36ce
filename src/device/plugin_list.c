/* plugin_list.c: fx_plugins: the list of the installed plugins, and whether each was loaded. */
#include "plugin_record.h"

#include <cflux/device.h>

typedef struct listener {
    fx_plugin_fn visit;
    void *user;
} listener;

static void describe(const fxi_plugin_record *r, void *user)
{
    const listener *l = user;
    const fx_plugin_head *p = r->plugin;
    const fx_plugin_info info = {
        .file = r->path,
        .kind = fxi_plugin_kind_text(r->name.kind),
        .name = p && p->name ? p->name : r->name.name,
        .serves = p && p->serves ? p->serves : r->name.serves,
        .version = p && p->version ? p->version : "",
        /* A backend that opens may still have found no device. */
        .why = !r->opened                                                    ? NULL
               : p && p->kind == FX_PLUGIN_BACKEND && !p->serves && !*r->why ? fx_why_not(p->name)
                                                                             : r->why,
    };
    l->visit(&info, l->user);
}

void fx_plugins(fx_plugin_fn visit, void *user)
{
    listener l = {visit, user};
    fxi_plugin_records(describe, &l);
}
