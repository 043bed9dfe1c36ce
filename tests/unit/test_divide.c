/* test_divide.c: optimiser states that are divided among the members of a group (.shard of
 * fx_dist_optimiser). ctest: threads
 *
 * The members are threads (meeting.h). The expected bits are those of a group that divides nothing.
 */
#include "meeting.h"
#include "temp_file.h"

enum { STEPS = 6, PARAMETERS = 4 * 5 + 5 + 5 + 1 };

static fx_rule *rule_of(int k)
{
    switch (k) {
    case 0:
        return fx_adam(0.01);
    case 1:
        return fx_adamw(.eta = 0.02, .lambda = 0.1);
    case 2:
        return fx_momentum(0.05);
    case 3:
        return fx_rmsprop(.eta = 0.01, .centred = true);
    case 4:
        return fx_rprop(0.01);
    case 5:
        return fx_radam(0.01);
    case 6:
        return fx_optimiser_chain(fx_clip_grad(0.5), fx_weight_decay(0.01), fx_oadam(0.01));
    default:
        return fx_descent(0.1);
    }
}
enum { RULES = 8 };

/* The last bias has one element, so two of three members have an empty part of it. */
static void *model_of(void)
{
    fx_seed(5);
    return fx_chain(fx_dense(4, 5, FX_TANH), fx_dense(5, 1));
}

static fx_status update(void *opt, void *model, int rank, int step)
{
    FX_STEP;
    double xs[12], ys[3];
    for (int i = 0; i < 12; i++)
        xs[i] = sin(i + 12 * rank + step);
    for (int i = 0; i < 3; i++)
        ys[i] = cos(i + rank);
    fx_array *x = fx_cast(fx_from(FX_DTYPE_F64, xs, 4, 3), FX_DTYPE_F32),
             *y = fx_cast(fx_from(FX_DTYPE_F64, ys, 1, 3), FX_DTYPE_F32);
    return fx_update(opt, model, fx_gradient(fx_mse(fx_call(model, x), y), model));
}

static void count(fx_array *x, const char *path, bool trainable, void *user)
{
    (void)path, (void)trainable;
    *(int64_t *)user += fx_length(x);
}

/* The numbers in the arrays of an object, one after the other. */
typedef struct numbers {
    float at[1000];
    int64_t n;
} numbers;
static void take(fx_array *x, const char *path, bool trainable, void *user)
{
    (void)path, (void)trainable;
    numbers *all = user;
    if (fx_read_into(x, all->at + all->n, sizeof(float) * (size_t)fx_length(x)) == FX_OK)
        all->n += fx_length(x);
}

static numbers want[RULES], states[RULES];
static int64_t kept[MEMBERS][RULES];

/* Trains with each rule. Without `shard`, rank 0 keeps the numbers; with it, all compare theirs. */
static void train_all(member *m, bool shard)
{
    const int rank = fx_dist_rank(&m->d);
    for (int k = 0; k < RULES; k++) {
        FX_SCOPE;
        void *model = fx_dist_synchronize(&m->d, model_of(), 0);
        void *opt = fx_setup(fx_dist_optimiser(&m->d, rule_of(k), .shard = shard), model);
        opt = fx_dist_synchronize(&m->d, opt, 0);
        for (int i = 0; i < STEPS && m->status == FX_OK; i++)
            m->status = update(opt, model, rank, i);
        kept[rank][k] = 0;
        fx_visit(opt, count, &kept[rank][k]);
        void *whole = fx_dist_whole(&m->d, opt);
        numbers *now = calloc(2, sizeof *now);
        fx_visit(model, take, &now[0]);
        fx_visit(whole, take, &now[1]);
        if (!shard && rank == 0) {
            want[k] = now[0];
            states[k] = now[1];
        }
        if (shard)
            m->got[k] = memcmp(&now[0], &want[k], sizeof *now) == 0 &&
                        memcmp(&now[1], &states[k], sizeof *now) == 0;
        free(now);
    }
    take_error(m);
}

static void *trains_whole(void *argument)
{
    train_all(argument, false);
    return NULL;
}

static void *trains_divided(void *argument)
{
    train_all(argument, true);
    return NULL;
}

static void a_divided_state_gives_the_same_bits(void **state)
{
    (void)state;
    run_members(trains_whole);
    int64_t whole[RULES];
    for (int k = 0; k < RULES; k++) {
        whole[k] = kept[0][k];
        assert_int_equal(want[k].n, PARAMETERS);
        assert_true(k == RULES - 1 ? whole[k] == 0 : whole[k] >= PARAMETERS);
    }
    run_members(trains_divided);
    for (int r = 0; r < MEMBERS; r++) {
        assert_string_equal(members[r].message, "");
        for (int k = 0; k < RULES; k++) {
            assert_true(members[r].got[k] == 1);
            /* each of the four arrays is cut into parts that differ by at most one element */
            assert_true(kept[r][k] * MEMBERS <= whole[k] + whole[k] / PARAMETERS * 4 * MEMBERS);
        }
    }
    for (int k = 0; k < RULES; k++)
        assert_int_equal(kept[0][k] + kept[1][k] + kept[2][k], whole[k]);
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

static const char *file;
static bool in_parts; /* each member saves its part */

static fx_status save(member *m, void *model, void *opt, int64_t step)
{
    if (in_parts)
        return fx_checkpoint_save(file, model, .state = opt, .step = step, .dist = &m->d);
    void *whole = fx_dist_whole(&m->d, opt);
    const fx_status status = fx_dist_rank(&m->d) == 0
                                 ? fx_checkpoint_save(file, model, .state = whole, .step = step)
                                 : FX_OK;
    return status == FX_OK ? fx_dist_barrier(&m->d) : status;
}

static fx_status load(member *m, void *model, void *opt, int64_t *out_step)
{
    void *state = in_parts ? opt : fx_dist_whole(&m->d, opt);
    fx_checkpoint_args saved = {.model = model, .state = state, .dist = in_parts ? &m->d : NULL};
    fx_status status = fx_checkpoint_load(file, &saved);
    if (status == FX_OK && !in_parts)
        status = fx_dist_divide(&m->d, opt, state);
    *out_step = saved.step;
    return status;
}

/* Trains in two runs, with a checkpoint in between. */
static void *resumes(void *argument)
{
    member *m = argument;
    FX_SCOPE;
    const int rank = fx_dist_rank(&m->d);
    void *model = model_of();
    void *opt = fx_setup(fx_dist_optimiser(&m->d, fx_adam(0.01), .shard = true), model);
    for (int i = 0; i < STEPS / 2 && m->status == FX_OK; i++)
        m->status = update(opt, model, rank, i);
    int64_t step = 0;
    if (m->status == FX_OK)
        m->status = save(m, model, opt, STEPS / 2);
    void *again = model_of();
    opt = fx_setup(fx_dist_optimiser(&m->d, fx_adam(0.01), .shard = true), again);
    if (load(m, again, opt, &step) != FX_OK)
        take_error(m);
    for (int i = (int)step; i < STEPS && m->status == FX_OK; i++)
        m->status = update(opt, again, rank, i);
    numbers *now = calloc(2, sizeof *now);
    fx_visit(again, take, &now[0]);
    fx_visit(fx_dist_whole(&m->d, opt), take, &now[1]);
    m->got[0] = memcmp(&now[0], &want[0], sizeof *now) == 0 &&
                memcmp(&now[1], &states[0], sizeof *now) == 0;
    free(now);
    return NULL;
}

static void all_resume(void)
{
    run_members(resumes);
    for (int r = 0; r < MEMBERS; r++) {
        assert_string_equal(members[r].message, "");
        assert_true(members[r].got[0] == 1);
    }
}

static void members_save_their_parts(void **state)
{
    (void)state;
    file = temp_text("parts.checkpoint", "");
    in_parts = true;
    all_resume();
    in_parts = false;
}

static void checkpoints_have_whole_states(void **state)
{
    (void)state;
    file = temp_text("divided.checkpoint", "");
    all_resume();
    /* A single process, without a group, loads it too. */
    FX_SCOPE;
    fx_dist one;
    begin(&one, 0, 1, NULL);
    void *model = model_of();
    void *opt = fx_setup(fx_dist_optimiser(&one, fx_adam(0.01)), model);
    fx_checkpoint_args saved = {.model = model, .state = opt};
    assert_int_equal(fx_checkpoint_load(file, &saved), FX_OK);
    numbers *now = calloc(1, sizeof *now);
    fx_visit(opt, take, now);
    assert_int_equal(now->n, 2 * PARAMETERS);
    free(now);
    fxi_dist_end(&one);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void refused(fx_dist *d, fx_rule *rule, const char *why)
{
    assert_true(fx_is_error(fx_dist_optimiser(d, rule, .shard = true)));
    const fx_error e = fx_error_take();
    assert_int_equal(e.status, FX_STATUS_UNSUPPORTED);
    if (!strstr(e.message, why))
        fail_msg("%s\ninstead of %s", e.message, why);
}

static void rules_of_whole_arrays_are_refused(void **state)
{
    (void)state;
    FX_SCOPE;
    static const fxi_transport none;
    fx_dist d;
    begin(&d, 0, 2, &none);
    refused(&d, fx_clip_norm(1), "the state of ClipNorm cannot be divided");
    refused(&d, fx_optimiser_chain(fx_accum_grad(2), fx_adam()), "the state of AccumGrad cannot");
    refused(&d, fx_mixed_precision(fx_adam()), "the state of MixedPrecision cannot");
    void *model = model_of();
    void *opt = fx_setup(fx_dist_optimiser(&d, fx_adam(), .shard = true), model);
    assert_int_equal(fx_checkpoint_save(temp_text("part", ""), model, .state = opt),
                     FX_STATUS_ARGUMENT);
    assert_non_null(strstr(fx_error_take().message, "the state is divided among the ranks"));
    void *other = fx_setup(fx_descent(0.1), model);
    assert_int_equal(fx_dist_divide(&d, opt, other), FX_STATUS_ARGUMENT);
    assert_non_null(strstr(fx_error_take().message, "was not made by fx_dist_whole"));
    assert_int_equal(fx_dist_divide(&d, opt, NULL), FX_STATUS_ARGUMENT);
    fx_error_take();
    assert_true(fx_is_error(fx_dist_whole(&d, NULL)));
    fx_error_take();
    fxi_dist_end(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_divided_state_gives_the_same_bits),
        cmocka_unit_test(checkpoints_have_whole_states),
        cmocka_unit_test(members_save_their_parts),
        cmocka_unit_test(rules_of_whole_arrays_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
