"""The Fortran compiler of the tests: gfortran, or the command in the environment variable FC."""
import os
import shlex
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "..", ".."))
MODULE = os.path.join(ROOT, "include", "cflux.f90")
# Sections of arrays are copied on purpose.
STRICT = ["-std=f2018", "-Wall", "-Wextra", "-Werror", "-fcheck=all,no-array-temps", "-g"]


def compiler():
    """The command as a list; an empty list if it is not installed."""
    command = shlex.split(os.environ.get("FC", "") or "gfortran")
    return command if shutil.which(command[0]) else []


def run(command, folder=None, env=None):
    """Runs a command, which must succeed and print nothing with "warning" on stderr. Returns its output."""
    done = subprocess.run(command, text=True, capture_output=True, cwd=folder, env=dict(os.environ, **(env or {})), timeout=100)
    if done.returncode or "warning" in done.stderr.lower():
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def compile_module(folder, source=MODULE):
    """Compiles cflux.f90 into cflux.o and cflux.mod in a folder."""
    run([*compiler(), *STRICT, "-c", source, "-o", "cflux.o"], folder)


def compile_program(folder, source, build, options=()):
    """Compiles a program with the module in the folder, and links it with the library of a build. Returns its path."""
    out = os.path.join(folder, os.path.splitext(os.path.basename(source))[0])
    run([*compiler(), *STRICT, *options, source, "cflux.o", "-o", out,
         "-L", build, f"-Wl,-rpath,{build}", "-lcflux"], folder)
    return out
