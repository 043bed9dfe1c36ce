#!/usr/bin/env python3
"""Named options, as compilers see them, and whether the tests know every option struct.

  * Programs that must compile, without a warning, and programs that must not, with a message that
    says why: by gcc and clang, in C11, C++11 and C++20, where they are installed.
  * tests/unit/test_option_structs.c has a row for every struct that FXI_OPTION_STRUCT declares, and
    calls every function that takes one; tests/cxx/options.cc has a row for every struct.

Each check counts what it looked at: with nothing to look at, it fails.
Usage: check_options.py [root]
"""
import os
import re
import shutil
import subprocess
import sys

WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror"]
COMPILERS = {"C": ["gcc", "clang"], "C++": ["g++", "clang++"]}
STANDARDS = {"c11": "C", "c++11": "C++", "c++17": "C++", "c++20": "C++"}


def body(statements):
    return ("fx_array *f(fx_array *x, fx_array *b, int k);\n"
            "fx_array *f(fx_array *x, fx_array *b, int k)\n{\n    (void)b, (void)k;\n"
            f"    {statements}\n    return x;\n}}\n")


def fields(n):
    names = [f"f{i}" for i in range(n)]
    return ("typedef struct { fx_object base; fx_array *" + ", *".join(names) + "; } Wide;\n"
            "FX_FUNCTOR(Wide, " + ", ".join(names) + ");\n" + body("(void)fxi_type_Wide();"))


# standard, what, program
GOOD = [
    ("c11", "options within options", body(
        "x = fx_call(fx_chain(fx_dense(4, 2, .weight_array = fx_sum(fx_reshape(x, 4, 2, -1), .dims = FX_AXES(2), "
        ".drop = true), .bias = k > 3), fx_dense(2, 2, FX_RELU, .bias_array = b)), fx_mean(fx_sum(x)));")),
    ("c11", "in macros of the program", "#define TWICE(m) fx_sum(fx_sum(m, .dims = FX_AXES(0)))\n"
     "#define CHECKED(e) ((e) ? (void)0 : (void)fx_message(1, \"%s\", #e))\n" +
     body("x = TWICE(TWICE(x)); CHECKED(fx_item(fx_sum(x)) > 0 && fx_item(TWICE(x)) < 1); fx_sum(x);")),
    ("c11", "in an expression", body("if (k) return fx_keep(fx_sum(x)); return k > 1 ? fx_mean(x) : TWO(fx_var(x));")
     .replace("fx_array *f(", "#define TWO(e) fx_add(e, e)\nfx_array *f(", 1)),
    ("c11", "a flag of the program's", body("bool flag = k > 2; fx_show(fx_dense(2, 2, .bias = flag)); "
                                            "fx_show(fx_batchnorm(2, .affine = flag, .active = false));")),
    ("c11", "32 fields", fields(32)),
    ("c11", "16 sizes", body("fx_dims d = FX_DIMS(1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8); k = (int)d.n;")),
    ("c11", "sizes that are computed", body(
        "fx_show(fx_layernorm(FX_DIMS(k), .eps = 1e-6)); x = fx_convolve(x, b, .stride = FX_DIMS(k, k + 1)); "
        "fx_dims d; d = FX_DIMS(fx_size(x, 0)); k = (int)d.n;")),
    ("c11", "a number for the only size", body(
        "fx_dims d = FX_DIMS(k); fx_show(fx_layernorm(k)); fx_show(fx_layernorm(32, FX_RELU, .eps = 1e-6)); "
        "fx_show(fx_rmsnorm(d)); fx_show(fx_rmsnorm(k + 1)); fx_show(fx_scale(4, FX_TANH)); fx_show(fx_layernorm(d, FX_RELU)); "
        "fx_show(fx_multiheadattention(64, .nheads = 8)); fx_show(fx_conv(d, 1, 2)); fx_show(fx_layernorm(FX_DIMS(4, 5)));")),
    ("c11", "100 layers", body("fx_show(fx_chain(" + ", ".join(["FX_RELU"] * 100) + "));")),
    ("c++11", "setters", body("fx_show(fx_dense(fx_dense_args().with_in(2).with_out(3).with_bias(false)));")),
    ("c++17", "32 fields", fields(32)),
    ("c++20", "designated members", body(
        "fx_show(fx_dense({.in = 2, .out = 3, .bias = false})); fx_show(fx_adam({.eta = 0})); "
        "x = fx_sum({.x = x, .dims = FX_AXES(1), .drop = true});")),
]
# standard, what, program, what the compiler says
BAD = [
    ("c11", "a number for axes", body("x = fx_sum(x, .dims = 3);"), "braces"),
    ("c11", "zero for axes", body("x = fx_sum(x, .dims = 0);"), "braces"),
    ("c11", "a number for axes, by its place", body("x = fx_softmax(x, 1);"), "braces"),
    ("c11", "a number for axes of a function", body("x = fx_squeeze(x, 1);"), "fx_axes"),
    ("c11", "a number for sizes", body("fx_show(fx_maxpool(2));"), "are_written_as_FX_DIMS"),
    ("c11", "a number for the kernel", body("fx_show(fx_conv(3, 1, 2, FX_RELU));"), "are_written_as_FX_DIMS"),
    ("c11", "an array for a size", body("fx_show(fx_layernorm(b));"), "pointer"),
    ("c11", "a number for the stride", body("fx_show(fx_conv(FX_DIMS(3), 1, 2, .stride = 2));"), "braces"),
    ("c11", "an array for the flag bias", body("fx_show(fx_dense(2, 3, .bias = b));"), "pointer"),
    ("c11", "an array for the weight", body("fx_show(fx_dense(2, 3, .weight = b));"), "weight"),
    ("c11", "an option of another rule", body("fx_show(fx_adam(.rho = 0.9));"), "rho"),
    ("c11", "33 fields", fields(33), "at most 32 fields"),
    ("c11", "50 fields", fields(50), "at most 32 fields"),
    ("c11", "17 sizes", body("fx_dims d = FX_DIMS(" + ", ".join(["1"] * 17) + "); k = (int)d.n;"), "AT_MOST_16_NUMBERS"),
    ("c++17", "a number for axes", body("x = fx_sum(x, 3);"), "fx_axes|fxi_axis_bits"),
    ("c++20", "a number for axes, by name", body("x = fx_sum({.x = x, .dims = 3});"), "fx_axes|int"),
    ("c++17", "33 fields", fields(33), "at most 32 fields"),
    ("c++17", "17 sizes", body("fx_dims d = FX_DIMS(" + ", ".join(["1"] * 17) + "); k = (int)d.n;"), "at most 16 numbers"),
]


def compile_text(root, compiler, standard, text, options):
    language = "c" if STANDARDS[standard] == "C" else "c++"
    command = [compiler, f"-std={standard}", "-fsyntax-only", "-I", os.path.join(root, "include"), "-x", language, "-"]
    run = subprocess.run(command + options, input="#include <cflux.h>\n" + text, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return run.returncode, run.stdout


def check_programs(root, errors):
    count = 0
    for language, compilers in COMPILERS.items():
        for compiler in compilers:
            if not shutil.which(compiler):
                print(f"skipped: {compiler} is not installed")
                continue
            for standard, what, text in GOOD:
                if STANDARDS[standard] == language:
                    count += 1
                    status, said = compile_text(root, compiler, standard, text, WARNINGS)
                    if status:
                        errors.append(f"{compiler}, {standard}: {what} does not compile:\n{said[:1500]}")
            for standard, what, text, words in BAD:
                if STANDARDS[standard] == language:
                    count += 1
                    status, said = compile_text(root, compiler, standard, text, [])
                    if not status:
                        errors.append(f"{compiler}, {standard}: {what} compiles")
                    elif not re.search(words, said):
                        errors.append(f"{compiler}, {standard}: {what} is refused without \"{words}\":\n{said[:1500]}")
    return count


def check_rows(root, errors):
    folder = os.path.join(root, "include", "cflux")
    headers = ""
    for name in sorted(os.listdir(folder)):
        if name.endswith(".h"):
            with open(os.path.join(folder, name), encoding="utf-8") as f:
                headers += f.read()
    with open(os.path.join(root, "tests", "unit", "test_option_structs.c"), encoding="utf-8") as f:
        test = f.read()
    with open(os.path.join(root, "tests", "cxx", "options.cc"), encoding="utf-8") as f:
        cxx = f.read()
    structs = re.findall(r"^FXI_OPTION_STRUCT\((\w+), (\w+)\);", headers, re.M)
    functions = [f for s, _ in structs for f in re.findall(rf"\b(fxi_\w+)\([^;]*\bconst {s} \*\w+\);", headers)]
    for struct, members in structs:
        if not re.search(rf"\b{struct}, {members}\b", test):
            errors.append(f"test_option_structs.c has no row of {struct}")
        if f"ROW({struct}, {members})" not in cxx:
            errors.append(f"tests/cxx/options.cc has no row of {struct}")
    for function in functions:
        if not re.search(rf"\b{function}\b", test):
            errors.append(f"test_option_structs.c does not call {function}")
    loose = re.findall(r"typedef struct (\w+) \{\s*size_t fxi_size;", headers)
    # Results, descriptors, and a struct that has no options.
    known = {"fx_memory", "fx_file_info", "fx_flux_source", "fx_custom_op", "fx_layer", "fx_no_options"}
    for struct in set(loose) - known:
        errors.append(f"{struct} begins with fxi_size but is not declared by FXI_OPTION_STRUCT")
    return len(structs) if len(functions) >= 40 else 0


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    errors = []
    counts = {"programs": check_programs(root, errors), "structs": check_rows(root, errors)}
    for what, count in counts.items():
        print(f"{what}: {count} looked at")
        if count < 20:
            errors.append(f"only {count} {what}")
    for e in errors:
        print(e)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
