/* sim_conv.c: convolutions and their gradients as plain loops over any strides; see sim_conv.h. */
#include "sim_conv.h"

#include <stdlib.h>
#include <string.h>

bool sim_conv_fits(const sim_conv *c)
{
    const sim_tensor *x = &c->x, *w = &c->w, *y = &c->y;
    bool fit = x->n == w->n && y->n == x->n && c->space == x->n - 2 && x->size[0] == y->size[0] &&
               x->size[1] == w->size[1] * c->groups && y->size[1] == w->size[0] &&
               w->size[0] % c->groups == 0 && x->type == w->type && x->type == y->type;
    for (int k = 0; fit && k < c->space; k++)
        fit = (x->size[k + 2] + 2 * c->pad[k] - (w->size[k + 2] - 1) * c->dilation[k] - 1) /
                      c->stride[k] +
                  1 ==
              y->size[k + 2];
    return fit;
}

/* The index in memory of the element of batch b and channel p at the coordinates `space`. */
static int64_t at(const sim_tensor *t, int64_t b, int64_t p, const int64_t *space)
{
    int64_t i = b * t->stride[0] + p * t->stride[1];
    for (int k = 2; k < t->n; k++)
        i += space[k - 2] * t->stride[k];
    return i;
}

/* Computes the coordinates of element i; the last axis varies fastest. */
static void digits(int64_t i, const int *size, int n, int64_t *out)
{
    for (int k = n - 1; k >= 0; k--) {
        out[k] = i % size[k];
        i /= size[k];
    }
}

static int64_t length(const int *size, int n)
{
    int64_t all = 1;
    for (int k = 0; k < n; k++)
        all *= size[k];
    return all;
}

/* Moves to the next coordinates; the last axis varies fastest. False after the final element. */
static bool next_coordinates(int64_t *position, const int *size, int n)
{
    for (int k = n - 1; k >= 0; k--) {
        if (++position[k] < size[k])
            return true;
        position[k] = 0;
    }
    return false;
}

/* The coordinates in x of the element that a weight multiplies for an element of y; false if they
 * are outside x. */
static bool joined(const sim_conv *v, const int64_t *w, const int64_t *y, int64_t *out_space)
{
    bool inside = true;
    for (int k = 0; k < v->space; k++) {
        const int64_t tap = !v->flips ? w[k + 2] : v->w.size[k + 2] - 1 - w[k + 2];
        out_space[k] = y[k + 2] * v->stride[k] - v->pad[k] + tap * v->dilation[k];
        inside = inside && out_space[k] >= 0 && out_space[k] < v->x.size[k + 2];
    }
    return inside;
}

/* Adds all terms. `wide` has x, w and y as doubles: two of them are factors, the third has the
 * sums. A weight belongs to one channel of y, so the loop over y leaves out that axis. */
static void add_terms(const sim_conv *v, double *const wide[3])
{
    const int64_t nw = length(v->w.size, v->w.n);
    int64_t w[SIM_AXES], y[SIM_AXES] = {0}, space[SIM_SPACE];
    int places[SIM_AXES];
    memcpy(places, v->y.size, sizeof places);
    places[1] = 1;
    for (int64_t i = 0; i < nw; i++) {
        digits(i, v->w.size, v->w.n, w);
        const int64_t plane = w[1] + w[0] / (v->w.size[0] / v->groups) * v->w.size[1];
        double *weight = wide[1] + at(&v->w, w[0], w[1], w + 2);
        do {
            if (!joined(v, w, y, space)) {
                /* The libraries multiply the padding's zeros by gy. */
                if (v->kind == SIM_WEIGHT)
                    *weight += 0 * wide[2][at(&v->y, y[0], w[0], y + 2)];
                continue;
            }
            double *x_at = wide[0] + at(&v->x, y[0], plane, space),
                   *y_at = wide[2] + at(&v->y, y[0], w[0], y + 2);
            if (v->kind == SIM_FORWARD)
                *y_at += *x_at * *weight;
            else if (v->kind == SIM_DATA)
                *x_at += *y_at * *weight;
            else
                *weight += *x_at * *y_at;
        } while (next_coordinates(y, places, v->y.n));
    }
}

static size_t reach(const sim_tensor *t)
{
    int64_t far = 1;
    for (int k = 0; k < t->n; k++)
        far += (int64_t)(t->size[k] - 1) * t->stride[k];
    return (size_t)far;
}

/* The elements of a factor as doubles, converted once for all terms; zeros for the sums. */
static double *widen(const sim_conv *v, int which, bool is_out)
{
    const int64_t n = (int64_t)(v->call.uses[which].bytes / sim_type_size(v->x.type));
    double *wide = calloc((size_t)n, sizeof *wide);
    for (int64_t i = 0; wide && !is_out && i < n; i++) {
        const double factor = sim_load(v->call.at[which], v->x.type, i);
        wide[i] = v->tf32 ? sim_to_tf32(factor) : factor;
    }
    return wide;
}

static void store_sums(const sim_conv *v, int out, const double *sums)
{
    const sim_tensor *t = v->kind == SIM_WEIGHT ? &v->w : v->kind == SIM_FORWARD ? &v->y : &v->x;
    int64_t position[SIM_AXES] = {0};
    do {
        const int64_t to = at(t, position[0], position[1], position + 2);
        sim_store(v->call.at[out], v->x.type, to, sums[to]);
    } while (next_coordinates(position, t->size, t->n));
}

/* Sums are doubles, so they are more exact than the libraries'; the tolerances of tests permit the
 * difference. */
static void run(sim_call *c)
{
    const sim_conv *v = (const sim_conv *)(const void *)c;
    const int out = v->kind == SIM_FORWARD ? 2 : v->kind == SIM_DATA ? 0 : 1;
    double *wide[3];
    memset(c->at[3], 0xff, SIM_CONV_WORK);
    for (int k = 0; k < 3; k++)
        wide[k] = widen(v, k, k == out);
    if (wide[0] && wide[1] && wide[2]) {
        add_terms(v, wide);
        store_sums(v, out, wide[out]);
    }
    for (int k = 0; k < 3; k++)
        free(wide[k]);
}

int sim_conv_queue(const char *driver, const char *name, const sim_conv *c, const void *const at[3],
                   void *work, void *stream)
{
    const size_t size = sim_type_size(c->x.type);
    sim_conv *v = malloc(sizeof *v);
    if (!v)
        return -1;
    *v = *c;
    v->call = (sim_call){.name = name,
                         .run = run,
                         .milliseconds = c->call.milliseconds,
                         .uses = {{at[0], reach(&c->x) * size},
                                  {at[1], (size_t)length(c->w.size, c->w.n) * size},
                                  {at[2], reach(&c->y) * size},
                                  {work, SIM_CONV_WORK}}};
    return sim_call_queue(driver, &v->call, stream);
}
