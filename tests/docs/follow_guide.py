#!/usr/bin/env python3
"""Follows a guide literally in a copy of the tree, builds the copy and runs what the guide added.

The info string of a block says what is done with it:

  ```c new=PATH       writes the file PATH
  ```c insert=PATH    adds the block to the file PATH: the file contains its first or its last line
                      already, exactly once, and the others go after or before that line

Then src/nn is compiled with the strict warnings as errors and takes the place of the same objects in a
copy of the built library; tests that the guide writes or changes are built with it and run, those
in C++ compiled; the checks of structure look at the copy. "**eight files**" on the page must be the number of files.
If any one of the additions is left out, something must fail: an addition that nothing needs is a mistake of the page.
Usage: follow_guide.py GUIDE --cc CC --library libcflux.a --libs "LIBRARIES" [--root ROOT]
"""
import argparse
import glob
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "tools"))
from pages import BLOCK, read, write  # noqa: E402

NUMBERS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
COPIED = ["include", "src", "tests", "tools", "examples", "bench", "docs"]
FLAGS = ["-std=c11", "-O0", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Wmissing-prototypes",
         "-Werror", "-ffp-contract=off", "-fPIC", "-D_GNU_SOURCE"]
CHECKS = ["check_tree.py", "check_reference.py", "check_options.py"]


def edits_of(page):
    """[(new or insert, path, text)] of a page."""
    edits = []
    for m in BLOCK.finditer(page):
        found = re.fullmatch(r"c (new|insert)=(\S+)", m["info"].strip())
        if found:
            edits.append((found[1], found[2], m["text"]))
    return edits


def insert(text, addition):
    """Inserts the lines of `addition` after its first line or before its last line, whichever `text` contains once."""
    lines, added = text.split("\n"), addition.rstrip("\n").split("\n")
    for anchor, before, after in ((added[0], [], added[1:]), (added[-1], added[:-1], [])):
        if lines.count(anchor) == 1:
            i = lines.index(anchor)
            return "\n".join(lines[:i] + before + [anchor] + after + lines[i + 1:])
    raise ValueError(f"the file contains neither the first nor the last line exactly once:\n{added[0]}\n{added[-1]}")


def follow(edits, root):
    """Does what the page says; returns the files that it touched."""
    touched = []
    for kind, path, text in edits:
        where = os.path.join(root, path)
        if kind == "new" and os.path.exists(where):
            raise ValueError(f"{path} exists already")
        write(where, text.rstrip("\n") + "\n" if kind == "new" else insert(read(where), text))
        if path not in touched:
            touched.append(path)
    return touched


def run(command, where):
    ran = subprocess.run(command, text=True, capture_output=True, cwd=where, timeout=300)
    if ran.returncode:
        return f"{' '.join(command)[:300]}\n{(ran.stdout + ran.stderr)[-3000:]}"
    return ""


class Copy:
    """A copy of the tree, and the library that is built of it."""

    def __init__(self, options, folder):
        self.options, self.root = options, os.path.join(folder, "tree")
        for name in COPIED:
            source = os.path.join(options.root, name)
            if os.path.isdir(source):
                shutil.copytree(source, os.path.join(self.root, name), ignore=shutil.ignore_patterns("__pycache__"))
        self.library = os.path.join(folder, "libcflux.a")
        shutil.copy(options.library, self.library)
        folders = [d for d, _, _ in os.walk(os.path.join(self.root, "src"))]
        self.include = [f"-I{d}" for d in [os.path.join(self.root, "include")] + folders]

    def compile(self, source, target, *more):
        return run([self.options.cc] + FLAGS + list(more) + self.include + ["-c", source, "-o", target], self.root)

    def build_library(self):
        """src/nn again, in the archive under the same names; an error or an empty string."""
        objects = []
        for source in sorted(glob.glob(os.path.join(self.root, "src", "nn", "*.c"))):
            objects.append(os.path.join(self.root, os.path.basename(source) + ".o"))
            wrong = self.compile(source, objects[-1], "-fvisibility=hidden", "-DFXI_INSIDE")
            if wrong:
                return wrong
        return run(["ar", "r", self.library] + objects, self.root)

    def run_test(self, source):
        program = os.path.join(self.root, os.path.basename(source)[:-2])
        tests = os.path.join(self.root, "tests")
        more = [f"-I{os.path.join(tests, d)}" for d in ("unit", "support")]
        support = sorted(glob.glob(os.path.join(tests, "support", "*.c")))
        # Paths of data are those of the tree that was configured.
        more += [f'-DCFLUX_SOURCE_DATA_DIR="{self.options.root}/data"', f'-DCFLUX_BUILD_DIR="{self.root}"',
                 f'-DCFLUX_SIM_CACHE="{self.root}"']
        return run([self.options.cc] + FLAGS + more + self.include + [os.path.join(self.root, source)] + support +
                   [self.library] + shlex.split(self.options.libs) + ["-o", program], self.root) or run([program], self.root)

    def compile_cxx(self, source):
        return run([shutil.which("c++") or "g++", "-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic",
                    "-Werror", f"-I{self.root}/include", source], self.root)

    def check(self):
        for script in CHECKS:
            wrong = run([sys.executable, "-B", os.path.join(self.options.root, "tests", "structure", script), self.root],
                        self.root)
            if wrong:
                return wrong
        return ""


def try_edits(edits, options):
    """(the files touched, what is wrong with the copy or an empty string)."""
    with tempfile.TemporaryDirectory(prefix="cflux-guide-") as folder:
        copy = Copy(options, folder)
        touched = follow(edits, copy.root)
        wrong = copy.build_library()
        # Every layer must have a row in the table of the test of all layers.
        every = "tests/unit/test_every_layer.c"
        for path in touched + ([every] if "src/nn/layers.def" in touched else []):
            if not wrong and re.fullmatch(r"tests/unit/test_\w+\.c", path):
                wrong = copy.run_test(path)
            if not wrong and path.startswith("tests/cxx/"):
                wrong = copy.compile_cxx(path)
        return touched, wrong or copy.check()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("guide")
    parser.add_argument("--cc", default="cc")
    parser.add_argument("--library", required=True)
    parser.add_argument("--libs", required=True)
    parser.add_argument("--root", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
    options = parser.parse_args()
    options.root = os.path.abspath(options.root)
    page = read(os.path.join(options.root, options.guide))
    edits = edits_of(page)
    touched, wrong = try_edits(edits, options)
    if wrong:
        sys.exit(f"{options.guide}: {wrong}")
    said = re.search(r"\*\*(\w+) files\*\*", page)
    if not said or said[1] != NUMBERS[len(touched)]:
        sys.exit(f"{options.guide}: touches {len(touched)} files, says \"{said and said[1]}\": {', '.join(touched)}")
    for edit in edits:
        if edit[0] == "insert" and not try_edits([s for s in edits if s is not edit], options)[1]:
            sys.exit(f"{options.guide}: nothing fails without the addition to {edit[1]}")
    print(f"{len(edits)} edits in {len(touched)} files, each of them needed")


if __name__ == "__main__":
    main()
