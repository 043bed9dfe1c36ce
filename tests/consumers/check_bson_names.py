#!/usr/bin/env python3
"""The build finds libbson 1.x and 2.x by pkg-config, though their names differ. The installed version is tested. If that is 1.x,
2.x is tested with a folder that has its files under the names of 2.x (library bson2, headers in bson-2.0.0, package bson2).

Only the configuration is looked at: what the build would include and link, what cflux.pc says, and what
scripts/setup asks for. Usage: check_bson_names.py SOURCES
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

PC = """prefix={prefix}
Name: libbson
Description: as of 2.0
Version: 2.0.0
Libs: -L${{prefix}}/lib -l{library}
Cflags: -I${{prefix}}/include/bson-2.0.0
"""


def output(*command, **options):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, **options).stdout


def folder_of_version_2(prefix, static):
    """The files of this machine's libbson under the names of 2.x, and an environment that knows only them."""
    include = re.search(r"-I(\S+)", output("pkg-config", "--cflags", "libbson-1.0")).group(1)
    lib = output("pkg-config", "--variable=libdir", "libbson-1.0").strip()
    os.makedirs(os.path.join(prefix, "lib/pkgconfig"))
    shutil.copytree(include, os.path.join(prefix, "include/bson-2.0.0"))
    os.symlink(os.path.join(lib, "libbson-1.0.so"), os.path.join(prefix, "lib/libbson2.so"))
    names = [("bson2", "bson2")]
    if static:
        names.append(("bson2-static", "bson2-alone"))
        with open(os.path.join(prefix, "lib/libbson2-alone.a"), "wb"):
            pass
    for package, library in names:
        with open(os.path.join(prefix, f"lib/pkgconfig/{package}.pc"), "w", encoding="utf-8") as f:
            f.write(PC.format(prefix=prefix, library=library))
    return {**os.environ, "PKG_CONFIG_LIBDIR": os.path.join(prefix, "lib/pkgconfig")}


def configured(sources, work, environment):
    """(what CMake found, what cflux.pc says of static linking)."""
    output("cmake", "-S", sources, "-B", work, "-Wno-dev", "-DCFLUX_TESTS=OFF", "-DCFLUX_EXAMPLES=OFF", "-DCFLUX_BENCH=OFF",
           "-DCFLUX_TOOLS=OFF", "-DCFLUX_ONEDNN=OFF", env=environment, stderr=subprocess.STDOUT)
    with open(os.path.join(work, "CMakeCache.txt"), encoding="utf-8") as f:
        found = dict(re.findall(r"(?m)^(BSON_INCLUDE|BSON_LIBRARY):\w+=(.*)$", f.read()))
    with open(os.path.join(work, "cflux.pc"), encoding="utf-8") as f:
        return found, re.search(r"(?m)^Libs.private: (.*)$", f.read()).group(1).split()


def main():
    sources, checked = os.path.abspath(sys.argv[1]), 0
    with tempfile.TemporaryDirectory() as work:
        found, private = configured(sources, os.path.join(work, "one"), os.environ)
        if subprocess.run(["pkg-config", "--exists", "libbson-1.0"], check=False).returncode != 0:
            assert found["BSON_LIBRARY"].endswith("libbson2.so") and "-lbson2" in private, (found, private)
            print("this machine has libbson 2.x itself: 2 checks")
            return 0
        assert found["BSON_LIBRARY"].endswith("libbson-1.0.so"), found
        assert "-lbson-static-1.0" in private or "-lbson-1.0" in private, private
        checked += 2
        for static in (False, True):
            prefix = os.path.join(work, f"two-{static}")
            environment = folder_of_version_2(prefix, static)
            found, private = configured(sources, prefix + "-build", environment)
            assert found == {"BSON_INCLUDE": f"{prefix}/include/bson-2.0.0", "BSON_LIBRARY": f"{prefix}/lib/libbson2.so"}, found
            assert ("-lbson2-alone" if static else "-lbson2") in private, private
            done = subprocess.run(["bash", os.path.join(sources, "scripts/setup"), "demo"], env=environment, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, check=False)
            assert done.returncode == 0 and not done.stdout, done.stdout
            checked += 3
    print(f"{checked} checks")
    return 0 if checked >= 8 else "fewer than 8 checks"


if __name__ == "__main__":
    sys.exit(main())
