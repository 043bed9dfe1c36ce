/* show_memory.c: prints the memory use of a device. */
#include "text.h"

#include <cflux/device.h>

static void put_figure(fx_text *t, const char *before, int64_t bytes)
{
    fxi_text_put(t, before);
    fxi_text_bytes(t, bytes);
}

static void write_memory(fx_text *t, fx_device *device)
{
    const fx_memory m = fx_memory_status(device);
    fx_text_add(t, "%s: ", fx_device_name(device ? device : fx_cpu_device()));
    put_figure(t, "", m.live);
    put_figure(t, " live (peak ", m.peak);
    if (m.limit > 0)
        put_figure(t, ", limit ", m.limit);
    put_figure(t, "), ", m.cached);
    fxi_text_put(t, " cached");
    if (m.free >= 0) {
        put_figure(t, ", ", m.free);
        fxi_text_put(t, " free");
    }
    if (m.free >= 0 && m.total > 0)
        put_figure(t, " of ", m.total);
}

void fx_memory_show(fx_device *device)
{
    fx_text text = {0};
    write_memory(&text, device);
    fxi_text_print(&text, stdout);
}

size_t fx_memory_text(fx_device *device, char *dst, size_t capacity)
{
    fx_text text = {0};
    write_memory(&text, device);
    return fxi_text_hand_over(&text, dst, capacity);
}
