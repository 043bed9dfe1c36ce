#!/usr/bin/env python3
"""Follows a guide that changes many folders of the library, in a copy of the tree that is built again.

The edits and the number of files are those of follow_guide.py. Here the copy is configured, the
targets of the page's line `<!-- build: TARGETS -->` are built with warnings as errors, and the
commands of its blocks ```sh follow run in the copy's root; the build is in build/.
Usage: follow_guide_op.py [--root ROOT] [--jobs N] PAGE
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from follow_guide import BLOCK, NUMBERS, follow, read, edits_of  # noqa: E402

COPIED = ["CMakeLists.txt", "CONTRIBUTING.md", "LICENSE", "README.md", "bench", "cmake", "data", "docs", "examples",
          "include", "scripts", "src", "tests", "tools"]
LEAST_STEPS = 4


def run(command, root):
    """Runs it; ends the program with what it printed if it fails."""
    done = subprocess.run(command, cwd=root, text=True, capture_output=True, timeout=1200, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout[-1500:]}{done.stderr[-3000:]}")
    return done.stdout


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", default=os.path.join(HERE, "..", ".."))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("page")
    options = parser.parse_args()
    root = os.path.abspath(options.root)
    page = read(os.path.join(root, options.page))
    edits = edits_of(page)
    commands = [m["text"] for m in BLOCK.finditer(page) if m["info"].strip() == "sh follow"]
    targets = re.search(r"<!-- build: (.*?) -->", page)
    said = re.search(r"\*\*(\w+) files\*\*", page)
    if len(edits) < LEAST_STEPS or not commands or not targets or not said:
        sys.exit(f"{options.page}: {len(edits)} edits, {len(commands)} blocks of commands; its targets or the number of files are missing")
    with tempfile.TemporaryDirectory(prefix="cflux-guide-") as copy:
        for name in COPIED:
            source, target = os.path.join(root, name), os.path.join(copy, name)
            if os.path.isdir(source):
                shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "build"))
            else:
                shutil.copy2(source, target)
        touched = follow(edits, copy)
        if said[1] != NUMBERS[len(touched)]:
            sys.exit(f"{options.page}: touches {len(touched)} files, says \"{said[1]}\": {', '.join(touched)}")
        run(["cmake", "-S", ".", "-B", "build", "-Wno-dev", "-DCFLUX_TESTS=ON", "-DCMAKE_BUILD_TYPE=Debug"], copy)
        run(["cmake", "--build", "build", "-j", str(options.jobs), "--target", *targets[1].split()], copy)
        for text in commands:
            print(run(["bash", "-euo", "pipefail", "-c", text], copy), end="")
    print(f"{len(edits)} edits in {len(touched)} files")


if __name__ == "__main__":
    main()
