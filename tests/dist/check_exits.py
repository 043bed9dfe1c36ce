#!/usr/bin/env python3
"""A rank ends by exit, or returns from main, while its gradients are exchanged (exit_cases.c).

Under each MPI that is installed, the moments are drawn at random. Every run must end within seconds and without a
signal, leave no process behind, and have one thread at a time in MPI (one_thread_mpi.c). If the rank ends while an
exchange is queued, the other rank must get the reason at once. Otherwise it learns it after half of its time limit.
Some runs exchange gradients of simulated GPUs by NCCL. Without an MPI and its plugin, the check prints a message and passes.
Usage: check_exits.py build-folder [runs of each case]
"""
import concurrent.futures
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

import mpis
from mpis import ENVIRONMENT

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "one_thread_mpi.c")
CASES = ("in_pass", "beside", "returns")
SECONDS = 60  # a run takes a few, of which half of 6 or 10 is a wait; the kernels of simulated GPUs may have to be compiled
LATE = 300000  # microseconds after which rank 1 has ended and the other rank has not begun the update
TOLD = "rank 1 cannot continue: its program ended during an evaluation"
CLOSED = r"rank 1 cannot continue: (\w+: )?CUDA:1 \(.*\) is closed: the process is ending"  # if the driver's handler runs first
ENDED = "the program has ended without this operation on rank 1"
# MPICH's launcher shows the statuses 1 and 3, with which the ranks end, as signals.
WRONG = re.compile(r"two threads in MPI|signal (?![13]\b)|egmentation|Aborted|ssertion|corrupt|invalid pointer")


def run(command, environment):
    """Returns the output, and None instead if the processes do not end."""
    process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, start_new_session=True)
    try:
        return process.communicate(timeout=SECONDS)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None


def wrong_in(out, case, late, gpu):
    """Returns what is wrong in the output of a run, or None."""
    if out is None:
        return f"it runs for more than {SECONDS} s"
    if WRONG.search(out):
        return f"it prints '{WRONG.search(out)[0]}'"
    said = re.search(r"(?m)^0 update: (.*)$", out)
    told = said and (TOLD in said[1] or (gpu and re.search(CLOSED, said[1])))
    if case == "in_pass" and late == LATE:
        return None if told else "rank 0 does not get the reason"
    return None if told or not said or ENDED in said[1] else "rank 0 has another error"


def check(build, name, launcher, stub, case, late, gpu, k):
    """One run. Returns what is wrong, or None."""
    word = f"exits-{os.getpid()}-{name}-{k}"
    more = {"EXIT_GPU": "1", "LD_LIBRARY_PATH": os.path.join(build, "tests", "sim"), "SIM_DEVICES": "2", "FX_CACHE": "off",
            "SIM_CACHE": os.environ.get("SIM_CACHE", "")} if gpu else {}
    preload = ("env", f"LD_PRELOAD={stub}") if stub else ()
    began = time.monotonic()
    out = run([*launcher, "-n", "2", *preload, os.path.join(build, "tests", "exit_cases"), case, str(late), word],
              dict(ENVIRONMENT, FX_PLUGIN_PATH=build, **more))
    wrong = wrong_in(out, case, late, gpu)
    for _ in range(50):
        left = mpis.processes_with(word)
        if not left:
            break
        time.sleep(0.1)
    if left and not wrong:
        wrong = f"processes remain: {left}"
    return wrong and f"{name}, {case} {late}{', GPUs' if gpu else ''}, {time.monotonic() - began:.1f} s: {wrong}\n{out}"


def main():
    build, each = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 4
    seed = int(os.environ.get("CFLUX_SEED", "0"))
    draw = random.Random(seed)
    print(f"CFLUX_SEED={seed}")
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(4) as pool:
        runs, failures = [], 0
        for name, launcher in mpis.installed(build):
            stub = mpis.stub_of(name, SOURCE, folder, "the threads in MPI are not counted")
            for case in CASES:
                for k in range(each):
                    late = LATE if k % 2 == 0 and case == "in_pass" else draw.choice((0, draw.randrange(100000)))
                    # Every third run of the program alone: the counting of threads makes MPI slower.
                    runs.append(pool.submit(check, build, name, launcher, stub if k % 3 else None, case, late, k % 4 == 3, len(runs)))
        for r in runs:
            if r.result():
                failures += 1
                print(r.result(), flush=True)
    print(f"{len(runs)} runs, {failures} failures")
    sys.exit(failures > 0)


main()
