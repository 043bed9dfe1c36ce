/* test_checkpoint.c: training that is interrupted and resumed gives the same bits as training
 * without an interruption, on devices too; a damaged file is replaced by the previous one; every
 * system call and every allocation fails in turn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <cflux.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "away.h"
#include "context.h"
#include "evaluate.h"
#include "file_out.h"
#include "memory.h"
#include "temp_file.h"

#include <math.h>
#include <zlib.h>

enum { OBSERVATIONS = 22, BATCH = 4, BATCHES = 6, EPOCHS = 5, STEPS = BATCHES * EPOCHS };
enum { MOST_PARAMETERS = 400 };

static char said[1000];
static int messages;

static void listen(int level, const char *text, void *user)
{
    (void)level;
    (void)user;
    messages++;
    snprintf(said, sizeof said, "%s", text);
}

/* ---- a training with everything that is random or kept --------------------------------------- */

typedef struct training {
    fx_chain_layer *model;
    void *state;
    fx_loader *data;
} training;

static void *noisy(void *pair, void *user)
{
    (void)user;
    fx_array *x = fx_child(pair, 0);
    return fx_tuple(fx_add(x, fx_mul(0.1, fx_randn(6, fx_size(x, 1)))), fx_child(pair, 1));
}

/* The seed determines everything except the observations. NULL: on the host. */
static training begin_on(fx_device *device, uint64_t seed)
{
    fx_seed(99);
    fx_array *x = fx_randn(6, OBSERVATIONS), *y = fx_randn(2, OBSERVATIONS);
    fx_eval(fx_tuple(x, y));
    fx_seed(seed);
    training t = {.model = fx_chain(fx_dense(6, 8, FX_TANH), fx_batchnorm(8), fx_dropout(0.3),
                                    fx_dense(8, 2))};
    if (device)
        t.model = fx_to(device, t.model);
    t.state = fx_setup(fx_adamw(.eta = 0.01, .lambda = 0.01), t.model);
    t.data = fx_dataloader(fx_mapobs_with(noisy, NULL, fx_tuple(x, y)), .batchsize = BATCH,
                           .shuffle = true, .device = device);
    return t;
}

static training begin(uint64_t seed)
{
    return begin_on(NULL, seed);
}

static fx_array *loss_of(void *model, const fx_batch *b, void *user)
{
    (void)user;
    return fx_mse(fx_call(model, b->x), b->y);
}

/* What happens at a training step: the learning rate changes, and training stops or the process
 * dies. */
typedef struct course {
    int64_t stop_at, die_at;
    double losses[STEPS + 1];
    bool keep_best;
    int64_t best_epoch; /* as the callbacks saw it last */
} course;

static fx_flow on_batch(const fx_progress *p)
{
    course *plan = p->user;
    plan->losses[p->step] = p->loss;
    plan->best_epoch = p->best_epoch;
    if (p->step == 13)
        fx_adjust_eta(p->state, 0.003);
    if (p->step == plan->die_at)
        _exit(7);
    return p->step == plan->stop_at ? FX_FLOW_STOP : FX_FLOW_CONTINUE;
}

/* Minus the length of all parameters, which shrinks: an early epoch is the best. */
static double length_of(void *model, void *user)
{
    (void)user;
    return -fx_item(fx_norm(fx_destructure(model)));
}

static fx_status run(training t, course *plan, const char *path, int64_t every)
{
    return fx_train(loss_of, t.model, t.data, t.state, .epochs = EPOCHS, .on_batch = on_batch,
                    .user = plan, .checkpoint = path, .checkpoint_every = every, .patience = 100,
                    .metric = plan->keep_best ? length_of : NULL, .keep_best = plan->keep_best);
}

typedef struct bits {
    float values[MOST_PARAMETERS];
    int64_t n;
} bits;

static void add_bits(fx_array *x, const char *path, bool trainable, void *user)
{
    (void)path;
    (void)trainable;
    bits *b = user;
    const int64_t n = fx_length(x);
    assert_true(b->n + n <= MOST_PARAMETERS);
    assert_int_equal(fx_read_into(x, b->values + b->n, (size_t)n * sizeof(float)), FX_OK);
    b->n += n;
}

static bits bits_of(training t)
{
    bits b = {.n = 0};
    fx_visit(t.model, add_bits, &b);
    fx_visit(t.state, add_bits, &b);
    return b;
}

static void assert_same(const bits *a, const bits *b, const char *what, int64_t step)
{
    assert_true(a->n > 200);
    if (a->n != b->n || memcmp(a->values, b->values, (size_t)a->n * sizeof(float)) != 0)
        fail_msg("%s at step %lld: not the same bits", what, (long long)step);
}

static bits undisturbed(course *out_plan)
{
    FX_SCOPE;
    training t = begin(1);
    *out_plan = (course){.stop_at = -1, .die_at = -1};
    assert_int_equal(run(t, out_plan, NULL, 0), FX_OK);
    return bits_of(t);
}

/* Files are removed, not truncated, because arrays may be mapped to them. */
static const char *fresh_path(void)
{
    static const char *const names[] = {"run", "run.1", "run.2"};
    static const char *paths[3];
    for (int i = 0; i < 3; i++) {
        paths[i] = paths[i] ? paths[i] : temp_text(names[i], "");
        unlink(paths[i]);
    }
    return paths[0];
}

/* ---- resuming -------------------------------------------------------------------------------- */

static void stopped_training_goes_on(void **state)
{
    (void)state;
    course whole;
    const bits expected = undisturbed(&whole);
    for (int64_t step = 1; step <= STEPS; step++) {
        FX_SCOPE;
        const char *path = fresh_path();
        course part = {.stop_at = step, .die_at = -1}, rest = {.stop_at = -1, .die_at = -1};
        training first = begin(1);
        assert_int_equal(run(first, &part, path, 1000), FX_OK);
        training second =
            begin(1000 + (uint64_t)step); /* begins with other weights, orders and random numbers */
        fx_rand_u64();
        assert_int_equal(run(second, &rest, path, 1000), FX_OK);
        const bits got = bits_of(second);
        assert_same(&expected, &got, "stopped", step);
        for (int64_t i = 1; i <= STEPS; i++)
            assert_true((i <= step ? part.losses[i] : rest.losses[i]) == whole.losses[i]);
        assert_true(fx_eta(second.state) == 0.003);
    }
}

/* The process is killed at 20 random training steps; checkpoints are 1 to 7 training steps apart.
 */
static void killed_training_goes_on(void **state)
{
    (void)state;
    course whole;
    const bits expected = undisturbed(&whole);
    srand(12345);
    int resumed = 0;
    for (int i = 0; i < 20; i++) {
        const int64_t step = 1 + rand() % (STEPS - 1), every = 1 + rand() % 7;
        const char *path = fresh_path();
        fflush(NULL);
        const pid_t child = fork();
        if (child == 0) {
            course part = {.stop_at = -1, .die_at = step};
            run(begin(1), &part, path, every);
            _exit(1);
        }
        int how;
        assert_int_equal(waitpid(child, &how, 0), child);
        assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 7);
        resumed += fx_checkpoint_exists(path);
        FX_SCOPE;
        course rest = {.stop_at = -1, .die_at = -1};
        /* If nothing has been saved, the same training begins again. */
        training second = begin(fx_checkpoint_exists(path) ? 77 : 1);
        assert_int_equal(run(second, &rest, path, every), FX_OK);
        const bits got = bits_of(second);
        assert_same(&expected, &got, "killed", step);
        assert_true(rest.losses[STEPS] == whole.losses[STEPS]);
    }
    assert_true(resumed >= 15);
}

/* The epoch that was best before the stop is in the file: wherever training is stopped, the model
 * at the end is that of the best epoch. */
static void best_epoch_is_kept(void **state)
{
    (void)state;
    FX_SCOPE;
    course whole = {.stop_at = -1, .die_at = -1, .keep_best = true}, last = whole;
    training t = begin(1);
    assert_int_equal(run(t, &whole, NULL, 0), FX_OK);
    const bits expected = bits_of(t);
    const double best = length_of(t.model, NULL);
    assert_true(whole.best_epoch > 0 && whole.best_epoch < EPOCHS);
    training u = begin(1);
    last.keep_best = false;
    assert_int_equal(run(u, &last, NULL, 0), FX_OK);
    assert_true(best < length_of(u.model, NULL));
    for (int64_t step = 1; step <= STEPS; step += 3) {
        FX_SCOPE;
        const char *path = fresh_path();
        course part = {.stop_at = step, .die_at = -1, .keep_best = true};
        course rest = {.stop_at = -1, .die_at = -1, .keep_best = true};
        assert_int_equal(run(begin(1), &part, path, 1000), FX_OK);
        training second = begin(1000 + (uint64_t)step);
        assert_int_equal(run(second, &rest, path, 1000), FX_OK);
        const bits got = bits_of(second);
        assert_same(&expected, &got, "the best epoch", step);
        assert_true(step == STEPS || rest.best_epoch == whole.best_epoch);
    }
}

/* If any allocation fails when training resumes, there is an error: the best epoch does not
 * silently become another one. */
static void the_best_epoch_is_in_memory_or_an_error(void **state)
{
    (void)state;
    FX_SCOPE;
    course p = {.stop_at = -1, .die_at = -1, .keep_best = true};
    training t = begin(1);
    const char *path = fresh_path();
    assert_int_equal(run(t, &p, path, 1000), FX_OK);
    const bits best = bits_of(t);
    int64_t failed = 0, good = 0;
    for (int64_t k = 0, hit = 1; hit; k++) {
        FX_SCOPE;
        training again = begin(2);
        fx_eval(again.model);
        fxi_fault_set(k);
        const fx_status status = run(again, &p, path, 1000);
        hit = fxi_fault_seen() > k;
        fxi_fault_set(-1);
        const fx_error error = fx_error_take();
        if (error.status != status)
            fail_msg("fault %lld gives status %d, the record: %s", (long long)k, (int)status,
                     error.message);
        failed += status != FX_OK;
        good += status == FX_OK;
        const bits got = bits_of(again);
        if (status == FX_OK)
            assert_same(&best, &got, "the best epoch, fault", k);
    }
    assert_true(failed >= 100 && good >= 1);
}

/* Files from before the number of the best epoch was stored have four numbers. Files with another
 * count were not written by fx_train. */
static fx_flow note_start(const fx_progress *p)
{
    *(fx_progress *)p->user = *p;
    return FX_FLOW_STOP;
}

static void older_files_go_on(void **state)
{
    (void)state;
    FX_SCOPE;
    static const double own[] = {1.5, 0.25, 2, 3, 7, 8}; /* loss sum, best, waited, batch */
    for (int n = 3; n <= 6; n++) {
        const char *path = fresh_path();
        training t = begin(1);
        fx_progress at = {0};
        fx_array *numbers = fx_from(FX_DTYPE_F64, own, n);
        assert_int_equal(fx_checkpoint_save(path, t.model, .state = t.state, .data = t.data,
                                            .epoch = 4, .step = 27,
                                            .metrics = fx_named_tuple("train", numbers)),
                         FX_OK);
        const fx_status status = fx_train(loss_of, t.model, t.data, t.state, .epochs = EPOCHS,
                                          .on_start = note_start, .user = &at, .checkpoint = path);
        if (n == 3 || n == 6) {
            assert_int_equal(status, FX_STATUS_FORMAT);
            assert_non_null(strstr(fx_error_take().message, "was not written by fx_train"));
            continue;
        }
        assert_int_equal(status, FX_OK);
        assert_true(at.epoch == 4 && at.step == 27 && at.batch == 3);
        assert_true(at.best == 0.25 && at.mean_loss == 0.5);
        assert_int_equal(at.best_epoch, n == 5 ? 7 : 0);
    }
}

/* If only the metric of the best epoch is known, its values cannot be restored, so the search for
 * the best epoch starts again. */
static void a_best_epoch_without_its_model(void **state)
{
    (void)state;
    FX_SCOPE;
    static const double own[] = {0, 1e-9, 2, 0, 3};
    const char *path = fresh_path();
    training t = begin(1);
    fx_progress at = {0};
    assert_int_equal(
        fx_checkpoint_save(path, t.model, .state = t.state, .data = t.data, .epoch = 2, .step = 12,
                           .metrics = fx_named_tuple("train", fx_from(FX_DTYPE_F64, own, 5))),
        FX_OK);
    assert_int_equal(fx_train(loss_of, t.model, t.data, t.state, .epochs = EPOCHS,
                              .keep_best = true, .on_start = note_start, .user = &at,
                              .checkpoint = path),
                     FX_OK);
    assert_true(isinf(at.best) && at.best_epoch == 0 && at.epoch == 2);
}

/* On a device whose memory the host cannot access: training that was saved there resumes there or
 * on the host. */
static void training_on_a_device_goes_on(void **state)
{
    (void)state;
    fx_device *const away_device = fx_device_get("Away", 0);
    course whole;
    const bits expected = undisturbed(&whole);
    for (int to_host = 0; to_host < 2; to_host++)
        for (int64_t step = 4; step <= STEPS; step += 5) {
            FX_SCOPE;
            const char *path = fresh_path();
            course part = {.stop_at = step, .die_at = -1}, rest = {.stop_at = -1, .die_at = -1};
            assert_int_equal(run(begin_on(away_device, 1), &part, path, 1000), FX_OK);
            training second = begin_on(to_host ? NULL : away_device, 50);
            assert_int_equal(run(second, &rest, path, 1000), FX_OK);
            assert_ptr_equal(fx_array_device(fx_child(fx_trainables(second.model), 0)),
                             to_host ? fx_cpu_device() : away_device);
            const bits got = bits_of(second);
            assert_same(&expected, &got, to_host ? "from a device" : "on a device", step);
            assert_true(rest.losses[STEPS] == whole.losses[STEPS] || step == STEPS);
        }
    fx_reclaim();
    assert_true(away.runs > 100);
    assert_int_equal(fx_error_status(), FX_OK);
}

static void finished_training_stays(void **state)
{
    (void)state;
    FX_SCOPE;
    course whole;
    const bits expected = undisturbed(&whole);
    const char *path = fresh_path();
    course p = {.stop_at = -1, .die_at = -1};
    assert_int_equal(run(begin(1), &p, path, 0), FX_OK);
    training again = begin(5);
    course none = {.stop_at = -1, .die_at = -1};
    assert_int_equal(run(again, &none, path, 0), FX_OK);
    const bits got = bits_of(again);
    assert_same(&expected, &got, "finished", STEPS);
    assert_true(none.losses[STEPS] == 0); /* no training step was made */
}

/* The error names the first line that differs. Training without settings, in the checkpoint or now,
 * resumes. */
static void other_settings_are_refused(void **state)
{
    (void)state;
    FX_SCOPE;
    static const struct {
        const char *then, *now, *words; /* words NULL: training resumes */
    } cases[] = {
        {"seed 1\nlr 2\n", "seed 1\nlr 2\n", NULL},
        {"seed 1\nlr 2\n", NULL, NULL},
        {NULL, "seed 1", NULL},
        {"seed 1\nlr 2", "seed 1\nlr 23", "\"lr 2\", but this training has \"lr 23\""},
        {"seed 1\nlr 2\n", "seed 2\nlr 3\n", "\"seed 1\", but this training has \"seed 2\""},
        {"seed 1\nlr 2\n", "seed 1\n", "\"lr 2\", but this training has \"\""},
        {"seed 1", "seed 1\n\nlr 2", "\"\", but this training has \"lr 2\""},
    };
    course p = {.stop_at = -1, .die_at = -1};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *path = fresh_path();
        training t = begin(1), again = begin(2);
        assert_int_equal(fx_train(loss_of, t.model, t.data, t.state, .user = &p,
                                  .on_batch = on_batch, .checkpoint = path,
                                  .settings = cases[i].then),
                         FX_OK);
        const fx_status status =
            fx_train(loss_of, again.model, again.data, again.state, .user = &p,
                     .on_batch = on_batch, .checkpoint = path, .settings = cases[i].now);
        assert_int_equal(status, cases[i].words ? FX_STATUS_ARGUMENT : FX_OK);
        if (cases[i].words)
            assert_non_null(strstr(fx_error_take().message, cases[i].words));
    }
}

/* ---- one file -------------------------------------------------------------------------------- */

static fx_status save(training t, const char *path, int64_t step, int keep)
{
    return fx_checkpoint_save(path, t.model, .state = t.state, .data = t.data, .step = step,
                              .metrics = fx_named_tuple("loss", fx_vector((float)step)),
                              .keep = keep);
}

static fx_status load(training t, const char *path, int64_t *out_step)
{
    fx_checkpoint_args c = {
        .fxi_size = sizeof c, .model = t.model, .state = t.state, .data = t.data, .step = -1};
    const fx_status status = fx_checkpoint_load(path, &c);
    *out_step = c.step;
    if (status == FX_OK)
        assert_true(fx_item(fx_child_named(c.metrics, "loss")) == (double)c.step);
    return status;
}

static void spoil(const char *path, long offset)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, offset, offset < 0 ? SEEK_END : SEEK_SET), 0);
    const int c = fgetc(f);
    fseek(f, -1, SEEK_CUR);
    fputc(c ^ 4, f);
    fclose(f);
}

static void damaged_files_give_way(void **state)
{
    (void)state;
    FX_SCOPE;
    const char *path = fresh_path();
    training t = begin(1);
    int64_t step;
    for (int64_t i = 1; i <= 4; i++)
        assert_int_equal(save(t, path, i, 3), FX_OK);
    char before[600];
    snprintf(before, sizeof before, "%s.3", path);
    assert_int_not_equal(access(before, F_OK), 0);
    fx_message_set_hook(listen, NULL);
    messages = 0;
    assert_int_equal(load(t, path, &step), FX_OK);
    assert_int_equal(step, 4);
    assert_int_equal(messages, 0);
    spoil(path, 300);
    assert_int_equal(load(t, path, &step), FX_OK);
    assert_int_equal(step, 3);
    assert_int_equal(messages, 1);
    assert_non_null(strstr(said, "the file is damaged: its CRC-32 differs"));
    assert_non_null(strstr(said, "run.1, is used."));
    assert_int_equal(fx_error_status(), FX_OK);
    snprintf(before, sizeof before, "%s.1", path);
    assert_int_equal(truncate(before, 100), 0);
    assert_int_equal(load(t, path, &step), FX_OK);
    assert_int_equal(step, 2);
    unlink(path);
    assert_true(fx_checkpoint_exists(path));
    assert_int_equal(load(t, path, &step), FX_OK);
    assert_int_equal(step, 2);
    assert_non_null(strstr(said, "No such file or directory"));
    snprintf(before, sizeof before, "%s.2", path);
    spoil(before, -1);
    assert_int_equal(load(t, path, &step), FX_STATUS_IO);
    assert_non_null(strstr(fx_error_take().message, "No such file"));
    fx_message_set_hook(NULL, NULL);
}

/* A file of weights is not called damaged. */
static void other_files_are_no_checkpoints(void **state)
{
    (void)state;
    FX_SCOPE;
    static const char *const names[] = {"w.safetensors", "w.bson", "w.npz"};
    for (int i = 0; i < 3; i++) {
        training t = begin(1);
        int64_t step;
        const char *path = temp_text(names[i], "");
        assert_int_equal(fx_save(path, "model", t.model), FX_OK);
        assert_int_equal(load(t, path, &step), FX_STATUS_FORMAT);
        const fx_error e = fx_error_take();
        assert_non_null(strstr(e.message, "the file has no checksum: it is truncated, or not a "
                                          "checkpoint (fx_load_into loads the weights of other"));
    }
}

/* Another version is named; the file has the right checksum. */
static void another_version_is_named(void **state)
{
    (void)state;
    FX_SCOPE;
    const char *path = fresh_path();
    training t = begin(1);
    int64_t step;
    assert_int_equal(save(t, path, 1, 1), FX_OK);
    static unsigned char bytes[1 << 16];
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    const size_t n = fread(bytes, 1, sizeof bytes, f);
    assert_true(n > 100 && n < sizeof bytes);
    static const char wanted[] = "\"version\":\"1\"";
    size_t at = 0;
    while (at < n && memcmp(bytes + at, wanted, sizeof wanted - 1) != 0)
        at++;
    assert_true(at < n);
    bytes[at + sizeof wanted - 3] = '2';
    const uint32_t sum = (uint32_t)crc32_z(0, bytes, n - 4);
    for (int i = 0; i < 4; i++)
        bytes[n - 4 + (size_t)i] = (unsigned char)(sum >> 8 * i);
    rewind(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
    assert_int_equal(load(t, path, &step), FX_STATUS_FORMAT);
    assert_non_null(strstr(fx_error_take().message,
                           "the checkpoint has version 2, but this cflux reads version 1: use the "
                           "version of cflux that saved it"));
    assert_true(fx_checkpoint_exists(path)); /* and it is not deleted */
}

/* Two files are kept, the newest is damaged, and training has resumed from the previous one. While
 * it saves again, the previous one is the only intact file, and must survive every failure. */
static void a_damaged_newest_is_not_kept(void **state)
{
    (void)state;
    FX_SCOPE;
    const char *path = fresh_path();
    training t = begin(1);
    char before[600];
    snprintf(before, sizeof before, "%s.1", path);
    fx_message_set_hook(listen, NULL);
    int64_t step;
    int failed = 0;
    for (int64_t k = 0, done = 0; !done; k++) {
        fresh_path();
        assert_int_equal(save(t, path, 1, 2), FX_OK);
        assert_int_equal(save(t, path, 2, 2), FX_OK);
        spoil(path, 300);
        assert_int_equal(load(t, path, &step), FX_OK);
        assert_int_equal(step, 1);
        fxi_file_fault_set(k, EIO);
        const fx_status status = save(t, path, 3, 2);
        done = fxi_file_fault_seen() <= k;
        fxi_file_fault_set(-1, 0);
        const fx_error error = fx_error_take();
        const bool folder = strstr(error.message, "folder to the disk") != NULL;
        assert_int_equal(status, done || error.status == FX_OK ? FX_OK : FX_STATUS_IO);
        failed += status != FX_OK;
        assert_int_equal(load(t, before, &step), FX_OK);
        assert_int_equal(step, 1);
        assert_int_equal(load(t, path, &step), FX_OK);
        assert_int_equal(step, status == FX_OK || folder ? 3 : 1);
    }
    assert_true(failed >= 8);
    /* If the newest file is missing, the older one is not renamed either. */
    unlink(path);
    assert_int_equal(save(t, path, 4, 3), FX_OK);
    assert_int_equal(load(t, before, &step), FX_OK);
    assert_int_equal(step, 1);
    fx_message_set_hook(NULL, NULL);
}

/* A state needs numbers and arrays that such a file does not have. */
static void a_file_without_a_state(void **state)
{
    (void)state;
    FX_SCOPE;
    const char *path = fresh_path();
    char words[700];
    fx_dense_layer *saved = fx_dense(6, 2), *model = fx_dense(6, 2);
    assert_int_equal(fx_checkpoint_save(path, saved), FX_OK);
    fx_checkpoint_args io = {.model = model, .state = fx_setup(fx_adam(), model)};
    assert_int_equal(fx_checkpoint_load(path, &io), FX_STATUS_ARGUMENT);
    snprintf(words, sizeof words, "%s: the checkpoint was saved without an optimiser state", path);
    assert_non_null(strstr(fx_error_take().message, words));
    assert_true(fx_at(saved->weight, 0) != fx_at(model->weight, 0));
    io.state = NULL;
    assert_int_equal(fx_checkpoint_load(path, &io), FX_OK);
    assert_true(fx_at(saved->weight, 0) == fx_at(model->weight, 0));
}

static void another_model_changes_nothing(void **state)
{
    (void)state;
    FX_SCOPE;
    const char *path = fresh_path();
    assert_int_equal(save(begin(1), path, 3, 2), FX_OK);
    training other = begin(2);
    int64_t step;
    const bits before = bits_of(other);
    const fx_loader_position at = fx_loader_tell(other.data, NULL);
    fx_dense_layer *dense = fx_dense(6, 2);
    assert_int_equal(load((training){(void *)dense, fx_setup(fx_adam(), dense), NULL}, path, &step),
                     FX_STATUS_ARGUMENT);
    fx_error_take();
    other.state = fx_setup(fx_adam(), other.model);
    assert_int_equal(load(other, path, &step), FX_STATUS_ARGUMENT);
    assert_non_null(strstr(fx_error_take().message, "another rule"));
    assert_int_equal(step, -1);
    assert_true(memcmp(before.values, bits_of(other).values, 100) == 0);
    assert_true(fx_loader_tell(other.data, NULL).seed == at.seed);
    /* Any program can load the weights alone. */
    fx_chain_layer *model = begin(3).model;
    assert_int_equal(fx_load_into(temp_text("x", ""), "model", model), FX_STATUS_FORMAT);
    fx_error_take();
    assert_int_equal(fx_load_into(path, "model", model), FX_OK);
    training first = begin(1);
    assert_true(fx_at(fx_destructure(model), 5) == fx_at(fx_destructure(first.model), 5));
    assert_int_equal(fx_checkpoint_save(path, first.model, .keep = -1), FX_STATUS_ARGUMENT);
    fx_error_take();
    assert_int_equal(fx_checkpoint_save(path, first.model, .keep = 0), FX_STATUS_ARGUMENT);
    fx_error_take();
}

static void failing_calls(void **state)
{
    (void)state;
    FX_SCOPE;
    training t = begin(1);
    const char *path = fresh_path();
    int failed = 0, passed = 0;
    int64_t step;
    fx_eval(t.model);
    assert_int_equal(save(t, path, 1, 3), FX_OK);
    assert_int_equal(save(t, path, 2, 3), FX_OK);
    for (int64_t k = 0;; k++) {
        fxi_file_fault_set(k, ENOSPC);
        const fx_status status = save(t, path, 3, 3);
        const bool done = fxi_file_fault_seen() <= k;
        fxi_file_fault_set(-1, 0);
        const fx_error error = fx_error_take();
        assert_int_equal(load(t, path, &step), FX_OK);
        if (done)
            break;
        const bool named = strstr(error.message, "folder to the disk") != NULL;
        assert_int_equal(error.status, status);
        assert_true(status == FX_STATUS_IO || status == FX_OK);
        assert_int_equal(step, named || status == FX_OK ? 3 : 2);
        if (status != FX_OK)
            assert_non_null(
                strstr(error.message, named ? "the new file is in place" : "file is unchanged"));
        failed += status != FX_OK;
        passed += status == FX_OK;
        if (step == 3)
            assert_int_equal(save(t, path, 2, 3), FX_OK);
    }
    assert_int_equal(step, 3);
    assert_true(failed >= 10);
    assert_int_equal(passed, 1); /* a newest file that cannot be opened is replaced */
}

/* Saves and loads while the given allocation fails. Afterwards one of the files is intact, and the
 * model is unchanged. *out_hit: whether there was such an allocation. */
static fx_status save_and_load(training t, const char *path, const bits *before, int64_t fault,
                               bool *out_hit)
{
    FX_SCOPE;
    int64_t step;
    fxi_fault_set(fault);
    fx_status status = save(t, path, 2, 2);
    if (status == FX_OK)
        status = load(t, path, &step);
    *out_hit = fault >= 0 && fxi_fault_seen() > fault;
    fxi_fault_set(-1);
    const fx_error error = fx_error_take();
    if (status != FX_OK && status != FX_STATUS_MEMORY && status != FX_STATUS_IO)
        fail_msg("fault %lld: %s", (long long)fault, error.message);
    if (error.status != status)
        fail_msg("fault %lld gives status %d, the record: %s", (long long)fault, (int)status,
                 error.message);
    assert_int_equal(load(t, path, &step), FX_OK);
    const bits now = bits_of(t);
    assert_same(before, &now, "after a fault", fault);
    assert_true(status != FX_OK || step == 2);
    return status;
}

static void failing_allocations(void **state)
{
    (void)state;
    FX_SCOPE;
    training t = begin(1);
    const char *path = fresh_path();
    int64_t failed = 0, k = 0;
    bool hit;
    fx_eval(t.model);
    const bits before = bits_of(t);
    for (int i = 0; i < 2; i++) /* arrays are mapped to a file */
        assert_int_equal(save_and_load(t, path, &before, -1, &hit), FX_OK);
    fxi_reclaim_all();
    const int64_t live = fxi_live_allocations();
    for (hit = true; hit; k++) {
        failed += save_and_load(t, path, &before, k, &hit) != FX_OK;
        fxi_reclaim_all();
        if (fxi_live_allocations() != live)
            fail_msg("fault %lld leaks %lld allocations", (long long)k,
                     (long long)(fxi_live_allocations() - live));
    }
    printf("%lld of %lld allocations that failed were reported\n", (long long)failed,
           (long long)k - 1);
    assert_true(failed >= 200);
}

/* ---- the loader ------------------------------------------------------------------------------ */

static void a_loader_goes_on(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_seed(3);
    fx_array *x = fx_range(0, 1, 23);
    for (int workers = 0; workers < 2; workers++) {
        fx_loader *all = fx_dataloader(x, .batchsize = 4, .shuffle = true, .workers = workers);
        for (int64_t stop = 0; stop < 7; stop++) {
            fx_loader *rest = fx_dataloader(x, .batchsize = 4, .shuffle = true);
            fx_batch a = {0}, b = {0};
            for (int64_t i = 0; i < stop; i++)
                assert_true(fx_next(all, &a) == (i < 6));
            assert_int_equal(fx_loader_seek(rest, fx_loader_tell(all, &a)), FX_OK);
            const bool again = stop == 6; /* its last batch was the end of the pass */
            if (again)
                fx_batch_end(&a);
            int64_t compared = 0;
            while (fx_next(all, &a)) {
                assert_true(fx_next(rest, &b));
                assert_int_equal(a.index, b.index);
                for (int64_t i = 0; i < a.size; i++)
                    assert_true(fx_at(a.x, i) == fx_at(b.x, i));
                compared++;
            }
            assert_false(fx_next(rest, &b));
            assert_int_equal(compared, again ? 6 : 6 - stop);
        }
        assert_int_equal(fx_loader_seek(all, (fx_loader_position){.batch = 7}), FX_STATUS_ARGUMENT);
        fx_error_take();
    }
}

int main(void)
{
    fx_set_num_threads(1); /* a child of fork has one */
    away_register("Away", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stopped_training_goes_on),
        cmocka_unit_test(killed_training_goes_on),
        cmocka_unit_test(best_epoch_is_kept),
        cmocka_unit_test(the_best_epoch_is_in_memory_or_an_error),
        cmocka_unit_test(older_files_go_on),
        cmocka_unit_test(a_best_epoch_without_its_model),
        cmocka_unit_test(training_on_a_device_goes_on),
        cmocka_unit_test(finished_training_stays),
        cmocka_unit_test(other_settings_are_refused),
        cmocka_unit_test(damaged_files_give_way),
        cmocka_unit_test(other_files_are_no_checkpoints),
        cmocka_unit_test(another_version_is_named),
        cmocka_unit_test(a_damaged_newest_is_not_kept),
        cmocka_unit_test(a_file_without_a_state),
        cmocka_unit_test(another_model_changes_nothing),
        cmocka_unit_test(failing_calls),
        cmocka_unit_test(failing_allocations),
        cmocka_unit_test(a_loader_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
