/* flux_structs.c: field names of Flux's structs, and the versions that wrote them.
 *
 * A struct in a file is a list of fields without names; type and field count identify them. The
 * names of the library's layers are in the tables of the layers. This file has those of other
 * layers, which become file nodes with these names, and of the structs of optimisers.
 */
#include "bson_objects.h"
#include "bson_version.h"
#include "flux_rows.h"

#include <string.h>

#define NORM       "λ β γ μ σ² ϵ momentum"
#define OPTIMISERS "Optimisers."
#define OPTIMISE   "Flux.Optimise." /* up to Flux 0.14 */
enum { FIRST = FXI_FLUX_FIRST, LAST = FXI_FLUX_LAST };
static const struct {
    const char *type;
    int n; /* number of fields */
    const char *names;
    fxi_flux_range range; /* the versions that wrote this form */
} others[] = {
    {"Flux.Diagonal", 2, "α β", {FIRST, 1299}},
    {"Fix1", 2, "f x", {FIRST, LAST}},
    /* optimisers: flux_optimiser.c turns them into states */
    {OPTIMISERS "Leaf", 2, "rule state", {FIRST, LAST}},
    {OPTIMISERS "Leaf", 3, "rule state frozen", {FIRST, LAST}},
    {OPTIMISERS "Descent", 1, "eta", {FIRST, LAST}},
    {OPTIMISERS "Momentum", 2, "eta rho", {FIRST, LAST}},
    {OPTIMISERS "Nesterov", 2, "eta rho", {FIRST, LAST}},
    {OPTIMISERS "RMSProp", 4, "eta rho epsilon centred", {FIRST, LAST}},
    {OPTIMISERS "Rprop", 3, "eta ell gamma", {FIRST, LAST}},
    {OPTIMISERS "Adam", 3, "eta beta epsilon", {FIRST, LAST}},
    {OPTIMISERS "AdamW", 5, "eta beta lambda epsilon couple", {FIRST, LAST}},
    {OPTIMISERS "AdaMax", 3, "eta beta epsilon", {FIRST, LAST}},
    {OPTIMISERS "NAdam", 3, "eta beta epsilon", {FIRST, LAST}},
    {OPTIMISERS "RAdam", 3, "eta beta epsilon", {FIRST, LAST}},
    {OPTIMISERS "AMSGrad", 3, "eta beta epsilon", {FIRST, LAST}},
    {OPTIMISERS "OAdam", 3, "eta beta epsilon", {FIRST, LAST}},
    {OPTIMISERS "AdaBelief", 3, "eta beta epsilon", {FIRST, LAST}},
    {OPTIMISERS "AdaGrad", 2, "eta epsilon", {FIRST, LAST}},
    {OPTIMISERS "AdaDelta", 2, "rho epsilon", {FIRST, LAST}},
    {OPTIMISERS "Lion", 2, "eta beta", {FIRST, LAST}},
    {OPTIMISERS "WeightDecay", 1, "lambda", {FIRST, LAST}},
    {OPTIMISERS "SignDecay", 1, "lambda", {FIRST, LAST}},
    {OPTIMISERS "AccumGrad", 1, "n", {FIRST, LAST}},
    {OPTIMISERS "MixedPrecision", 1, "rule", {FIRST, LAST}},
    {OPTIMISERS "ClipGrad", 1, "delta", {FIRST, LAST}},
    {OPTIMISERS "ClipNorm", 3, "omega p throw", {FIRST, LAST}},
    {OPTIMISERS "OptimiserChain", 1, "opts", {FIRST, LAST}},
    {OPTIMISE "Descent", 1, "eta", {FIRST, 1499}},
    {OPTIMISE "Momentum", 3, "eta rho velocity", {FIRST, 1499}},
    {OPTIMISE "Nesterov", 3, "eta rho velocity", {FIRST, 1499}},
    {OPTIMISE "RMSProp", 3, "eta rho acc", {FIRST, 1499}},
    {OPTIMISE "RMSProp", 4, "eta rho epsilon acc", {FIRST, 1499}},
    {OPTIMISE "ADAM", 3, "eta beta state", {FIRST, 1499}},
    {OPTIMISE "ADAM", 4, "eta beta epsilon state", {FIRST, 1499}},
    {OPTIMISE "Adam", 4, "eta beta epsilon state", {FIRST, 1499}},
    {OPTIMISE "RADAM", 3, "eta beta state", {FIRST, 1499}},
    {OPTIMISE "RADAM", 4, "eta beta epsilon state", {FIRST, 1499}},
    {OPTIMISE "RAdam", 4, "eta beta epsilon state", {FIRST, 1499}},
    {OPTIMISE "AdaMax", 3, "eta beta state", {FIRST, 1499}},
    {OPTIMISE "AdaMax", 4, "eta beta epsilon state", {FIRST, 1499}},
    {OPTIMISE "OADAM", 3, "eta beta state", {FIRST, 1499}},
    {OPTIMISE "OADAM", 4, "eta beta epsilon state", {FIRST, 1499}},
    {OPTIMISE "OAdam", 4, "eta beta epsilon state", {FIRST, 1499}},
    {OPTIMISE "ADAGrad", 2, "eta acc", {FIRST, 1499}},
    {OPTIMISE "ADAGrad", 3, "eta epsilon acc", {FIRST, 1499}},
    {OPTIMISE "AdaGrad", 3, "eta epsilon acc", {FIRST, 1499}},
    {OPTIMISE "ADADelta", 2, "rho state", {FIRST, 1499}},
    {OPTIMISE "ADADelta", 3, "rho epsilon state", {FIRST, 1499}},
    {OPTIMISE "AdaDelta", 3, "rho epsilon state", {FIRST, 1499}},
    {OPTIMISE "AMSGrad", 3, "eta beta state", {FIRST, 1499}},
    {OPTIMISE "AMSGrad", 4, "eta beta epsilon state", {FIRST, 1499}},
    {OPTIMISE "NADAM", 3, "eta beta state", {FIRST, 1499}},
    {OPTIMISE "NADAM", 4, "eta beta epsilon state", {FIRST, 1499}},
    {OPTIMISE "NAdam", 4, "eta beta epsilon state", {FIRST, 1499}},
    {OPTIMISE "AdaBelief", 3, "eta beta state", {FIRST, 1499}},
    {OPTIMISE "AdaBelief", 4, "eta beta epsilon state", {FIRST, 1499}},
    {OPTIMISE "InvDecay", 2, "gamma state", {FIRST, 1499}},
    {OPTIMISE "ExpDecay", 5, "eta decay step clip current", {FIRST, 1499}},
    {OPTIMISE "ExpDecay", 6, "eta decay step clip start current", {FIRST, 1499}},
    {OPTIMISE "ClipValue", 1, "thresh", {FIRST, 1499}},
    {OPTIMISE "ClipNorm", 1, "thresh", {FIRST, 1499}},
    {OPTIMISE "WeightDecay", 1, "wd", {FIRST, 1499}},
    {OPTIMISE "Optimiser", 1, "os", {FIRST, 1499}},
};
enum { NOTHERS = sizeof others / sizeof others[0] };

/* The versions of all forms of a layer with this field count, and the names of the first. */
static bool find_form(const fx_flux_form *f, int n, const char **names, fxi_flux_range *range)
{
    bool found = false;
    for (; f && f->fields; f++) {
        if (fxi_count_words(f->fields) != n)
            continue;
        const fxi_flux_range r = {f->since ? f->since : FIRST, f->until ? f->until : LAST};
        range->since = !found || r.since < range->since ? r.since : range->since;
        range->until = !found || r.until > range->until ? r.until : range->until;
        *names = found ? *names : f->fields;
        found = true;
    }
    return found;
}

/* Names and versions of a struct with this field count; names NULL if unknown. */
static void find_fields(const char *name, int n, const char **names, fxi_flux_range *range)
{
    *names = NULL;
    *range = (fxi_flux_range){FIRST, LAST};
    const fx_type *type = fxi_type_of_flux(name);
    if (type && find_form(fx_layer_of(type)->forms, n, names, range))
        return;
    for (int i = 0; i < NOTHERS; i++)
        if (others[i].n == n && strcmp(others[i].type, name) == 0) {
            *names = others[i].names;
            *range = others[i].range;
            return;
        }
}

const char *fxi_bson_field_names(const char *type, int nfields)
{
    const char *names;
    fxi_flux_range range;
    find_fields(type, nfields, &names, &range);
    return names;
}

fxi_flux_range fxi_bson_layer_range(const char *type, int nfields)
{
    const char *names;
    fxi_flux_range range;
    find_fields(type, nfields, &names, &range);
    return range;
}
