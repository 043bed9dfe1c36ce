#!/usr/bin/env python3
"""Planning takes time proportional to the size of a graph.

Nine families of graphs (planning.c) are built, planned and run once, with n and with 10·n parts, and
instructions are counted under callgrind. Ten times the parts may take at most 12 times the
instructions. A pass that searches the graph for each node, result or reduction takes nearer to 100.

Usage: check_planning.py PATH_OF_PLANNING
"""
import os
import re
import shutil
import subprocess
import sys

FAMILIES = ("dense", "softmax", "norms", "sums", "elementwise", "products", "branches", "results", "shared")
FEW, MANY, MOST = 80, 800, 12.0


def count(program, family, n):
    run = subprocess.run(
        ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", program, family, str(n)],
        env={**os.environ, "FX_CPU_ISA": "avx2", "FX_NUM_THREADS": "1"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        check=False)
    collected = re.search(r"Collected : (\d+)", run.stdout)
    if run.returncode != 0 or not collected:
        sys.exit(f"{family} {n}: {run.stdout}")
    return int(collected.group(1))


def main():
    if not shutil.which("valgrind"):
        print("skipped: valgrind is not installed")
        return 0
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        if "avx2" not in f.read():
            print("skipped: the processor has no AVX2")
            return 0
    wrong = 0
    for family in FAMILIES:
        start = count(sys.argv[1], family, 1)
        few, many = (count(sys.argv[1], family, n) - start for n in (FEW, MANY))
        print(f"{family}: {few} instructions for {FEW} parts, {many} for {MANY}: {many / few:.1f} times")
        wrong += not 0 < many / few <= MOST
    if wrong:
        print(f"{wrong} of {len(FAMILIES)} families take more than {MOST} times the instructions for ten times the parts")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
