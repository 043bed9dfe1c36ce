#!/usr/bin/env python3
"""Tests that scripts/abi-check reports changes that break programs, and accepts others, on libraries of a few lines.

The tree keeps one description of the library's interface. The name of its file begins with the SONAME in it.
"""
import gzip
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
HEADER = """
#define FXI_OPTION_STRUCT(T, MEMBERS) typedef struct T { size_t fxi_size; MEMBERS } T
#define FXI_B_ARGS double rate;%(list_end)s
FXI_OPTION_STRUCT(fx_b_args, FXI_B_ARGS);
int fx_b(const fx_b_args *b);
typedef struct fx_a_args {
    size_t fxi_size;
    int eta;%(args_more)s%(args_end)s
} fx_a_args;
typedef enum fx_kind { %(kinds)s } fx_kind;
typedef struct fx_plain {
    int x;%(plain_more)s%(plain_end)s
    fx_kind kind;
} fx_plain;
int fx_f(const fx_a_args *a, fx_plain *p);
%(functions)s
"""
SOURCE = """#include <stddef.h>
#include "a.h"
int fx_f(const fx_a_args *a, fx_plain *p) { return a->eta + p->x; }
int fx_b(const fx_b_args *b) { return b->rate > 0; }
%(bodies)s
"""
PLAIN = {"args_more": "\n    int rho;", "args_end": "", "list_end": "", "plain_more": "\n    int more;", "plain_end": "",
         "kinds": "FX_KIND_A, FX_KIND_B", "functions": "int fx_g(int);", "bodies": "int fx_g(int x) { return x; }"}
CASES = [  # what changes, whether the check passes, the SONAME
    ("nothing", {}, True, "libx.so.0"),
    ("a function more", {"functions": "int fx_g(int); int fx_h(void);",
                         "bodies": "int fx_g(int x) { return x; }\nint fx_h(void) { return 1; }"}, True, "libx.so.0"),
    ("a function less", {"functions": "", "bodies": ""}, False, "libx.so.0"),
    ("another argument", {"functions": "int fx_g(int, int);",
                          "bodies": "int fx_g(int x, int y) { return x + y; }"}, False, "libx.so.0"),
    ("options that grow", {"args_end": "\n    double beta;"}, True, "libx.so.0"),
    ("options of a list that grow", {"list_end": " double beta;"}, True, "libx.so.0"),
    ("a struct that grows", {"plain_end": "\n    int y;"}, False, "libx.so.0"),
    ("a member less", {"plain_more": ""}, False, "libx.so.0"),
    ("an option less", {"args_more": ""}, False, "libx.so.0"),
    ("an option less, and one more at the end", {"args_more": "", "args_end": "\n    double beta;"}, False, "libx.so.0"),
    ("an option of another type", {"args_more": "\n    float rho;"}, False, "libx.so.0"),
    ("another value of a constant", {"kinds": "FX_KIND_B, FX_KIND_A"}, False, "libx.so.0"),
    ("a function less, another SONAME", {"functions": "", "bodies": ""}, True, "libx.so.1"),
    ("a member less, another SONAME", {"plain_more": ""}, True, "libx.so.1"),
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


def check(*args):
    return subprocess.run([os.path.join(ROOT, "scripts", "abi-check"), *args], text=True, capture_output=True, check=False)


def kept_descriptions():
    """Errors of the descriptions in the tree."""
    names = sorted(os.listdir(os.path.join(ROOT, "scripts", "abi")))
    if len(names) != 1:
        return [f"scripts/abi has {names}, expected one description"]
    with gzip.open(os.path.join(ROOT, "scripts", "abi", names[0]), "rt", encoding="utf-8") as f:
        head = f.readline()
        symbols = f.read().count("<elf-symbol ")
    soname = names[0].removesuffix(".abi.gz")
    return ([f"{names[0]} begins with {head}"] if f"soname='{soname}'" not in head else []) + (
        [f"{names[0]} has {symbols} symbols only"] if symbols < 250 else [])


def main():
    errors = kept_descriptions()
    for e in errors:
        print(e, file=sys.stderr)
    if not shutil.which("abidiff") or not shutil.which("abidw"):
        print("skipped: the check of the binary interface: abidiff is not installed")
        return len(errors) > 0
    failures = len(errors)
    with tempfile.TemporaryDirectory(prefix="cflux-") as work:
        for i, (what, change, passes, soname) in enumerate(CASES):
            folder = os.path.join(work, str(i))
            old = library(os.path.join(folder, "old"), {}, "libx.so.0")
            new = library(os.path.join(folder, "new"), change, soname)
            description = os.path.join(folder, "old.abi")
            with open(description, "w", encoding="utf-8") as f:
                f.write(check("--describe", old, os.path.dirname(old)).stdout)
            done = check("--compare", description, new, os.path.dirname(new))
            if (done.returncode == 0) != passes:
                failures += 1
                print(f"{what}: exit status {done.returncode}\n{done.stdout}{done.stderr}", file=sys.stderr)
    print(f"{len(CASES)} cases, {failures} failures")
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
