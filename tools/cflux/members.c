/* members.c: see members.h. */
#include "members.h"
#include "failure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int members_join(void)
{
    if (fx_dist_init(FX_MPI) != FX_OK)
        return fail_library(EXIT_FAILED);
    members_hold();
    failure_silence(!members_first());
    return EXIT_FINE;
}

fx_dist *members(void)
{
    return fx_dist_initialized(FX_MPI) ? fx_dist_backend(FX_MPI) : NULL;
}

int members_count(void)
{
    return fx_dist_total_workers(members());
}

bool members_first(void)
{
    return fx_dist_rank(members()) == 0;
}

/* The largest number of all members; NaN if the operation failed. */
static double largest(double x)
{
    FX_SCOPE;
    double y = NAN;
    fx_item_get(fx_dist_allreduce(members(), fx_scalar((float)x), FX_REDUCE_MAX), &y);
    return y;
}

void members_hold(void)
{
    if (members_count() > 1)
        failure_hold();
}

/* Every member prints its own failure, because the members can no longer communicate. */
static int print_own(int status)
{
    if (status == EXIT_FINE)
        status = fail_library(EXIT_FAILED);
    failure_silence(false);
    failure_print_held();
    failure_silence(!members_first());
    return status;
}

int members_agree(int status)
{
    if (members_count() == 1)
        return status;
    FX_SCOPE;
    const int rank = fx_dist_rank(members());
    const double failing = largest(status == EXIT_FINE ? -members_count() : -rank);
    const int first = (int)-failing;
    char text[FAILURE_TEXT];
    if (isnan(failing))
        return print_own(status);
    if (first == members_count()) {
        failure_discard();
        return EXIT_FINE;
    }
    snprintf(text, sizeof text, "%s", failure_held());
    fx_array *theirs = fx_dist_bcast(members(), fx_from(FX_DTYPE_U8, text, FAILURE_TEXT), first);
    if (fx_read_as(theirs, FX_DTYPE_U8, text, FAILURE_TEXT) != FX_OK)
        return print_own(status);
    failure_discard();
    if (first == 0)
        fail(status, "%s", text);
    else
        fail(status, "rank %d: %s", first, text);
    /* The other members wait here until rank 0 has printed the failure: when a member ends, a
     * launcher kills the others. */
    const double agreed = largest(rank == first ? status : 0);
    return isnan(agreed) ? EXIT_FAILED : (int)agreed;
}

/* The text of the first member; NULL on failure (printed). From malloc. */
static char *first_text(const char *text)
{
    FX_SCOPE;
    const double size = largest(members_first() ? (double)strlen(text) + 1 : 0);
    const int64_t n = isnan(size) ? 0 : (int64_t)size;
    char *theirs = n > 0 ? calloc((size_t)n, 1) : NULL;
    if (!theirs) {
        fx_error_status() != FX_OK ? fail_library(EXIT_FAILED)
                                   : fail(EXIT_FAILED, "out of memory for the settings");
        return NULL;
    }
    snprintf(theirs, (size_t)n, "%s", text);
    fx_array *all = fx_dist_bcast(members(), fxi_from(FX_DTYPE_U8, theirs, 1, &n), 0);
    if (fx_read_as(all, FX_DTYPE_U8, theirs, n) == FX_OK)
        return theirs;
    free(theirs);
    fail_library(EXIT_FAILED);
    return NULL;
}

int members_same(const char *text)
{
    if (members_count() == 1)
        return EXIT_FINE;
    members_hold();
    char *theirs = first_text(text);
    if (!theirs)
        return EXIT_FAILED;
    const char *a = text, *b = theirs;
    size_t n = strcspn(a, "\n"), m = strcspn(b, "\n");
    while (*a && *b && n == m && strncmp(a, b, n) == 0) {
        a += n + (a[n] != 0);
        b += m + (b[m] != 0);
        n = strcspn(a, "\n");
        m = strcspn(b, "\n");
    }
    int status = EXIT_FINE;
    if (*a || *b)
        status = fail(EXIT_BAD_INPUT,
                      "the processes have different settings: rank %d has \"%.*s\", rank 0 has "
                      "\"%.*s\"",
                      fx_dist_rank(members()), (int)n, a, (int)m, b);
    free(theirs);
    return status;
}

fx_device *members_device(const char *name)
{
    fx_device *device = fx_device_find(name);
    const int own = fx_dist_local_rank(members());
    if (device && own > 0 && !strrchr(name, ':')) {
        const int n = fx_device_count(name);
        device = n > 1 ? fx_device_get(name, own % n) : device;
    }
    return device;
}

void members_use_gpus(const fx_device *device)
{
    const char *name = fx_device_name(device);
    const bool gpu = strncmp(name, "CUDA", 4) == 0 || strncmp(name, "AMDGPU", 6) == 0;
    if (members_count() == 1 || !gpu || fx_dist_init(FX_NCCL) == FX_OK)
        return;
    const fx_error e = fx_error_take();
    warn("gradients are copied through host memory: %s", failure_sentence(&e));
}
