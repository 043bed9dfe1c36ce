/* onehotbatch.c: makes one-hot columns from labels and checks that every label is a class. The
 * check reads the values, so it evaluates pending labels.
 */
#include "composites.h"
#include "memory.h"

#include <cflux/ops.h>

/* FX_OK if all labels are classes. Reads them. */
static fx_status check_values(fx_array *labels, int64_t nclasses)
{
    const int64_t n = fx_length(labels);
    int64_t *values = fxi_malloc((size_t)(n ? n : 1) * sizeof *values);
    if (!values)
        return fx_fail(FX_STATUS_MEMORY, "onehotbatch", "no memory for %lld labels", (long long)n);
    fx_status s = fx_read_as(labels, FX_DTYPE_I64, values, n);
    for (int64_t i = 0; i < n && s == FX_OK; i++)
        if (values[i] < 0 || values[i] >= nclasses)
            s = fx_fail(FX_STATUS_ARGUMENT, "onehotbatch", "Value %lld is not in labels 0 … %lld",
                        (long long)values[i], (long long)nclasses - 1);
    fxi_free(values);
    return s;
}

fx_array *fx_onehotbatch(fx_array *labels, int64_t nclasses)
{
    FXI_OPERATION("onehotbatch");
    fx_status s = fxi_check_labels("onehotbatch", labels, nclasses);
    if (s == FX_OK)
        s = check_values(labels, nclasses);
    return s == FX_OK ? fx_onehot(labels, nclasses) : fx_error_array(s);
}
