#!/usr/bin/env python3
"""examples/distributed with 1, 2 and 4 processes of each MPI that is installed prints the losses of one process.

The 1,000 observations are divided evenly, so the mean of the parts' losses is the loss of the whole, up to rounding.
Without an MPI and its plugin a line says so, and the check passes.
Usage: check_mpi.py build-folder
"""
import os
import re
import shutil
import subprocess
import sys

ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", FX_NUM_THREADS="1")


def losses(command, build):
    run = subprocess.run(command + [os.path.join(build, "examples", "distributed"), "50"], text=True,
                         capture_output=True, timeout=100, env=dict(ENVIRONMENT, FX_PLUGIN_PATH=build))
    if run.returncode != 0:
        sys.exit(f"{' '.join(command)}: {run.stdout}{run.stderr}")
    return [float(x) for x in re.findall(r"loss ([0-9.]+)", run.stdout)]


def main():
    build = os.path.abspath(sys.argv[1])
    want = losses([], build)
    assert len(want) == 5, want
    for name, options in (("openmpi", ["--oversubscribe"]), ("mpich", [])):
        launcher = shutil.which(f"mpirun.{name}")
        if not launcher or not os.path.exists(os.path.join(build, f"libcflux-mpi-{name}.so")):
            print(f"{name}: not installed, or its plugin was not built: skipped")
            continue
        for n in (1, 2, 4):
            got = losses([launcher, *options, "-n", str(n)], build)
            worst = max(abs(a - b) for a, b in zip(got, want))
            # one line each, from rank 0 alone, of numbers with 6 decimals
            if len(got) != len(want) or worst > 3e-6:
                sys.exit(f"{name}, {n} processes: {got} instead of {want}")
            print(f"{name}, {n} processes: within {worst:.1e}")


main()
