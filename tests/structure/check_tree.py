#!/usr/bin/env python3
"""Checks of the source tree that no compiler makes.

  * The direction of #includes between the folders of src/: a folder includes itself and folders
    before it in ORDER, and folders in PUBLIC_ONLY see nothing but base and the public headers.
    What deviates stands in EXCEPTIONS with its reason, and an exception that is not needed fails.
  * A tool uses the library through its public headers.
  * File names are unique over src, include, tests, examples and tools, so that #include "x.h" is one file.
  * The library does not print, exit, or take memory but through src/base/memory.h.
  * Every C file begins with a comment; no file names a place on somebody's machine.

Each check counts what it looked at: with nothing to look at, it fails.
Usage: check_tree.py [root]
"""
import os
import re
import sys

ORDER = ["base", "array", "grad", "plan", "device", "backends", "tree", "nn", "optim", "train",
         "data", "io"]
PUBLIC_ONLY = {"nn", "optim", "train", "data", "io"}
# (folder, header): why.
EXCEPTIONS = {}

C_FILES = (".c", ".h", ".def", ".inc", ".cpp", ".cc")
SAME_NAME_ALLOWED = {"CMakeLists.txt", "README.md"}
# Names that would end the program or write to its standard output, and those that take memory
# behind the back of the fault tests.
FORBIDDEN = {
    "ends the program": r"(?:exit|_exit|_Exit|quick_exit|abort|assert)",
    "prints": r"(?:printf|vprintf|puts|putchar|perror)",
    "runs a command": r"(?:system|popen)",
    "takes memory": r"(?:malloc|calloc|realloc|reallocarray|free|strdup|strndup|aligned_alloc"
                    r"|posix_memalign|asprintf|vasprintf|getline|getdelim|open_memstream)",
}
MEMORY_FILES = {"memory.c", "memory.h"}
# Put together from pieces, so that this file passes its own check.
MACHINE_PATH = re.compile(r"(?<![\w./-])/(?:" + "|".join(["wor" + "k", "roo" + "t", "tm" + "p/h"])
                          + r")(?=[/\s\"')]|$)")


def walk(root, folders):
    for folder in folders:
        for path, dirs, files in os.walk(os.path.join(root, folder)):
            dirs[:] = sorted(d for d in dirs if d not in ("__pycache__", ".git"))
            for name in sorted(files):
                if not name.endswith((".pyc", ".o", "~")):
                    yield os.path.join(path, name)


def read(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read()


def strip_c(text):
    """The text with comments and string literals blanked, line numbers kept."""
    pattern = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), text)


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def area(path, root):
    """The folder of src/ that a file belongs to: "plan", "backends/cpu"; None outside src."""
    parts = os.path.relpath(path, root).split(os.sep)
    if parts[0] != "src" or len(parts) < 3:
        return None
    return "/".join(parts[1:3]) if parts[1] == "backends" and len(parts) > 3 else parts[1]


def may_include(source, target):
    """May a file of folder `source` include a header of folder `target`?"""
    if source == target or target == "base":
        return True
    top, below = source.split("/")[0], target.split("/")[0]
    if top in PUBLIC_ONLY or top not in ORDER or below not in ORDER:
        return False
    # Two backends do not know each other; all know what lies in backends/ itself, and in gpu/.
    if top == below:
        return target == "backends" or (target == "backends/gpu" and source != "backends")
    return ORDER.index(below) < ORDER.index(top)


def check_includes(root, errors, exceptions=None):
    exceptions = EXCEPTIONS if exceptions is None else exceptions
    files = [p for p in walk(root, ["src"]) if p.endswith(C_FILES)]
    home = {os.path.basename(p): area(p, root) for p in files}
    public = {os.path.basename(p) for p in walk(root, ["include"])}
    used, count = set(), 0
    for path in files:
        where, source = os.path.relpath(path, root), area(path, root)
        if source is None:
            errors.append(f"{where}: files lie in a folder of src/, not in src/ itself")
            continue
        if source.split("/")[0] not in ORDER:
            errors.append(f"{where}: folder {source} is not in the list of layers")
        for number, line in enumerate(read(path).split("\n"), 1):
            m = re.match(r"\s*#\s*include\s+\"([^\"]+)\"", line)
            if not m:
                continue
            count += 1
            name = m.group(1)
            if name in public:
                errors.append(f"{where}:{number}: public headers are included as <cflux/…>: {name}")
            elif name not in home:
                errors.append(f"{where}:{number}: \"{name}\" is no file of src/")
            elif may_include(source, home[name]):
                continue
            elif (source, name) in exceptions:
                used.add((source, name))
            else:
                errors.append(f"{where}:{number}: {source} may not include {home[name]}/{name}")
    for unused in sorted(set(exceptions) - used):
        errors.append(f"exception {unused} is not needed any more: remove it")
    return count


def check_public_includes(root, errors):
    count = 0
    for path in walk(root, ["include"]):
        for number, line in enumerate(read(path).split("\n"), 1):
            if re.match(r"\s*#\s*include\s+\"", line):
                errors.append(f"{os.path.relpath(path, root)}:{number}: public headers include "
                              "<cflux/…> and the standard library only")
        count += 1
    return count


def check_tools(root, errors):
    """A tool sees the public headers, the system's, and the headers of its own folder."""
    count = 0
    for path in walk(root, ["tools"]):
        if not path.endswith(C_FILES):
            continue
        for number, line in enumerate(read(path).split("\n"), 1):
            m = re.match(r"\s*#\s*include\s+\"([^\"]+)\"", line)
            if not m:
                continue
            count += 1
            if not os.path.exists(os.path.join(os.path.dirname(path), m.group(1))):
                errors.append(f"{os.path.relpath(path, root)}:{number}: tools include public headers "
                              f"and their own, not \"{m.group(1)}\"")
    return count


def check_names(root, errors):
    seen, count = {}, 0
    for path in walk(root, ["src", "include", "tests", "examples", "tools"]):
        name = os.path.basename(path)
        count += 1
        if name in SAME_NAME_ALLOWED:
            continue
        if name in seen:
            errors.append(f"two files are called {name}: {seen[name]} and {os.path.relpath(path, root)}")
        seen[name] = os.path.relpath(path, root)
    return count


def check_calls(root, errors):
    count = 0
    for path in walk(root, ["src"]):
        if not path.endswith(C_FILES):
            continue
        count += 1
        where, text = os.path.relpath(path, root), strip_c(read(path))
        for what, names in FORBIDDEN.items():
            if what == "takes memory" and os.path.basename(path) in MEMORY_FILES:
                continue
            # Not a member (x->free), and not part of a longer name (fxi_free).
            for m in re.finditer(r"(?<![\w.])(?<!->)\b(" + names + r")\s*\(", text):
                errors.append(f"{where}:{line_of(text, m.start())}: {m.group(1)} {what}")
        for m in re.finditer(r"\bv?fprintf\s*\(\s*stdout\b|\bfput[sc]\s*\([^;]*\bstdout\b", text):
            errors.append(f"{where}:{line_of(text, m.start())}: writes to stdout")
    return count


def check_heads(root, errors):
    count = 0
    for path in walk(root, ["src", "include", "tests", "examples", "bench", "tools"]):
        if path.endswith(C_FILES):
            count += 1
            if not read(path).lstrip().startswith(("/*", "//")):
                errors.append(f"{os.path.relpath(path, root)}: begins without a comment")
    return count


def check_places(root, errors):
    count = 0
    top = [os.path.join(root, n) for n in sorted(os.listdir(root))
           if os.path.isfile(os.path.join(root, n))]
    folders = ["src", "include", "tests", "examples", "bench", "docs", "scripts", "cmake", "tools", ".ci"]
    for path in top + list(walk(root, folders)):
        if path.endswith((".gz", ".npy", ".bin", ".png", ".bson")):
            continue
        count += 1
        for number, line in enumerate(read(path).split("\n"), 1):
            if MACHINE_PATH.search(line):
                errors.append(f"{os.path.relpath(path, root)}:{number}: a path of one machine: {line.strip()}")
    return count


CHECKS = [  # name, function, what it must at least have looked at
    ("includes between folders", check_includes, 20),
    ("includes of public headers", check_public_includes, 11),
    ("includes of tools", check_tools, 10),
    ("unique names", check_names, 60),
    ("calls", check_calls, 20),
    ("file heads", check_heads, 40),
    ("machine paths", check_places, 60),
]


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..", "..")
    root, errors = os.path.abspath(root), []
    for name, check, least in CHECKS:
        found = []
        count = check(root, found)
        if count < least:
            found.append(f"looked at {count} only, expected at least {least}")
        print(f"{name}: {count} looked at, {len(found)} errors")
        errors += [f"{name}: {e}" for e in found]
    for e in errors:
        print(e, file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
