#!/usr/bin/env python3
"""Public headers, as compilers see them.

  * Every header compiles alone, as C11, C++11, C++17 and C++20, with gcc and clang, without a warning; the headers
    for C++ in C++ only. A program of one line includes the header; a second one includes it twice
    and opens a scope where the header offers scopes, so that macros are expanded at least once.
  * Code that only a C++ compiler reads is in cflux.hpp and in one section of base.h; cflux.h includes the former.
  * A macro that is a call in C, fx_add(a, b), is not a macro in C++ after <cflux.h>.

Compilers that are not installed are a failure: `make test` installs them.
Usage: check_headers.py [root]
"""
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

LEAST = 12
LEAST_MACROS = 120
FLAGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Wdouble-promotion", "-Werror", "-fsyntax-only"]
CXX_FLAGS = ["-Wold-style-cast", "-Wzero-as-null-pointer-constant"]
COMPILERS = [(["gcc", "-std=c11"], "c"), (["clang", "-std=c11"], "c")] + [
    ([compiler, f"-std=c++{standard}"], "c++") for compiler in ("g++", "clang++") for standard in (11, 17, 20)]
# How many times a header may test whether a C++ compiler reads it.
LOOKS = {"cflux.h": 1, "cflux/base.h": 1}
# Macros that cflux.hpp defines in another form for C++.
MACROS_OF_CXX = {"fx_new"}


def headers(root):
    include = os.path.join(root, "include")
    for path, dirs, files in os.walk(include):
        dirs.sort()
        for name in sorted(files):
            if name.endswith((".h", ".hpp")):
                yield os.path.relpath(os.path.join(path, name), include)


def check_looks(root, names, errors):
    for name in names:
        with open(os.path.join(root, "include", name), encoding="utf-8") as f:
            looks = len(re.findall(r"(?m)^\s*#.*__cplusplus", f.read()))
        if name.endswith(".h") and looks != LOOKS.get(name, 0):
            errors.append(f"{name} looks at __cplusplus {looks} times, expected {LOOKS.get(name, 0)}: "
                          "what is for C++ belongs into cflux.hpp")


def macros(root, compiler, language):
    """The macros fx_… with arguments that a program has after <cflux.h>."""
    command = compiler + ["-dM", "-E", "-x", language, "-I", os.path.join(root, "include"), "-"]
    run = subprocess.run(command, input="#include <cflux.h>\n", text=True, capture_output=True, timeout=60)
    return set(re.findall(r"(?m)^#define (fx_\w+)\(", run.stdout))


def check_macros(root, errors):
    in_c, in_cxx = macros(root, ["gcc", "-std=c11"], "c"), macros(root, ["g++", "-std=c++17"], "c++")
    for name in sorted(in_cxx ^ MACROS_OF_CXX):
        errors.append(f"{name} is {'still a' if name in in_cxx else 'no'} macro in C++")
    if len(in_c) < LEAST_MACROS:
        errors.append(f"only {len(in_c)} macros in C, expected at least {LEAST_MACROS}")
    return len(in_c)


def program(header):
    return (f"#include <{header}>\n#include <{header}>\n"
            "#ifdef FX_STEP\nint f(void);\nint f(void)\n{\n    FX_STEP;\n    return 0;\n}\n#endif\n")


def compile_one(root, compiler, language, text):
    command = compiler + FLAGS + (CXX_FLAGS if language == "c++" else []) + ["-x", language, "-I", os.path.join(root, "include"), "-"]
    try:
        run = subprocess.run(command, input=text, text=True, capture_output=True, timeout=60)
    except FileNotFoundError:
        return f"{compiler[0]} is not installed"
    return run.stderr if run.returncode else ""


def main():
    root = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else
                           os.path.join(os.path.dirname(__file__), "..", ".."))
    found = list(headers(root))
    jobs = [(h, c, l, t) for h in found for c, l in COMPILERS if h.endswith(".h") or l == "c++" for t in (f"#include <{h}>\n", program(h))]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        results = list(pool.map(lambda j: compile_one(root, j[1], j[2], j[3]), jobs))
    failed = 0
    for (header, compiler, _, _), message in zip(jobs, results):
        if message:
            failed += 1
            print(f"{header} with {' '.join(compiler)}:\n{message}", file=sys.stderr)
    errors = []
    check_looks(root, found, errors)
    count = check_macros(root, errors)
    for error in errors:
        print(error, file=sys.stderr)
    print(f"{len(found)} headers, {len(jobs)} compilations, {failed} failed; {count} macros of C, {len(errors)} errors")
    if len(found) < LEAST:
        print(f"expected at least {LEAST} headers", file=sys.stderr)
        return 1
    return 1 if failed or errors else 0


if __name__ == "__main__":
    sys.exit(main())
