#!/usr/bin/env python3
"""Checks of the source tree that no compiler makes.

  * The direction of #includes between the folders of src/: a folder includes itself and the folders
    before it in the list of CONTRIBUTING.md, and the folders in PUBLIC_ONLY include only
    platform, base and the public headers. EXCEPTIONS lists the deviations with their reasons, and an exception that
    is not needed fails. Calls have the same direction: see check_calls.py.
  * A tool uses the library through its public headers.
  * File names are unique over src, include, tests, examples and tools, so that #include "x.h" is one file.
  * Code that differs between systems is in src/platform: no other folder includes a system's headers or
    uses its names.
  * The library formats floating-point numbers by functions that ignore the program's locale.
  * The library does not print, exit, or allocate memory except through src/base/memory.h.
  * Outside src/nn the library names no layer: the layer's table tells it everything.
  * A test program that starts itself again uses own_child.h, which knows the emulator of
    a cross build, or is marked `native`. One on simulated drivers is marked `simulated`.
  * Every C file begins with a comment; no file names a path of one machine.
  * The repository contains only the entries of TOP at its top: no output of a program that was run there.
  * A file that names its interpreter (#!) can be executed, because pages and people start it by its name.

Each check counts what it looked at: with nothing to look at, it fails.
Usage: check_tree.py [root]
"""
import os
import re
import shutil
import subprocess
import sys

PUBLIC_ONLY = {"nn", "train"}
FOR_ALL = {"platform", "base"}  # which these may include as well
# (folder, header): why.
EXCEPTIONS = {
    ("nn", "evaluate_object.h"): "the parameters of a new layer are computed without the program's asking",
    ("nn", "divided_batch.h"): "batch norm computes its statistics over the batches of several processes",
    ("nn", "fused_attention.h"): "attention is one operation on devices that have a kernel for it",
    ("nn", "own_gradient.h"): "attention computes its scores again for the gradient",
    ("nn", "recorded_part.h"): "a recorded training step skips the calls of a layer or loss",
    ("nn", "check_arguments.h"): "fx_chain checks its arguments as fx_tuple does",
    ("train", "map_gradient.h"): "a gradient without the scale of the loss names the parameters that the loss does not use",
    ("train", "dist_update.h"): "fx_train updates with the gradients of all processes, whatever the rules",
}

def folders_in_order(root):
    """The folders of src/ in the order of CONTRIBUTING.md, whose table has a row for each of them."""
    path = os.path.join(root, "CONTRIBUTING.md")
    with open(path, encoding="utf-8") as f:
        names = re.findall(r"(?m)^\| `src/(\w+)/` \|", f.read())
    if len(names) < 10:
        raise SystemExit(f"{path}: its table has {len(names)} folders, expected at least 10")
    return names


ORDER = folders_in_order(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))

# Headers that every folder of src/ may include: ISO C, the instructions of processors, and the libraries that
# are linked. Every other header, such as <pthread.h>, <unistd.h> or <sys/stat.h>, belongs to a kind of
# system, and only src/platform/ includes it. <time.h> and <signal.h> are ISO C, but on
# some systems they lack functions for clocks and signals that programs need.
EVERYWHERE = re.compile(r"(?:ctype|errno|float|inttypes|limits|math|std(?:arg|bool|def|int|io|lib)|string)\.h"
                        r"|(?:imm|emm)intrin\.h|arm_neon\.h|sanitizer/\w+\.h"
                        r"|zlib\.h|bson/bson\.h|dnnl\.h|mpi\.h|cflux/\w+\.(?:h|def)")
SYSTEM_INCLUDE = re.compile(r"(?m)^\s*#\s*include\s+<([^>]+)>")
# Only files of the command line with this name call the system. Its other files may include the headers of TOOLS_TOO,
# which every supported system has.
SYSTEM_FILES = re.compile(r"system_\w+\.[ch]")
TOOLS_TOO = {"cflux.h", "getopt.h", "locale.h", "wchar.h"}
# The libraries of one file of the tools, optional where it is built, and what their errors need.
TOOLS_LIBRARIES = {"image_file.c": {"png.h", "jpeglib.h", "setjmp.h"}}
# Names of POSIX that the headers of EVERYWHERE declare on some systems.
SYSTEM_NAMES = re.compile(r"(?<![\w.])(?<!->)(?:fileno|fdopen|secure_getenv|setenv|putenv|realpath|mkstemp|mkostemp|mkdtemp|strtok_r"
                          r"|strcasecmp|strncasecmp|strcasestr|str(?:to[dfl]|tol[dl])_l|strerror_r|fseeko|ftello"
                          r"|fopencookie|fmemopen|qsort_r|random|srandom|flockfile|popen|fopen|gzopen|stpcpy)\s*\(|\bpthread_\w+|\bssize_t\b|\boff_t\b"
                          r"|\bformat\s*\(\s*printf\b")
# The same for the command line: functions that Windows does not have, or that take no path in UTF-8 there.
TOOLS_NAMES = re.compile(r"(?<![\w.])(?<!->)(?:fopen|gzopen|stpcpy|strndup|open_memstream|wcwidth)\s*\(")
# (file, name of a layer in it): why.
LAYER_NAMES = {
    ("src/flux/bson_callable.c", '"Parallel"'): "a reshape by sizes of the input is written as a Parallel of functions",
    ("src/flux/bson_callable.c", '"Flux.Parallel"'): "the same",
    ("src/flux/bson_layers.c", '"Flux.Scale"'): "Flux's LayerNorm contains a Scale, whose fields are members here",
    ("src/flux/bson_shapes.c", '"Scale"'): "the same",
    ("src/flux/closure_layer.c", "fxi_maxpool"): "an anonymous function that pools is written with these layers",
    ("src/flux/closure_layer.c", "fxi_meanpool"): "the same",
    ("src/flux/closure_layer.c", "fx_maxpool_args"): "the same",
    ("src/flux/closure_layer.c", "fxi_chain"): "the same: one function may be several layers",
}

# The files and folders at the top of the repository.
TOP = {".ci", ".clang-format", ".gitignore", "CMakeLists.txt", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md", "bench",
       "cmake", "data", "docs", "examples", "include", "packaging", "scripts", "src", "tests", "tools"}

C_FILES = (".c", ".h", ".def", ".inc", ".hpp", ".cpp", ".cc")
SAME_NAME_ALLOWED = {"CMakeLists.txt", "README.md"}
# Names that would end the program or write to its standard output, and those that allocate memory
# in a way that the fault tests cannot make fail.
FORBIDDEN = {
    "ends the program": r"(?:exit|_exit|_Exit|quick_exit|abort|assert)",
    "prints": r"(?:printf|vprintf|puts|putchar|perror)",
    "runs a command": r"(?:system|popen)",
    "takes memory": r"(?:malloc|calloc|realloc|reallocarray|free|strdup|strndup|aligned_alloc"
                    r"|posix_memalign|asprintf|vasprintf|getline|getdelim|open_memstream)",
}
# The planner is told what it must know (planner.h).
FORBIDDEN_IN = {"plan": {"reads the environment": r"(?:secure_)?getenv\s*\(", "logs": r"fx_message\s*\(",
                         "looks into a backend": r"backend\s*->", "prints": r"fprintf\s*\("}}
MEMORY_FILES = {"memory.c", "memory.h", "system_memory_posix.c", "system_memory_windows.c"}
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


def includes_of_system(text, more=()):
    """The headers that one kind of system has."""
    return [name for name in SYSTEM_INCLUDE.findall(text) if not EVERYWHERE.fullmatch(name) and name not in more]


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
    if source == target:
        return True
    top, below = source.split("/")[0], target.split("/")[0]
    if target in FOR_ALL and top not in FOR_ALL:
        return True
    if top in PUBLIC_ONLY or top not in ORDER or below not in ORDER:
        return False
    # Two backends do not use each other; all use the files of backends/ itself, and of gpu/.
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
            errors.append(f"{where}: files belong in a folder of src/, not in src/ itself")
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
                errors.append(f"{where}:{number}: \"{name}\" is not a file of src/")
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
        where, text = os.path.relpath(path, root), read(path)
        for number, line in enumerate(text.split("\n"), 1):
            m = re.match(r"\s*#\s*include\s+\"([^\"]+)\"", line)
            if not m:
                continue
            count += 1
            if not os.path.exists(os.path.join(os.path.dirname(path), m.group(1))):
                errors.append(f"{where}:{number}: tools include public headers and their own, not \"{m.group(1)}\"")
        if not SYSTEM_FILES.fullmatch(os.path.basename(path)):
            more = TOOLS_TOO | TOOLS_LIBRARIES.get(os.path.basename(path), set())
            errors += [f"{where}: only system_*.c include <{name}>" for name in includes_of_system(text, more)]
            stripped = strip_c(text)
            errors += [f"{where}:{line_of(stripped, m.start())}: only system_*.c use {m.group(0).rstrip('( ')}"
                       for m in TOOLS_NAMES.finditer(stripped)]
    return count


OWN_PROGRAM = re.compile(r'"/proc/self/exe"|\bargv\[0\]')
STARTS = re.compile(r"\b(?:popen|system|exec[lv]\w*|posix_spawnp?)\s*\(")


def check_own_children(root, errors):
    count = 0
    for path in walk(root, ["tests"]):
        if not path.endswith((".c", ".cpp")):
            continue
        text = read(path)
        count += 1
        if os.path.basename(path) == "own_child.c" or not OWN_PROGRAM.search(text) or not STARTS.search(text):
            continue
        if not re.search(r"ctest:[^*]*\bnative\b", text):
            errors.append(f"{os.path.relpath(path, root)}: starts itself, which an emulator cannot do: use own_child.h")
    return count


SIMULATED = re.compile(r'\bSIM_[A-Z]+\b|"simulated_rows\.h"|tests/sim/')


def check_simulated(root, errors):
    count = 0
    for path in walk(root, ["tests/unit", "tests/fault"]):
        text = read(path)
        if not path.endswith((".c", ".cpp")) or not SIMULATED.search(text):
            continue
        count += 1
        if not re.search(r"ctest:[\sa-z0-9=*]*\bsimulated\b", text):
            errors.append(f"{os.path.relpath(path, root)}: uses simulated drivers, which a cross build does not have: "
                          "write 'ctest: simulated' into its first comment")
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
        for what, pattern in FORBIDDEN_IN.get(area(path, root), {}).items():
            for m in re.finditer(r"\b" + pattern, text):
                errors.append(f"{where}:{line_of(text, m.start())}: {area(path, root)} {what}")
        for m in re.finditer(r"\bv?fprintf\s*\(\s*stdout\b|\bfput[sc]\s*\([^;]*\bstdout\b", text):
            errors.append(f"{where}:{line_of(text, m.start())}: writes to stdout")
    return count


FORMATTED = re.compile(r"\b(?:sn?printf|fprintf|vsnprintf|vfprintf)\s*\(")
# %.0f has no decimals, and so no point.
WITH_DECIMALS = re.compile(r"%[-+ #0]*(?:\*|\d+)?(?!\.0f)(?:\.(?:\*|\d+))?[aefgAEFG]")
TEXT = re.compile(r"\"(?:\\.|[^\"\\\n])*\"")
# Their own functions with formats get no floating-point numbers; src/platform has the functions.
NO_DECIMALS = ("src/backends/", "src/plan/", "src/platform/")


def has_decimals(text):
    return WITH_DECIMALS.search(text.replace("%%", "")) is not None


def check_locale(root, errors):
    """Texts that other programs read have a point before the decimals, in every locale."""
    count = 0
    for path in walk(root, ["src"]):
        if not path.endswith(C_FILES):
            continue
        where, source = os.path.relpath(path, root), read(path)
        without, plain = strip_c(source), where.startswith(NO_DECIMALS)
        found = [m.start() for m in TEXT.finditer(source) if plain and has_decimals(m.group(0))]
        for m in FORMATTED.finditer(without):
            count += 1
            text = source[m.start():without.find(";", m.start())]
            if has_decimals(text) or (m.group(0).startswith("v") and not plain):
                found.append(m.start())
        for at in found:
            errors.append(f"{where}:{line_of(source, at)}: writes the decimal point of the locale: "
                          "use fxi_snprintf or fxi_vsnprintf")
    return count


def check_system(root, errors):
    """Only src/platform/ includes headers that not every system has, and calls what they declare."""
    count = 0
    for path in walk(root, ["src"]):
        if not path.endswith(C_FILES) or area(path, root) == "platform":
            continue
        where, text = os.path.relpath(path, root), read(path)
        count += len(SYSTEM_INCLUDE.findall(text))
        errors += [f"{where}: only src/platform/ includes <{name}>" for name in includes_of_system(text)]
        stripped = strip_c(text)
        for m in SYSTEM_NAMES.finditer(stripped):
            errors.append(f"{where}:{line_of(stripped, m.start())}: only src/platform/ uses {m.group(0).rstrip('( ')}")
    return count


def check_heads(root, errors):
    count = 0
    for path in walk(root, ["src", "include", "tests", "examples", "bench", "tools"]):
        if path.endswith(C_FILES):
            count += 1
            if not read(path).lstrip().startswith(("/*", "//")):
                errors.append(f"{os.path.relpath(path, root)}: begins without a comment")
    return count


FOLDERS = ["src", "include", "tests", "examples", "bench", "docs", "scripts", "cmake", "tools", ".ci"]


def check_scripts(root, errors):
    count = 0
    for path in walk(root, FOLDERS):
        with open(path, "rb") as f:
            if f.read(2) != b"#!":
                continue
        count += 1
        if not os.access(path, os.X_OK):
            errors.append(f"{os.path.relpath(path, root)}: begins with #!, but cannot be executed: chmod +x")
    return count


def check_top(root, errors):
    """In a checkout, git says what belongs to the repository; a source archive has no other files."""
    found, command = set(), ["git", "-c", "safe.directory=*", "-C", root, "ls-files", "-z"]
    if os.path.exists(os.path.join(root, ".git")) and shutil.which("git"):
        listed = subprocess.run(command, stdout=subprocess.PIPE, check=False).stdout.decode()
        found = {path.split("/")[0] for path in listed.split("\0") if path}
    if not found:  # also if git refuses a folder of another owner
        found = {name for name in os.listdir(root) if name in TOP}
    for name in sorted(found - TOP):
        errors.append(f"{name} is not one of the known files and folders at the top: remove it, or add it to TOP")
    return len(found)


def check_places(root, errors):
    count = 0
    top = [os.path.join(root, n) for n in sorted(os.listdir(root))
           if os.path.isfile(os.path.join(root, n)) and n != ".git"]  # a file in a linked worktree
    for path in top + list(walk(root, FOLDERS)):
        if path.endswith((".gz", ".npy", ".bin", ".png", ".bson")):
            continue
        count += 1
        for number, line in enumerate(read(path).split("\n"), 1):
            if MACHINE_PATH.search(line):
                errors.append(f"{os.path.relpath(path, root)}:{number}: a path of one machine: {line.strip()}")
    return count


def check_layers(root, errors):
    """A layer is known by its table: outside src/nn the library names no layer."""
    names = re.findall(r"^LAYER\((\w+)\)", read(os.path.join(root, "src", "nn", "layers.def")), re.M)
    call = re.compile(r"\b(?:fx|fxi)_(" + "|".join(names) + r")(?:_(?:layer|args|layer_args|type))?\b")
    text = re.compile(r"\"(?:Flux\.)?(" + "|".join(names) + r")\"", re.I)
    count, used = 0, set()
    for path in walk(root, ["src/tree", "src/io", "src/flux", "src/format", "src/torch", "src/optim", "src/train"]):
        if not path.endswith(C_FILES):
            continue
        count += 1
        where, source = os.path.relpath(path, root), read(path)
        found = [m for m in call.finditer(strip_c(source))]
        bare = re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m.group(0)), source, flags=re.S)
        found += [m for m in text.finditer(bare) if m.group(1)[0].isupper()]
        for m in found:
            if (where, m.group(0)) in LAYER_NAMES:
                used.add((where, m.group(0)))
            else:
                errors.append(f"{where}:{line_of(source, m.start())}: names a layer: {m.group(0)}")
    for unused in sorted(set(LAYER_NAMES) - used):
        errors.append(f"exception {unused} is not needed any more: remove it")
    return count if len(names) >= 8 else 0


CHECKS = [  # name, function, what it must at least have looked at
    ("includes between folders", check_includes, 20),
    ("includes of public headers", check_public_includes, 11),
    ("includes of tools", check_tools, 10),
    ("unique names", check_names, 60),
    ("calls", check_calls, 20),
    ("numbers and locales", check_locale, 200),
    ("system headers", check_system, 200),
    ("file heads", check_heads, 40),
    ("machine paths", check_places, 60),
    ("top of the repository", check_top, 6),
    ("scripts", check_scripts, 60),
    ("names of layers", check_layers, 60),
    ("programs that start themselves", check_own_children, 100),
    ("programs on simulated drivers", check_simulated, 8),
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
