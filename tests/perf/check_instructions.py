#!/usr/bin/env python3
"""Counts the instructions of a few small cases and compares with what is stored.

Time on a shared machine is too noisy for a check; instructions under callgrind are not: two runs
of a program give the same count. The count of one step is the difference of two runs with different
numbers of steps, so that start and setup drop out. The instruction set is fixed (FX_CPU_ISA=avx2),
and counts depend on the compiler, so another one than the baseline's is a reason to skip.

More than 3 % above the baseline fails; so does more than 3 % below, because a baseline that is not
kept up hides the next loss: `--update` stores what was counted.

Usage: check_instructions.py --runner PATH --compiler "GNU 12.2.0" [--update]
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys

BASELINE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "instructions.json")
TOLERANCE = 0.03
CASES = {  # name: steps in the shorter and the longer run
    "train/xor-2-3-bn-2-b64": (20, 60),
    "record/xor-2-3-bn-2-b64": (20, 60),
    "record/mlp-1-256-1-b16": (20, 60),
    "record/two-models-b16": (20, 60),
    "record/mlp-784-256-10-b64": (4, 8),
    "forward/mlp-1-256-1-b16": (20, 120),
    "chain/1e4-gradient": (10, 30),
    "chain/1e6-float64": (1, 2),
    # Recording a graph, its key and the look-up of its plan, without running it: a training step of four Dense layers, and six
    # families of graphs at two sizes.
    "graph/record": (20, 60),
    "graph/record-key-lookup": (20, 60),
    "graph/update": (20, 60),
    "graph/update-key-lookup": (20, 60),
    "graph/dense-4": (20, 40),
    "graph/dense-40": (4, 6),
    "graph/elementwise-20": (20, 40),
    "graph/elementwise-200": (4, 6),
    "graph/softmax-10": (20, 40),
    "graph/softmax-100": (4, 6),
    "graph/norms-10": (20, 40),
    "graph/norms-100": (4, 6),
    "graph/products-20": (20, 40),
    "graph/products-200": (4, 6),
    "graph/sums-20": (20, 40),
    "graph/sums-200": (4, 6),
    "rows/softmax-1000x1024": (1, 2),
    "rows/crossentropy-1000x1024-gradient": (1, 2),
    "rows/layernorm-768x8192-gradient": (1, 2),
}


def skip(why):
    print(f"skipped: {why}")
    sys.exit(0)


def count(runner, case, steps):
    run = subprocess.run(
        ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", runner, "--count", case, str(steps)],
        env={**os.environ, "FX_CPU_ISA": "avx2", "FX_NUM_THREADS": "1"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        check=False)
    collected = re.search(r"Collected : (\d+)", run.stdout)
    if run.returncode != 0 or not collected:
        sys.exit(f"{case}: {run.stdout}")
    return int(collected.group(1))


def count_step(runner, case):
    few, many = CASES[case]
    return (count(runner, case, many) - count(runner, case, few)) / (many - few)


def judge(case, counted, stored):
    """An error message, or None."""
    change = counted / stored - 1
    print(f"{case}: {counted:.0f} instructions a step, stored {stored:.0f}, {100 * change:+.2f} %")
    if abs(change) <= TOLERANCE:
        return None
    return f"{case}: {'more' if change > 0 else 'fewer'} instructions than stored, by {100 * abs(change):.1f} %"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runner", required=True)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--update", action="store_true")
    args = parser.parse_args()
    if not shutil.which("valgrind"):
        skip("valgrind is not installed")
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        if "avx2" not in f.read():
            skip("the processor has no AVX2")
    if not args.update:
        with open(BASELINE, encoding="utf-8") as f:
            baseline = json.load(f)
        if args.compiler != baseline["compiler"]:
            skip(f"the baseline is of {baseline['compiler']}, this build of {args.compiler}")
    counted = {case: round(count_step(args.runner, case)) for case in CASES}
    if args.update:
        with open(BASELINE, "w", encoding="utf-8") as f:
            json.dump({"compiler": args.compiler, "isa": "avx2", "instructions": counted}, f, indent=2)
            f.write("\n")
        print(f"stored {counted}")
        return 0
    errors = [e for e in (judge(c, counted[c], baseline["instructions"][c]) for c in CASES) if e]
    for e in errors:
        print(e, file=sys.stderr)
    if errors:
        print("when the change is meant: the same command with --update", file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
