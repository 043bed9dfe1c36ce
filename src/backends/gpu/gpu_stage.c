/* gpu_stage.c: runs a plan with addresses that no recording has, when no more recordings may be
 * made. Arrays whose addresses change, such as the batches of a loader, are copied into memory of
 * the plan, the stage, for which there is one more recording. Results are copied from there to
 * their own memory, so no result is in memory that a later run overwrites.
 */
#include "gpu_whole.h"

#include <string.h>

/* Copying more bytes takes the device longer than the launches take the host. */
#define STAGE_BYTES_MOST ((int64_t)4 << 20)
enum { ALIGN = 256, FIXED = -1, UNUSED = -2 };

/* ---- which values ---------------------------------------------------------------------------- */

/* Does the value's address differ between this run and any recording, or had it changed when the
 * stage was made? */
static bool changes(const fxi_gpu_whole *w, int32_t v, void *const *values)
{
    for (int32_t k = 0; k < w->nrecordings; k++)
        if (w->recordings[k].values[v] != values[v])
            return true;
    return w->stage.region_of && w->stage.region_of[v] != FIXED;
}

/* The leaf that a value replaces; FIXED: none. */
static int32_t leaf_of(const fx_plan *plan, int32_t v, void *const *values)
{
    for (int32_t k = 0; k < plan->nvalues; k++)
        if (plan->values[k].memory == FX_PLAN_MEMORY_LEAF && values[k] == values[v])
            return k;
    return FIXED;
}

/* A result that is not written here was computed by another part of the larger plan
 * (fxi_gpu_use), so it is only copied in. */
static void add_region(fxi_gpu_stage *s, const fx_plan *plan, int32_t v, int64_t *bytes)
{
    const fx_plan_value *value = &plan->values[v];
    const fxi_gpu_whole *w = plan->ready;
    const bool result = value->memory == FX_PLAN_MEMORY_RESULT;
    s->region_of[v] = s->nregions;
    s->regions[s->nregions++] = (fxi_gpu_region){.value = v,
                                                 .at = *bytes,
                                                 .bytes = value->bytes,
                                                 .in = !result || !w->uses[v].written,
                                                 .out = result && w->uses[v].written};
    *bytes += (value->bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Gives a value that replaces a leaf the leaf's region. False: there is none. */
static bool share_region(fxi_gpu_stage *s, const fx_plan *plan, int32_t v, void *const *values,
                         int64_t *bytes)
{
    const fxi_gpu_whole *w = plan->ready;
    const int32_t leaf = leaf_of(plan, v, values);
    if (leaf == FIXED || s->region_of[leaf] == FIXED || plan->values[leaf].bytes <= 0)
        return false;
    if (s->region_of[leaf] == UNUSED)
        add_region(s, plan, leaf, bytes);
    s->region_of[v] = s->region_of[leaf];
    s->regions[s->region_of[v]].out |= w->uses[v].written;
    return true;
}

/* Finds the regions; returns their bytes, −1: the arrays cannot be copied. Leaves come before the
 * values that replace them, because these share their region. */
static int64_t find_regions(fxi_gpu_stage *s, const fx_plan *plan, const bool *changing,
                            void *const *values)
{
    const fxi_gpu_whole *w = plan->ready;
    int64_t bytes = 0;
    for (int32_t v = 0; v < plan->nvalues; v++) {
        const uint8_t memory = plan->values[v].memory;
        s->region_of[v] = !changing[v] ? FIXED : UNUSED;
        if (!changing[v] || !fxi_gpu_is_used(&w->uses[v]) || memory == FX_PLAN_MEMORY_REPLACES)
            continue;
        /* Values in the arena are not copied: a run with another arena gets its own recording. The
         * size of a strided leaf is unknown. */
        if (memory == FX_PLAN_MEMORY_ARENA || plan->values[v].bytes <= 0)
            return -1;
        add_region(s, plan, v, &bytes);
    }
    for (int32_t v = 0; v < plan->nvalues; v++)
        if (changing[v] && fxi_gpu_is_used(&w->uses[v]) &&
            plan->values[v].memory == FX_PLAN_MEMORY_REPLACES &&
            !share_region(s, plan, v, values, &bytes))
            return -1;
    return bytes;
}

/* ---- making a stage -------------------------------------------------------------------------- */

void fxi_gpu_stage_free(fx_device *device, const fxi_gpu_whole *w, fxi_gpu_stage *s,
                        const fx_host *host)
{
    if (device && s->made.graphs)
        fxi_gpu_drop(device, w, &s->made);
    if (device && s->memory)
        fxi_gpu_device_of(device)->driver->free(device, s->memory);
    host->free(s->regions);
    *s = (fxi_gpu_stage){.refused = s->refused};
}

/* All lists of a stage are one allocation, which begins with the regions. */
static bool alloc_lists(fxi_gpu_stage *s, const fx_plan *plan, const fxi_gpu_whole *w,
                        const fx_host *host, bool **out_changing)
{
    const size_t n = (size_t)plan->nvalues, parts = (size_t)w->nparts;
    const size_t bytes =
        n * (sizeof *s->regions + 2 * sizeof(void *) + sizeof *s->region_of + sizeof(bool)) +
        parts * sizeof(void *);
    s->regions = host->alloc(bytes);
    if (!s->regions)
        return false;
    memset(s->regions, 0, bytes);
    s->values = (void **)(void *)(s->regions + n);
    s->made.values = s->values + n;
    s->made.graphs = s->made.values + n;
    s->region_of = (int32_t *)(void *)(s->made.graphs + parts);
    *out_changing = (bool *)(s->region_of + n);
    return true;
}

/* A copy costs the host about as much as a launch, and the copies must cost less than half of the
 * launches. */
static bool pays(const fxi_gpu_whole *w, const fxi_gpu_stage *s, int64_t bytes)
{
    int32_t copies = 0;
    for (int32_t k = 0; k < s->nregions; k++)
        copies += s->regions[k].in + s->regions[k].out;
    return bytes > 0 && bytes <= STAGE_BYTES_MOST && 2 * copies < w->launches;
}

/* Fills in an empty stage. */
static bool make_stage(fx_device *device, const fx_plan *plan, void *const *values, fx_run *run,
                       fxi_gpu_stage *s)
{
    const fxi_gpu_device *d = fxi_gpu_device_of(device);
    fxi_gpu_whole *w = plan->ready;
    bool *changing;
    if (!alloc_lists(s, plan, w, fxi_gpu_host_of(d), &changing))
        return false;
    for (int32_t v = 0; v < plan->nvalues; v++)
        changing[v] = changes(w, v, values);
    const int64_t bytes = find_regions(s, plan, changing, values);
    if (!pays(w, s, bytes) || !(s->memory = d->driver->alloc(device, (size_t)bytes)))
        return false;
    for (int32_t v = 0; v < plan->nvalues; v++) {
        const int32_t r = s->region_of[v];
        s->values[v] = r < 0 ? values[v] : s->memory + s->regions[r].at;
        s->made.values[v] = values[v];
    }
    s->made.streams = run->streams;
    return fxi_gpu_record(device, plan, s->values, run, &s->made);
}

/* ---- using it -------------------------------------------------------------------------------- */

/* Only the addresses that are not staged must be those of the recording. A value that replaces a
 * leaf is always at the leaf's address. */
static bool fits(const fx_plan *plan, const fxi_gpu_stage *s, void *const *values,
                 const fx_run *run)
{
    if (!s->memory || s->made.streams != run->streams)
        return false;
    for (int32_t v = 0; v < plan->nvalues; v++)
        if (s->region_of[v] == FIXED && s->made.values[v] != values[v])
            return false;
    return true;
}

bool fxi_gpu_stage_for(fx_device *device, const fx_plan *plan, void *const *values, fx_run *run)
{
    fxi_gpu_whole *w = plan->ready;
    fxi_gpu_stage *old = &w->stage, made = {0};
    const fx_host *host = fxi_gpu_host_of(fxi_gpu_device_of(device));
    if (fits(plan, old, values, run))
        return true;
    if (w->refused || old->refused)
        return false;
    /* A failed allocation or recording is not reported to the program. */
    const fx_error earlier = host->error_take();
    const bool done = make_stage(device, plan, values, run, &made);
    host->error_take();
    host->error_put(&earlier);
    if (old->memory) {
        run->invalidated++;
        fxi_gpu_count(&fxi_gpu_counts.invalidated);
        /* Addresses that keep changing make a new stage useless soon. */
        w->refused |= ++w->useless >= FXI_GPU_USELESS;
    }
    fxi_gpu_stage_free(device, w, old, host);
    if (!done) {
        fxi_gpu_stage_free(device, w, &made, host);
        old->refused = true;
        return false;
    }
    *old = made;
    run->captured++;
    fxi_gpu_count(&fxi_gpu_counts.captured);
    return true;
}

fx_status fxi_gpu_stage_copy(fx_device *device, const fxi_gpu_stage *s, void *const *values,
                             bool out)
{
    const fxi_gpu_driver *driver = fxi_gpu_device_of(device)->driver;
    fx_status status = FX_OK;
    for (int32_t k = 0; k < s->nregions && !status; k++) {
        const fxi_gpu_region *r = &s->regions[k];
        void *own = values[r->value], *staged = s->memory + r->at;
        if (out ? r->out : r->in)
            status = driver->copy(device, out ? own : staged, device, out ? staged : own,
                                  (size_t)r->bytes);
    }
    return status;
}
