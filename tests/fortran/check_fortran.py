#!/usr/bin/env python3
"""The module cflux.f90, compiled with all warnings as errors and all checks at run time.

  module      calls.f90 calls every public procedure; same.f90 prints the same numbers as same.c
  processes   processes.f90, which initialises MPI, trains in two processes of each MPI that has a Fortran compiler,
              with a communicator of its own
  examples    the programs of examples/*.f90 and what they print

Without a Fortran compiler the check prints a message and passes.
Usage: check_fortran.py module|processes|examples BUILD
"""
import glob
import json
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile

import fortran_compiler as fortran
from fortran_compiler import HERE, MODULE, ROOT

sys.path.insert(0, os.path.join(HERE, "..", "dist"))


def write_safetensors(path, arrays):
    """arrays: name → (shape, Float32 numbers in C's order)."""
    header, at = {}, 0
    for name, (shape, numbers) in arrays.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + 4 * len(numbers)]}
        at += 4 * len(numbers)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, numbers in arrays.values():
            f.write(struct.pack(f"<{len(numbers)}f", *numbers))


def public_names():
    with open(MODULE, encoding="utf-8") as f:
        lines = re.findall(r"(?m)^    public :: (.*)$", f.read())
    return [name.strip() for line in lines for name in line.split(",")]


def check_module(build, folder):
    fortran.compile_module(folder)
    with open(os.path.join(HERE, "calls.f90"), encoding="utf-8") as f:
        calls = f.read()
    names = public_names()
    missing = [name for name in names if not re.search(rf"\b{name}\b", calls)]
    if missing or len(names) < 60:
        sys.exit(f"{len(names)} public names; calls.f90 does not use {missing}")
    # A linear layer of PyTorch.
    write_safetensors(os.path.join(folder, "torch.safetensors"),
                      {"0.weight": ([3, 2], [1, 2, 3, 4, 5, 6]), "0.bias": ([3], [0.5, 0.25, 0])})
    program = fortran.compile_program(folder, os.path.join(HERE, "calls.f90"), build, ["-Wno-compare-reals"])
    out = fortran.run([program], folder)
    checks = re.search(r"(?m)^(\d+) checks$", out)
    if not checks or int(checks[1]) < 170:
        sys.exit(f"calls.f90 prints\n{out}")
    in_fortran = fortran.run([fortran.compile_program(folder, os.path.join(HERE, "same.f90"), build)], folder)
    in_c = os.path.join(folder, "same_c")
    fortran.run(["cc", "-std=c11", "-I", os.path.join(ROOT, "include"), os.path.join(HERE, "same.c"), "-o", in_c,
                 "-L", build, f"-Wl,-rpath,{build}", "-lcflux"])
    if fortran.run([in_c]) != in_fortran or len(in_fortran.split()) != 15 + 64:
        sys.exit(f"same.f90 and same.c differ:\n{in_fortran}")
    print(f"{len(names)} public names, {checks[1]} checks, {len(in_fortran.split())} numbers as in C")


def weight_of_all(processes):
    """The weight after three updates of processes.f90, by its formula for the data of all processes."""
    x = [(i + 1) / 8 for i in range(4 * processes)]
    w = 0.5
    for _ in range(3):
        w -= 0.5 * sum(2 * (w - 3) * v * v for v in x) / len(x)
    return w


def check_processes(build, folder):
    import mpis
    for name, start in mpis.installed(build):
        wrapper = shutil.which(f"mpif90.{name}")
        if not wrapper:
            print(f"skipped: {name} has no Fortran compiler")
            continue
        into = os.path.join(folder, name)
        os.mkdir(into)
        fortran.compile_module(into)
        # The module mpi of some MPIs has warnings of its own.
        out = os.path.join(into, "processes")
        done = subprocess.run([wrapper, "-std=f2018", "-fcheck=all", "-cpp", f"-D{name.upper()}", os.path.join(HERE, "processes.f90"), "cflux.o", "-o", out,
                               "-L", build, f"-Wl,-rpath,{build}", "-lcflux"], text=True, capture_output=True, cwd=into)
        if done.returncode:
            sys.exit(f"{name}: {done.stderr}")
        write_safetensors(os.path.join(into, "start.safetensors"), {"model.weight": ([1, 1], [0.5])})
        ran = subprocess.run([*start, "-n", "2", out], text=True, capture_output=True, cwd=into, timeout=100,
                             env=dict(mpis.ENVIRONMENT, FX_PLUGIN_PATH=build))
        weights = dict(re.findall(r"(?m)^rank (\d) of 2: (\S+)$", ran.stdout))
        trained = dict(re.findall(r"(?m)^rank (\d): trained 0 +(\S+)$", ran.stdout))
        right = all(abs(float(weights.get(r, "nan")) - weight_of_all(2)) < 1e-6 for r in "01")
        if ran.returncode or not right or trained != {"0": "3.0000", "1": "3.0000"}:
            sys.exit(f"{name}: expected {weight_of_all(2):.7f}, exit status {ran.returncode}\n{ran.stdout}{ran.stderr}")
        print(f"{name}: two processes have the weight of one with all data")


def check_xor(build, folder, program):
    out = fortran.run([program], folder)
    accuracy = re.search(r"(?m)^accuracy: +([0-9.]+) %$", out)
    if "Dense(2 => 8, tanh)" not in out or not accuracy or float(accuracy[1]) < 95:
        sys.exit(f"xor.f90: at least 95 % was expected:\n{out}")


def check_reaction(build, folder, program):
    """The network is trained by the command in the comment of the example."""
    tool = os.path.join(build, "tools", "cflux", "cflux")
    if not os.path.exists(tool):
        print("skipped: reaction.f90: the command line was not built")
        return
    with open(os.path.join(folder, "reaction.csv"), "w", encoding="utf-8") as f:
        f.write("u,rate\n" + "".join(f"{i / 100},{i / 100 - (i / 100)**3}\n" for i in range(-110, 111)))
    with open(os.path.join(ROOT, "examples", "reaction.f90"), encoding="utf-8") as f:
        lines = re.search(r"(?m)^!   (cflux train (?:.*\\\n)*.*)$", f.read())[1]
    words = shlex.split(lines.replace("\\\n!", " "))
    fortran.run([tool, *words[1:], "--seed", "1", "--quiet"], folder)
    out = fortran.run([program, "reaction.safetensors"], folder)
    difference = re.search(r"(?m)^largest difference from the formula: +([0-9.]+)$", out)
    steps = re.findall(r"(?m)^step \d+: u from (-0\.\d+) to +(0\.\d+)$", out)
    if not difference or not 0 < float(difference[1]) < 0.04 or len(steps) != 4:
        sys.exit(f"reaction.f90: a difference below 0.04 was expected:\n{out}")
    failed = subprocess.run([program, "missing.safetensors"], cwd=folder, text=True, capture_output=True)
    if failed.returncode != 1 or "error: load: missing.safetensors: cannot open the file" not in failed.stderr:
        sys.exit(f"reaction.f90 with a file that does not exist: exit status {failed.returncode}\n{failed.stderr}")


EXAMPLES = {"xor.f90": check_xor, "reaction.f90": check_reaction}


def check_examples(build, folder):
    found = {os.path.basename(p): p for p in glob.glob(os.path.join(ROOT, "examples", "*.f90"))}
    if set(found) != set(EXAMPLES):
        sys.exit(f"examples are {sorted(found)}, checked are {sorted(EXAMPLES)}")
    fortran.compile_module(folder)
    for name, path in sorted(found.items()):
        program = fortran.compile_program(folder, path, build)
        EXAMPLES[name](build, folder, program)
        print(f"{name}: as expected")


def main():
    what, build = sys.argv[1], os.path.abspath(sys.argv[2])
    if not fortran.compiler():
        print("skipped: there is no Fortran compiler (gfortran, or FC)")
        return 0
    with tempfile.TemporaryDirectory(prefix="cflux-") as folder:
        {"module": check_module, "processes": check_processes, "examples": check_examples}[what](build, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
