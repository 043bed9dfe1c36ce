/* leaks.c: finds inputs that contain the answer: see leaks.h. */
#include "leaks.h"
#include "clean_text.h"
#include "failure.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST = 20 };

/* The least correlation that counts as 1: the numbers of a file are rounded. */
static const double WHOLE = 1 - 1e-9;

/* The features as n columns of `each` numbers, and the targets or class numbers. */
typedef struct table_view {
    const float *x;
    const double *y;
    int64_t each, n;
} table_view;

static double correlation(const table_view *t, int64_t k)
{
    double mx = 0, my = 0, xx = 0, yy = 0, xy = 0;
    for (int64_t i = 0; i < t->n; i++) {
        mx += (double)t->x[i * t->each + k] / (double)t->n;
        my += t->y[i] / (double)t->n;
    }
    for (int64_t i = 0; i < t->n; i++) {
        const double a = (double)t->x[i * t->each + k] - mx, b = t->y[i] - my;
        xx += a * a;
        yy += b * b;
        xy += a * b;
    }
    return xx > 0 && yy > 0 ? xy / sqrt(xx * yy) : 0;
}

/* The value of feature k in each class; false if it is not the same in all observations of a class.
 * NaN: the class has no observation. */
static bool values_of_classes(const table_view *t, int64_t k, int64_t nclasses, double *out)
{
    for (int64_t c = 0; c < nclasses; c++)
        out[c] = NAN;
    for (int64_t i = 0; i < t->n; i++) {
        double *value = &out[(int64_t)t->y[i]];
        if (isnan(*value))
            *value = (double)t->x[i * t->each + k];
        else if (*value != (double)t->x[i * t->each + k])
            return false;
    }
    return true;
}

/* True if feature k has one value in each class, and different values in different classes. */
static bool tells_classes(const table_view *t, int64_t k, int64_t nclasses, double *values)
{
    if (!values_of_classes(t, k, nclasses, values))
        return false;
    for (int64_t c = 0; c < nclasses; c++)
        for (int64_t d = 0; d < c; d++)
            if (isnan(values[c]) || values[c] == values[d])
                return false;
    return true;
}

static void warn_of(const training_data *d, int64_t k, const char *why)
{
    char name[200] = "";
    if (d->data.columns)
        clean_text(dataset_column(&d->data, k), name, sizeof name);
    else
        snprintf(name, sizeof name, "%lld", (long long)k + 1);
    warn("feature \"%s\" %s \"%s\": a model that gets the answer as an input learns nothing else",
         name, why, d->data.target ? d->data.target : "");
}

static void examine(const problem *p, const training_data *d, const table_view *t)
{
    double *values = p->classes ? calloc((size_t)p->nclasses + 1, sizeof *values) : NULL;
    for (int64_t k = 0; k < t->each; k++) {
        if (!p->classes && fabs(correlation(t, k)) > WHOLE)
            warn_of(d, k, "has correlation 1 or −1 with the target");
        else if (values && tells_classes(t, k, p->nclasses, values))
            warn_of(d, k, "has a different value in each class of the target");
    }
    free(values);
}

void warn_of_leaks(const problem *p, const training_data *d)
{
    FX_SCOPE;
    table_view t = {.n = d->ntrain, .each = fx_length(d->x) / d->ntrain};
    if (t.n < LEAST || strcmp(d->data.kind, "csv") != 0 || fx_length(d->y) != t.n)
        return;
    double *y = calloc((size_t)t.n, sizeof *y);
    t.x = fx_data(d->x);
    t.y = y;
    if (y && t.x && fx_read_as(d->y, FX_DTYPE_F64, y, t.n) == FX_OK)
        examine(p, d, &t);
    free(y);
}
