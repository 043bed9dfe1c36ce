/* conform_huge.c: records every row of the table, and its gradient, on arrays of huge sizes.
 *
 * The inputs are numbers expanded to sizes of up to 2^58, so they take no memory. A size that
 * occurs several times in a row's shapes is enlarged everywhere or nowhere, so that most sizes
 * still match. Recording must give an array whose sizes fit (fxi_sizes_fit), or an error that says
 * what is wrong. Results and gradients are planned, but not evaluated: a plan exists, or too much
 * memory is the error. The sanitizers find sums and products that overflow on the way.
 */
#include "conform.h"

#include <stdio.h>
#include <string.h>

#include "node.h"

enum { TRIES = 12, SIZES = 64 };

static uint64_t random_bits(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Fills in the number that replaces each size below SIZES. */
static void draw_sizes(uint64_t *state, int64_t *enlarged)
{
    static const int bits[] = {8, 20, 28, 31, 32, 40, 54, 56, 57, 58};
    for (int64_t s = 0; s < SIZES; s++) {
        const uint64_t r = random_bits(state);
        const int64_t huge = (INT64_C(1) << bits[(r >> 8) % (sizeof bits / sizeof *bits)]);
        enlarged[s] = s == 0 || r % 2 ? s : huge - (int64_t)((r >> 16) % 2);
    }
}

static fx_dtype input_type(const cf_row *row, int k, uint64_t r)
{
    fx_dtype chosen = FX_DTYPE_F32;
    if (row->domain[k] == CF_BOOL)
        return FX_DTYPE_BOOL;
    if (row->domain[k] >= CF_INDEX)
        return r % 2 ? FX_DTYPE_I32 : FX_DTYPE_I64;
    for (int t = 0, seen = 0; t < FX_DTYPE_COUNT; t++)
        if ((row->types & 1u << t) && r % (uint64_t)++seen == 0)
            chosen = (fx_dtype)t;
    return chosen;
}

/* False, with the reason, if x is neither an array whose sizes fit nor a clear error. */
static bool sound(fx_array *x, char *why, size_t size)
{
    if (!fx_is_error(x)) {
        const fxi_node *n = x->node;
        bool fit = fxi_sizes_fit((fx_dtype)n->dtype, n->ndim, n->shape);
        for (int i = 0; i < n->ndim; i++)
            fit = fit && n->shape[i] >= 0;
        snprintf(why, size, "recorded an array of a size that does not fit");
        return fit;
    }
    const fx_error e = fx_error_take();
    snprintf(why, size, "%s %s", fx_status_name(e.status), e.message);
    return e.status != FX_OK && e.status != FX_STATUS_MEMORY && e.status != FX_STATUS_INTERNAL &&
           e.message[0];
}

/* Counts the results that were too large to be recorded, and to be planned, and the plans, so that
 * the mode itself is known to reach them. */
static int refused, unplanned, planned;

/* False, with the reason, if the arrays of an object have no plan for another reason than memory.
 * Tries one in five, to save time. */
static bool plans(void *object, uint64_t *state, char *why, size_t size)
{
    if (random_bits(state) % 5)
        return true;
    fx_error_take(); /* of results that the object does not contain, as the scores of attention */
    fx_plan_text(object, NULL, 0);
    const fx_error e = fx_error_take();
    planned += e.status == FX_OK;
    unplanned += e.status == FX_STATUS_MEMORY;
    snprintf(why, size, "%s %s", fx_status_name(e.status), e.message);
    return e.status == FX_OK || e.status == FX_STATUS_MEMORY;
}

static cf_outcome record(const cf_options *o, const cf_row *row, const cf_shape *s, uint64_t *state,
                         char *why, size_t size)
{
    fx_array *x[CF_MAX_IN], *reals[CF_MAX_IN], *gradients[CF_MAX_IN];
    int64_t enlarged[SIZES], sizes[FX_MAX_DIMS], p[CF_MAX_PARAMS];
    int nreals = 0;
    FX_SCOPE;
    draw_sizes(state, enlarged);
    for (int k = 0; k < row->nin; k++) {
        for (int i = 0; i < s->ndim[k]; i++)
            sizes[i] = s->sizes[k][i] < SIZES ? enlarged[s->sizes[k][i]] : s->sizes[k][i];
        fx_array *number = fxi_full(input_type(row, k, random_bits(state)), 1, 0, NULL);
        x[k] = fxi_expand(fx_array_to(o->device, number), s->ndim[k], sizes);
        if (fx_is_error(x[k])) {
            fx_error_take();
            return CF_PASS; /* the input itself is too large */
        }
        if (cf_is_real(fx_eltype(x[k])))
            reals[nreals++] = x[k];
    }
    /* Smaller parameters are axes and choices. */
    for (int i = 0; i < CF_MAX_PARAMS; i++)
        p[i] = s->param[i] >= 5 && s->param[i] < SIZES ? enlarged[s->param[i]] : s->param[i];
    fx_array *y = row->build(x, p);
    const bool error = fx_is_error(y);
    if (!sound(y, why, size))
        return CF_FAIL;
    if (error) {
        refused += strstr(why, "the product of the sizes overflows") != NULL;
        return CF_PASS;
    }
    if (!plans(y, state, why, size))
        return CF_FAIL;
    if ((row->flags & CF_NO_GRAD) || !cf_is_real(fx_eltype(y)) || nreals == 0)
        return CF_PASS;
    if (fx_gradient_of(fx_sum(y), reals, nreals, gradients) == FX_OK)
        return plans(fxi_tuple(nreals, (void **)gradients), state, why, size) ? CF_PASS : CF_FAIL;
    return sound(gradients[0], why, size) ? CF_PASS : CF_FAIL;
}

void cf_huge_sizes(const cf_options *o, cf_tally *t)
{
    uint64_t state = 88172645463325252u;
    refused = unplanned = planned = 0;
    for (const cf_row *const *table = cf_tables; *table; table++)
        for (const cf_row *row = *table; row->name; row++)
            for (int s = 0; row->shapes[s]; s++) {
                char name[CF_NAME], why[512] = "";
                cf_shape shape;
                if (!cf_parse_shape(row->shapes[s], &shape))
                    continue;
                snprintf(name, sizeof name, "conform/%s.%s.huge@%s", row->name, shape.name,
                         o->device_name);
                cf_outcome outcome = CF_PASS;
                for (int i = 0; i < TRIES && outcome == CF_PASS; i++)
                    outcome = record(o, row, &shape, &state, why, sizeof why);
                if (cf_selected(o, name))
                    cf_count(o, t, name, outcome, why);
            }
    if (o->nfilters == 0 && refused < 100)
        cf_count(o, t, "conform/refused.huge", CF_FAIL, "hardly any result was too large");
    if (o->nfilters == 0 && (unplanned < 100 || planned < 3000))
        cf_count(o, t, "conform/planned.huge", CF_FAIL, "hardly any plan, or none too large");
    printf("huge: %d results too large to record, %d too large to plan, %d planned\n", refused,
           unplanned, planned);
}
