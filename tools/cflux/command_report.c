/* command_report.c: cflux report: makes a page from the log of a training run. */
#include "failure.h"
#include "options.h"
#include "output_paths.h"
#include "write_report.h"
#include <errno.h>
#include <string.h>

static const char *out;
static option_row options[] = {
    {"output", 'o', OPTION_TEXT, &out, "FILE",
     "The page to write, - for standard output (default: LOG.html)", 0, 0},
    OPTIONS_END,
};

static int make_report(const char *log, const char *page)
{
    const bool standard = strcmp(log, "-") == 0;
    FILE *file = standard ? stdin : fopen(log, "r");
    if (!file)
        return fail(EXIT_BAD_INPUT, "cannot read %s: %s", log, strerror(errno));
    const fx_report_args what = {
        .fxi_size = sizeof what, .log_from = file, .name = standard ? "standard input" : log};
    const int status = write_report(what, page);
    if (!standard)
        fclose(file);
    return status;
}

static int run_report(int n, char **operands)
{
    (void)n;
    char beside[4096];
    const int bytes = snprintf(beside, sizeof beside, "%s.html", operands[0]);
    if (!out && (strcmp(operands[0], "-") == 0 || bytes >= (int)sizeof beside))
        return fail(EXIT_BAD_INPUT, "--output is missing: the page needs a name");
    const char *page = !out ? beside : strcmp(out, "-") == 0 ? NULL : out;
    const char *const inputs[] = {operands[0]};
    const int status = check_outputs(&(output_path){page, "--output"}, 1, inputs, 1);
    return status == EXIT_FINE ? make_report(operands[0], page) : status;
}

const command command_report = {
    .name = "report",
    .summary = "Make a page from a training run's log: curves, confusion matrix, samples",
    .operands = "LOG",
    .least = 1,
    .most = 1,
    .about =
        "LOG is a file that cflux train --log wrote. The run may have ended, been killed, or still "
        "be running; - reads standard input. The page is one file that needs no network.",
    .options = options,
    .run = run_report,
};
