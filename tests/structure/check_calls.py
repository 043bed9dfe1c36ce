#!/usr/bin/env python3
"""Functions of src/ call in one direction, and plugins use nothing of the library.

A symbol that an object file of one folder uses must be defined in the same folder or in one before it
(the order is that of check_tree.py). UPWARD lists the symbols that earlier folders may use, too. A plugin
(PLUGINS) gets what it needs through struct fx_host: it uses symbols of its own folder, of
backends/gpu and of platform only, whose files are compiled into it.

Usage: check_calls.py BUILD [root]     (BUILD/CMakeFiles has the objects)
"""
import collections
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from check_tree import ORDER, area  # noqa: E402

UPWARD = {"fxi_the_evaluator": {"value", "ops"}}  # symbol: the folders that may use it
PLUGINS = {"backends/opencl", "backends/onednn", "backends/gpurt", "backends/metal", "dist/mpi", "dist/nccl"}
LEAST_OBJECTS, LEAST_CALLS = 150, 2000


def symbols(paths):
    """Path → (defined, used): the names in object files."""
    out = subprocess.run(["nm", "-gA", *paths], check=True, text=True, capture_output=True).stdout
    found = {path: (set(), set()) for path in paths}
    for line in out.splitlines():
        path, rest = line.split(":", 1)
        kind, name = rest.split()[-2:]
        found[path][kind in "Uw"].add(name)
    return found


def objects(build, root):
    """Source file relative to root → object file. Objects whose source was deleted are left out."""
    found = {}
    for folder, _, files in os.walk(os.path.join(build, "CMakeFiles")):
        m = re.search(r"/cflux_\w+\.dir/(src/.*)$", folder + "/")
        for name in sorted(files if m else []):
            source = os.path.join(m.group(1), name[:-2])
            if name.endswith(".o") and os.path.exists(os.path.join(root, source)):
                found[source] = os.path.join(folder, name)
    return found


def rank(room):
    return ORDER.index(room.split("/")[0])


def may_call(caller, callee, symbol):
    if caller == callee or caller.split("/")[0] in UPWARD.get(symbol, ()):
        return True
    if caller in PLUGINS:
        return callee in ("backends/gpu", "platform")
    # All backends use the files of backends/ itself, but not each other.
    return rank(callee) < rank(caller) or callee == caller.split("/")[0]


def check(files, root):
    """(errors, number of calls between files) for source → (defined, used)."""
    home, errors, calls = {}, [], 0
    for source, (defined, _) in files.items():
        home.update(dict.fromkeys(defined, source))
    for source, (_, used) in sorted(files.items()):
        for symbol in sorted(used & home.keys()):
            calls += 1
            caller, callee = (area(os.path.join(root, s), root) for s in (source, home[symbol]))
            if not may_call(caller, callee, symbol):
                errors.append(f"{source}: {caller} may not use {symbol} of {home[symbol]}")
    used = collections.defaultdict(set)
    for source, (_, names) in files.items():
        for symbol in names & UPWARD.keys():
            used[symbol].add(area(os.path.join(root, source), root))
    errors += [f"UPWARD: {s} is not used from {folder}: remove it" for s, folders in UPWARD.items()
               for folder in sorted(folders - used[s])]
    return errors, calls


def main():
    build = sys.argv[1]
    root = os.path.abspath(sys.argv[2] if len(sys.argv) > 2 else
                           os.path.join(os.path.dirname(__file__), "..", ".."))
    paths = objects(build, root)
    found = symbols(sorted(paths.values()))
    files = {source: found[path] for source, path in paths.items()}
    errors, calls = check(files, root)
    if len(files) < LEAST_OBJECTS or calls < LEAST_CALLS:
        errors.append(f"looked at {len(files)} objects and {calls} calls, expected at least "
                      f"{LEAST_OBJECTS} and {LEAST_CALLS}")
    for e in errors:
        print(e, file=sys.stderr)
    print(f"{len(files)} objects, {calls} calls between files, {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
