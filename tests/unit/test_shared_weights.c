/* test_shared_weights.c: the gradient of a weight that several products use: one product if they
 * are many (docs/design/0069), and always the sum of the gradients of its uses. All numbers are
 * whole, so sums in any order are exact, and expected values are worked out by loops or from values
 * that are used once.
 */
#include "semantics_check.h"

/* loss = Σₜ Σ Cₜ∘(W·xₜ + Pₜ), where Pₜ are columns of P. Then dW = Σₜ Cₜxₜᵀ, and the columns of dP
 * are Cₜ. */

enum { OUT = 8, IN = 6, MOST_PRODUCTS = 7, MOST_TERMS = 4 };

typedef struct shared_weight {
    int n, terms; /* products, and columns of each xₜ */
    int order;    /* of Pₜ in P: 0 like the products, 1 reversed, 2 mixed; 3: there is no P */
    bool cube;    /* P has an axis more, so that Pₜ are reshaped */
    /* Further uses of W, each after as many products: a product with a number, a slice, and a
     * product V·W; −1: none. */
    int number, slice, right;
} shared_weight;

static uint32_t a_random;
static double small_number(void)
{
    return (double)((a_random = a_random * 1664525 + 1013904223) >> 24) - 128;
}

static fx_array *small_matrix(int64_t rows, int64_t columns, double *out)
{
    for (int64_t i = 0; i < rows * columns; i++)
        out[i] = small_number();
    return fx_from(FX_DTYPE_F64, out, rows, columns);
}

static int place_in(const shared_weight *p, int t)
{
    return p->order == 0 ? t : p->order == 1 ? p->n - 1 - t : (11 * t + 1) % p->n;
}

static fx_array *columns_of(const shared_weight *p, fx_array *whole, int t)
{
    const int64_t at = place_in(p, t);
    if (p->cube)
        return fx_reshape(fx_slice(whole, 2, at, at + 1), OUT, p->terms);
    return fx_slice(whole, 1, at * p->terms, (at + 1) * p->terms);
}

/* The steps of the gradient that are products. */
static int products_in(fx_array *g)
{
    static char text[1 << 15];
    int n = 0;
    assert_true(fx_plan_text(g, text, sizeof text) < sizeof text);
    for (const char *at = text; (at = strstr(at, "matmul")) != NULL; at++)
        n++;
    return n;
}

/* Adds the uses of W after t products to the loss, and their gradients to dw. */
static fx_array *other_uses(const shared_weight *p, int t, fx_array *W, fx_array *loss, double *dw)
{
    double v[OUT], d[IN];
    if (p->number == t)
        loss = fx_add(loss, fx_sum(fx_mul(W, 3)));
    if (p->slice == t)
        loss = fx_add(loss, fx_sum(fx_mul(fx_slice(W, 1, 1, 3), 5)));
    if (p->right == t)
        loss = fx_add(
            loss, fx_sum(fx_matmul(fx_matmul(small_matrix(1, OUT, v), W), small_matrix(IN, 1, d))));
    for (int i = 0; i < OUT * IN; i++)
        dw[i] += (p->number == t ? 3 : 0) + (p->slice == t && i / OUT >= 1 && i / OUT < 3 ? 5 : 0) +
                 (p->right == t ? v[i % OUT] * d[i / OUT] : 0);
    return loss;
}

/* Everything is a whole number, so sums in any order are exact. */
static void check_shared_weight(const shared_weight *p, int want_products)
{
    FX_SCOPE;
    double w[OUT * IN], dw[OUT * IN] = {0}, columns[MOST_PRODUCTS * OUT * MOST_TERMS];
    double x[IN * MOST_TERMS], c[OUT * MOST_TERMS], dp[MOST_PRODUCTS * OUT * MOST_TERMS];
    const int64_t k = p->terms;
    fx_array *W = small_matrix(OUT, IN, w), *loss = fx_f64(fx_zeros()), *g[2];
    fx_array *P = small_matrix(OUT, p->n * k, columns);
    if (p->cube)
        P = fx_reshape(P, OUT, k, p->n);
    fx_eval(P);
    for (int t = 0; t < p->n; t++) {
        loss = other_uses(p, t, W, loss, dw);
        fx_array *X = small_matrix(IN, k, x), *C = small_matrix(OUT, k, c);
        fx_array *y = fx_matmul(W, X);
        if (p->order < 3)
            y = fx_add(y, columns_of(p, P, t));
        loss = fx_add(loss, fx_sum(fx_mul(C, y)));
        for (int i = 0; i < OUT; i++)
            for (int j = 0; j < IN; j++)
                for (int q = 0; q < k; q++)
                    dw[i + OUT * j] += c[i + OUT * q] * x[j + IN * q];
        for (int i = 0; i < OUT * k && p->order < 3; i++)
            dp[OUT * k * place_in(p, t) + i] = c[i];
    }
    loss = other_uses(p, p->n, W, loss, dw);
    fx_array *of[] = {W, P};
    assert_int_equal(fx_gradient_of(loss, of, 2, g), FX_OK);
    if (want_products >= 0)
        assert_int_equal(products_in(g[0]), want_products);
    for (int i = 0; i < OUT * IN; i++)
        assert_true(fx_at(g[0], i) == dw[i]);
    for (int i = 0; i < OUT * k * p->n && p->order < 3; i++)
        assert_true(fx_at(g[1], i) == dp[i]);
}

/* Four or more products with few terms are one, wherever their factors are. */
static void weights_of_several_products(void **state)
{
    (void)state;
    int joined = 0;
    for (int n = 1; n <= MOST_PRODUCTS; n++)
        for (int terms = 1; terms <= MOST_TERMS; terms++)
            for (int order = 0; order < 4; order++)
                for (int cube = 0; cube < 2; cube++) {
                    const shared_weight p = {n, terms, order, cube, -1, -1, -1};
                    const bool joins = n >= 4 && terms < MOST_TERMS;
                    check_shared_weight(&p, joins ? 1 : n);
                    joined += joins;
                }
    assert_int_equal(joined, 4 * 3 * 4 * 2);
}

/* Other uses of the weight before, between and after the products, some of them at once. */
static void weights_with_other_uses(void **state)
{
    (void)state;
    for (int n = 2; n <= MOST_PRODUCTS; n++)
        for (int at = 0; at <= n; at++)
            for (int uses = 1; uses < 8; uses++) {
                const int more = (at + uses) % (n + 1);
                const shared_weight p = {n,
                                         1 + at % 3,
                                         uses % 4,
                                         false,
                                         uses & 1 ? at : -1,
                                         uses & 2 ? (uses == 2 ? at : more) : -1,
                                         uses & 4 ? (uses == 4 ? at : more) : -1};
                check_shared_weight(&p, -1);
            }
}

/* Weights and terms of size 0. */
static void empty_shared_weights(void **state)
{
    (void)state;
    for (int64_t out = 0; out < 3; out += 2)
        for (int64_t in = 0; in < 4; in += 3)
            for (int64_t k = 0; k < 3; k += 2) {
                FX_SCOPE;
                fx_array *W = fx_ones(out, in), *P = fx_ones(out, 5 * k), *loss = fx_zeros(), *g[2];
                for (int t = 0; t < 5; t++)
                    loss = fx_add(loss, fx_sum(fx_add(fx_matmul(W, fx_ones(in, k)),
                                                      fx_slice(P, 1, k * t, k * t + k))));
                fx_array *of[] = {W, P};
                assert_int_equal(fx_gradient_of(loss, of, 2, g), FX_OK);
                assert_int_equal(fx_eval(fx_tuple(g[0], g[1])), FX_OK);
                if (out * in > 0)
                    assert_true(fx_at(g[0], 0) == 5 * (double)k);
            }
}

static int below(int n)
{
    return (int)(((int64_t)small_number() + 128) * n / 256);
}

/* A number that one use of the OUT×IN weight w gives; P and Q have columns for each use. */
static fx_array *use_of(fx_array *w, int kind, fx_array *P, fx_array *Q, int t)
{
    double x[OUT * IN];
    fx_array *columns = fx_slice(Q, 1, 2 * t, 2 * t + 2), *y;
    switch (kind) {
    case 0:
        return fx_sum(fx_mul(w, small_matrix(OUT, IN, x)));
    case 1:
        return fx_sum(fx_mul(fx_slice(w, 1, 2, 4), 3));
    case 2:
        return fx_sum(fx_matmul(small_matrix(2, OUT, x), w));
    case 3:
        return fx_sum(fx_mul(fx_matmul(fx_transpose(w), small_matrix(OUT, 2, x)), columns));
    case 4:
        return fx_sum(fx_square(fx_matmul(fx_reshape(w, IN, OUT), small_matrix(OUT, 1, x))));
    case 5:
        return fx_sum(fx_matmul(w, fx_transpose(w)));
    case 6:
        return fx_sum(fx_batched_mul(fx_reshape(w, OUT, IN, 1), fx_reshape(columns, IN, 2, 1)));
    case 7:
        return fx_sum(fx_matmul(w, small_matrix(IN, 3, x)));
    default:
        y = fx_matmul(w, columns);
        y = kind == 8 ? y : fx_add(y, fx_slice(P, 1, 2 * t, 2 * t + 2));
        return fx_sum(fx_mul(y, small_matrix(OUT, 2, x)));
    }
}

/* The gradient of a value that is used n times is the sum of the gradients of n values that are
 * used once. Whole numbers, so the sum is exact. */
static void random_uses_of_a_weight(void **state)
{
    (void)state;
    enum { MOST_USES = 9, ROUNDS = 400, KINDS = 14 };
    int joined = 0;
    for (int round = 0; round < ROUNDS; round++) {
        FX_SCOPE;
        double values[OUT * IN], p[OUT * 2 * MOST_USES], q[IN * 2 * MOST_USES];
        const int n = 1 + below(MOST_USES), kinds = 1 + below(KINDS);
        fx_array *W = small_matrix(OUT, IN, values), *P = small_matrix(OUT, 2 * n, p);
        fx_array *Q = small_matrix(IN, 2 * n, q), *each[MOST_USES + 2], *g[MOST_USES + 2];
        fx_array *loss[2] = {fx_f64(fx_zeros()), fx_f64(fx_zeros())}, *shared[3];
        for (int t = 0; t < n; t++)
            each[t] = fx_from(FX_DTYPE_F64, values, OUT, IN);
        each[n] = P, each[n + 1] = Q;
        if (below(2))
            fx_eval(fx_tuple(W, P, Q));
        const uint32_t numbers = a_random;
        int products = 0; /* W·x */
        for (int apart = 0; apart < 2; apart++) {
            a_random = numbers;
            for (int t = 0; t < n; t++) {
                const int kind = KINDS - 1 - below(kinds);
                products += kind > 6 && !apart;
                fx_array *y = use_of(apart ? each[t] : W, kind, P, Q, below(2) ? t : n - 1 - t);
                loss[apart] = fx_add(loss[apart], y);
            }
        }
        assert_int_equal(fx_gradient_of(loss[0], (fx_array *[]){W, P, Q}, 3, shared), FX_OK);
        assert_int_equal(fx_gradient_of(loss[1], each, n + 2, g), FX_OK);
        joined += products >= 4 && products_in(shared[0]) < products;
        for (int i = 0; i < OUT * IN; i++) {
            double sum = 0;
            for (int t = 0; t < n; t++)
                sum += fx_at(g[t], i);
            assert_true(fx_at(shared[0], i) == sum);
        }
        for (int64_t i = 0; i < OUT * 2 * n; i++)
            assert_true(fx_at(shared[1], i) == fx_at(g[n], i));
        for (int64_t i = 0; i < IN * 2 * n; i++)
            assert_true(fx_at(shared[2], i) == fx_at(g[n + 1], i));
    }
    assert_true(joined > 100);
}

/* The columns of P are those of its gradient, which is one concatenation: the joined product reads
 * it, so that only the xₜ are copied. */
static void factors_in_a_concatenation(void **state)
{
    (void)state;
    for (int order = 0; order < 3; order++)
        for (int kind = 0; kind < 4; kind++) {
            FX_SCOPE;
            static char text[1 << 15];
            const bool cube = kind & 1;
            const shared_weight p = {5, 2, order, cube, -1, -1, -1};
            fx_array *W = fx_ones(OUT, IN), *loss = fx_zeros(), *g[2];
            fx_array *P = cube ? fx_ones(OUT, 2, 5) : fx_ones(OUT, 10);
            for (int t = 0; t < 5; t++) {
                fx_array *y = fx_matmul(W, fx_full(t + 1, IN, 2));
                loss = fx_add(loss, fx_sum(fx_square(fx_add(y, columns_of(&p, P, t)))));
            }
            fx_array *of[] = {W, P};
            if (kind & 2) /* whether P is pending or not */
                fx_eval(P);
            assert_int_equal(fx_gradient_of(loss, of, 2, g), FX_OK);
            fx_plan_text(fx_tuple(g[0], g[1]), text, sizeof text);
            int concats = 0;
            for (const char *at = text; (at = strstr(at, "concat")) != NULL; at++)
                concats++;
            assert_int_equal(concats, order == 2 ? 3 : 2);
            /* yₜ has the elements 6(t + 1) + 1, so dW has Σₜ 2·2·(6t + 7)(t + 1). */
            for (int i = 0; i < OUT * IN; i++)
                assert_true(fx_at(g[0], i) == 4 * (7 + 26 + 57 + 100 + 155));
        }
}

/* The gradient of such a gradient: for G = dW Σₜ|W·xₜ|² = 2W·S with S = Σₜxₜxₜᵀ, the gradient of
 * |G|² is 8W·S·S. */
static void of_the_gradient_of_a_shared_weight(void **state)
{
    (void)state;
    FX_SCOPE;
    double w[OUT * IN], x[IN], s[IN * IN] = {0}, ss[IN * IN] = {0};
    fx_array *W = small_matrix(OUT, IN, w), *loss = fx_f64(fx_zeros());
    for (int t = 0; t < 5; t++) {
        loss = fx_add(loss, fx_sum(fx_square(fx_matmul(W, small_matrix(IN, 1, x)))));
        for (int i = 0; i < IN * IN; i++)
            s[i] += x[i % IN] * x[i / IN];
    }
    for (int i = 0; i < IN * IN; i++)
        for (int q = 0; q < IN; q++)
            ss[i] += s[i % IN + IN * q] * s[q + IN * (i / IN)];
    fx_array *g = gradient1(loss, W);
    assert_int_equal(products_in(g), 6); /* five W·xₜ, and the joined one */
    g = gradient1(fx_sum(fx_square(g)), W);
    double want[OUT * IN] = {0};
    for (int i = 0; i < OUT; i++)
        for (int j = 0; j < IN; j++)
            for (int q = 0; q < IN; q++)
                want[i + OUT * j] += 8 * w[i + OUT * q] * ss[q + IN * j];
    check_array("d/dW |dW|^2", g, OUT * IN, want, 1e-12, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(weights_of_several_products), TEST(weights_with_other_uses),
        TEST(empty_shared_weights),        TEST(random_uses_of_a_weight),
        TEST(factors_in_a_concatenation),  TEST(of_the_gradient_of_a_shared_weight),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
