/* write_report.c: writes the page of a training run: see write_report.h. */
#include "write_report.h"
#include "failure.h"
#include "text_file.h"

int write_report(fx_report_args what, const char *out)
{
    text_file f;
    int status = text_file_open(&f, out);
    if (status != EXIT_FINE)
        return status;
    what.page_to = f.to;
    const fx_status made = fxi_report(&what);
    if (made != FX_OK)
        status = fail_library(made == FX_STATUS_MEMORY ? EXIT_FAILED : EXIT_BAD_INPUT);
    return text_file_close(&f, status);
}
