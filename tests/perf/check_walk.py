#!/usr/bin/env python3
"""Counts the files that a reader must open to follow an array from fx_matmul to the kernel.

The measure: the .c files of src/ that define a function which a warm call executes between entering
fx_matmul or fx_eval and leaving it. The case is the product of a 2×3 and a 3×64 matrix, evaluated on
the CPU by the library's own kernels, on one thread. Warm means that the same call was made before:
callgrind counts the instructions of every function in two runs with different numbers of calls, and
a function belongs to the walk if its count grows by one call's worth for every further call.
Functions that the compiler put into others count as those; so do inline functions of headers.

Files of SERVICES (memory, errors, the life of arrays and the facts about them) are entered by every call
of the library, whatever it computes, and have a bound of their own.

Every file on the walk is a row of KNOWN with what the reader learns there. A file that is not in the
table, a row that is not on the walk any more, or more rows than MOST_WALK is a failure: a developer decides
whether a new file is justified, and keeps the bound tight.

Usage: check_walk.py --runner build/bench/bench_runner --build build
"""
import argparse
import bisect
import collections
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "structure"))
from check_calls import objects, symbols  # noqa: E402

CASE = "matmul/2x64x3"
FEW, MANY = 3000, 3100  # the memory of a thread's last 256 freed objects waits before it is used again
# Folders that only provide services.
SERVICES = {"platform", "base", "value"}
MOST_WALK, MOST_SERVICES = 15, 9
KNOWN = {
    "src/ops/matmul.c": "which sizes fit, and the node that is recorded",
    "src/ops/operands.c": "which operands are refused",
    "src/tree/evaluate_object.c": "fx_eval of an array or of a whole object",
    "src/exec/run.c": "the order of an evaluation",
    "src/exec/scratch.c": "the work space that a thread keeps",
    "src/exec/plan_mode.c": "what the environment wants of plans",
    "src/exec/precision.c": "how exact the product has to be, which is part of the plan's key",
    "src/plan/graph.c": "the pending nodes and their key",
    "src/exec/plan_cache.c": "the plan with that key",
    "src/exec/bind.c": "leaves, literals and results get addresses",
    "src/backends/cpu/cpu_backend.c": "the plugin's kernel or the library's",
    "src/backends/cpu/cpu_kernels.c": "the kernel of an operation",
    "src/backends/cpu/cpu_matmul.c": "a product of batches as products of matrices",
    "src/backends/cpu/cpu_gemm.c": "a product in blocks",
    "src/backends/cpu/cpu_isa_base.c": "the kernel",
}


def skip(why):
    print(f"skipped: {why}")
    sys.exit(0)


def instructions(runner, steps):
    """(address in the program, instructions) of every instruction that calls of the case execute."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "callgrind.out")
        run = subprocess.run(
            ["valgrind", "--tool=callgrind", "--dump-instr=yes", "--compress-strings=no", "--compress-pos=no",
             "--toggle-collect=fx_matmul", "--toggle-collect=fx_eval", f"--callgrind-out-file={out}",
             runner, "--no-onednn", "--count", CASE, str(steps)],
            env={**os.environ, "FX_CPU_ISA": "base", "FX_NUM_THREADS": "1"}, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False)
        if run.returncode != 0 or not os.path.exists(out):
            sys.exit(f"{CASE}: {run.stdout}")
        with open(out, encoding="utf-8", errors="replace") as f:
            return read_costs(f, os.path.basename(runner))


def read_costs(lines, program):
    counts, inside, of_call = collections.Counter(), False, False
    for line in lines:
        if line.startswith("ob="):
            inside = os.path.basename(line[3:].strip()) == program
        elif line.startswith("calls="):
            of_call = True  # the next line is what the called function cost
        elif line.startswith("0x"):
            if inside and not of_call:
                address, _, cost = line.split()[:3]
                counts[int(address, 16)] += int(cost)
            of_call = False
    return counts


def functions(program):
    """[(address, name, file or None)] of a program: the linker keeps the file of local symbols."""
    listed = subprocess.run(["readelf", "-sW", program], check=True, text=True, capture_output=True).stdout
    found, file = [], None
    for line in listed.splitlines():
        m = re.match(r"\s*\d+: ([0-9a-f]+)\s+\S+ (\w+)\s+(\w+)\s+\w+\s+\S+ ?(\S*)", line)
        if not m:
            continue
        address, kind, bind, name = int(m[1], 16), m[2], m[3], m[4]
        if kind == "FILE":
            file = name
        elif kind == "FUNC" and address:
            found.append((address, name, file if bind == "LOCAL" else None))
    return sorted(found, key=lambda f: f[0])


def walk(args, root):
    """Source file → functions that a warm call executes."""
    few, many = instructions(args.runner, FEW), instructions(args.runner, MANY)
    paths = objects(args.build, root)
    of_object = {path: source for source, path in paths.items()}
    home = {name: of_object[path] for path, (defined, _) in symbols(sorted(paths.values())).items() for name in defined}
    base = {os.path.basename(source): source for source in paths}
    table = functions(args.runner)
    starts, found = [f[0] for f in table], collections.defaultdict(set)
    for address, count in many.items():
        if count - few[address] < MANY - FEW:
            continue
        _, name, file = table[bisect.bisect_right(starts, address) - 1]
        source = base.get(file) if file else home.get(name)
        if source:
            found[source].add(name)
    return found


def judge(found):
    """(errors) of source → functions."""
    errors = []
    services = {s for s in found if s.split("/")[1] in SERVICES}
    on_walk = set(found) - services
    for source in sorted(on_walk - KNOWN.keys()):
        errors.append(f"{source} is on the walk, by {', '.join(sorted(found[source]))}: what does a reader learn there?")
    for source in sorted(KNOWN.keys() - on_walk):
        errors.append(f"{source} is not on the walk any more: remove its row")
    for what, files, most in (("the walk", on_walk, MOST_WALK), ("services", services, MOST_SERVICES)):
        print(f"{what}: {len(files)} files, at most {most}")
        for source in sorted(files):
            print(f"  {source}: {' '.join(sorted(found[source]))}")
        if len(files) > most:
            errors.append(f"{what}: {len(files)} files, at most {most} are allowed")
    return errors


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runner", required=True)
    parser.add_argument("--build", required=True)
    args = parser.parse_args()
    for tool in ("valgrind", "readelf"):
        if not shutil.which(tool):
            skip(f"{tool} is not installed")
    errors = judge(walk(args, os.path.abspath(os.path.join(HERE, "..", ".."))))
    for e in errors:
        print(e, file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
