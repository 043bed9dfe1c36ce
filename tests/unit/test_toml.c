/* One value of a TOML file: found in every form that TOML 1.0 has, changed without touching the
 * rest; text that is not TOML is refused with its line. Expected results follow the specification.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <string.h>

#include "memory.h"
#include "toml.h"

static const char *get(const char *text, fxi_toml_error *error)
{
    static char value[64];
    bool found;
    if (!fxi_toml_string(text, strlen(text), "Flux", "gpu_backend", value, sizeof value, &found,
                         error))
        return "ERROR";
    return found ? value : "NONE";
}

static void found_in_every_form(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"[Flux]\ngpu_backend = \"CUDA\"\n", "CUDA"},
        {"[Flux]\n  gpu_backend='AMDGPU' # why\n", "AMDGPU"},
        {"[ Flux ]\r\n\"gpu_backend\" = \"Metal\"\r\n", "Metal"},
        {"Flux.gpu_backend = \"CUDA\"", "CUDA"},
        {"'Flux' . \"gpu_backend\" = \"CUDA\"", "CUDA"},
        {"Flux = { other = 1, gpu_backend = \"CUDA\" }", "CUDA"},
        {"[Flux]\ngpu_backend = \"\\u0043UD\\U00000041\"", "CUDA"},
        {"[Flux]\ngpu_backend = \"\"\"\nCU\\\n   DA\"\"\"", "CUDA"},
        {"[Flux]\ngpu_backend = '''CUDA'''", "CUDA"},
        {"\xEF\xBB\xBF[Flux]\ngpu_backend = \"CUDA\"", "CUDA"},
        {"", "NONE"},
        {"# [Flux]\n# gpu_backend = \"CUDA\"\n", "NONE"},
        {"gpu_backend = \"CUDA\"\n", "NONE"},
        {"[Flux.sub]\ngpu_backend = \"CUDA\"\n", "NONE"},
        {"[[Flux]]\ngpu_backend = \"CUDA\"\n", "NONE"},
        {"Flux = [{gpu_backend = \"CUDA\"}]\n", "NONE"},
        {"[Other]\nFlux.gpu_backend = \"CUDA\"\n", "NONE"},
        {"[Other]\ntext = \"\"\"\n[Flux]\ngpu_backend = \"no\"\n\"\"\"\n", "NONE"},
        {"[a]\nx = [1, 2,\n # c\n [3], ]\ny = 1979-05-27 07:32:00Z\nz = -inf\nw = 0x_ff\n"
         "[Flux]\ngpu_backend = \"CUDA\"\nn = {a.b = [ {c = 1} ], d = false}\n",
         "CUDA"},
    };
    int n = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++, n++) {
        fxi_toml_error error;
        assert_string_equal(get(cases[i][0], &error), cases[i][1]);
        assert_int_equal(error.line, 0);
    }
    assert_true(n >= 19);
}

/* Values that are not strings, read as text; and written without quotes. */
static void words(void **state)
{
    (void)state;
    static const struct {
        const char *text, *value; /* NULL: refused */
        const char *set;          /* the text after a change to true */
    } cases[] = {
        {"[Flux]\na = true # c\n", "true", "[Flux]\na = true # c\n"},
        {"[Flux]\na = false", "false", "[Flux]\na = true"},
        {"[Flux]\na = {b = 1}\nb.a.c = 2\n[Flux.ab]\n[Other.Flux.a]\n", NULL,
         "[Flux]\na = true\nb.a.c = 2\n[Flux.ab]\n[Other.Flux.a]\n"},
        {"[Flux]\na = -1_000\nb = 2\n", "-1_000", "[Flux]\na = true\nb = 2\n"},
        {"[Flux]\na = \"tr\\u0075e\"\n", "true", "[Flux]\na = true\n"},
        {"Flux = {a=1.5}\n", "1.5", "Flux = {a=true}\n"},
        {"Flux = {b = 1}\n", "NONE", "Flux = {b = 1, a = true}\n"},
        {"[Other]\na = true\n", "NONE", "[Other]\na = true\n\n[Flux]\na = true\n"},
        {"[Flux]\na = [1]\n", NULL, "[Flux]\na = true\n"},
        {"[Flux]\na = {b = 1}\n", NULL, "[Flux]\na = true\n"},
        {"[Flux]\na = 07:32:00\n", NULL, "[Flux]\na = true\n"},
        {"[Flux]\na = 12345678\n", NULL, "[Flux]\na = true\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fxi_toml_error error;
        char value[8];
        bool found;
        size_t length;
        const size_t n = strlen(cases[i].text);
        const bool ok =
            fxi_toml_text(cases[i].text, n, "Flux", "a", value, sizeof value, &found, &error);
        assert_int_equal(ok, cases[i].value != NULL);
        assert_int_equal(error.line, ok ? 0 : 2);
        if (ok)
            assert_string_equal(found ? value : "NONE", cases[i].value);
        char *text = fxi_toml_set_raw(cases[i].text, n, "Flux", "a", "true", &length, &error);
        assert_non_null(text);
        assert_string_equal(text, cases[i].set);
        assert_int_equal(length, strlen(text));
        fxi_free(text);
    }
}

static void refused_with_the_line(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int line;
        const char *says;
    } cases[] = {
        {"[Flux\ngpu_backend = \"CUDA\"\n", 1, "]"},
        {"[Flux]\ngpu_backend = \"CUDA\n", 2, "is not closed"},
        {"[Flux]\ngpu_backend \"CUDA\"\n", 2, "="},
        {"[Flux]\ngpu_backend = CUDA\n", 2, "not a TOML value"},
        {"[Flux]\ngpu_backend = 3\n", 2, "not a string"},
        {"[Flux]\n\n\ngpu_backend = \"a\" \"b\"\n", 4, "end of the line"},
        {"[Flux]\ngpu_backend = \"a\"\ngpu_backend = \"b\"\n", 3, "twice"},
        {"[Flux]\n[Flux]\n", 2, "twice"},
        {"x = [1, 2\n", 2, ", or ]"},
        {"x = [1 2]\n", 1, ", or ]"},
        {"x = {a = 1,}\n", 1, "key"},
        {"x = {a = 1\n", 1, ", or }"},
        {"x = \"\\q\"\n", 1, "escape"},
        {"x = \"\\uD800\"\n", 1, "not a character"},
        {"x = \"\\u12\"\n", 1, "hexadecimal"},
        {"= 1\n", 1, "key"},
        {"x =\n", 1, "value"},
        {"a\n\nb = 2\n", 1, "="},
        {"x = \"\"\"\n\n", 3, "is not closed"},
        {"[Flux]\ngpu_backend = "
         "\"0123456789012345678901234567890123456789012345678901234567890123\"",
         2, "longer than cflux reads"},
    };
    int n = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++, n++) {
        fxi_toml_error error;
        assert_string_equal(get(cases[i].text, &error), "ERROR");
        assert_int_equal(error.line, cases[i].line);
        if (!strstr(error.text, cases[i].says))
            fail_msg("case %zu: \"%s\" is not in \"%s\"", i, cases[i].says, error.text);
    }
    assert_true(n >= 20);
    char deep[400];
    memcpy(deep, "x = ", 4);
    memset(deep + 4, '[', 300);
    deep[304] = 0;
    fxi_toml_error error;
    assert_string_equal(get(deep, &error), "ERROR");
    assert_non_null(strstr(error.text, "deep"));
}

static void changed_in_place(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"", "[Flux]\ngpu_backend = \"CUDA\"\n"},
        {"# mine\n[Other]\nx = 1 # keep\n",
         "# mine\n[Other]\nx = 1 # keep\n\n[Flux]\ngpu_backend = \"CUDA\"\n"},
        {"[Other]\nx = 1", "[Other]\nx = 1\n\n[Flux]\ngpu_backend = \"CUDA\"\n"},
        {"[Flux]\na = 1\n  gpu_backend = 'x'  # c\n[B]\n",
         "[Flux]\na = 1\n  gpu_backend = \"CUDA\"  # c\n[B]\n"},
        {"[Flux] # here\na = 1\n[B]\nb = 2\n",
         "[Flux] # here\ngpu_backend = \"CUDA\"\na = 1\n[B]\nb = 2\n"},
        {"[Flux]", "[Flux]\ngpu_backend = \"CUDA\"\n"},
        {"Flux = {a = 1}\n", "Flux = {a = 1, gpu_backend = \"CUDA\"}\n"},
        {"Flux = {}\n", "Flux = {gpu_backend = \"CUDA\"}\n"},
        {"\xEF\xBB\xBF"
         "Flux.a = 1\n",
         "\xEF\xBB\xBF"
         "Flux.gpu_backend = \"CUDA\"\nFlux.a = 1\n"},
        {"Flux.a = 1\nb = 2\n", "Flux.gpu_backend = \"CUDA\"\nFlux.a = 1\nb = 2\n"},
        {"[Flux]\ngpu_backend = \"\"\"\nlong\n\"\"\"\n", "[Flux]\ngpu_backend = \"CUDA\"\n"},
        {"[Flux]\ngpu_backend = 3\n", "[Flux]\ngpu_backend = \"CUDA\"\n"},
    };
    int n = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++, n++) {
        fxi_toml_error error;
        size_t length;
        char *text = fxi_toml_set_raw(cases[i][0], strlen(cases[i][0]), "Flux", "gpu_backend",
                                      "\"CUDA\"", &length, &error);
        assert_non_null(text);
        assert_string_equal(text, cases[i][1]);
        assert_int_equal(length, strlen(text));
        assert_string_equal(get(text, &error), "CUDA"); /* the changed file has the new value */
        fxi_free(text);
    }
    assert_true(n >= 11);
    fxi_toml_error error;
    size_t length;
    assert_null(fxi_toml_set_raw("x = [", 5, "Flux", "gpu_backend", "1", &length, &error));
    assert_int_equal(error.line, 1);
    /* A text with the new key would define the key or the table twice. */
    static const char *const clashes[] = {
        "[Flux]\n[Flux.gpu_backend]\ny = 1\n",
        "[Flux]\ngpu_backend.y = 1\n",
        "a = 1\n[Flux.gpu_backend.z]\n",
        "[Flux]\n[[Flux.gpu_backend]]\ny = 1\n",
        "a = 1\nFlux.gpu_backend.y = 1\n",
        "a = 1\nFlux = {gpu_backend.y = 1}\n",
        "a = 1\nFlux = 1\n",
        "a = 1\n[[Flux]]\na = 1\n",
        "a = 1\nFlux = [{a = 1}]\n",
    };
    for (int i = 0; i < (int)(sizeof clashes / sizeof *clashes); i++) {
        assert_string_equal(get(clashes[i], &error), "NONE");
        assert_null(fxi_toml_set_raw(clashes[i], strlen(clashes[i]), "Flux", "gpu_backend", "1",
                                     &length, &error));
        assert_int_equal(error.line, 2);
        assert_non_null(strstr(error.text, i < 6 ? "the key is a table" : "the table is a"));
    }
}

/* Random bytes give a result, and sanitizers find no access outside the text. */
static void any_bytes(void **state)
{
    (void)state;
    static const char alphabet[] = "[]{}=.,\"'\\#\n\r \taFlux1gpu_backend-:+\xC3";
    unsigned seed = 1;
    int errors = 0, fine = 0;
    for (int round = 0; round < 20000; round++) {
        char text[48];
        size_t n = 0;
        for (; n < 40; n++) {
            seed = seed * 1103515245u + 12345u;
            text[n] = alphabet[(seed >> 16) % (sizeof alphabet - 1)];
        }
        char *exact = fxi_malloc(n); /* no byte after its end */
        memcpy(exact, text, n);
        fxi_toml_error error;
        bool found;
        char value[32];
        if (fxi_toml_string(exact, n, "Flux", "gpu_backend", value, sizeof value, &found, &error))
            fine++;
        else
            errors += error.line >= 1;
        fxi_free(exact);
    }
    assert_int_equal(errors + fine, 20000);
    assert_true(errors > 15000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(found_in_every_form),
        cmocka_unit_test(words),
        cmocka_unit_test(refused_with_the_line),
        cmocka_unit_test(changed_in_place),
        cmocka_unit_test(any_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
