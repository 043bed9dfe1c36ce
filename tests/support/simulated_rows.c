/* simulated_rows.c: see simulated_rows.h. */
#include "simulated_rows.h"

#include "own_child.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

char simulated_heard[32768];

void simulated_run(const char *always, const char *environment, const char *act)
{
    char all[2048];
    snprintf(all, sizeof all,
             "LD_LIBRARY_PATH=" CFLUX_BUILD_DIR "/tests/sim FX_PLUGIN_PATH=" CFLUX_BUILD_DIR
             " SIM_CACHE=" CFLUX_SIM_CACHE " FX_CACHE=off %s %s",
             always, environment);
    const int status = own_child(all, act, simulated_heard, sizeof simulated_heard);
    if (status != 0)
        fail_msg("with '%s', %s ends with %d after: %s", environment, act, status, simulated_heard);
}

void simulated_expect(const char *environment, const char *text)
{
    if (!text)
        return;
    const bool absent = *text == '!';
    if (absent == (strstr(simulated_heard, text + absent) != NULL))
        fail_msg("with '%s': '%s', which %s '%s'", environment, simulated_heard,
                 absent ? "has" : "lacks", text + absent);
}

void simulated_rows(const char *always, const simulated_row *rows, size_t n)
{
    for (const simulated_row *r = rows; r < rows + n; r++) {
        simulated_run(always, r->environment, r->act);
        for (int i = 0; i < (int)(sizeof r->says / sizeof *r->says); i++)
            simulated_expect(r->environment, r->says[i]);
        simulated_expect(r->environment, "!simulated driver: ");
    }
}
