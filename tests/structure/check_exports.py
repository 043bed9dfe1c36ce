#!/usr/bin/env python3
"""The shared library exports exactly the names that the headers declare, and needs only known libraries.

  * Every function or object that a public header declares FX_API is defined in the library: otherwise only a user's linker would find the missing definition.
  * Every exported symbol begins with fx_ or fxi_.
  * Its dynamic dependencies are libc, libm, zlib, libbson and what the compiler itself adds.
  * The declarations of the plugin interface are those of its number, FX_PLUGIN_ABI (plugin_interface.txt).
  * Every thread-local variable has the initial-exec model (CMakeLists.txt says why), and no two have the same address.
Usage: check_exports.py libcflux.so [root]
"""
import hashlib
import os
import re
import subprocess
import sys

LEAST = 250
SHOWN = 20
LEAST_THREAD_LOCAL = 5
# glibc reserves 1664 bytes in each thread for the thread-local variables of all libraries that dlopen loads and whose
# variables have the model initial-exec. If they need more, dlopen fails.
MOST_THREAD_LOCAL_BYTES = 1024
ALLOWED_LIBRARIES = r"(libc|libm|libz|libbson-1\.0|libpthread|libgcc_s|ld-linux[\w-]*)\.so(\.\d+)*"


def declared(root):
    names = set()
    for path, _, files in os.walk(os.path.join(root, "include")):
        for name in sorted(files):
            with open(os.path.join(path, name), encoding="utf-8") as f:
                text = re.sub(r"/\*.*?\*/", " ", f.read(), flags=re.S)
            text = re.sub(r"(?s)#ifdef _WIN32\b.*?#else", "", text)  # what only Windows has
            # The bodies of macros declare nothing (#define lines with their continuations).
            text = re.sub(r"(?m)^[ \t]*#(?:[^\n]*\\\n)*[^\n]*$", "", text)
            for statement in re.findall(r"\bFX_API\b([^;{]*)[;{]", text):
                m = re.search(r"\b(fxi?_\w+)\s*\(", statement) or re.search(r"\b(fxi?_\w+)\s*$", statement)
                if m:
                    names.add(m.group(1))
    return names


def interface_errors(texts, stored):
    """The headers of the plugin interface; "NUMBER HASH" of plugin_interface.txt. The sizes of structs, which the
    loader compares, do not show a member in what was padding."""
    code = " ".join(re.sub(r"/\*.*?\*/", " ", " ".join(texts), flags=re.S).split())
    number = re.search(r"FX_PLUGIN_ABI = (\d+)", code)[1]
    now = f"{number} {hashlib.sha256(code.encode()).hexdigest()[:16]}"
    if now == stored:
        return []
    return [f"the plugin interface has changed: {stored} is now {now}. If a plugin of the old headers could misread a "
            "struct, increase FX_PLUGIN_ABI. Then write the new line to tests/structure/plugin_interface.txt"]


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as f:
        return f.read()


def exported(library):
    out = subprocess.run(["nm", "-D", "--defined-only", library], check=True, text=True,
                         capture_output=True).stdout
    # Type A: the name of the version script's node.
    return {line.split()[-1].split("@")[0] for line in out.splitlines() if line.split() and line.split()[-2] != "A"}


def needed(library):
    out = subprocess.run(["readelf", "-d", library], check=True, text=True, capture_output=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.+)\]", out)


def readelf(flag, library):
    return subprocess.run(["readelf", "-W", flag, library], check=True, text=True, capture_output=True).stdout


def thread_local_errors(relocations):
    """From the output of readelf -r."""
    errors, addresses = [], set()
    for line in relocations.splitlines():
        kind = re.search(r"R_\w*_(?:TPOFF|TPREL|DTPMOD|DTPOFF|DTPREL|TLSDESC|TLS_\w+)\d*", line)
        if not kind:
            continue
        if not re.search(r"TPOFF|TPREL", kind[0].replace("DTPOFF", "").replace("DTPREL", "")):
            errors.append(f"a thread-local variable of another model than initial-exec: {line.strip()}")
            continue
        # A symbol's value and an addend, or an addend alone.
        words = line[line.index(kind[0]) + len(kind[0]):].split()
        address = int(words[0], 16) + (int(words[-1], 16) if "+" in words else 0)
        if "<null>" in words or address in addresses:
            errors.append(f"a thread-local variable at the address of another: {line.strip()}")
        addresses.add(address)
    if len(addresses) < LEAST_THREAD_LOCAL:
        errors.append(f"found {len(addresses)} thread-local variables only, expected at least {LEAST_THREAD_LOCAL}")
    return errors


def thread_local_size_errors(segments):
    """From the output of readelf -l."""
    size = sum(int(m, 16) for m in re.findall(r"^\s*TLS\s+(?:0x\w+\s+){4}0x(\w+)", segments, flags=re.M))
    if 0 < size <= MOST_THREAD_LOCAL_BYTES:
        return []
    return [f"the thread-local variables take {size} bytes, at most {MOST_THREAD_LOCAL_BYTES} are allowed, because dlopen of the "
            "library must find room for them: allocate large data, and keep a pointer to it"]


def main():
    library = sys.argv[1]
    root = os.path.abspath(sys.argv[2] if len(sys.argv) > 2 else
                           os.path.join(os.path.dirname(__file__), "..", ".."))
    want, have, errors = declared(root), exported(library), []
    errors += [f"declared, but not in the library: {n}" for n in sorted(want - have)]
    errors += [f"exported, but not a name of cflux: {n}" for n in sorted(have)
               if not re.fullmatch(r"fxi?_\w+", n)]
    errors += [f"needs {n}" for n in needed(library) if not re.fullmatch(ALLOWED_LIBRARIES, n)]
    errors += thread_local_errors(readelf("-r", library))
    errors += thread_local_size_errors(readelf("-l", library))
    errors += interface_errors([read(root, "include", "cflux", name) for name in ("plugin.h", "backend.h")],
                               read(root, "tests", "structure", "plugin_interface.txt").strip())
    if len(want) < LEAST:
        errors.append(f"found {len(want)} declarations only, expected at least {LEAST}")
    for e in errors[:SHOWN]:
        print(e, file=sys.stderr)
    print(f"{len(want)} declared, {len(have)} exported, {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
