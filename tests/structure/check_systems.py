#!/usr/bin/env python3
"""Finds on Linux, where the files of macOS and Windows are not compiled, what would not link on these systems.

A function that a header of src/platform or tools/cflux/system.h declares must be defined for every system: in a file
NAME_linux.c, NAME_darwin.c or NAME_windows.c, in NAME_posix.c, which is for the first two, or in a file for all of them.
OF_SOME lists the exceptions. The library and the command line may use only functions of ISO C, as the compiler's headers declare them without
extensions, and those of ELSEWHERE, which every supported system has. The files named above are free to use others, and so are plugins.
isnan and similar macros return any number but 0 for true (MinGW: -1), so arithmetic and comparisons must not use their results.

Usage: check_systems.py BUILD [root]     (BUILD/CMakeFiles has the objects)
"""
import glob
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from check_calls import PLUGINS, objects, symbols  # noqa: E402

SYSTEMS = {"linux": ("linux", "posix"), "darwin": ("darwin", "posix"), "windows": ("windows",)}
FOLDERS = {"src/platform": "", "tools/cflux": "system"}  # and how the names of the headers begin
OF_SOME = {"posix.h": {"linux", "darwin"}, "system_posix.h": {"linux", "darwin"}, "wide_path.h": {"windows"},
           "cgroup.h": {"linux"}, "fxi_cgroup_cores": {"linux"}}  # headers, and functions, that only these systems have
KIND = re.compile(r"_(linux|darwin|posix|windows)\.c$")
ISO = ("assert ctype errno fenv float inttypes limits locale math setjmp signal stdarg stdatomic stddef stdint stdio stdlib "
       "string tgmath time wchar wctype").split()
# zlib, libbson, winpthreads; strnlen is also in the C libraries of macOS and Windows, and gcc makes one sincos of sin and cos.
ELSEWHERE = re.compile(r"(pthread|bson|gz|inflate|deflate|crc32)\w*|strnlen|sincosf?|stdin|stdout|stderr|_\w+")
IN_THE_TOOL = re.compile(r"(png|jpeg)_\w+|strdup|vasprintf|getopt_long|opt(arg|err|ind|opt)")  # as well; MinGW has them
TRUTH = re.compile(r"(?<!!)\b(?:isnan|isinf|isfinite|isnormal|signbit)\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)")
LEAST_FUNCTIONS, LEAST_SYMBOLS, LEAST_TRUTHS = 100, 60, 40


def text_of(path):
    with open(path, encoding="utf-8") as f:
        return re.sub(r"/\*.*?\*/|//[^\n]*", "", f.read(), flags=re.DOTALL)


def declared(header):
    """The functions that a header declares and does not define itself."""
    return re.findall(r"^(?!static|typedef|_Static|#)\w[\w *]*[ *](\w+)\([^;{}]*\)[^;{}()]*;", text_of(header), re.MULTILINE)


def defined(source):
    return set(re.findall(r"^(?!static|#)\w[\w *]*[ *](\w+)\([^;{}]*\)\s*\{", text_of(source), re.MULTILINE))


def definitions(folder):
    """Kind of file ("": for all systems) → the functions that such files define."""
    found = {kind: set() for kind in ("", "linux", "darwin", "posix", "windows")}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".c"):
            found[(KIND.search(name) or [None, ""])[1]] |= defined(os.path.join(folder, name))
    return found


def undefined(root):
    """(errors, number of functions) of the headers in FOLDERS."""
    errors, count = [], 0
    for folder, first in FOLDERS.items():
        by_kind = definitions(os.path.join(root, folder))
        headers = [n for n in sorted(os.listdir(os.path.join(root, folder))) if n.startswith(first) and n.endswith(".h")]
        for header in headers:
            names = declared(os.path.join(root, folder, header))
            count += len(names)
            errors += [f"{folder}/{header}: no file defines {name} for {system}" for name in names
                       for system in sorted(OF_SOME.get(header, OF_SOME.get(name, SYSTEMS)))
                       if not any(name in by_kind[kind] for kind in ("", *SYSTEMS[system]))]
    return errors, count


def iso_names(compiler="cc"):
    """The functions and objects of ISO C's headers."""
    source = "".join(f"#include <{name}.h>\n" for name in ISO)
    out = subprocess.run([compiler, "-std=c11", "-E", "-P", "-x", "c", "-"], input=source, check=True, text=True,
                         capture_output=True).stdout
    return set(re.findall(r"\b(\w+)\s*\(", out))


def objects_of_the_tool(build):
    """Source file relative to root → object file."""
    paths = glob.glob(os.path.join(build, "tools", "cflux", "CMakeFiles", "cflux_*.dir", "*.o"))
    return {"tools/cflux/" + os.path.basename(path)[:-2]: path for path in paths}


def foreign(files, iso):
    """(errors, number of symbols) of source → (defined, used)."""
    ours = set().union(*(d for d, _ in files.values()))
    errors, seen = [], set()
    for source, (_, used) in sorted(files.items()):
        if KIND.search(source) or source.split("/", 1)[1].startswith(tuple(PLUGINS)):
            continue
        names = {s for s in used - ours if not s.startswith(("fx_", "fxi_"))}  # the library's, and generated texts
        seen |= names
        errors += [f"{source}: {s} is not a function of ISO C: a file for each system must call it" for s in sorted(names - iso)
                   if not ELSEWHERE.fullmatch(s) and not (source.startswith("tools/") and IN_THE_TOOL.fullmatch(s))]
    return errors, len(seen)


def truths(root):
    """(errors, number of calls) of isnan and similar macros in the sources of the library and the command line."""
    errors, count = [], 0
    for path in sorted(glob.glob(os.path.join(root, "src", "**", "*.[ch]"), recursive=True) +
                       glob.glob(os.path.join(root, "tools", "cflux", "*.[ch]"))):
        text = text_of(path)
        for m in TRUTH.finditer(text):
            count += 1
            before, after = text[:m.start()].rstrip(), text[m.end():].lstrip()
            operand = re.search(r"([-+*^]=?|[=!<>]=|[^&]&|[^|]\|)$", before) and not after.startswith("?")
            if operand or re.match(r"([-+*^]|[!=]=(?!\s*0\b)|&[^&]|\|[^|])", after):
                errors.append(f"{os.path.relpath(path, root)}: {m.group()} is used as a number; compare it with 0 first")
    return errors, count


def main():
    build = sys.argv[1]
    root = os.path.abspath(sys.argv[2] if len(sys.argv) > 2 else
                           os.path.join(os.path.dirname(__file__), "..", ".."))
    errors, functions = undefined(root)
    paths = {**objects(build, root), **objects_of_the_tool(build)}
    found = symbols(sorted(paths.values()))
    more, names = foreign({source: found[path] for source, path in paths.items()}, iso_names())
    used_as_numbers, calls = truths(root)
    errors += more + used_as_numbers
    for what, n, least in (("functions", functions, LEAST_FUNCTIONS), ("symbols", names, LEAST_SYMBOLS), ("truths", calls, LEAST_TRUTHS)):
        if n < least:
            errors.append(f"looked at {n} {what}, expected at least {least}")
    for e in errors:
        print(e, file=sys.stderr)
    print(f"{functions} functions for {len(SYSTEMS)} systems, {names} symbols of other libraries, {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
