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

/* The features of one column: `n` from number `first` on. n > 1: a column of texts; before
 * scaling, the feature of the observation's text is 1, and the others are 0. */
typedef struct column_view {
    int64_t first, n;
} column_view;

/* The value of a column in observation i; for texts the number of the text, −1 for none. NaN: the
 * features are not those of one column of texts. */
static double value_at(const table_view *t, const column_view *c, int64_t i)
{
    const float *x = &t->x[i * t->each + c->first];
    double text = -1;
    if (c->n == 1)
        return (double)x[0];
    for (int64_t k = 0; k < c->n; k++)
        if (x[k] > 0) /* also after scaling, which subtracts a mean between 0 and 1 */
            text = text < 0 ? (double)k : NAN;
    return text;
}

/* The value of the column in each class; false if it is not the same in all observations of a
 * class. NaN: the class has no observation. */
static bool values_of_classes(const table_view *t, const column_view *c, int64_t nclasses,
                              double *out)
{
    for (int64_t k = 0; k < nclasses; k++)
        out[k] = NAN;
    for (int64_t i = 0; i < t->n; i++) {
        double *value = &out[(int64_t)t->y[i]];
        const double v = value_at(t, c, i);
        if (isnan(*value) && !isnan(v))
            *value = v;
        else if (*value != v)
            return false;
    }
    return true;
}

/* True if the column has one value in each class, and different values in different classes. */
static bool tells_classes(const table_view *t, const column_view *c, int64_t nclasses,
                          double *values)
{
    if (!values_of_classes(t, c, nclasses, values))
        return false;
    for (int64_t k = 0; k < nclasses; k++) {
        if (isnan(values[k])) /* the class has no observation */
            return false;
        for (int64_t d = 0; d < k; d++)
            if (values[k] == values[d])
                return false;
    }
    return true;
}

/* The length of the name of the column of texts in the name of its feature, "colour=red"; 0 if it
 * is not such a feature. */
static size_t text_column(const training_data *d, int64_t k)
{
    const char *name = d->data.columns ? dataset_column(&d->data, k) : NULL,
               *end = name ? strchr(name, '=') : NULL;
    return end ? (size_t)(end - name) : 0;
}

static column_view column_from(const training_data *d, int64_t first, int64_t each)
{
    column_view c = {first, 1};
    const size_t length = text_column(d, first);
    while (length && first + c.n < each && text_column(d, first + c.n) == length &&
           strncmp(dataset_column(&d->data, first), dataset_column(&d->data, first + c.n),
                   length) == 0)
        c.n++;
    return c;
}

static void warn_of(const training_data *d, const column_view *c, const char *why)
{
    char name[200] = "";
    if (d->data.columns)
        clean_text(dataset_column(&d->data, c->first), name, sizeof name);
    else
        snprintf(name, sizeof name, "%lld", (long long)c->first + 1);
    if (c->n > 1 && strchr(name, '='))
        *strchr(name, '=') = 0;
    warn("%s \"%s\" %s \"%s\": a model that gets the answer as an input learns nothing else",
         c->n > 1 ? "text column" : "feature", name, why, d->data.target ? d->data.target : "");
}

static void examine(const problem *p, const training_data *d, const table_view *t)
{
    double *values = p->classes ? calloc((size_t)p->nclasses + 1, sizeof *values) : NULL;
    for (int64_t k = 0; k < t->each && !p->classes; k++)
        if (fabs(correlation(t, k)) > WHOLE)
            warn_of(d, &(column_view){k, 1}, "has correlation 1 or −1 with the target");
    for (int64_t k = 0; k < t->each && values;) {
        const column_view c = column_from(d, k, t->each);
        if (tells_classes(t, &c, p->nclasses, values))
            warn_of(d, &c, "has a different value in each class of the target");
        k += c.n;
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
