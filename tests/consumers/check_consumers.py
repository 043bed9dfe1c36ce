#!/usr/bin/env python3
"""Uses an installed cflux as other projects use a library.

Installs a build folder into a temporary prefix, moves that elsewhere (nothing may depend on where it
was), and builds and runs consumer.c and consumer_cxx.cpp there: by pkg-config, shared and static, as C
and as C++17, with gcc and clang; consumer.f90 with gfortran, if it is installed; by CMake's find_package, shared and static; opener.c, which opens the library at run time. With --sources it uses
FetchContent instead, which compiles the library once more.
Usage: check_consumers.py BUILD SOURCES [--sources]
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror"]


def run(*command, env=None, cwd=None):
    done = subprocess.run(command, text=True, capture_output=True, env={**os.environ, **(env or {})}, cwd=cwd,
                          check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


class Consumers:
    def __init__(self, build, sources):
        self.build, self.sources, self.checked = build, sources, 0
        with open(os.path.join(sources, "CMakeLists.txt"), encoding="utf-8") as f:
            self.version = re.search(r"project\(cflux VERSION ([0-9.]+)", f.read()).group(1)

    def so_version(self):
        """The major version, and before 1.0 the minor one too."""
        major, minor = self.version.split(".")[:2]
        return major if major != "0" else f"0.{minor}"

    def expect(self, what, text, *parts):
        for part in parts:
            if part not in text:
                sys.exit(f"{what}: expected {part!r} in\n{text}")
        self.checked += 1
        print(f"{what}: as expected")

    def runs(self, what, program, env=None):
        text = run(program, env=env, cwd=os.path.dirname(program))
        if "cxx" in os.path.basename(program):
            self.expect(what, text, f"version {self.version}\n", "sum of squares: 14\n")
        else:
            self.expect(what, text, f"version {self.version}\n", "2 x + 1: 2.000 x + 1.000\n",
                        "loaded: 2.000 x + 1.000\n")
        return text

    def installed(self, work):
        first, prefix = os.path.join(work, "first"), os.path.join(work, "prefix")
        run("cmake", "--install", self.build, "--prefix", first)
        shutil.move(first, prefix)
        pc = [folder for folder, _, names in os.walk(prefix) if "cflux.pc" in names][0]
        lib = os.path.dirname(pc)
        self.by_pkg_config(work, lib, {"PKG_CONFIG_PATH": pc}, {"LD_LIBRARY_PATH": lib})
        self.by_find_package(work, prefix)

    def by_pkg_config(self, work, lib, env, at_run_time):
        config = lambda *args: run("pkg-config", *args, "cflux", env=env).split()
        self.expect("pkg-config --modversion", "".join(config("--modversion")), self.version)
        self.expect("SONAME", run("readelf", "-d", os.path.join(lib, "libcflux.so")),
                    f"[libcflux.so.{self.so_version()}]")
        static = ["-l:libcflux.a" if flag == "-lcflux" else flag for flag in config("--cflags", "--libs", "--static")]
        for compiler, cxx in [("gcc", "g++"), ("clang", "clang++")]:
            out = os.path.join(work, compiler)
            run(compiler, "-std=c11", *WARNINGS, os.path.join(HERE, "consumer.c"), "-o", out, *config("--cflags", "--libs"))
            self.expect(f"{compiler}, plugin", self.runs(f"{compiler}, shared", out, at_run_time), "plugin: there\n")
            run(compiler, "-std=c11", *WARNINGS, os.path.join(HERE, "consumer.c"), "-o", out + "-static", *static)
            self.runs(f"{compiler}, static", out + "-static")
            # Nothing shared at all: the flags as pkg-config states them, and what the compiler's -static finds.
            run(compiler, "-std=c11", "-static", os.path.join(HERE, "consumer.c"), "-o", out + "-alone",
                *config("--cflags", "--libs", "--static"))
            self.expect(f"{compiler}, -static, what it needs",
                        "shared" if "NEEDED" in run("readelf", "-d", out + "-alone") else "nothing", "nothing")
            # Such a program opens no plugin, and says so.
            plugins = {"FX_PLUGIN_PATH": os.path.join(lib, "cflux")}
            self.expect(f"{compiler}, -static, plugin", self.runs(f"{compiler}, -static", out + "-alone", plugins),
                        "a program that is linked with -static cannot open shared libraries")
            run(cxx, "-std=c++17", *WARNINGS, os.path.join(HERE, "consumer_cxx.cpp"), "-o", out + "-cxx",
                *config("--cflags", "--libs"))
            self.runs(f"{cxx}, C++17", out + "-cxx", at_run_time)
        self.at_run_time(work, lib)
        self.in_fortran(work, config, at_run_time)

    def at_run_time(self, work, lib):
        """A program that is not linked with cflux opens it with dlopen."""
        out = os.path.join(work, "opener")
        run("gcc", "-std=gnu11", *WARNINGS, os.path.join(HERE, "opener.c"), "-o", out, "-lpthread", "-ldl")
        self.expect("dlopen", run(out, os.path.join(lib, "libcflux.so")), "opened 100 times: 300\n")

    def in_fortran(self, work, config, at_run_time):
        """The user compiles the module of the installation; no .mod file is installed."""
        module = os.path.join("".join(config("--variable=includedir")), "cflux.f90")
        self.expect("cflux.f90", "installed" if os.path.exists(module) else "missing", "installed")
        if not shutil.which("gfortran"):
            print("skipped: gfortran is not installed")
            return
        folder = os.path.join(work, "fortran")
        os.mkdir(folder)
        run("gfortran", "-c", module, cwd=folder)
        run("gfortran", os.path.join(HERE, "consumer.f90"), "cflux.o", "-o", "consumer", *config("--libs"), cwd=folder)
        self.runs("gfortran", os.path.join(folder, "consumer"), at_run_time)

    def by_find_package(self, work, prefix):
        out = os.path.join(work, "find_package")
        run("cmake", "-S", os.path.join(HERE, "find_package"), "-B", out, f"-DCMAKE_PREFIX_PATH={prefix}")
        run("cmake", "--build", out)
        fortran = ["fortran"] if os.path.exists(os.path.join(out, "fortran")) else []
        if shutil.which("gfortran") and not fortran:
            sys.exit("find_package: the program in Fortran was not built")
        for program in ["shared", "static", "cxx"] + fortran:
            self.runs(f"find_package, {program}", os.path.join(out, program))

    def from_sources(self, work):
        out = os.path.join(work, "fetch_content")
        run("cmake", "-S", os.path.join(HERE, "fetch_content"), "-B", out, "-DCMAKE_BUILD_TYPE=Debug",
            f"-DFETCHCONTENT_SOURCE_DIR_CFLUX={self.sources}")
        run("cmake", "--build", out, "-j", str(os.cpu_count() or 1), "--target", "consumer")
        self.runs("FetchContent", os.path.join(out, "consumer"))


def main():
    consumers = Consumers(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]))
    with tempfile.TemporaryDirectory(prefix="cflux-") as work:
        if "--sources" in sys.argv:
            consumers.from_sources(work)
        else:
            consumers.installed(work)
    least = 1 if "--sources" in sys.argv else 22
    print(f"{consumers.checked} checks")
    return 0 if consumers.checked >= least else f"fewer than {least} checks"


if __name__ == "__main__":
    sys.exit(main())
