/* test_checkpoint_set.c: checkpoints of which each member of a group saves a file
 * (checkpoint_set.c). ctest: threads
 *
 * The members are threads (meeting.h). The files that a killed job leaves are made by copying the
 * files of complete checkpoints to the names that they have at that moment.
 */
#include "file_out.h"
#include "meeting.h"
#include "temp_file.h"

#include <cflux/io.h>
#include <errno.h>
#include <unistd.h>

enum { SETS = 3, FILES = 3 };
static const char *const ends[FILES] = {".new", "", ".1"};
static const char *path;
static char said[500];

static void listen(int level, const char *text, void *user)
{
    (void)level, (void)user;
    snprintf(said, sizeof said, "%s", text);
}

static const char *name_of(int rank, int file)
{
    static char name[4096];
    snprintf(name, sizeof name, "%s.rank%d%s", path, rank, ends[file]);
    return name;
}

/* ---- members --------------------------------------------------------------------------------- */

/* The task of the next members: to save training step `step`, or to load. */
static struct {
    int64_t step, wrong_step; /* that of rank 1; 0: the same */
    int keep;
    bool wrong_path; /* rank 1's folder does not exist */
} next = {.keep = 2};

static void *saves(void *argument)
{
    FX_SCOPE;
    member *m = argument;
    const int rank = fx_dist_rank(&m->d);
    const int64_t step = rank == 1 && next.wrong_step ? next.wrong_step : next.step;
    void *model = fx_tuple(fx_full((double)(10 * next.step + rank), 5));
    fx_checkpoint_save(rank == 1 && next.wrong_path ? "/no/such/folder/x" : path, model,
                       .step = step, .epoch = rank, .keep = next.keep, .dist = &m->d,
                       .metrics = fx_named_tuple("of", fx_vector((float)rank)));
    take_error(m);
    return NULL;
}

/* got: whether a checkpoint exists, its training step, and the rest that it contains. */
static void *loads(void *argument)
{
    FX_SCOPE;
    member *m = argument;
    fx_array *x = fx_zeros(5);
    fx_checkpoint_args c = {.model = fx_tuple(x), .dist = &m->d, .step = -1};
    m->got[0] = fx_dist_checkpoint_exists(&m->d, path);
    const fx_status status = fx_checkpoint_load(path, &c);
    m->got[1] = (double)c.step;
    m->got[2] = fx_at(x, 4);
    m->got[3] = (double)c.epoch;
    m->got[4] = status == FX_OK ? fx_item(fx_child_named(c.metrics, "of")) : -1;
    take_error(m);
    return NULL;
}

static void save_set(int64_t step)
{
    next.step = step;
    run_members(saves);
}

/* Loads, and returns the training step that all members have; −1: all failed with one status. */
static int64_t load_set(void)
{
    said[0] = 0;
    run_members(loads);
    const bool failed = members[0].status != FX_OK;
    for (int r = 0; r < MEMBERS; r++) {
        const double *got = members[r].got, step = members[0].got[1];
        assert_int_equal(members[r].status, members[0].status);
        assert_true((members[r].status != FX_OK) == (members[r].message[0] != 0));
        assert_true(got[0] == members[0].got[0] && got[1] == step);
        assert_true(got[2] == (failed ? 0 : 10 * step + r));
        assert_true(got[3] == (failed ? 0 : r) && got[4] == (failed ? -1 : r));
    }
    return (int64_t)members[0].got[1];
}

static void all_have(fx_status status, const char *words)
{
    for (int r = 0; r < MEMBERS; r++) {
        assert_int_equal(members[r].status, status);
        if (!strstr(members[r].message, words))
            fail_msg("rank %d: %s\ninstead of %s", r, members[r].message, words);
    }
}

/* ---- jobs that are killed -------------------------------------------------------------------- */

static struct {
    char bytes[8192];
    size_t n;
} archive[SETS][MEMBERS];

static void fill_archive(void)
{
    for (int set = 0; set < SETS; set++) {
        save_set(10 * (set + 1));
        all_have(FX_OK, "");
        for (int r = 0; r < MEMBERS; r++) {
            FILE *f = fopen(name_of(r, 1), "rb");
            assert_non_null(f);
            archive[set][r].n = fread(archive[set][r].bytes, 1, sizeof archive[set][r].bytes, f);
            fclose(f);
        }
    }
}

/* The file of a rank: 'A', 'B' or 'C' of training step 10, 20 or 30; 'x' damaged; 'o' that of
 * another rank; '-' none. */
static void put_file(int rank, int file, char what)
{
    if (what == '-') {
        unlink(name_of(rank, file));
        return;
    }
    const int set = what >= 'A' && what <= 'C' ? what - 'A' : 2,
              from = what == 'o' ? (rank + 1) % MEMBERS : rank;
    FILE *f = fopen(name_of(rank, file), "wb");
    assert_non_null(f);
    fwrite(archive[set][from].bytes, 1, archive[set][from].n - (what == 'x'), f);
    assert_int_equal(fclose(f), 0);
}

/* The files of each rank: PATH.rank0.new, PATH.rank0 and PATH.rank0.1. */
typedef struct scene {
    const char *files[MEMBERS];
    int64_t step; /* that is loaded; −1: refused with `status` and a message with `words` */
    fx_status status;
    const char *words; /* with a step: of the message to all; NULL: none */
} scene;

static const char *const unlike = " has ";
static const scene scenes[] = {
    {{"-BA", "-BA", "-BA"}, 20, FX_OK, NULL},
    /* killed while the first files, or the next ones, are written */
    {{"A--", "---", "x--"}, -1, FX_STATUS_IO, "No such file"},
    {{"CBA", "-BA", "xBA"}, 20, FX_OK, "training step 20"},
    {{"-B-", "CB-", "xB-"}, 20, FX_OK, NULL},
    /* killed when all files were written, or had got their names on some ranks only */
    {{"CBA", "CBA", "CBA"}, 30, FX_OK, NULL},
    {{"-CB", "CBA", "CBA"}, 30, FX_OK, NULL},
    {{"CBA", "-CB", "-CB"}, 30, FX_OK, NULL},
    {{"A--", "-A-", "A--"}, 10, FX_OK, NULL},
    {{"C-B", "-CB", "-CB"}, 30, FX_OK, NULL}, /* a file system without hard links */
    {{"CBB", "-CB", "-CB"}, 30, FX_OK, NULL}, /* between the link and the new name */
    {{"-C-", "CB-", "CB-"}, 30, FX_OK, NULL}, /* .keep = 1 */
    /* damage */
    {{"--B", "--B", "-CB"}, 20, FX_OK, "training step 20"},
    {{"-CB", "-xB", "-CB"}, 20, FX_OK, "training step 20"},
    {{"-xB", "-CB", "-CB"}, 20, FX_OK, "training step 20"},
    {{"-C-", "-x-", "-C-"}, -1, FX_STATUS_FORMAT, ".rank1: "},
    {{"-C-", "---", "-C-"}, -1, FX_STATUS_IO, ".rank1: "},
    {{"---", "---", "---"}, -1, FX_STATUS_IO, ".rank0: "},
    /* files of several checkpoints, which only a program without .dist or a person can leave */
    {{"-C-", "-C-", "-B-"}, -1, FX_STATUS_FORMAT, unlike},
    {{"-CB", "-BA", "-A-"}, -1, FX_STATUS_FORMAT, unlike},
    {{"-o-", "-o-", "-o-"}, -1, FX_STATUS_ARGUMENT, ".rank0 is the part of rank 1 of 3, expected"},
};

static int64_t step_of(char set)
{
    return 10 * (set - 'A' + 1);
}

static void is_refused(const scene *s)
{
    char words[200] = "";
    int other = 1;
    while (other < MEMBERS - 1 && s->files[other][1] == s->files[0][1])
        other++;
    all_have(s->status, s->words);
    if (s->words != unlike)
        return;
    snprintf(words, sizeof words, ".rank0 of training step %lld, rank %d has ",
             (long long)step_of(s->files[0][1]), other);
    all_have(s->status, words);
    snprintf(words, sizeof words, ".rank%d of training step %lld, and there is no checkpoint of",
             other, (long long)step_of(s->files[other][1]));
    all_have(s->status, words);
}

static void a_complete_checkpoint_is_loaded(void **state)
{
    (void)state;
    fill_archive();
    fx_message_set_hook(listen, NULL);
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++) {
        const scene *s = &scenes[i];
        bool exists = false;
        for (int r = 0; r < MEMBERS; r++)
            for (int k = 0; k < FILES; k++) {
                put_file(r, k, s->files[r][k]);
                exists |= k > 0 && s->files[r][k] != '-';
            }
        if (load_set() != s->step)
            fail_msg("scene %d: %s", (int)i, members[0].message);
        assert_true(members[0].got[0] == exists);
        if (s->step < 0) {
            is_refused(s);
            continue;
        }
        if (s->words ? !strstr(said, s->words) : *said)
            fail_msg("scene %d: %s", (int)i, said);
        for (int r = 0; r < MEMBERS; r++)
            assert_int_not_equal(access(name_of(r, 0), F_OK), 0);
        save_set(40);
        assert_int_equal(load_set(), 40);
    }
    fx_message_set_hook(NULL, NULL);
}

/* ---- members that fail ----------------------------------------------------------------------- */

/* After a save, which may have failed, the members load the previous checkpoint or the new one. */
static int64_t left(int64_t before)
{
    const bool failed = members[0].status != FX_OK;
    const int64_t step = load_set();
    if (step != next.step && !(failed && step == before))
        fail_msg("step %lld: %s", (long long)step, members[0].message);
    return step;
}

/* Each operation of a save fails in turn, so all members stop there. */
static void operations_fail(void **state)
{
    (void)state;
    save_set(50);
    int64_t at = 0, step = 50;
    for (bool failed = true; failed;) {
        meeting.fails_at = ++at;
        save_set(50 + at);
        failed = members[0].status != FX_OK;
        if (failed)
            all_have(FX_STATUS_IO, "no answer from rank 1");
        step = left(step);
    }
    assert_true(at >= 8);
}

/* Each system call of one of the members fails in turn. */
static void system_calls_fail(void **state)
{
    (void)state;
    save_set(100);
    int failures = 0;
    int64_t at = 0, step = 100;
    for (bool failed = true; failed; at++) {
        fxi_file_fault_set(at, EIO);
        save_set(101 + at);
        failed = fxi_file_fault_seen() > at;
        fxi_file_fault_set(-1, 0);
        failures += members[0].status != FX_OK;
        for (int r = 1; r < MEMBERS; r++)
            assert_int_equal(members[r].status, members[0].status);
        step = left(step);
    }
    assert_true(failures >=
                3 * 6); /* open, write, sync, close and rename a file, link the old one */
}

static void a_member_that_fails_is_named(void **state)
{
    (void)state;
    save_set(60);
    next.wrong_path = true;
    save_set(61);
    next.wrong_path = false;
    all_have(FX_STATUS_IO, "/no/such/folder/x.rank1");
    assert_non_null(strstr(members[0].message, "rank 1 cannot continue: checkpoint_save"));
    for (int r = 0; r < MEMBERS; r++)
        assert_int_not_equal(access(name_of(r, 0), F_OK), 0);
    assert_int_equal(load_set(), 60);
    next.wrong_step = 63;
    save_set(62);
    next.wrong_step = 0;
    all_have(FX_STATUS_ARGUMENT,
             "rank 1 saves training step 63, but rank 0 saves training step 62");
    assert_int_equal(load_set(), 60);
    next.keep = 0;
    save_set(62);
    next.keep = 2;
    all_have(FX_STATUS_ARGUMENT, "keep is 0");
    const char *before = path;
    path = "";
    save_set(62);
    all_have(FX_STATUS_ARGUMENT, "the path is NULL or empty");
    static char longest[4096 - 46];
    memset(longest, 'x', sizeof longest - 1);
    path = longest;
    run_members(loads);
    all_have(FX_STATUS_ARGUMENT, "the path has 4049 bytes, at most 4048");
    path = before;
}

/* ---- other groups, and no group -------------------------------------------------------------- */

static void refused(fx_status got, fx_status want, const char *words)
{
    const fx_error e = fx_error_take();
    assert_int_equal(got, want);
    if (!strstr(e.message, words))
        fail_msg("%s\ninstead of %s", e.message, words);
}

static void a_group_of_another_size_is_refused(void **state)
{
    (void)state;
    FX_SCOPE;
    save_set(70);
    fx_dist one;
    begin(&one, 0, 1, NULL);
    fx_array *x = fx_zeros(5);
    fx_checkpoint_args c = {.model = fx_tuple(x), .dist = &one};
    assert_true(fx_dist_checkpoint_exists(&one, path));
    refused(fx_checkpoint_load(path, &c), FX_STATUS_ARGUMENT,
            ".rank0 is the part of rank 0 of 3, expected the part of rank 0 of 1. Only the same "
            "number of processes can load it");
    const char *other = temp_text("one.checkpoint", "");
    assert_false(fx_dist_checkpoint_exists(&one, other));
    refused(fx_checkpoint_load(other, &c), FX_STATUS_IO, ".rank0: ");
    assert_int_equal(fx_checkpoint_save(other, fx_tuple(fx_ones(5)), .step = 3, .dist = &one),
                     FX_OK);
    assert_int_equal(fx_checkpoint_load(other, &c), FX_OK);
    assert_true(c.step == 3 && fx_at(x, 0) == 1);
    fxi_dist_end(&one);
}

static void a_part_is_not_a_checkpoint(void **state)
{
    (void)state;
    FX_SCOPE;
    save_set(80);
    fx_array *x = fx_zeros(5);
    fx_checkpoint_args c = {.model = fx_tuple(x)};
    refused(fx_checkpoint_load(name_of(1, 1), &c), FX_STATUS_ARGUMENT,
            "is the part of rank 1 of a checkpoint of 3 ranks: load all parts with .dist");
    assert_int_equal(fx_load_into(name_of(1, 1), "model", c.model), FX_OK);
    assert_true(fx_at(x, 0) == 801);
    fx_file_info about;
    assert_int_equal(fx_file_about(name_of(2, 1), &about), FX_OK);
    assert_string_equal(about.origin, "cflux, epoch 2, training step 80, rank 2 of 3");
    assert_true(fx_dist_checkpoint_exists(NULL, name_of(1, 1)));
}

int main(void)
{
    path = temp_text("set.checkpoint", "");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_complete_checkpoint_is_loaded),
        cmocka_unit_test(operations_fail),
        cmocka_unit_test(system_calls_fail),
        cmocka_unit_test(a_member_that_fails_is_named),
        cmocka_unit_test(a_group_of_another_size_is_refused),
        cmocka_unit_test(a_part_is_not_a_checkpoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
