/* test_locale.c: texts of the library are the same in a locale with a decimal comma, because other
 * programs read them again. ctest: native */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <cflux.h>
#include <ctype.h>
#include <string.h>
#include <unistd.h>

#include "comma_locale.h"

enum { SIZE = 1 << 16 };
static char timeline[] = "/tmp/cflux-timeline-XXXXXX";

static fx_array *error_of(void *model, const fx_batch *b, void *user)
{
    (void)user;
    return fx_mse(fx_call(model, b->x), b->y);
}

/* Prints objects of all kinds, and what training prints. */
static void print_all(FILE *to)
{
    FX_SCOPE;
    fx_seed(3);
    void *model = fx_chain(fx_dense(2, 3, FX_TANH), fx_dropout(0.25),
                           fx_parse_model("x -> 2.5 .* x"), fx_dense(3, 1));
    void *rules = fx_optimiser_chain(fx_clip_norm(0.5), fx_adam(.eta = 0.0015));
    void *state = fx_setup(rules, model);
    fx_array *x = fx_randn(2, 4);
    fx_show_to(to, model);
    fx_show_to(to, rules);
    fx_show_to(to, state);
    fx_show_to(to, x);
    fx_show_to(to, fx_cast(x, FX_DTYPE_F64));

    static char plan[SIZE];
    assert_in_range(fx_plan_text(fx_mul(fx_matmul(fx_randn(300, 300), fx_randn(300, 300)), 0.1),
                                 plan, sizeof plan),
                    1, sizeof plan - 1);
    fputs(plan, to);
    char text[FX_SHORTEST_TEXT];
    fputs(fx_shortest(0.1, text), to);
    fputs(fx_shortest_f32(1.5e-30f, text), to);

    assert_int_not_equal(fx_eval(fx_call(fx_dropout(1.5), x)), FX_OK);
    fputs(fx_error_take().message, to);
    assert_true(fx_is_error(fx_lpnormpool(FX_DIMS(2), .p = -2.5)));
    fputs(fx_error_take().message, to);
    fx_loader *batches = fx_dataloader(fx_tuple(x, fx_randn(1, 4)), .batchsize = 2);
    assert_int_equal(fx_train(error_of, model, batches, state, .epochs = 2, .progress = true,
                              .progress_to = to, .clip_norm = 0.0),
                     FX_OK);
}

/* Reads the output of print_all into `text`. */
static void printed(char text[SIZE])
{
    FILE *to = tmpfile();
    assert_non_null(to);
    print_all(to);
    rewind(to);
    text[fread(text, 1, SIZE - 1, to)] = 0;
    fclose(to);
}

/* Counts numbers such as "1,5". Lists have a space after the comma, and JSON a quote. */
static int commas_in_numbers(const char *text)
{
    int n = 0;
    for (const char *p = text; (p = strchr(p, ',')); p++)
        n += p > text && isdigit((unsigned char)p[-1]) && isdigit((unsigned char)p[1]);
    return n;
}

static void read_all(const char *path, char text[SIZE])
{
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, SIZE - 1, f)] = 0;
    fclose(f);
}

static void numbers_have_a_point(void **state)
{
    static char text[SIZE], events[SIZE];
    (void)state;
    set_comma_locale();
    printed(text);
    read_all(timeline, events);
    setlocale(LC_ALL, "C");
    assert_int_equal(commas_in_numbers(text), 0);
    assert_int_equal(commas_in_numbers(events), 0);
    assert_non_null(strstr(text, "Dropout(0.25)"));
    assert_non_null(strstr(text, "got p = 1.5"));
    assert_non_null(strstr(text, "got p = -2.5"));
    assert_non_null(strstr(text, " MFLOP"));
    assert_non_null(strstr(text, "epoch 2/2"));
    assert_non_null(strstr(events, "\"dur\":"));
    assert_int_equal(commas_in_numbers("1.5, 2 \"a\":1,\"b\": 2,5"), 1);
}

int main(void)
{
    const int file = mkstemp(timeline);
    if (file < 0 || setenv("FX_TIMELINE", timeline, 1) != 0)
        return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(numbers_have_a_point)};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    close(file);
    unlink(timeline);
    return failed;
}
