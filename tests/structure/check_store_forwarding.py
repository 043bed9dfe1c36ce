#!/usr/bin/env python3
"""Kernels load vectors from the stack only in the width in which they were stored.

A load that is wider than the stores before it waits until they have reached the cache, ten times as
long as another load. gcc copies arrays of vectors in this way, 16 bytes at a time: maxima of rows
took 2.3 times as long because of it. A kernel that keeps its vectors in variables, or copies them
one by one, has no such loads. The few that are left run after the main loop of a row, where they
cost a few ns.

Usage: check_store_forwarding.py OBJECT...   (object files of x86-64, compiled with optimisation)
"""
import collections
import re
import subprocess
import sys

WIDTH = {"x": 16, "y": 32, "z": 64}
STACK = r"(-?0x[0-9a-f]+|)\((%r[sb]p)\)"
STORE = re.compile(r"v?mov\w*\s+%([xyz])mm\d+," + STACK + "$")
LOAD = re.compile(r"v\w+\s.*?(?<![\w,)])" + STACK + r",.*%([xyz])mm\d+$")
PART = re.compile(r"v(p?broadcast|cvtps2pd|cvtph2ps|cvtdq2pd|pmov[sz]x|insert|p?gather)|.*s[sd]\s")  # read less than a register
NEAR = 60  # instructions after which a store has left the queue
MOST = 24  # of these loads in an object (gcc 12 has 18 with AVX2 and 13 with AVX-512), all in code that runs once per row
MOST_IN_ONE = collections.defaultdict(lambda: 2, scan_u8=5, rdev_f64_row=3)  # of these loads in a function
LEAST_LOADS = 300  # vectors loaded from the stack in one object: fewer mean that the patterns match nothing


def waiting_loads(text):
    """The number of vector loads from the stack in the output of objdump -d, and those that wait: function → lines."""
    function, stored, number, loads = "", {}, 0, 0
    found = collections.defaultdict(list)
    for line in text.splitlines():
        head = re.match(r"[0-9a-f]+ <(.*)>:$", line)
        if head:
            function, stored = head.group(1), {}
            continue
        fields = line.split("\t")
        if len(fields) < 2:
            continue
        instruction, number = fields[1].split("#")[0].strip(), number + 1
        store, load = STORE.match(instruction), LOAD.match(instruction)
        if store:
            start, width = int(store.group(2) or "0", 16), WIDTH[store.group(1)]
            stored.update({(store.group(3), start + k): (width, number) for k in range(0, width, 16)})
        elif load and not PART.match(instruction):
            start, width = int(load.group(1) or "0", 16), WIDTH[load.group(3)]
            loads += 1
            pieces = [stored.get((load.group(2), start + k), (0, 0)) for k in range(0, width, 16)]
            if all(w for w, _ in pieces) and min(w for w, _ in pieces) < width and number - min(n for _, n in pieces) < NEAR:
                found[function].append(line.strip())
    return loads, found


def errors(text):
    """The mistakes in the output of objdump -d, and a line that says what was counted."""
    loads, found = waiting_loads(text)
    count = sum(map(len, found.values()))
    wrong = [f"{function} has {len(lines)} such loads (at most {MOST_IN_ONE[function]}), for example {lines[0]}"
             for function, lines in found.items() if len(lines) > MOST_IN_ONE[function]]
    if count > MOST:
        wrong.append(f"there are {count} such loads (at most {MOST}): {', '.join(sorted(found))}")
    if loads < LEAST_LOADS:
        wrong.append(f"found {loads} vector loads from the stack, expected at least {LEAST_LOADS}")
    return wrong, f"{count} of {loads} vector loads from the stack are wider than the stores before them"


def main(paths):
    failed = not paths
    for path in paths:
        text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", path], check=True, text=True, capture_output=True).stdout
        wrong, counted = errors(text)
        print(f"{path}: {counted}")
        for line in wrong:
            print(f"{path}: {line}", file=sys.stderr)
        failed = failed or bool(wrong)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
