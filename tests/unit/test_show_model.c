/* Models in Flux's notation and columns.
 *
 * Expected texts are Flux's doctested output (Flux 0.16 on Julia 1.11, CPU): the docstrings of f16,
 * @layer, modules and @autosize, the tutorial on LeNet; what they do not contain follows from
 * src/layers/show.jl by hand and says so.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <cflux.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "memory.h"

static char text[1 << 16];

static void shows(void *object, const char *expected)
{
    const size_t n = fx_show_text(object, text, sizeof text);
    assert_string_equal(text, expected);
    assert_int_equal(n, strlen(expected));
}

static void contains(void *object, const char *expected)
{
    fx_show_text(object, text, sizeof text);
    if (!strstr(text, expected))
        fail_msg("no \"%s\" in:\n%s", expected, text);
}

typedef struct Trio {
    fx_object base;
    void *a, *b, *c;
} Trio;
FX_FUNCTOR(Trio, a, b, c);

typedef struct Affine {
    fx_object base;
    fx_array *W, *b;
    double scale;
    bool on;
    fx_dims size;
} Affine;
static Affine affine_error;
static const fx_field affine_fields[] = {{"W", offsetof(Affine, W), FX_FIELD_CHILD, false},
                                         {"b", offsetof(Affine, b), FX_FIELD_CHILD, true},
                                         {"scale", offsetof(Affine, scale), FX_FIELD_NUMBER, false},
                                         {"on", offsetof(Affine, on), FX_FIELD_FLAG, false},
                                         {"size", offsetof(Affine, size), FX_FIELD_DIMS, false}};
static const fx_type affine_type = {.fxi_size = sizeof(fx_type),
                                    .name = "Affine",
                                    .size = sizeof(Affine),
                                    .fields = affine_fields,
                                    .nfields = 5,
                                    .error = &affine_error};

static void dense_alone(void **state)
{
    (void)state;
    FX_SCOPE;
    shows(fx_dense(2, 3),
          "Dense(2 => 3)       # 9 parameters"); /* @layer's docstring has the form */
    shows(fx_dense(10, 5, FX_RELU, .bias = false),
          "Dense(10 => 5, relu; bias=false)  # 50 parameters");
    shows(fx_dropout(0.4), "Dropout(0.4)");
    shows(FX_RELU, "relu");
    shows(FX_SIGMOID, "σ");
    shows(NULL, "nothing");
}

static void chain_of_two(void **state)
{
    (void)state;
    FX_SCOPE;
    shows(fx_chain(fx_dense(1, 256, FX_TANH), fx_dense(256, 1)),
          "Chain(\n"
          "  Dense(1 => 256, tanh),                # 512 parameters\n"
          "  Dense(256 => 1),                      # 257 parameters\n"
          ")                   # Total: 4 arrays, 769 parameters, 3.207 KiB.");
}

static fx_array *half(fx_array *x)
{
    return fx_cast(x, FX_DTYPE_F16);
}

/* The docstring of f16. */
static void bytes_follow_the_type(void **state)
{
    (void)state;
    FX_SCOPE;
    void *m = fx_chain(fx_dense(784, 2048, FX_RELU), fx_dense(2048, 10));
    shows(m, "Chain(\n"
             "  Dense(784 => 2048, relu),             # 1_607_680 parameters\n"
             "  Dense(2048 => 10),                    # 20_490 parameters\n"
             ")                   # Total: 4 arrays, 1_628_170 parameters, 6.211 MiB.");
    shows(fx_fmap(half, m),
          "Chain(\n"
          "  Dense(784 => 2048, relu),             # 1_607_680 parameters\n"
          "  Dense(2048 => 10),                    # 20_490 parameters\n"
          ")                   # Total: 4 arrays, 1_628_170 parameters, 3.106 MiB.");
}

/* The docstring of @layer. */
static void struct_of_layers(void **state)
{
    (void)state;
    FX_SCOPE;
    const double w[] = {1.1, 2.2}, b[] = {0.0}, v[] = {3.3};
    Trio *t =
        fx_new(Trio,
               .a = fx_dense(0, .weight_array = fx_from(FX_DTYPE_F64, w, 1, 2),
                             .bias_array = fx_from(FX_DTYPE_F64, b, 1), .act = FX_TANH),
               .b = fx_dense(0, .weight_array = fx_from(FX_DTYPE_F64, v, 1, 1), .bias = false),
               .c = fx_dropout(0.4));
    shows(t, "Trio(\n"
             "  Dense(2 => 1, tanh),                  # 3 parameters\n"
             "  Dense(1 => 1; bias=false),            # 1 parameters\n"
             "  Dropout(0.4),\n"
             ")                   # Total: 3 arrays, 4 parameters, 240 bytes.");
    char line[200];
    fx_summary(t, line, sizeof line);
    assert_string_equal(line, "Trio(Dense(2 => 1, tanh), Dense(1 => 1; bias=false), Dropout(0.4))");
}

/* The docstring of modules. */
static void batchnorm_in_a_chain(void **state)
{
    (void)state;
    FX_SCOPE;
    void *m1 = fx_chain(fx_dense(784, 64), fx_batchnorm(64, FX_RELU));
    void *m2 = fx_chain(m1, fx_dense(64, 10));
    shows(m2, "Chain(\n"
              "  Chain(\n"
              "    Dense(784 => 64),                   # 50_240 parameters\n"
              "    BatchNorm(64, relu),                # 128 parameters, plus 128\n"
              "  ),\n"
              "  Dense(64 => 10),                      # 650 parameters\n"
              ")         # Total: 6 trainable arrays, 51_018 parameters,\n"
              "          # plus 2 non-trainable, 128 parameters, summarysize 200.211 KiB.");
    shows(fx_batchnorm(64, FX_RELU),
          "BatchNorm(64, relu)  # 128 parameters, plus 128 non-trainable");
    char line[200];
    fx_summary(m2, line, sizeof line);
    assert_string_equal(line,
                        "Chain(Chain(Dense(784 => 64), BatchNorm(64, relu)), Dense(64 => 10))");
}

/* The tutorial on LeNet; its figure in bytes is from Julia 1.10 and has other array headers. */
static void lenet(void **state)
{
    (void)state;
    FX_SCOPE;
    void *m =
        fx_chain(fx_conv(FX_DIMS(5, 5), 1, 6, FX_RELU), fx_maxpool(FX_DIMS(2, 2)),
                 fx_conv(FX_DIMS(5, 5), 6, 16, FX_RELU), fx_maxpool(FX_DIMS(2, 2)), FX_FLATTEN,
                 fx_dense(256, 120, FX_RELU), fx_dense(120, 84, FX_RELU), fx_dense(84, 10));
    contains(m, "Chain(\n"
                "  Conv((5, 5), 1 => 6, relu),           # 156 parameters\n"
                "  MaxPool((2, 2)),\n"
                "  Conv((5, 5), 6 => 16, relu),          # 2_416 parameters\n"
                "  MaxPool((2, 2)),\n"
                "  Flux.flatten,\n"
                "  Dense(256 => 120, relu),              # 30_840 parameters\n"
                "  Dense(120 => 84, relu),               # 10_164 parameters\n"
                "  Dense(84 => 10),                      # 850 parameters\n"
                ")                   # Total: 10 arrays, 44_426 parameters, 17");
}

/* The docstring of @autosize: an inner chain with names, a comment that begins after column 40. */
static void names(void **state)
{
    (void)state;
    FX_SCOPE;
    void *inner =
        fx_chain_of("c", fx_conv(FX_DIMS(3, 3), 1, 5, .stride = FX_DIMS(2), .pad = FX_SAME), "p",
                    fx_meanpool(FX_DIMS(3, 3)), "b", fx_batchnorm(5), "f", FX_FLATTEN);
    contains(fx_chain(inner, fx_dense(80, 20, FX_RELU)),
             "Chain(\n"
             "  Chain(\n"
             "    c = Conv((3, 3), 1 => 5, pad=1, stride=2),  # 50 parameters\n"
             "    p = MeanPool((3, 3)),\n"
             "    b = BatchNorm(5),                   # 10 parameters, plus 10\n"
             "    f = Flux.flatten,\n"
             "  ),\n"
             "  Dense(80 => 20, relu),                # 1_620 parameters\n"
             ")  ");
    /* show.jl: print(io, "$name = ", pre) */
    contains(fx_chain_of("in", inner), "Chain(\n  in = Chain(\n    c = ");
    /* The width of a name counts characters: α is one. */
    contains(fx_chain_of("α", fx_dense(2, 3), "β", fx_dense(3, 3)),
             "  α = Dense(2 => 3),                    # 9 parameters\n");
}

/* show.jl: no total for two arrays or fewer, but ")" is padded to two; children that are all
 * functions or arrays stay on one line. */
static void small_containers(void **state)
{
    (void)state;
    FX_SCOPE;
    shows(fx_chain(fx_dense(2, 3), FX_SOFTMAX),
          "Chain(\n"
          "  Dense(2 => 3),                        # 9 parameters\n"
          "  softmax,\n"
          ") ");
    shows(fx_chain(FX_SOFTMAX), "Chain(softmax)");
    shows(fx_chain(fx_layernorm(FX_DIMS(4)), FX_RELU),
          "Chain(\n"
          "  LayerNorm(4),                         # 8 parameters\n"
          "  relu,\n"
          ") ");
}

/* Arrays among layers (_layer_string), tuples (flattened in a struct, "(;" with names by
 * themselves). */
static void arrays_and_tuples(void **state)
{
    (void)state;
    FX_SCOPE;
    Trio *t = fx_new(Trio, .a = fx_rand(22, 33), .b = fx_tuple(fx_dense(2, 3), fx_rand(3, 1, 1)),
                     .c = FX_RELU);
    shows(t, "Trio(\n"
             "  22×33 Matrix{Float32},                # 726 parameters\n"
             "  Dense(2 => 3),                        # 9 parameters\n"
             "  3×1×1 Array{Float32,...},             # 3 parameters\n"
             "  relu,\n"
             ")                   # Total: 4 arrays, 738 parameters, 3.117 KiB.");
    /* 738·4 + 48 + 48 + 40 + 56 for the arrays, 24 for the fields, 16 + 8 for the tuple: 3192 bytes
     */
    shows(fx_tuple(fx_ones(2, 3), FX_RELU), "(Float32[1.0 1.0 1.0; 1.0 1.0 1.0], relu)");
    shows(fx_tuple(fx_ones(2)), "(Float32[1.0, 1.0],)");
    shows(fx_named_tuple("x", fx_ones(2), "y", FX_TANH), "(x = Float32[1.0, 1.0], y = tanh)");
    contains(fx_chain(fx_dense(2, 2)), ") ");
    contains(fx_named_tuple("g", fx_chain(FX_RELU, fx_dense(2, 3)), "d", fx_dense(3, 1)),
             "(;\n  g = Chain(\n    relu,\n    Dense(2 => 3),                      # 9 "
             "parameters\n  ),\n"
             "  d = Dense(3 => 1),                    # 4 parameters\n)                   # Total: "
             "4 arrays, 13 parameters, ");
}

/* Objects without describe: Name(fields…); frozen arrays are not trainable. */
static void plain_fields(void **state)
{
    (void)state;
    FX_SCOPE;
    const Affine init = {
        .W = fx_ones(2, 2), .b = fx_ones(2), .scale = 0.5, .on = true, .size = FX_DIMS(3, 4)};
    shows(fxi_new(&affine_type, &init),
          "Affine(Float32[1.0 1.0; 1.0 1.0], Float32[1.0, 1.0], 0.5, true, (3, 4))"
          "  # 4 parameters, plus 2 non-trainable");
    const Affine bare = {.scale = 1e-8, .size = FX_DIMS(7)};
    shows(fxi_new(&affine_type, &bare), "Affine(nothing, nothing, 1.0e-8, false, (7,))");
}

/* Arrays inside a line, after Julia 1.10's show_vector, _show_nonempty and show_nd: each of these
 * was derived from that source by hand. */
static void arrays_inside_a_line(void **state)
{
    static const struct {
        fx_dtype type;
        int ndims;
        int64_t sizes[4];
        const char *text;
    } rows[] = {
        {FX_DTYPE_F32, 0, {0}, "1.0f0"},
        {FX_DTYPE_I64, 0, {0}, "1"},
        {FX_DTYPE_F32, 1, {3}, "Float32[1.0, 2.0, 3.0]"},
        {FX_DTYPE_F64, 1, {2}, "[1.0, 2.0]"},
        {FX_DTYPE_I64, 1, {2}, "[1, 2]"},
        {FX_DTYPE_I32, 1, {2}, "Int32[1, 2]"},
        {FX_DTYPE_F16, 1, {2}, "Float16[1.0, 2.0]"},
        {FX_DTYPE_I64,
         1,
         {21},
         "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10  …  12, 13, 14, 15, 16, 17, 18, 19, 20, 21]"},
        {FX_DTYPE_I64,
         1,
         {20},
         "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]"},
        {FX_DTYPE_I64, 2, {2, 3}, "[1 3 5; 2 4 6]"},
        {FX_DTYPE_I64, 2, {1, 3}, "[1 2 3]"},
        {FX_DTYPE_I64, 2, {3, 1}, "[1; 2; 3;;]"},
        {FX_DTYPE_F32, 2, {1, 1}, "Float32[1.0;;]"},
        {FX_DTYPE_I64, 2, {5, 2}, "[1 6; 2 7; … ; 4 9; 5 10]"},
        {FX_DTYPE_I64, 2, {2, 5}, "[1 3 … 7 9; 2 4 … 8 10]"},
        {FX_DTYPE_I64, 3, {2, 2, 2}, "[1 3; 2 4;;; 5 7; 6 8]"},
        {FX_DTYPE_I64, 3, {2, 2, 1}, "[1 3; 2 4;;;]"},
        {FX_DTYPE_I64, 4, {1, 2, 2, 2}, "[1 2;;; 3 4;;;; 5 6;;; 7 8]"},
        {FX_DTYPE_I64, 3, {1, 1, 11}, "[1;;; 2;;; 3;;; … ;;; 9;;; 10;;; 11]"},
        {FX_DTYPE_F32, 1, {0}, "Float32[]"},
        {FX_DTYPE_F32, 2, {0, 3}, "Matrix{Float32}(undef, 0, 3)"},
        {FX_DTYPE_F64, 3, {2, 0, 3}, "Array{Float64}(undef, 2, 0, 3)"},
    };
    int n = 0;
    (void)state;
    FX_SCOPE;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++, n++) {
        char expected[300];
        double values[64];
        for (int k = 0; k < 64; k++)
            values[k] = k + 1;
        fx_array *x =
            fx_cast(fxi_from(FX_DTYPE_F64, values, rows[i].ndims, rows[i].sizes), rows[i].type);
        snprintf(expected, sizeof expected, "(x = %s,)", rows[i].text);
        shows(fx_named_tuple("x", x), expected);
    }
    assert_true(n >= 22);
    /* read through strides */
    const int64_t six[] = {1, 2, 3, 4, 5, 6};
    shows(fx_tuple(fx_transpose(fx_from(FX_DTYPE_I64, six, 2, 3))), "([1 2; 3 4; 5 6],)");
    const bool truths[] = {true, false};
    shows(fx_tuple(fx_from(FX_DTYPE_BOOL, truths, 2), fx_string("a")), "(Bool[1, 0], \"a\")");
}

/* What Julia shows for a state: one line, with values. */
static void states_have_values(void **state)
{
    (void)state;
    FX_SCOPE;
    const float w[] = {0.5f, -1, 2, 1e-7f};
    fx_dense_layer *d = fx_dense(0, .weight_array = fx_from(FX_DTYPE_F32, w, 2, 2));
    shows(fx_flux_state(fx_chain(d, FX_RELU)),
          "(layers = ((weight = Float32[0.5 2.0; -1.0 1.0f-7], bias = Float32[0.0, 0.0], σ = ()), "
          "()),)");
    shows(fx_flux_state(d),
          "(weight = Float32[0.5 2.0; -1.0 1.0f-7], bias = Float32[0.0, 0.0], σ = ())");
    /* names that are not identifiers in Julia */
    shows(fx_named_tuple("0.weight", fx_ones(1), "σ²", fx_scalar(2)),
          "(var\"0.weight\" = Float32[1.0], σ² = 2.0f0)");
    /* texts of files cannot control the terminal: Julia's escapes */
    shows(fx_named_tuple("a\033[2J$\n", fx_ones(1)), "(var\"a\\e[2J\\$\\n\" = Float32[1.0],)");
    shows(fx_metadata("a\033]0;", "\x01\x7F\xC2\x9B é\xC2\x85"
                                  "a\"\t"),
          "Metadata(a\\e]0; = \"\\x01\\x7f\\u9b é\\u0085a\\\"\\t\")");
    shows(fx_tuple(fx_tuple(), NULL, fx_tuple(fx_ones(1))), "((), nothing, (Float32[1.0],))");
    /* the one-line form in messages has only sizes, and evaluates nothing */
    char line[200];
    fx_array *pending = fx_add(fx_ones(2), 1);
    fx_summary(fx_tuple(pending), line, sizeof line);
    assert_string_equal(line, "(2-element Vector{Float32},)");
    assert_false(fx_is_evaluated(pending));
}

/* Each object contains the next one twice: 2^levels paths to the last. */
static void *twice(void *x, int levels, void *(*make)(void *x))
{
    for (int i = 0; i < levels; i++)
        x = make(x);
    return x;
}
static void *pair(void *x)
{
    return fx_tuple(x, x);
}
static void *pair_of_layers(void *x)
{
    return fx_chain(x, x);
}
static void *pair_in_a_struct(void *x)
{
    return fx_new(Trio, .a = x, .b = x);
}

static size_t lines_of(const char *s)
{
    size_t n = 1;
    for (; *s; s++)
        n += *s == '\n';
    return n;
}

/* Text, and with it time, in proportion to the objects. */
static void shared_objects_are_shown_once(void **state)
{
    static char long_text[1 << 22];
    void *(*const make[])(void *x) = {pair, pair_of_layers, pair_in_a_struct};
    (void)state;
    FX_SCOPE;
    void *last[] = {fx_ones(2), fx_dense(2, 2), fx_dense(2, 2)};
    for (int i = 0; i < 3; i++) {
        void *x = twice(last[i], 30, make[i]);
        const size_t n = fx_show_text(x, long_text, sizeof long_text);
        assert_true(n < 400000 && lines_of(long_text) < 3000);
        assert_true(i == 0 || strstr(long_text, "# shown above\n"));
        assert_true(i > 0 || strstr(long_text, "…"));
        const size_t brief = fx_summary(x, NULL, 0);
        assert_true(brief < 20000000);
    }
    /* in a model of ordinary size shared objects are printed each time, as in Flux */
    fx_dense_layer *d = fx_dense(2, 2);
    contains(fx_chain(fx_chain(d, FX_RELU), fx_chain(d, FX_RELU)),
             "Chain(\n"
             "  Chain(\n"
             "    Dense(2 => 2),                      # 6 parameters\n"
             "    relu,\n"
             "  ),\n"
             "  Chain(\n"
             "    Dense(2 => 2),                      # 6 parameters\n"
             "    relu,\n"
             "  ),\n");
    /* a list without anything shared is never cut off */
    void *many[1500];
    for (int i = 0; i < 1500; i++)
        many[i] = fx_chain(FX_RELU, fx_dropout(0.5));
    fx_show_text(fxi_chain(1500, many), long_text, sizeof long_text);
    assert_int_equal(lines_of(long_text), 2 + 4 * 1500);
    assert_null(strstr(long_text, "…"));
}

/* A reference is in the column of a layer's count of parameters; two blanks if the line is longer.
 */
static void references_are_aligned(void **state)
{
    enum { MANY = 600, LONGEST = 34 };
    static char long_text[1 << 18];
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz";
    void *many[MANY + LONGEST], *shared;
    (void)state;
    FX_SCOPE;
    many[0] = shared = fx_chain(fx_dense(2, 3), FX_RELU);
    for (int i = 1; i < MANY; i++)
        many[i] = fx_chain(FX_RELU, fx_dropout(0.5));
    for (int i = 0; i < LONGEST; i++)
        many[MANY + i] = fx_chain_of(letters + sizeof letters - 2 - i, shared);
    fx_show_text(fxi_chain(MANY + LONGEST, many), long_text, sizeof long_text);
    assert_non_null(strstr(long_text, "    Dense(2 => 3),                      # 9 parameters\n"));
    for (int i = 0; i < LONGEST; i++) {
        char line[200];
        const char *name = letters + sizeof letters - 2 - i;
        const int used = snprintf(line, sizeof line, "    %s = Chain(…),", name) - 2; /* … is 1 */
        snprintf(line, sizeof line, "\n    %s = Chain(…),%*s# shown above\n", name,
                 used + 2 > 40 ? 2 : 40 - used, "");
        if (!strstr(long_text, line))
            fail_msg("not there: %s", line);
    }
}

static void states_of_parameters(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_dense_layer *d = fx_dense(0, .weight_array = fx_zeros(3, 2));
    shows(d, "Dense(2 => 3)       # 9 parameters  (all zero)");
    shows(fx_dense(0,
                   .weight_array = fxi_full(FX_DTYPE_F32, (double)NAN, 2, (const int64_t[]){3, 2})),
          "Dense(2 => 3)       # 9 parameters  (some NaN)");
    shows(fx_dense(0, .weight_array = fxi_full(FX_DTYPE_F32, INFINITY, 2, (const int64_t[]){3, 2})),
          "Dense(2 => 3)       # 9 parameters  (some Inf)");
    contains(fx_chain(d, fx_dense(3, 1)),
             "  Dense(2 => 3),                        # 9 parameters  (all zero)\n");
    /* Flux looks at trainable arrays only: the variances may be 1. */
    fx_batchnorm_layer *n = fx_batchnorm(3);
    fx_set(&n->gamma, fx_zeros(3));
    fx_eval(n);
    shows(n, "BatchNorm(3)        # 6 parameters, plus 6 non-trainable  (all zero)");
}

/* A tied array counts once. */
static void ties(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *w = fx_rand(3, 3);
    void *m = fx_chain(fx_dense(0, .weight_array = w), fx_dense(0, .weight_array = w),
                       fx_dense(3, 1, .bias = false));
    contains(m, "# Total: 4 arrays, 18 parameters, ");
}

/* On another device: the bytes there. 769 Float32 are 3076 bytes. */
static void on_a_device(void **state)
{
    (void)state;
    FX_SCOPE;
    void *m = fx_to(fx_device_get("ref", 0), fx_chain(fx_dense(1, 256, FX_TANH), fx_dense(256, 1)));
    contains(m, "\n)                   # Total: 4 arrays, 769 parameters, 3.004 KiB on ref.");
}

static void errors(void **state)
{
    (void)state;
    FX_SCOPE;
    void *bad = fx_dense(-1, 2);
    shows(bad, "error Dense (FX_STATUS_ARGUMENT)");
    fx_error_take();
    Trio *t = fx_new(Trio, .a = fx_error_array(FX_STATUS_SHAPE), .b = FX_RELU);
    contains(t, "Trio(error array (FX_STATUS_SHAPE), relu, nothing)");
    fx_error_take();
}

/* Every allocation failing in turn: the whole text or none, and a record. */
static void without_memory(void **state)
{
    (void)state;
    FX_SCOPE;
    void *m = fx_chain(fx_dense(1, 256, FX_TANH), fx_tuple(fx_ones(2), fx_dense(256, 1)));
    (void)m;
    m = fx_chain(fx_dense(1, 256, FX_TANH), fx_batchnorm(256), fx_dense(256, 1));
    const size_t full = fx_show_text(m, text, sizeof text);
    int failed = 0;
    for (int64_t nth = 0;; nth++) {
        fxi_fault_set(nth);
        const size_t n = fx_show_text(m, text, sizeof text);
        const bool reached = fxi_fault_seen() > nth;
        fxi_fault_set(-1);
        const fx_status status = fx_error_take().status;
        assert_true(n == full || status == FX_STATUS_MEMORY);
        failed += status == FX_STATUS_MEMORY;
        if (!reached)
            break;
    }
    assert_true(failed >= 3);
    assert_int_equal(fx_show_text(m, text, sizeof text), full);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dense_alone),
        cmocka_unit_test(chain_of_two),
        cmocka_unit_test(bytes_follow_the_type),
        cmocka_unit_test(struct_of_layers),
        cmocka_unit_test(batchnorm_in_a_chain),
        cmocka_unit_test(lenet),
        cmocka_unit_test(names),
        cmocka_unit_test(small_containers),
        cmocka_unit_test(arrays_and_tuples),
        cmocka_unit_test(plain_fields),
        cmocka_unit_test(states_of_parameters),
        cmocka_unit_test(arrays_inside_a_line),
        cmocka_unit_test(states_have_values),
        cmocka_unit_test(shared_objects_are_shown_once),
        cmocka_unit_test(references_are_aligned),
        cmocka_unit_test(ties),
        cmocka_unit_test(on_a_device),
        cmocka_unit_test(errors),
        cmocka_unit_test(without_memory),
    };
    return cmocka_run_group_tests_name("show_model", tests, NULL, NULL);
}
