/* test_train_together.c: fx_train by a group of processes, which are threads here (meeting.h), and
 * the functions that it uses. ctest: threads
 *
 * The expected values are the same as in one process with all the data. */
#include "meeting.h"

#include <math.h>
#include <unistd.h>

enum { OBSERVATIONS = 26, BATCH = 8, EPOCHS = 5 }; /* the last batch of an epoch has 2 */

/* ---- objects --------------------------------------------------------------------------------- */

static void *averages(void *argument)
{
    member *m = argument;
    FX_SCOPE;
    const double r = fx_dist_rank(&m->d);
    void *x = fx_tuple(fx_vector(r, 1), fx_full_dtype(FX_DTYPE_I32, 7 + r, 1),
                       fx_full_dtype(FX_DTYPE_F64, r * r, 1), fx_scalar((float)(3 * r)));
    void *y = fx_dist_average(&m->d, x);
    for (int i = 0; i < 4; i++)
        read_out(m, fx_child(y, i));
    return NULL;
}

static void arrays_of_objects_are_averaged(void **state)
{
    (void)state;
    run_members(averages);
    for (int k = 0; k < MEMBERS; k++) {
        const double want[] = {1, 1, 7 + k, 5.0 / 3, 3};
        assert_string_equal(members[k].message, "");
        for (int i = 0; i < COUNT(want); i++)
            assert_true(members[k].got[i] == want[i]);
    }
    /* Float32, then Float64, then Float32 again: three buckets, each with a comparison. */
    assert_int_equal(meeting.made, 6);
    FX_SCOPE;
    assert_true(fx_is_error(fx_dist_average(NULL, fx_zeros(1))));
    assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
}

/* Member 2 cannot read its file. The others learn it in their next operation. */
static void *one_refuses(void *argument)
{
    member *m = argument;
    FX_SCOPE;
    if (fx_dist_rank(&m->d) == 2) {
        fx_dist_refuse(&m->d, fx_fail(FX_STATUS_FORMAT, "data", "row 7 has two values"));
        take_error(m);
    } else {
        fx_dist_barrier(&m->d);
        take_error(m);
    }
    fx_dist_barrier(&m->d); /* the group still works */
    read_out(m, fx_dist_allreduce(&m->d, fx_ones(1), FX_REDUCE_SUM));
    return NULL;
}

static void a_refusal_reaches_all(void **state)
{
    (void)state;
    run_members(one_refuses);
    for (int k = 0; k < MEMBERS; k++) {
        const char *want = k == 2 ? "data: row 7 has two values"
                                  : "rank 2 cannot continue: data: row 7 has two values";
        assert_non_null(strstr(members[k].message, want));
        assert_int_equal(members[k].status, FX_STATUS_FORMAT);
        assert_true(members[k].got[0] == MEMBERS);
    }
}

/* ---- fx_train -------------------------------------------------------------------------------- */

static fx_array *loss_of(void *model, const fx_batch *b, void *user)
{
    (void)user;
    return fx_mse(fx_call(model, b->x), b->y);
}

/* Notes the loss of each batch, and stops after `stops_at` steps. */
typedef struct notes {
    double losses[64];
    int n, stops_at;
} notes;

static fx_flow note(const fx_progress *p)
{
    notes *n = p->user;
    n->losses[n->n++] = p->loss;
    return n->stops_at && p->step >= n->stops_at ? FX_FLOW_STOP : FX_FLOW_CONTINUE;
}

static fx_loader *data_of(int seed)
{
    double x[2 * OBSERVATIONS], y[OBSERVATIONS];
    for (int i = 0; i < 2 * OBSERVATIONS; i++)
        x[i] = (i * 7 % 24) / 12.0 - 1;
    for (int i = 0; i < OBSERVATIONS; i++)
        y[i] = 3 * x[2 * i] * x[2 * i + 1];
    return fx_dataloader(fx_tuple(fx_from(FX_DTYPE_F64, x, 2, OBSERVATIONS),
                                  fx_from(FX_DTYPE_F64, y, 1, OBSERVATIONS)),
                         .batchsize = BATCH, .shuffle = true, .seed = (uint64_t)seed);
}

/* Each member has a seed of its own, and gets the weights and the order of rank 0. */
static void train(member *m, notes *n, int seed)
{
    FX_SCOPE;
    fx_seed((uint64_t)seed);
    void *model = fx_f64(fx_chain(fx_dense(2, 5, FX_TANH), fx_dense(5, 1)));
    void *opt = fx_setup(fx_adam(0.01), model);
    const fx_status status =
        fx_train(loss_of, model, data_of(seed), opt, .epochs = EPOCHS, .on_batch = note, .user = n,
                 .clip_norm = 0.5, .dist = m->d.transport ? &m->d : NULL);
    if (status != FX_OK)
        take_error(m);
    read_out(m, fx_destructure(model));
}

/* ---- accumulation ---------------------------------------------------------------------------- */

enum { EACH = 3 }; /* gradients for an update; an epoch has 4 */

static bool divides; /* the rule is an Adam whose state the members divide */

static fx_rule *rule_of(member *m)
{
    if (!divides)
        return fx_optimiser_chain(fx_accum_grad(EACH), fx_adam(0.01));
    return m->d.transport ? fx_dist_optimiser(&m->d, fx_adam(0.01), .shard = true) : fx_adam(0.01);
}

/* Trains to epoch `epochs`, and stops after `stops_at` steps. With a checkpoint it continues from
 * there. */
static void accumulate(member *m, notes *n, int epochs, const char *checkpoint)
{
    FX_SCOPE;
    fx_seed(10);
    void *model = fx_f64(fx_chain(fx_dense(2, 5, FX_TANH), fx_dense(5, 1)));
    void *opt = fx_setup(rule_of(m), model);
    if (fx_train(loss_of, model, data_of(3), opt, .epochs = epochs, .on_batch = note, .user = n,
                 .checkpoint = checkpoint, .dist = m->d.transport ? &m->d : NULL) != FX_OK)
        take_error(m);
    m->n = 0;
    read_out(m, fx_destructure(model));
}

static char checkpoint_path[300];
static notes noted[MEMBERS];

static void *accumulates(void *argument)
{
    member *m = argument;
    notes *n = &noted[fx_dist_rank(&m->d)];
    *n = (notes){.n = 0};
    accumulate(m, n, EPOCHS, NULL);
    return NULL;
}

/* Stops in the middle of a sum, after step 7 or 8, and continues. */
static void *accumulates_twice(void *argument)
{
    member *m = argument;
    notes *n = &noted[fx_dist_rank(&m->d)];
    *n = (notes){.stops_at = 7};
    accumulate(m, n, EPOCHS, checkpoint_path);
    n->stops_at = 0;
    accumulate(m, n, EPOCHS, checkpoint_path);
    return NULL;
}

static void check_accumulated(const member *serial, const notes *alone)
{
    assert_int_equal(serial->n, 21);
    expect_same(serial->n, serial->got, 1e-12);
    for (int k = 0; k < MEMBERS; k++) {
        assert_int_equal(noted[k].n, alone->n);
        for (int i = 0; i < alone->n; i++)
            assert_true(fabs(noted[k].losses[i] - alone->losses[i]) <= 1e-12);
    }
}

/* Trains in two runs; the second one continues from the checkpoint of the first. */
static void run_with_checkpoint(const char *name)
{
    char previous[310];
    snprintf(checkpoint_path, sizeof checkpoint_path, "%s/cflux-%s-%ld",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", name, (long)getpid());
    snprintf(previous, sizeof previous, "%s.1", checkpoint_path);
    run_members(accumulates_twice);
    unlink(checkpoint_path);
    unlink(previous);
}

static void gradients_are_exchanged_when_a_sum_is_complete(void **state)
{
    (void)state;
    static member serial;
    static notes alone;
    accumulate(&serial, &alone, EPOCHS, NULL);
    run_members(accumulates);
    check_accumulated(&serial, &alone);
    assert_int_equal(alone.n, EPOCHS * 4);
    /* 6 complete sums, of 21 parameters with the loss and the request to stop, the unfinished sum
     * at the end, the requests with the waiting times after each epoch, and the comparisons of
     * options and places at the start. */
    const int64_t start = meeting.large - EPOCHS * 4 / EACH - 1 - EPOCHS;
    assert_true(start >= 0 && start <= 2);
    /* A checkpoint in the middle of a sum has the gradients of all members. */
    run_with_checkpoint("accumulates");
    check_accumulated(&serial, &alone);
}

/* The checkpoint has whole states. The run that continues from it has parts of them again. */
static void divided_states_train_and_resume(void **state)
{
    (void)state;
    static member serial;
    static notes alone;
    divides = true;
    accumulate(&serial, &alone, EPOCHS, NULL);
    run_members(accumulates);
    check_accumulated(&serial, &alone);
    run_with_checkpoint("divides");
    check_accumulated(&serial, &alone);
    divides = false;
}

/* With batch norm: leaves the parameters and the running statistics. Descent, because Adam would
 * enlarge the rounding error of the first bias, whose gradient is 0. */
static void train_normed(member *m, int seed)
{
    FX_SCOPE;
    fx_seed((uint64_t)seed);
    fx_batchnorm_layer *norm = fx_batchnorm(5, .act = FX_TANH);
    fx_chain_layer *model = fx_f64(fx_chain(fx_dense(2, 5), norm, fx_dense(5, 1)));
    norm = model->layers.items[1];
    if (fx_train(loss_of, model, data_of(seed), fx_setup(fx_descent(0.1), model), .epochs = EPOCHS,
                 .dist = m->d.transport ? &m->d : NULL) != FX_OK)
        take_error(m);
    read_out(m, fx_destructure(model));
    read_out(m, norm->mean);
    read_out(m, norm->var);
}

static void *trains_normed(void *argument)
{
    member *m = argument;
    train_normed(m, 20 + fx_dist_rank(&m->d));
    return NULL;
}

/* Means, variances and their gradients are those of whole batches, although parts have 2 or 3
 * observations. */
static void batch_norm_is_that_of_one_process(void **state)
{
    (void)state;
    static member serial;
    train_normed(&serial, 20);
    run_members(trains_normed);
    assert_int_equal(serial.n, 2 * 5 + 5 + 10 + 5 + 1 + 10);
    expect_same(serial.n, serial.got, 1e-11);
}

/* The weight of an observation is a literal, on no device, and the gradients are on the CPU. All
 * members exchange both, in one order, also one whose part of a sum has no observations. */
static void *sums_parts(void *argument)
{
    member *m = argument;
    FX_SCOPE;
    const int rank = fx_dist_rank(&m->d);
    fx_seed(4);
    void *model = (void *)fx_dense(2, 1);
    fx_rule *rule = fx_optimiser_chain(fx_accum_grad(2), fx_descent(0.1));
    void *opt = fx_setup(fx_dist_optimiser(&m->d, rule), model);
    for (int i = 0; i < 4; i++) {
        FX_STEP;
        const bool none = i % MEMBERS == rank;
        fx_array *x = fx_from(FX_DTYPE_F32, ((float[]){1, 2, 3, (float)rank}), 2, 2);
        fx_array *loss = fx_mean(fx_square(fx_call(model, x)));
        if (fx_update(opt, model, fx_gradient(loss, model), .observations = none ? 0 : 2) != FX_OK)
            take_error(m);
    }
    read_out(m, fx_destructure(model));
    return NULL;
}

static void parts_without_observations_are_exchanged(void **state)
{
    (void)state;
    run_members(sums_parts);
    expect_same(3, NULL, 0);
    assert_true(isfinite(members[0].got[0]) && isfinite(members[0].got[2]));
}

/* The running statistics of an InstanceNorm are means over the observations of all members, also of
 * one without observations. Member k has those from `parts[k]` on. */
static const int64_t *parts;

static void *norms_instances(void *argument)
{
    member *m = argument;
    FX_SCOPE;
    const int rank = fx_dist_rank(&m->d);
    fx_batchnorm_layer *l = fx_instancenorm(2, .track_stats = true, .momentum = 1);
    void *norm = (void *)fx_batchnorm(2);
    float numbers[48];
    for (int i = 0; i < 48; i++)
        numbers[i] = (float)i;
    fx_array *x =
        fx_slice(fx_from(FX_DTYPE_F32, numbers, 4, 2, 6), 2, parts[rank], parts[rank + 1]);
    fx_trainmode(l);
    fx_trainmode(norm);
    assert_null(fx_dist_sync_norms(&m->d));
    /* The exchanges of the other layers are pending before and after. */
    fx_array *before = fx_call(norm, x);
    fx_call(l, x);
    fx_array *after = fx_call(norm, x);
    if (fx_dist_sync_norms(NULL) != &m->d)
        m->n++;
    fx_eval(l->mean);
    read_out(m, fx_staged(l->mean));
    read_out(m, fx_staged(l->var));
    fx_eval(fx_tuple(before, after));
    return NULL;
}

static void instance_norm_counts_all_observations(void **state)
{
    (void)state;
    static const int64_t all[][MEMBERS + 1] = {{0, 1, 3, 6}, {0, 2, 2, 6}, {0, 0, 0, 6}, {0}};
    for (int j = 0; j < COUNT(all); j++) {
        parts = all[j];
        run_members(norms_instances);
        for (int k = 0; k < MEMBERS; k++) {
            /* 0, 1, 2, 3; 8, …: the mean of the first channel is 1.5 + 8 · 2.5. The variance of
             * four consecutive numbers is 5/3. Without any observation, the first values stay. */
            const double some[] = {21.5, 25.5, 5.0 / 3, 5.0 / 3}, none[] = {0, 0, 1, 1};
            const double *want = parts[MEMBERS] ? some : none;
            assert_string_equal(members[k].message, "");
            assert_int_equal(members[k].n, 4);
            for (int i = 0; i < 4; i++)
                assert_true(fabs(members[k].got[i] - want[i]) <= 1e-5);
        }
    }
}

static int stopping = -1; /* the member that stops */

static void *trains(void *argument)
{
    member *m = argument;
    const int rank = fx_dist_rank(&m->d);
    noted[rank] = (notes){.stops_at = rank == stopping ? 6 : 0};
    train(m, &noted[rank], 10 + rank);
    return NULL;
}

static void members_train_as_one(void **state)
{
    (void)state;
    static member serial;
    static notes alone;
    train(&serial, &alone, 10);
    run_members(trains);
    assert_int_equal(alone.n, EPOCHS * 4);
    expect_same(serial.n, serial.got, 1e-12);
    for (int k = 0; k < MEMBERS; k++) {
        assert_int_equal(noted[k].n, alone.n);
        for (int i = 0; i < alone.n; i++)
            assert_true(fabs(noted[k].losses[i] - alone.losses[i]) <= 1e-12);
    }
    /* A training step: the bucket and its comparison. */
    assert_true(meeting.made <= 2 * EPOCHS * 4 + 60);
}

static void one_member_stops_all(void **state)
{
    (void)state;
    stopping = 1;
    run_members(trains);
    stopping = -1;
    for (int k = 0; k < MEMBERS; k++) {
        assert_string_equal(members[k].message, "");
        assert_int_equal(noted[k].n, 7); /* one step after the request */
        assert_memory_equal(members[k].got, members[0].got, sizeof members[0].got);
    }
}

static void *other_options(void *argument)
{
    member *m = argument;
    FX_SCOPE;
    const int rank = fx_dist_rank(&m->d);
    void *model = fx_dense(2, 1);
    fx_train(loss_of, model, data_of(1), fx_setup(fx_descent(), model), .dist = &m->d,
             .epochs = rank == 1 ? 3 : 2);
    take_error(m);
    return NULL;
}

static void options_are_compared(void **state)
{
    (void)state;
    run_members(other_options);
    for (int k = 0; k < MEMBERS; k++)
        assert_non_null(
            strstr(members[k].message, "the number of epochs is 3 on rank 1, but 2 on rank 0"));
}

/* A loss that becomes NaN on one member ends the training of all, with the same message. */
static fx_array *bad_loss(void *model, const fx_batch *b, void *user)
{
    const int *rank = user;
    fx_array *loss = loss_of(model, b, NULL);
    return *rank == 1 && b->index == 2 ? fx_mul(loss, NAN) : loss;
}

static void *bad_losses(void *argument)
{
    member *m = argument;
    FX_SCOPE;
    int rank = fx_dist_rank(&m->d);
    fx_seed(3);
    void *model = fx_f64(fx_dense(2, 1));
    m->got[m->n++] = fx_train(bad_loss, model, data_of(1), fx_setup(fx_descent(), model),
                              .dist = &m->d, .user = &rank);
    take_error(m);
    read_out(m, fx_destructure(model));
    return NULL;
}

static void a_loss_of_nan_ends_all(void **state)
{
    (void)state;
    run_members(bad_losses);
    for (int k = 0; k < MEMBERS; k++) {
        assert_string_equal(members[k].message, "train: loss is NaN on batch 3 of epoch 1");
        assert_true(members[k].got[0] == FX_STATUS_NONFINITE);
        assert_memory_equal(members[k].got, members[0].got, 4 * sizeof members[0].got[0]);
    }
}

/* The mishap: in the loss of member 1, or in the files of member 0. */
enum { NO_LOSS = 1, WRONG_LOSS, NO_LOG, NO_CHECKPOINT };
static struct {
    int what;
    bool norm; /* the model has a batch norm, so members wait for each other within a loss */
} mishap;

static fx_array *failing_loss(void *model, const fx_batch *b, void *user)
{
    const int *rank = user;
    fx_array *y = fx_call(model, b->x);
    const int what = *rank == 1 && b->index == 2 ? mishap.what : 0;
    return what == NO_LOSS ? NULL : fx_mse(y, what == WRONG_LOSS ? fx_zeros(7, 9) : b->y);
}

static void *fails(void *argument)
{
    member *m = argument;
    FX_SCOPE;
    int rank = fx_dist_rank(&m->d);
    void *first = mishap.norm ? (void *)fx_batchnorm(2) : (void *)fx_dense(2, 2);
    void *model = fx_f64(fx_chain(first, fx_dense(2, 1)));
    m->got[0] =
        fx_train(failing_loss, model, data_of(1), fx_setup(fx_descent(), model), .dist = &m->d,
                 .user = &rank, .epochs = 1, .log = mishap.what == NO_LOG ? "/no/folder/log" : NULL,
                 .checkpoint = mishap.what == NO_CHECKPOINT ? "/no/folder/file" : NULL);
    take_error(m);
    return NULL;
}

/* Also if it happens after the final training step. */
static void a_failure_of_one_member_ends_all(void **state)
{
    (void)state;
    static const struct {
        int what, rank;
        const char *why;
    } all[] = {{NO_LOSS, 1, "the loss function returned NULL"},
               {WRONG_LOSS, 1, "(7, 9)"},
               {NO_LOG, 0, "/no/folder/log"},
               {NO_CHECKPOINT, 0, "/no/folder"}};
    for (int i = 0; i < 2 * COUNT(all); i++) {
        mishap.what = all[i / 2].what;
        mishap.norm = i % 2;
        run_members(fails);
        char told[40];
        snprintf(told, sizeof told, "rank %d cannot continue: ", all[i / 2].rank);
        for (int k = 0; k < MEMBERS; k++) {
            assert_true(members[k].got[0] != FX_OK);
            assert_true(members[k].got[0] == members[0].got[0]);
            assert_non_null(strstr(members[k].message, all[i / 2].why));
            assert_true((strstr(members[k].message, told) != NULL) == (k != all[i / 2].rank));
        }
    }
}

/* Operation `meeting.fails_at` has no answer within the time limit. */
static void *loses_the_others(void *argument)
{
    member *m = argument;
    FX_SCOPE;
    fx_seed(1);
    void *model = fx_f64(fx_dense(2, 1));
    m->got[0] = fx_train(loss_of, model, data_of(1), fx_setup(fx_descent(), model), .dist = &m->d,
                         .epochs = 1, .patience = 3);
    take_error(m);
    return NULL;
}

static void a_lost_member_is_an_error_everywhere(void **state)
{
    (void)state;
    run_members(loses_the_others);
    assert_true(members[0].got[0] == FX_OK);
    for (int64_t n = meeting.made, i = 1; i <= n; i++) {
        meeting.fails_at = i;
        run_members(loses_the_others);
        for (int k = 0; k < MEMBERS; k++) {
            assert_true(members[k].got[0] == FX_STATUS_IO);
            assert_non_null(strstr(members[k].message, "no answer from rank 1"));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays_of_objects_are_averaged),
        cmocka_unit_test(a_refusal_reaches_all),
        cmocka_unit_test(batch_norm_is_that_of_one_process),
        cmocka_unit_test(parts_without_observations_are_exchanged),
        cmocka_unit_test(instance_norm_counts_all_observations),
        cmocka_unit_test(members_train_as_one),
        cmocka_unit_test(gradients_are_exchanged_when_a_sum_is_complete),
        cmocka_unit_test(divided_states_train_and_resume),
        cmocka_unit_test(one_member_stops_all),
        cmocka_unit_test(options_are_compared),
        cmocka_unit_test(a_loss_of_nan_ends_all),
        cmocka_unit_test(a_failure_of_one_member_ends_all),
        cmocka_unit_test(a_lost_member_is_an_error_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
