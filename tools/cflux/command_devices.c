/* command_devices.c: cflux devices: what there is to compute with, and why the rest is absent. */
#include "failure.h"
#include "options.h"

static bool as_json;
static option_row options[] = {OPTION_JSON(&as_json), OPTIONS_END};

static int run_devices(int n, char **operands)
{
    (void)n;
    (void)operands;
    fx_use_all();
    fx_show(fx_devices(NULL));
    return EXIT_FINE;
}

const command command_devices = {
    .name = "devices",
    .summary = "List the devices there are, and why others are absent",
    .operands = "",
    .options = options,
    .run = run_devices,
};
