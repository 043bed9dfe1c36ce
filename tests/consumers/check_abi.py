#!/usr/bin/env python3
"""scripts/abi-check finds what breaks programs, and lets pass what does not: on libraries of a few lines."""
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
HEADER = """
typedef struct fx_a_args {
    size_t fxi_size;
    int eta;%(args_end)s
} fx_a_args;
typedef struct fx_plain {
    int x;%(plain_end)s
} fx_plain;
int fx_f(const fx_a_args *a, fx_plain *p);
%(functions)s
"""
SOURCE = """#include <stddef.h>
#include "a.h"
int fx_f(const fx_a_args *a, fx_plain *p) { return a->eta + p->x; }
%(bodies)s
"""
PLAIN = {"args_end": "", "plain_end": "", "functions": "int fx_g(int);", "bodies": "int fx_g(int x) { return x; }"}
CASES = [  # what changes, whether the check passes, the SONAME
    ("nothing", {}, True, "libx.so.0"),
    ("a function more", {"functions": "int fx_g(int); int fx_h(void);",
                         "bodies": "int fx_g(int x) { return x; }\nint fx_h(void) { return 1; }"}, True, "libx.so.0"),
    ("a function less", {"functions": "", "bodies": ""}, False, "libx.so.0"),
    ("another argument", {"functions": "int fx_g(int, int);",
                          "bodies": "int fx_g(int x, int y) { return x + y; }"}, False, "libx.so.0"),
    ("options that grow", {"args_end": "\n    double beta;"}, True, "libx.so.0"),
    ("a struct that grows", {"plain_end": "\n    int y;"}, False, "libx.so.0"),
    ("a function less, another SONAME", {"functions": "", "bodies": ""}, True, "libx.so.1"),
]


def library(folder, change, soname):
    os.makedirs(folder)
    for name, text in (("a.h", HEADER), ("a.c", SOURCE)):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            f.write(text % {**PLAIN, **change})
    out = os.path.join(folder, "libx.so")
    subprocess.run(["gcc", "-g", "-shared", "-fPIC", f"-Wl,-soname,{soname}", os.path.join(folder, "a.c"), "-o", out],
                   check=True)
    return out


def main():
    if not shutil.which("abidiff"):
        print("skipped: the check of the binary interface: abidiff is not installed")
        return 0
    failures = 0
    with tempfile.TemporaryDirectory(prefix="cflux-") as work:
        for i, (what, change, passes, soname) in enumerate(CASES):
            folder = os.path.join(work, str(i))
            old = library(os.path.join(folder, "old"), {}, "libx.so.0")
            new = library(os.path.join(folder, "new"), change, soname)
            done = subprocess.run([os.path.join(ROOT, "scripts", "abi-check"), "--libraries", old, new,
                                   os.path.dirname(new)], text=True, capture_output=True, check=False)
            if (done.returncode == 0) != passes:
                failures += 1
                print(f"{what}: exit status {done.returncode}\n{done.stdout}{done.stderr}", file=sys.stderr)
    print(f"{len(CASES)} cases, {failures} failures")
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
