/* golden_runner.c: runs recorded cases against cflux.
 *
 *    golden_runner                               everything that is recorded
 *    golden_runner onnx torch/conv               groups and parts of them
 *    golden_runner onnx/node__gemm_all_attributes     one case; its name is its rerun command
 *    golden_runner -v …                          names every case
 *
 * The data is the folder $CFLUX_DATA with onnx/, torch/ and flux/ in it; any folder of the same
 * layout will do. Without CFLUX_DATA the run says what it skipped and passes; where it is set, a
 * missing index is a failure, and so is a folder of a case that the index does not list. If the
 * data is the full set, fewer cases than expected are a failure, so that no case is lost unnoticed.
 * The last line is "N passed, N failed, N skipped".
 */
#include "golden.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GROUPS = 3, MAX_REASONS = 160 };
static const char *const group_names[GROUPS] = {"onnx", "torch", "nnlib"};
/* A full set has at least `full` cases; then at least `minimum` must have run. */
static const int full_counts[GROUPS] = {460, 199, 93};
static const int minimum_counts[GROUPS] = {433, 168, 93};

struct gold_run {
    const char *data;
    char **patterns;
    int npatterns;
    bool verbose;
    int passed[GROUPS], failed[GROUPS], skipped[GROUPS];
    struct {
        const char *op, *why;
        int count;
    } reasons[MAX_REASONS];
    int nreasons;
};

const char *gold_data(const gold_run *run)
{
    return run->data;
}

bool gold_selected(const gold_run *run, const char *name)
{
    bool selected = run->npatterns == 0;
    for (int i = 0; i < run->npatterns; i++) {
        const size_t n = strlen(run->patterns[i]);
        const bool whole =
            strncmp(name, run->patterns[i], n) == 0 && (name[n] == 0 || name[n] == '/');
        selected = selected || whole;
    }
    return selected;
}

static int group_of(const char *name)
{
    for (int g = 0; g < GROUPS; g++) {
        const size_t n = strlen(group_names[g]);
        if (!strncmp(name, group_names[g], n) && name[n] == '/')
            return g;
    }
    return 0;
}

static void count_reason(gold_run *run, const gold_case *c)
{
    int i = 0;
    while (i < run->nreasons && strcmp(run->reasons[i].op, c->not_built) != 0)
        i++;
    if (i == MAX_REASONS)
        return;
    if (i == run->nreasons)
        run->nreasons++;
    run->reasons[i].op = c->not_built;
    run->reasons[i].why = c->not_built_why;
    run->reasons[i].count++;
}

void gold_record(gold_run *run, const gold_case *c)
{
    const int g = group_of(c->name);
    if (c->failed) {
        run->failed[g]++;
        printf("FAIL %s: %s\n", c->name, c->why);
    } else if (c->not_built) {
        run->skipped[g]++;
        count_reason(run, c);
        if (run->verbose)
            printf("skip %s: %s: %s\n", c->name, c->not_built, c->not_built_why);
    } else {
        run->passed[g]++;
        if (run->verbose)
            printf("ok   %s\n", c->name);
    }
}

cJSON *gold_index(gold_run *run, const char *path)
{
    char full[1024];
    snprintf(full, sizeof full, "%s/%s", run->data, path);
    cJSON *json = gold_json_read(full);
    if (json)
        return json;
    gold_case c = {0};
    snprintf(c.name, sizeof c.name, "%s", strncmp(path, "flux/", 5) ? path : "nnlib/index");
    gold_fail(&c, "%.700s %s", full, access(full, F_OK) ? "is missing" : "is not JSON");
    gold_record(run, &c);
    return NULL;
}

static void look_below(gold_run *run, const char *group, const char *below, int n,
                       const char *const *names)
{
    char path[1024], name[512];
    snprintf(path, sizeof path, "%s/%s/%s", run->data, group, below);
    DIR *folder = opendir(path);
    for (struct dirent *e; folder && (e = readdir(folder));) {
        if (e->d_name[0] == '.')
            continue;
        snprintf(name, sizeof name, "%.240s%s%.240s", below, *below ? "/" : "", e->d_name);
        snprintf(path, sizeof path, "%.480s/%s/%s/case.json", run->data, group, name);
        bool listed = false;
        for (int i = 0; i < n && !listed; i++)
            listed = !strcmp(names[i], name);
        gold_case c = {0};
        snprintf(c.name, sizeof c.name, "%s/%.100s", group, name);
        gold_fail(&c, "its folder is there, but index.json does not list it");
        if (!access(path, F_OK) && !listed)
            gold_record(run, &c);
        else if (access(path, F_OK) && e->d_type == DT_DIR)
            look_below(run, group, name, n, names);
    }
    if (folder)
        closedir(folder);
}

void gold_unlisted(gold_run *run, const char *group, int n, const char *const *names)
{
    if (!run->npatterns)
        look_below(run, group, "", n, names);
}

/* 1 if a full set of cases has lost some. */
static int close_group(const gold_run *run, int g)
{
    const int all = run->passed[g] + run->failed[g] + run->skipped[g];
    if (all == 0)
        return 0;
    printf("%s: %d passed, %d failed, %d skipped\n", group_names[g], run->passed[g], run->failed[g],
           run->skipped[g]);
    if (all < full_counts[g] || run->passed[g] + run->failed[g] >= minimum_counts[g])
        return 0;
    printf("FAIL %s: only %d cases ran, at least %d must\n", group_names[g],
           run->passed[g] + run->failed[g], minimum_counts[g]);
    return 1;
}

static int finish(const gold_run *run)
{
    int lost = 0, passed = 0, failed = 0, skipped = 0;
    for (int i = 0; i < run->nreasons; i++)
        printf("skipped: %s (%d): %s\n", run->reasons[i].op, run->reasons[i].count,
               run->reasons[i].why);
    for (int g = 0; g < GROUPS; g++) {
        lost += close_group(run, g);
        passed += run->passed[g];
        failed += run->failed[g];
        skipped += run->skipped[g];
    }
    if (run->npatterns && passed + failed + skipped == 0) {
        printf("FAIL: no case has that name\n");
        failed++;
    }
    printf("%d passed, %d failed, %d skipped\n", passed, failed + lost, skipped);
    return failed + lost ? 1 : 0;
}

int main(int argc, char **argv)
{
    static gold_run run;
    run.data = getenv("CFLUX_DATA");
    run.patterns = argv + 1;
    run.npatterns = argc - 1;
    if (run.npatterns && !strcmp(run.patterns[0], "-v")) {
        run.verbose = true;
        run.patterns++;
        run.npatterns--;
    }
    if (!run.data || !*run.data) {
        printf("skipped: the recorded ONNX, torch and NNlib cases: CFLUX_DATA is not set\n"
               "0 passed, 0 failed, 0 skipped\n");
        return 0;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    onnx_run_all(&run);
    torch_run_all(&run);
    nnlib_run_all(&run);
    return finish(&run);
}
