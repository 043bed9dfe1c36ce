#!/usr/bin/env python3
"""Compiles and runs every C and C++ block of README.md and docs/, so that every page is correct.

The info string of a block says what it is:

  ```c                a whole program when it defines main; else statements, put into one
  ```c name=NAME      a program that the commands after it find under that name, too. With the word `commands`, only
                      a later ```sh run block compiles and runs it, because it needs that block's files
  ```c decl           declarations at file level; they are also seen by the blocks after it on the page
  ```c file=PATH      an excerpt: that file of the tree contains the text, apart from white space
  ```c plugin=NAME    a part of a plugin: all of the page's, in their order, are the file NAME.c
  ```c new=PATH       a file, or lines of a file, of a copy of the tree: follow_guide.py follows the page
  ```c insert=PATH
  ```cpp std=17       a C++ program as above, of that standard; without main, statements
  ```fortran          a program in Fortran; without a line `program`, declarations and statements of one. With
                      name=NAME, the commands after it find it under that name; `commands` as above
  ```sh run           commands, run in the page's own folder, which contains NAME.c and the tree's `data`;
                      the installed `cflux` and library are found, and plugins that they make are by the programs
                      that follow
  ```sh run fortran   commands that need a Fortran compiler
  ```text output      directly after a C block or commands: their output; … matches any text
  ```text log         after that: its messages on stderr
  ```sh               commands that are shown, not run: they build and install
  ```toml file=NAME   writes that file into the page's project folder, for the blocks after it

A page with a line `<!-- devices: stand-ins -->` is run with the tests' stand-in backends, one with
`<!-- devices: simulated -->` with the plugins of GPUs and the simulated drivers of tests/sim, one with
`<!-- devices: OpenCL -->` with the OpenCL plugin. Every page
has a project folder of its own (CFLUX_PROJECT), empty at first.

Programs are compiled with the strict warnings as errors, against a temporary installation of the
built library (so the installation is tested too), and run in the root of the tree. A non-zero exit
status, and "error" on stderr, fail. Too few blocks, and blocks of another kind, fail as well: a page that
lost its programs must not pass.
Blocks of Fortran are skipped with a message if the compiler (gfortran, or the command FC) is not installed.
Usage: check_docs.py --build BUILD [--cc CC] [--cxx CXX] [--flags FLAGS] [--root ROOT]
"""
import argparse
import glob
import os
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import Optional

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "tools"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fortran"))
import fortran_compiler  # noqa: E402
from pages import BLOCK, markdown_pages, read, write  # noqa: E402

LEAST = {"programs": 96, "commands": 26, "excerpts": 2, "C++ programs": 4, "Fortran programs": 12, "Fortran commands": 3}
# Blocks that are for reading: text, what builds and installs (tests/consumers does that), other languages.
SHOWN = {"", "sh", "sh follow", "cmake", "python", "julia"}
STRICT = ["-O1", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror"]
WARNINGS = ["-std=c11"] + STRICT
SECONDS = 60
HEAD = "#include <cflux.h>\n#include <math.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n"


@dataclass
class Block:
    info: str
    text: str
    line: int
    output: Optional[str] = None
    log: Optional[str] = None


def blocks_of(page):
    """The blocks of a Markdown page that are run, compared or written, each with the blocks of output
    that follow it directly."""
    blocks, last, at = [], None, 0
    for m in BLOCK.finditer(page):
        info, text = m["info"].strip(), m["text"].rstrip("\n")
        words = info.split() or [""]
        if page[at:m.start()].strip():
            last = None
        at = m.end()
        if words[0] in ("c", "fortran") or re.fullmatch(r"cpp std=(11|14|17|20)", info) or info.startswith("toml file=") \
                or words[:2] == ["sh", "run"] and words[2:] in ([], ["fortran"]):
            last = Block(info, text, page.count("\n", 0, m.start()) + 2)
            blocks.append(last)
        elif words == ["text", "output"] and last:
            last.output = text
        elif words == ["text", "log"] and last:
            last.log = text
        elif info in SHOWN:
            last = None
        else:
            raise ValueError(f"line {page.count(chr(10), 0, m.start()) + 1}: what is a block of \"{info}\"?")
    return blocks


def matches(expected, actual):
    """True if the text matches the pattern, in which … matches any text. Trailing blanks and newlines do not count."""
    def clean(s):
        return "\n".join(l.rstrip() for l in s.strip("\n").split("\n"))
    pattern = ".*?".join(re.escape(part) for part in clean(expected).split("…"))
    return re.fullmatch(pattern, clean(actual), re.S) is not None


def contains(text, excerpt):
    """Returns whether `text` contains `excerpt`. Formatters change white space, so it is not compared."""
    want = " ".join(excerpt.split())
    return bool(want) and want in " ".join(text.split())


def plugin_text(blocks, name):
    """The source of a page's plugin."""
    parts = [b.text for b in blocks if f"plugin={name}" in b.info.split()]
    return "\n\n".join(parts) + "\n" if parts else ""


def check_plugins(blocks, options, folder):
    """Writes the page's plugins into its folder. Returns a description of what is wrong with them, or an empty string."""
    names = {m.group(1) for m in (re.search(r"\bplugin=(\S+)", b.info) for b in blocks) if m}
    for name in sorted(names):
        source = os.path.join(folder, f"{name}.c")
        write(source, plugin_text(blocks, name))
        built = subprocess.run([options.cc] + WARNINGS + ["-fsyntax-only", "-I",
                               os.path.join(options.prefix, "include"), source],
                               text=True, capture_output=True)
        if built.returncode:
            return built.stderr
    return ""


def run(block, command, options, **how):
    """Runs it and returns a description of what is wrong, or an empty string."""
    try:
        ran = subprocess.run(command, text=True, capture_output=True, timeout=SECONDS * (8 if options.flags else 1), **how)
    except subprocess.TimeoutExpired:
        return f"took more than {SECONDS * (8 if options.flags else 1)} seconds"
    unexpected = block.log is None and re.search(r"\berror\b", ran.stderr, re.I)
    if ran.returncode or unexpected:
        return f"exit status {ran.returncode}\n{ran.stdout}{ran.stderr}"
    return differs(block, ran)


def make_compiler(options, folder):
    """`cc` of the commands: the compiler with its flags, which finds the installation. It restores PATH, because a
    ccache that is called as the compiler looks for `cc` in PATH and would call this file again and again."""
    options.bin = os.path.join(folder, "bin")
    os.mkdir(options.bin)
    path = os.path.join(options.bin, "cc")
    write(path, f"#!/bin/sh\nPATH={shlex.quote(os.environ['PATH'])}\nexport PATH\n"
                f"exec {options.cc} {options.flags} -I{shlex.quote(options.prefix)}/include \"$@\" "
                f"-L{shlex.quote(options.libdir)}\n")
    os.chmod(path, 0o755)


def run_commands(block, options, folder, environment):
    """Returns a description of what is wrong, or an empty string."""
    path = os.pathsep.join([options.bin, os.path.join(options.prefix, "bin"), os.environ["PATH"]])
    environment = dict(environment, PATH=path, PKG_CONFIG_PATH=os.path.join(options.libdir, "pkgconfig"),
                       LD_LIBRARY_PATH=options.libdir)
    return run(block, ["sh", "-e"], options, input=block.text + "\n", cwd=folder, env=environment)


def compiles_and_runs(block, name):
    """Returns whether the block has a command `cc NAME -o PROGRAM …`, or `gfortran NAME cflux.o -o PROGRAM …`, and then
    the command `./PROGRAM`."""
    if not kind_of(block).endswith("commands"):
        return False
    compiled = f"gfortran {name} cflux.o" if name.endswith(".f90") else f"cc {name}"
    built = re.search(rf"^{re.escape(compiled)} -o (\S+)", block.text, re.M)
    return bool(built) and re.search(rf"^\./{re.escape(built[1])}(\s|$)", block.text[built.end():], re.M) is not None


def differs(block, ran):
    """Returns a description of the output or log if it is not as expected, or an empty string."""
    if block.output is not None and not matches(block.output, ran.stdout):
        return f"prints\n{ran.stdout}\nand should print\n{block.output}"
    if block.log is not None and not matches(block.log, ran.stderr):
        return f"logs\n{ran.stderr}\nand should log\n{block.log}"
    return ""


def program(block, declarations):
    if re.search(r"\bint\s+main\s*\(", block.text):
        return block.text
    if block.info.startswith("cpp"):
        return f"#include <cflux.h>\nint main()\n{{\n{block.text}\nreturn fx_error_print(stderr);\n}}\n"
    body = block.text if "decl" not in block.info.split() else ""
    shared = "\n".join(declarations)
    return f"{HEAD}{shared}\nint main(void)\n{{\n{body}\nreturn fx_error_print(stderr);\n}}\n"


def fortran_program(text):
    if re.search(r"(?mi)^program ", text):
        return text
    return ("program block\nuse cflux\nuse, intrinsic :: iso_fortran_env, only: int32, int64, real32, real64\nimplicit none\n"
            f"{text}\ncall fx_check()\nend program block\n")


def run_fortran(block, options, folder, environment):
    """Returns a description of what is wrong, or an empty string."""
    module = os.path.join(options.prefix, "fortran")
    if not os.path.exists(module):
        os.mkdir(module)
        fortran_compiler.compile_module(module, source=os.path.join(options.prefix, "include", "cflux.f90"))
    source, binary = os.path.join(folder, "block.f90"), os.path.join(folder, "block")
    write(source, fortran_program(block.text) + "\n")
    built = subprocess.run([*fortran_compiler.compiler(), *fortran_compiler.STRICT, "-I", module, source,
                            os.path.join(module, "cflux.o"), "-o", binary, "-L", options.libdir,
                            f"-Wl,-rpath,{options.libdir}", "-lcflux"], text=True, capture_output=True)
    if built.returncode:
        return "does not compile:\n" + built.stderr
    return run(block, [binary], options, cwd=folder, env=environment, stdin=subprocess.DEVNULL)


def kind_of(block):
    words = block.info.split()
    if words[:2] == ["sh", "run"]:
        return "Fortran commands" if "fortran" in words else "commands"
    return {"cpp": "C++ programs", "fortran": "Fortran programs"}.get(words[0], "programs")


def run_block(block, declarations, options, folder, environment):
    """Returns a description of what is wrong, or an empty string."""
    cxx = block.info.startswith("cpp")
    source, binary = os.path.join(folder, "block.cc" if cxx else "block.c"), os.path.join(folder, "block")
    write(source, program(block, declarations) + "\n")
    compiler = [options.cxx, "-std=c++" + block.info.split("=")[1]] + STRICT if cxx else [options.cc] + WARNINGS
    command = (compiler + ["-Wno-unused-function"] + shlex.split(options.flags)
               + ["-I", os.path.join(options.prefix, "include"), source, "-o", binary,
                  "-L", options.libdir, f"-Wl,-rpath,{options.libdir}", "-lcflux", "-lm"])
    built = subprocess.run(command, text=True, capture_output=True)
    if built.returncode:
        return "does not compile:\n" + built.stderr
    return run(block, [binary], options, cwd=options.root, env=environment, stdin=subprocess.DEVNULL)


def install(options, folder):
    options.prefix = os.path.join(folder, "prefix")
    subprocess.run(["cmake", "--install", options.build, "--prefix", options.prefix], check=True,
                   stdout=subprocess.DEVNULL)
    found = glob.glob(os.path.join(options.prefix, "lib*", "**", "libcflux.so"), recursive=True)
    if not found:
        sys.exit("the installation has no libcflux.so")
    for path in ["bin/cflux", "share/man/man1/cflux.1", "share/bash-completion/completions/cflux", "include/cflux.f90"]:
        if not os.path.exists(os.path.join(options.prefix, path)):
            sys.exit(f"the installation has no {path}")
    options.libdir = os.path.dirname(found[0])


def check_page(path, options, folder, counts):
    errors, declarations = [], []
    text = read(path)
    try:
        blocks = blocks_of(text)
    except ValueError as e:
        return [f"{os.path.relpath(path, options.root)}: {e}"]
    project = tempfile.mkdtemp(dir=folder)
    os.symlink(os.path.join(options.root, "data"), os.path.join(project, "data"))
    # The pages show what release builds print; builds with checks would keep records of handles.
    environment = dict(os.environ, CFLUX_PROJECT=project, FX_PLUGIN_PATH=project, FX_HANDLES="0")
    if "<!-- devices: stand-ins -->" in text:
        environment["FX_PLUGIN_PATH"] = os.path.join(options.build, "tests", "standin")
    if "<!-- devices: simulated -->" in text:
        environment["FX_PLUGIN_PATH"] = options.build
        environment["FX_OPENCL_DEVICES"] = "portable"
        environment["LD_LIBRARY_PATH"] = os.path.join(options.build, "tests", "sim")
        environment["SIM_CACHE"] = options.sim_cache
        environment["FX_CACHE"] = "off"
    if "<!-- devices: OpenCL -->" in text:
        environment["FX_PLUGIN_PATH"] = options.build
        environment["FX_OPENCL_DEVICES"] = "portable"
    wrong = check_plugins(blocks, options, project)
    if wrong:
        errors.append(f"{os.path.relpath(path, options.root)}: the plugin does not compile:\n{wrong}")
    for block in blocks:
        where = f"{os.path.relpath(path, options.root)}:{block.line}"
        if re.search(r"\b(plugin|new|insert)=", block.info):
            continue
        source = re.search(r"\bfile=(\S+)", block.info)
        if block.info.startswith("toml"):
            write(os.path.join(project, source.group(1)), block.text + "\n")
            continue
        if source:
            counts["excerpts"] += 1
            full = os.path.join(options.root, source.group(1))
            if not os.path.exists(full):
                errors.append(f"{where}: there is no {source.group(1)}")
            elif not contains(read(full), block.text):
                errors.append(f"{where}: not (any more) in {source.group(1)}")
            continue
        if "decl" in block.info.split():
            declarations.append(block.text)
        named = re.search(r"\bname=(\S+)", block.info)
        if named:
            write(os.path.join(project, named.group(1)), block.text + "\n")
        if named and "commands" in block.info.split():
            counts["programs"] += 1
            if not any(compiles_and_runs(later, named.group(1)) for later in blocks[blocks.index(block) + 1:]):
                errors.append(f"{where}: no commands after it compile and run {named.group(1)}")
            continue
        kind = kind_of(block)
        language = kind.partition(" ")[0]
        if language in options.missing:
            print(f"skipped: {where}: there is no {language} compiler")
            continue
        counts[kind] += 1
        wrong = (run_commands(block, options, project, environment) if kind.endswith("commands")
                 else run_fortran(block, options, project, environment) if language == "Fortran"
                 else run_block(block, declarations, options, folder, environment))
        print(f"{'FAILED' if wrong else 'ok    '} {where}")
        if wrong:
            errors.append(f"{where}: {wrong}")
    return errors


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--sim-cache", default="", help="where kernels of simulated devices are kept")
    parser.add_argument("--cc", default="cc")
    parser.add_argument("--cxx", default="", help="default: blocks of C++ are skipped")
    parser.add_argument("--flags", default="")
    parser.add_argument("--root", default=os.path.join(os.path.dirname(__file__), "..", ".."))
    parser.add_argument("pages", nargs="*", help="default: all pages; with pages, however few blocks they have")
    options = parser.parse_args()
    options.root = os.path.abspath(options.root)
    pages = [os.path.abspath(p) for p in options.pages] or markdown_pages(options.root)
    # Sanitizers are for C: a program in Fortran would need their libraries.
    options.missing = {"C++"} if not options.cxx else set()
    options.missing |= {"Fortran"} if options.flags or not fortran_compiler.compiler() else set()
    counts, errors = dict.fromkeys(LEAST, 0), []
    with tempfile.TemporaryDirectory() as folder:
        install(options, folder)
        make_compiler(options, folder)
        for page in pages:
            errors += check_page(page, options, folder, counts)
    if not options.pages and any(counts[what] < least for what, least in LEAST.items()
                                 if what.partition(" ")[0] not in options.missing):
        errors.append(f"too few blocks: {counts}, expected {LEAST}")
    for e in errors:
        print(e, file=sys.stderr)
    print(f"{len(pages)} pages, {counts}, {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
