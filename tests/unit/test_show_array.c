/* Arrays as Julia shows them.
 *
 * Expected texts are Julia's, none is our own output. Where they come from:
 *   [show.jl]  JuliaLang/julia, test/show.jl, testset "matrix printing" (replstr: limit, 24 × 80)
 *   [NNlib]    the docstring of NNlib.softmax
 *   [docs]     docstrings of Base: permutedims, and the manual's pages on arrays and numbers
 *   [SIR]      a recorded Julia 1.10 notebook that prints a 3×1×201 array (an epidemic model)
 *   [rule]     follows from base/arrayshow.jl, base/show.jl and base/ryu of Julia 1.10 by hand
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <cflux.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "julia_number.h"

static char text[1 << 16];

static void shows(fx_array *x, const char *expected)
{
    const size_t n = fx_show_text(x, text, sizeof text);
    assert_string_equal(text, expected);
    assert_int_equal(n, strlen(expected));
}

static void is_number(fx_dtype dtype, const void *value, fxi_number_form form, const char *expected)
{
    char buf[FXI_NUMBER_TEXT];
    assert_string_equal(fxi_number_text(dtype, value, form, buf), expected);
}

/* ---- numbers --------------------------------------------------------------------------------- */

static void float64_numbers(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *expected;
    } cases[] = {
        /* [docs] manual, "Integers and Floating-Point Numbers" */
        {1.0, "1.0"},
        {0.5, "0.5"},
        {-1.23, "-1.23"},
        {1e10, "1.0e10"},
        {2.5e-4, "0.00025"},
        {1e100, "1.0e100"},
        {0.0, "0.0"},
        {-0.0, "-0.0"},
        {INFINITY, "Inf"},
        {-INFINITY, "-Inf"},
        {(double)NAN, "NaN"},
        {2.220446049250313e-16, "2.220446049250313e-16"},
        {5e-324, "5.0e-324"},
        {1.7976931348623157e308, "1.7976931348623157e308"},
        {2.2250738585072014e-308, "2.2250738585072014e-308"},
        {0.1 + 0.2, "0.30000000000000004"},
        {M_PI, "3.141592653589793"},
        /* [rule] the exponent is written from 1e6 up and below 1e-4 */
        {100000.0, "100000.0"},
        {999999.0, "999999.0"},
        {1e6, "1.0e6"},
        {1234567.0, "1.234567e6"},
        {1e-4, "0.0001"},
        {1e-5, "1.0e-5"},
        {123456.7, "123456.7"},
        /* Shortest forms of powers of two, where the gap below is half the gap above: Python's
           repr. */
        {0x1p-1017, "7.120236347223045e-307"},
        {0x1p-695, "6.083493012144512e-210"},
        {0x1p-44, "5.684341886080802e-14"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        is_number(FX_DTYPE_F64, &cases[i].value, FXI_NUMBER_ALONE, cases[i].expected);
}

static void float32_numbers(void **state)
{
    (void)state;
    static const struct {
        float value;
        const char *alone, *vector, *matrix;
    } cases[] = {
        /* [docs] 0.5f0, 2.5f-4, Inf32, NaN32, 1.1920929f-7 = eps(Float32); [rule] the rest */
        {0.5f, "0.5f0", "0.5", "0.5"},
        {2.5e-4f, "0.00025f0", "0.00025", "0.00025"},
        {0x1p-23f, "1.1920929f-7", "1.1920929f-7", "1.19209f-7"},
        {INFINITY, "Inf32", "Inf", "Inf"},
        {-INFINITY, "-Inf32", "-Inf", "-Inf"},
        {NAN, "NaN32", "NaN", "NaN"},
        {-0.0f, "-0.0f0", "-0.0", "-0.0"},
        {0.1f, "0.1f0", "0.1", "0.1"},
        {1.0f / 3, "0.33333334f0", "0.33333334", "0.333333"},
        {16777216.0f, "1.6777216f7", "1.6777216f7", "1.67772f7"},
        {3.4028235e38f, "3.4028235f38", "3.4028235f38", "3.40282f38"},
        {1e-45f, "1.0f-45", "1.0f-45", "1.0f-45"},
        {999999.7f, "999999.7f0", "999999.7", "1.0f6"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        is_number(FX_DTYPE_F32, &cases[i].value, FXI_NUMBER_ALONE, cases[i].alone);
        is_number(FX_DTYPE_F32, &cases[i].value, FXI_NUMBER_VECTOR, cases[i].vector);
        is_number(FX_DTYPE_F32, &cases[i].value, FXI_NUMBER_MATRIX, cases[i].matrix);
    }
}

static void other_numbers(void **state)
{
    (void)state;
    const uint16_t half = 0x3800, thousand = 0x63D0, half_nan = 0x7E00, brain = 0x3F00,
                   brain_inf = 0x7F80;
    is_number(FX_DTYPE_F16, &half, FXI_NUMBER_ALONE, "Float16(0.5)");
    is_number(FX_DTYPE_F16, &half, FXI_NUMBER_VECTOR, "0.5");
    is_number(FX_DTYPE_F16, &thousand, FXI_NUMBER_ALONE,
              "Float16(1.0e3)"); /* [rule] three digits before the point */
    is_number(FX_DTYPE_F16, &half_nan, FXI_NUMBER_ALONE, "NaN16");
    is_number(FX_DTYPE_BF16, &brain, FXI_NUMBER_ALONE, "BFloat16(0.5)");
    is_number(FX_DTYPE_BF16, &brain_inf, FXI_NUMBER_VECTOR, "InfB16");
    const int32_t i = -3;
    const int64_t big = INT64_MIN;
    const uint8_t byte = 10, yes = 1, no = 0;
    is_number(FX_DTYPE_I32, &i, FXI_NUMBER_ALONE, "-3");
    is_number(FX_DTYPE_I64, &big, FXI_NUMBER_VECTOR, "-9223372036854775808");
    is_number(FX_DTYPE_U8, &byte, FXI_NUMBER_ALONE,
              "0x0a"); /* [docs] "Unsigned integers": 0x1 is 0x01 */
    is_number(FX_DTYPE_BOOL, &yes, FXI_NUMBER_ALONE, "true");
    is_number(FX_DTYPE_BOOL, &no, FXI_NUMBER_ALONE, "false");
    is_number(FX_DTYPE_BOOL, &yes, FXI_NUMBER_MATRIX, "1");
}

/* Every Float32 is read back from what is printed: 100 000 patterns spread over all of them. */
static void numbers_read_back(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 100000; k++) {
        const uint32_t bits = k * 42949u;
        float x;
        memcpy(&x, &bits, 4);
        if (!isfinite(x))
            continue;
        char buf[FXI_NUMBER_TEXT];
        fxi_number_text(FX_DTYPE_F32, &x, FXI_NUMBER_VECTOR, buf);
        char *exponent = strchr(buf, 'f');
        if (exponent)
            *exponent = 'e';
        assert_true(strtof(buf, NULL) == x);
    }
}

/* ---- arrays ---------------------------------------------------------------------------------- */

static void vectors_and_matrices(void **state)
{
    (void)state;
    FX_SCOPE;
    /* [NNlib] */
    const double s[] = {0.09003057317038046, 0.24472847105479764, 0.6652409557748218};
    shows(fx_from(FX_DTYPE_F64, s, 3), "3-element Vector{Float64}:\n"
                                       " 0.09003057317038046\n"
                                       " 0.24472847105479764\n"
                                       " 0.6652409557748218");
    const double m[] = {0.2689414213699951, 0.7310585786300049, 0.5, 0.5,
                        0.7310585786300049, 0.2689414213699951};
    shows(fx_from(FX_DTYPE_F64, m, 2, 3), "2×3 Matrix{Float64}:\n"
                                          " 0.268941  0.5  0.731059\n"
                                          " 0.731059  0.5  0.268941");
    /* [docs] */
    const int64_t i[] = {1, 2, 3, 4, 5, 6, 7, 8};
    shows(fx_from(FX_DTYPE_I64, i, 2, 2, 2), "2×2×2 Array{Int64, 3}:\n"
                                             "[:, :, 1] =\n"
                                             " 1  3\n"
                                             " 2  4\n"
                                             "\n"
                                             "[:, :, 2] =\n"
                                             " 5  7\n"
                                             " 6  8");
    shows(fx_ones(2, 2), "2×2 Matrix{Float32}:\n 1.0  1.0\n 1.0  1.0");
    shows(fx_from(FX_DTYPE_I64, i, 1, 3), "1×3 Matrix{Int64}:\n 1  2  3");
    /* [rule] */
    const int32_t n[] = {1, -20, 300};
    shows(fx_from(FX_DTYPE_I32, n, 3), "3-element Vector{Int32}:\n   1\n -20\n 300");
    const bool b[] = {true, false};
    shows(fx_from(FX_DTYPE_BOOL, b, 2), "2-element Vector{Bool}:\n 1\n 0");
    const uint8_t u[] = {1, 0xe0};
    shows(fx_from(FX_DTYPE_U8, u, 2, 1), "2×1 Matrix{UInt8}:\n 0x01\n 0xe0");
    const float f[] = {1.0f / 3, 10.5f, -2};
    shows(fx_from(FX_DTYPE_F32, f, 3), "3-element Vector{Float32}:\n  0.33333334\n 10.5\n -2.0");
}

/* [rule] the point of alignment is the first of . e E f F: in Inf, the f. */
static void special_values_align(void **state)
{
    (void)state;
    FX_SCOPE;
    shows(fx_vector(-INFINITY, 0, 0.5f, NAN), "4-element Vector{Float32}:\n"
                                              " -Inf\n"
                                              "   0.0\n"
                                              "   0.5\n"
                                              " NaN");
    const float m[] = {1e-5f, 2.5f, 100, NAN};
    shows(fx_from(FX_DTYPE_F32, m, 2, 2), "2×2 Matrix{Float32}:\n"
                                          " 1.0f-5  100.0\n"
                                          " 2.5     NaN");
}

static void scalars_and_empty_arrays(void **state)
{
    (void)state;
    FX_SCOPE;
    shows(fx_scalar(0.5), "0.5f0");
    shows(fxi_full(FX_DTYPE_F64, 0.5, 0, NULL), "0.5");
    shows(fxi_full(FX_DTYPE_I64, 3, 0, NULL), "3");
    shows(fxi_full(FX_DTYPE_BOOL, 1, 0, NULL), "true");
    shows(fx_full_dtype(FX_DTYPE_I32, 0, 0), "Int32[]");                /* [show.jl] issue 34659 */
    shows(fx_full_dtype(FX_DTYPE_F64, 0, 3, 0), "3×0 Matrix{Float64}"); /* [show.jl] */
    shows(fx_zeros(0, 3), "0×3 Matrix{Float32}");
    shows(fx_zeros(2, 0, 4), "2×0×4 Array{Float32, 3}");
}

static const char outer_product[] =
    "100×100 Matrix{Float64}:\n"
    "   1.0    2.0    3.0    4.0    5.0    6.0  …    97.0    98.0    99.0    100.0\n"
    "   2.0    4.0    6.0    8.0   10.0   12.0      194.0   196.0   198.0    200.0\n"
    "   3.0    6.0    9.0   12.0   15.0   18.0      291.0   294.0   297.0    300.0\n"
    "   4.0    8.0   12.0   16.0   20.0   24.0      388.0   392.0   396.0    400.0\n"
    "   5.0   10.0   15.0   20.0   25.0   30.0      485.0   490.0   495.0    500.0\n"
    "   6.0   12.0   18.0   24.0   30.0   36.0  …   582.0   588.0   594.0    600.0\n"
    "   7.0   14.0   21.0   28.0   35.0   42.0      679.0   686.0   693.0    700.0\n"
    "   8.0   16.0   24.0   32.0   40.0   48.0      776.0   784.0   792.0    800.0\n"
    "   9.0   18.0   27.0   36.0   45.0   54.0      873.0   882.0   891.0    900.0\n"
    "  10.0   20.0   30.0   40.0   50.0   60.0      970.0   980.0   990.0   1000.0\n"
    "   ⋮                                  ⋮    ⋱                          \n"
    "  92.0  184.0  276.0  368.0  460.0  552.0     8924.0  9016.0  9108.0   9200.0\n"
    "  93.0  186.0  279.0  372.0  465.0  558.0     9021.0  9114.0  9207.0   9300.0\n"
    "  94.0  188.0  282.0  376.0  470.0  564.0     9118.0  9212.0  9306.0   9400.0\n"
    "  95.0  190.0  285.0  380.0  475.0  570.0     9215.0  9310.0  9405.0   9500.0\n"
    "  96.0  192.0  288.0  384.0  480.0  576.0  …  9312.0  9408.0  9504.0   9600.0\n"
    "  97.0  194.0  291.0  388.0  485.0  582.0     9409.0  9506.0  9603.0   9700.0\n"
    "  98.0  196.0  294.0  392.0  490.0  588.0     9506.0  9604.0  9702.0   9800.0\n"
    "  99.0  198.0  297.0  396.0  495.0  594.0     9603.0  9702.0  9801.0   9900.0\n"
    " 100.0  200.0  300.0  400.0  500.0  600.0     9700.0  9800.0  9900.0  10000.0";

/* [show.jl]; the product is left pending: showing evaluates. */
static void larger_than_the_screen(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *v = fx_range_dtype(FX_DTYPE_F64, 1, 1, 100);
    shows(v,
          "100-element Vector{Float64}:\n   1.0\n   2.0\n   3.0\n   4.0\n   5.0\n   6.0\n   7.0\n  "
          " 8.0\n   9.0\n"
          "  10.0\n   ⋮\n  92.0\n  93.0\n  94.0\n  95.0\n  96.0\n  97.0\n  98.0\n  99.0\n 100.0");
    fx_array *product = fx_mul(v, fx_reshape(v, 1, 100));
    shows(product, outer_product);
    shows(fx_transpose(product), outer_product); /* symmetric; through strides */
    shows(fx_reshape(v, 1, 100),
          "1×100 Matrix{Float64}:\n"
          " 1.0  2.0  3.0  4.0  5.0  6.0  7.0  …  95.0  96.0  97.0  98.0  99.0  100.0");
    fx_array *tall = fx_zeros(50, 2);
    shows(fx_cast(tall, FX_DTYPE_I64), "50×2 Matrix{Int64}:\n 0  0\n 0  0\n 0  0\n 0  0\n 0  0\n 0 "
                                       " 0\n 0  0\n 0  0\n 0  0\n 0  0\n ⋮  \n 0  0\n"
                                       " 0  0\n 0  0\n 0  0\n 0  0\n 0  0\n 0  0\n 0  0\n 0  0");
    shows(fx_zeros(3, 100),
          "3×100 Matrix{Float32}:\n"
          " 0.0  0.0  0.0  0.0  0.0  0.0  0.0  0.0  …  0.0  0.0  0.0  0.0  0.0  0.0  0.0\n"
          " 0.0  0.0  0.0  0.0  0.0  0.0  0.0  0.0     0.0  0.0  0.0  0.0  0.0  0.0  0.0\n"
          " 0.0  0.0  0.0  0.0  0.0  0.0  0.0  0.0     0.0  0.0  0.0  0.0  0.0  0.0  0.0");
}

static void many_slices(void **state)
{
    (void)state;
    FX_SCOPE;
    /* [SIR] the slices that Julia printed; the others are not looked at. */
    double *r = calloc(3 * 201, sizeof *r);
    static const double first[] = {990.0,
                                   10.0,
                                   0.0,
                                   983.9514608359559,
                                   14.822862814438684,
                                   1.225676349605413,
                                   975.0700347920705,
                                   21.89084140207504,
                                   3.0391238058545444};
    static const double last[] = {6.844581665714163, 1.667018069101641e-5,  993.1554016641052,
                                  6.84458161134319,  1.513582132150833e-5,  993.1554032528355,
                                  6.844581561972957, 1.3742583773732068e-5, 993.1554046954433};
    memcpy(r, first, sizeof first);
    memcpy(r + 3 * 198, last, sizeof last);
    shows(fx_from(FX_DTYPE_F64, r, 3, 1, 201),
          "3×1×201 Array{Float64, 3}:\n"
          "[:, :, 1] =\n 990.0\n  10.0\n   0.0\n\n"
          "[:, :, 2] =\n 983.9514608359559\n  14.822862814438684\n   1.225676349605413\n\n"
          "[:, :, 3] =\n 975.0700347920705\n  21.89084140207504\n   3.0391238058545444\n\n"
          ";;; … \n\n"
          "[:, :, 199] =\n   6.844581665714163\n   1.667018069101641e-5\n 993.1554016641052\n\n"
          "[:, :, 200] =\n   6.84458161134319\n   1.513582132150833e-5\n 993.1554032528355\n\n"
          "[:, :, 201] =\n   6.844581561972957\n   1.3742583773732068e-5\n 993.1554046954433");
    free(r);
    /* [rule] ten slices are all shown, of eleven the middle is left out; a fourth axis has four
     * semicolons */
    fx_show_text(fx_zeros(1, 1, 10), text, sizeof text);
    assert_null(strstr(text, "…"));
    assert_non_null(strstr(text, "[:, :, 5] ="));
    fx_show_text(fx_zeros(1, 1, 11), text, sizeof text);
    assert_null(strstr(text, "[:, :, 4] ="));
    assert_non_null(strstr(text, "[:, :, 9] ="));
    fx_show_text(fx_zeros(1, 1, 12, 12), text, sizeof text);
    assert_non_null(strstr(text, "\n\n[:, :, 3, 1] =\n 0.0\n\n;;; … \n\n[:, :, 10, 1] ="));
    assert_non_null(strstr(text, "\n\n[:, :, 12, 3] =\n 0.0\n\n;;;; … \n\n[:, :, 1, 10] ="));
    assert_null(strstr(text, "[:, :, 1, 4] ="));
}

/* A huge view costs nothing: 2⁴⁰ elements share one. */
static void only_shown_elements_are_read(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *one = fx_from(FX_DTYPE_F32, (const float[]){7}, 1, 1);
    fx_array *big = fx_expand(one, (int64_t)1 << 20, (int64_t)1 << 20);
    fx_show_text(big, text, sizeof text);
    assert_memory_equal(text, "1048576×1048576 Matrix{Float32}:\n 7.0  7.0", 43);
}

static void errors_and_devices(void **state)
{
    (void)state;
    FX_SCOPE;
    shows(fx_add(fx_ones(2), fx_ones(3)), "error array (FX_STATUS_SHAPE)");
    fx_error_take();
    fx_array *x = fx_to(fx_device_get("ref", 0), fx_ones(3, 2));
    shows(x, "3×2 ref Matrix{Float32}:\n 1.0  1.0\n 1.0  1.0\n 1.0  1.0");
    char buf[64];
    fx_summary(x, buf, sizeof buf);
    assert_string_equal(buf, "3×2 ref Matrix{Float32}");
    fx_summary(fx_ones(2, 3, 4), buf, sizeof buf);
    assert_string_equal(buf, "2×3×4 Array{Float32, 3}"); /* Base.summary */
    fx_summary(fx_ones(5), buf, sizeof buf);
    assert_string_equal(buf, "5-element Vector{Float32}");
    fx_summary(fx_scalar(1), buf, sizeof buf);
    assert_string_equal(buf, "0-dimensional Array{Float32, 0}");
}

/* Too small a buffer: the full length is returned, the text is cut between characters and
 * terminated. */
static void small_buffers(void **state)
{
    (void)state;
    FX_SCOPE;
    char small[3] = "??";
    assert_int_equal(fx_show_text(fx_ones(1, 1), small, 3), strlen("1×1 Matrix{Float32}:\n 1.0"));
    assert_string_equal(small, "1"); /* half of × does not fit */
    assert_int_equal(fx_show_text(fx_scalar(2), NULL, 0), 5);
    char *buf = NULL;
    size_t length = 0;
    FILE *f = open_memstream(&buf, &length);
    fx_show_to(f, fx_scalar(2));
    fclose(f);
    assert_string_equal(buf, "2.0f0\n");
    free(buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(float64_numbers),
        cmocka_unit_test(float32_numbers),
        cmocka_unit_test(other_numbers),
        cmocka_unit_test(numbers_read_back),
        cmocka_unit_test(vectors_and_matrices),
        cmocka_unit_test(special_values_align),
        cmocka_unit_test(scalars_and_empty_arrays),
        cmocka_unit_test(larger_than_the_screen),
        cmocka_unit_test(many_slices),
        cmocka_unit_test(only_shown_elements_are_read),
        cmocka_unit_test(errors_and_devices),
        cmocka_unit_test(small_buffers),
    };
    return cmocka_run_group_tests_name("show_array", tests, NULL, NULL);
}
