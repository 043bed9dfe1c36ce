/* command_report.c: cflux report: makes a page from the logs of one or two training runs. */
#include "failure.h"
#include "options.h"
#include "output_paths.h"
#include "system.h"
#include "write_report.h"
#include <errno.h>
#include <string.h>

static const char *out;
static option_row options[] = {
    {"output", 'o', OPTION_TEXT, &out, "FILE",
     "The page to write, - for standard output (default: LOG.html; required with two logs)", 0, 0},
    OPTIONS_END,
};

static int make_report(const char *log, const char *other, const char *page)
{
    const bool standard = strcmp(log, "-") == 0;
    FILE *file = standard ? stdin : open_file(log, "r");
    if (!file)
        return fail(EXIT_BAD_INPUT, "cannot read %s: %s", log, strerror(errno));
    const fx_report_args what = {.fxi_size = sizeof what,
                                 .log_from = file,
                                 .name = standard ? "standard input" : log,
                                 .other = other};
    const int status = write_report(what, page);
    if (!standard)
        fclose(file);
    return status;
}

static int run_report(int n, char **operands)
{
    const char *log = operands[0], *other = n > 1 ? operands[1] : NULL;
    char beside[4096];
    const int bytes = snprintf(beside, sizeof beside, "%s.html", log);
    if (!out && (other || strcmp(log, "-") == 0 || bytes >= (int)sizeof beside))
        return fail(EXIT_BAD_INPUT, "--output is missing: the page%s needs a name",
                    other ? " of two runs" : "");
    if (other && strcmp(other, "-") == 0)
        return fail(EXIT_BAD_INPUT,
                    "only the first log can be standard input; use cflux report - %s", log);
    const char *page = !out ? beside : strcmp(out, "-") == 0 ? NULL : out;
    const char *const inputs[] = {log, other};
    const int status = check_outputs(&(output_path){page, "--output"}, 1, inputs, n);
    return status == EXIT_FINE ? make_report(log, other, page) : status;
}

const command command_report = {
    .name = "report",
    .summary = "Make a page from a training run's log: curves, confusion matrix, samples",
    .operands = "LOG [LOG]",
    .least = 1,
    .most = 2,
    .examples = "cflux report run.jsonl -o run.html\n"
                "cflux report run.jsonl other.jsonl -o both.html\n",
    .about =
        "LOG is a file that cflux train --log wrote, or - for standard input. The run may have "
        "ended, been killed, or still be running. The page is one file that needs no network. "
        "With two logs, it compares both runs: curves, scores and the settings that differ.",
    .options = options,
    .run = run_report,
};
