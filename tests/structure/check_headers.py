#!/usr/bin/env python3
"""Every public header compiles alone, as C11 and as C++17, with gcc and clang, without a warning.

A program of one line includes the header; a second one includes it twice and opens a scope where the
header offers scopes, so that macros are expanded at least once. Compilers that are not installed are
a failure: `make test` installs them.
Usage: check_headers.py [root]
"""
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

LEAST = 11
FLAGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror", "-fsyntax-only"]
COMPILERS = [(["gcc", "-std=c11"], "c"), (["clang", "-std=c11"], "c"),
             (["g++", "-std=c++17"], "c++"), (["clang++", "-std=c++17"], "c++")]


def headers(root):
    include = os.path.join(root, "include")
    for path, dirs, files in os.walk(include):
        dirs.sort()
        for name in sorted(files):
            if name.endswith(".h"):
                yield os.path.relpath(os.path.join(path, name), include)


def program(header):
    return (f"#include <{header}>\n#include <{header}>\n"
            "#ifdef FX_STEP\nint f(void);\nint f(void)\n{\n    FX_STEP;\n    return 0;\n}\n#endif\n")


def compile_one(root, compiler, language, text):
    command = compiler + FLAGS + ["-x", language, "-I", os.path.join(root, "include"), "-"]
    try:
        run = subprocess.run(command, input=text, text=True, capture_output=True, timeout=60)
    except FileNotFoundError:
        return f"{compiler[0]} is not installed"
    return run.stderr if run.returncode else ""


def main():
    root = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else
                           os.path.join(os.path.dirname(__file__), "..", ".."))
    found = list(headers(root))
    jobs = [(h, c, l, t) for h in found for c, l in COMPILERS for t in (f"#include <{h}>\n", program(h))]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        results = list(pool.map(lambda j: compile_one(root, j[1], j[2], j[3]), jobs))
    failed = 0
    for (header, compiler, _, _), message in zip(jobs, results):
        if message:
            failed += 1
            print(f"{header} with {' '.join(compiler)}:\n{message}", file=sys.stderr)
    print(f"{len(found)} headers, {len(jobs)} compilations, {failed} failed")
    if len(found) < LEAST:
        print(f"expected at least {LEAST} headers", file=sys.stderr)
        return 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
