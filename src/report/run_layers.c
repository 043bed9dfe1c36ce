/* run_layers.c: measures a model's layers and writes them as a table: see run_layers.h. */
#include "run_layers.h"
#include "clock.h"
#include "error.h"

#include <cflux/device.h>
#include <cflux/layer.h>
#include <cflux/tree.h>
#include <math.h>
#include <string.h>

enum { RUNS = 5, LAYERS_MOST = 256, NOTATION_MOST = 200, DIGITS = 9 };

static void add_bytes(fx_array *x, const char *path, bool trainable, void *user)
{
    (void)path;
    (void)trainable;
    *(int64_t *)user += fx_length(x) * (int64_t)fx_dtype_size(fx_eltype(x));
}

static int64_t bytes_of(void *layer)
{
    int64_t bytes = 0;
    fx_visit(layer, add_bytes, &bytes);
    return bytes;
}

/* Runs the layer a few times and measures the minimum time. x and the result are arrays or tuples
 * on the device. Returns the latest result, NULL if a pass fails. */
static void *timed(void *layer, void *x, fx_device *device, double *out_seconds)
{
    void *y = NULL;
    *out_seconds = INFINITY;
    for (int i = 0; i < RUNS; i++) {
        const double began = fxi_clock();
        y = fx_call(layer, x);
        if (fx_eval(y) != FX_OK || fx_synchronize(device) != FX_OK)
            return NULL;
        *out_seconds = fmin(*out_seconds, fxi_clock() - began);
    }
    return y;
}

/* The sizes of an array; a list of them for a tuple. */
static void write_sizes(fx_json *j, const char *key, void *y)
{
    fx_json_open(j, key, '[');
    if (fx_is_array(y))
        for (int i = 0; i < fx_ndims(y); i++)
            fx_json_integer(j, NULL, fx_size(y, i));
    else
        for (int64_t i = 0; i < fx_count(y); i++)
            write_sizes(j, NULL, fx_child(y, i));
    fx_json_close(j);
}

static void write_layer(fx_json *j, void *layer, void *y, double seconds)
{
    char text[NOTATION_MOST];
    fx_summary(layer, text, sizeof text);
    fx_json_open(j, NULL, '{');
    fx_json_text(j, "layer", text);
    write_sizes(j, "output", y);
    fx_json_integer(j, "parameters", fx_parameter_count(layer));
    fx_json_integer(j, "bytes", bytes_of(layer));
    fx_json_rounded(j, "seconds", seconds, DIGITS);
    fx_json_close(j);
}

static void write_all(fx_json *j, void *model, fx_array *batch)
{
    FXI_OPEN_AT(FXI_SCOPE_TEST, NULL, 0);
    fx_device *device = fx_array_device(batch);
    void *x = batch;
    const bool chain = strcmp(fx_type_of(model)->name, "Chain") == 0;
    const int64_t n = chain ? fx_count(model) : 1;
    double seconds;
    bool any = false;
    for (int64_t i = 0; i < n && i < LAYERS_MOST; i++) {
        void *layer = chain ? fx_child(model, i) : model;
        void *y = timed(layer, x, device, &seconds);
        if (!y)
            break;
        if (!any)
            fx_json_open(j, "layers", '[');
        any = true;
        write_layer(j, layer, y, seconds);
        x = y;
    }
    if (any)
        fx_json_close(j);
}

void fxi_write_layers(fx_json *j, void *model, fx_array *batch)
{
    FXI_OPEN_AT(FXI_SCOPE_INHERIT, NULL, 0);
    const fx_error earlier = fxi_error_begin();
    write_all(j, model, batch);
    fx_error_take(); /* a layer that fails is omitted from the log, without an error */
    fxi_error_end(&earlier);
}
