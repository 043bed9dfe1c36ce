#!/usr/bin/env python3
"""Training by several processes, in which a rank is killed, stops, is late, or calls another operation.

Each fault comes at a random moment of a random rank of 2 to 4, under each MPI that is installed. Rank 0 saves the
checkpoints, or each rank saves its part of the optimiser's state. The fault `rename` kills a rank between two calls
of a save of parts. Parts of different training steps are refused. No run may hang, leave a process behind, or leave a
checkpoint from which training does not continue to the bits of an undisturbed run. Then 1 to 8 processes divide each
batch at random, so that some of them have no observations: their parameters must be the same as in one process.
Without an MPI and its plugin, the check prints a message and passes. CFLUX_TIME_LIMIT is the number of seconds that
a rank waits for another one: more than 3 for many runs on a busy machine.
Usage: check_faults.py build-folder [faults of each kind [divisions]]
"""
import concurrent.futures
import os
import random
import re
import subprocess
import sys
import tempfile
import time

import mpis
from mpis import ENVIRONMENT

KINDS = ("kill", "stop", "delay", "mismatch", "rename")
LIMIT = int(os.environ.setdefault("CFLUX_TIME_LIMIT", "3"))  # seconds that train_cases waits for another rank
BOUND = {"f64": 1e-12, "f32": 1e-6}  # of the largest parameter


class Run:
    """One program under cflux launch; `text` is what it printed."""

    def __init__(self, build, mpi, n, kind, *arguments, dtype="f32"):
        cflux, program = os.path.join(build, "tools", "cflux", "cflux"), os.path.join(build, "tests", "train_cases")
        began = time.monotonic()
        done = subprocess.run([cflux, "launch", "--launcher", f"mpirun.{mpi}", "-n", str(n), program, dtype, kind, *arguments],
                              text=True, capture_output=True, timeout=90, env=dict(ENVIRONMENT, FX_PLUGIN_PATH=build))
        self.text, self.status, self.seconds = done.stdout + done.stderr, done.returncode, time.monotonic() - began

    def bits(self, n):
        """The parameters, which must be equal on all ranks; None if a rank printed none."""
        return mpis.bits(self.text, n)


def expected(kind, rank, r):
    """The expected result of a run with this fault: what it does and prints."""
    if kind == "delay":
        return r.status == 0
    if kind == "mismatch":
        named = max(rank, 1)  # rank 0 is what the others are compared with
        return r.status != 0 and (f"rank {named} calls all_reduce" in r.text) and "but rank 0 calls all_reduce" in r.text
    if kind in ("kill", "rename"):
        return r.status != 0 and f"cflux launch: rank {rank} on " in r.text and "was killed by signal 9" in r.text
    return r.status != 0 and f"no answer from rank {rank} within {LIMIT} s" in r.text


def draw_fault(kind, n, seed):
    """Returns an update, a rank, and the microseconds or the number of the call of rename()."""
    draw = random.Random(seed)
    if kind == "rename":  # in an update after which the ranks save
        return 10 * draw.randrange(10) + 9, draw.randrange(n), draw.randrange(2)
    return draw.randrange(100), draw.randrange(n), draw.choice((0, draw.randrange(1, 3000)))


def step_after(update, number):
    """The training step from which a run continues after the fault `rename`.

    Before the first call of a rank its new file is incomplete, so the previous checkpoint is loaded. Before the second one
    all ranks have written their files.
    """
    return update - 9 if number == 0 else update + 1


def inject(build, mpi, n, kind, seed, undisturbed, folder):
    """Returns what is wrong; None: all is as it must be."""
    update, rank, number = draw_fault(kind, n, seed)
    training = "shards" if kind == "rename" or seed // 2 % 2 else "even"
    checkpoint = os.path.join(folder, f"{mpi}-{kind}-{seed}")
    what = f"{mpi}, {n} processes, {training}, {kind}:{update}:{rank}:{number}"
    r = Run(build, mpi, n, training, checkpoint, f"{kind}:{update}:{rank}:{number}")
    # 3 ms have at most some 30 updates, so such a fault can come when all ranks have printed their parameters.
    late = update >= 99 or (update >= 60 and number > 0)
    if kind in ("kill", "stop") and late and r.bits(n) == undisturbed:
        return None
    if not expected(kind, rank, r):
        return f"{what}: status {r.status} after {r.seconds:.1f} s\n{r.text}"
    if kind == "delay" and r.bits(n) != undisturbed:
        return f"{what}: other bits\n{r.text}"
    left = mpis.processes_with(checkpoint)
    for _ in range(50):
        if not left:
            break
        time.sleep(0.1)
        left = mpis.processes_with(checkpoint)
    if left:
        return f"{what}: processes remain: {left}"
    again = Run(build, mpi, n, training, checkpoint)
    if again.status != 0 or again.bits(n) != undisturbed:
        return f"{what}: the run from the checkpoint has other bits, or status {again.status}\n{r.text}\n{again.text}"
    start = re.search(r"from training step (\d+)", again.text)
    if kind == "rename" and int(start[1] if start else 0) != step_after(update, number):
        return f"{what}: the run from the checkpoint does not start at {step_after(update, number)}\n{again.text}"
    files = [f for f in os.listdir(folder) if f.startswith(os.path.basename(checkpoint) + ".") and re.search(r"\.(new|tmp\d+)$", f)]
    if files:
        return f"{what}: files remain: {files}"
    return None


def mix(build, mpi, folder):
    """Gives rank 1 its previous file, and removes that of rank 0. Returns what is wrong, or None."""
    checkpoint = os.path.join(folder, f"{mpi}-mixed")
    first = Run(build, mpi, 2, "shards", checkpoint)
    os.replace(f"{checkpoint}.rank1.1", f"{checkpoint}.rank1")
    os.remove(f"{checkpoint}.rank0.1")
    r = Run(build, mpi, 2, "shards", checkpoint)
    sentence = (f"checkpoint_load: rank 0 has {checkpoint}.rank0 of training step 100, rank 1 has {checkpoint}.rank1 of "
                "training step 90, and there is no checkpoint of which all ranks have a file")
    if first.status == 0 and r.status != 0 and sentence in r.text:
        return None
    return f"{mpi}, files of different training steps: status {r.status}\n{first.text}\n{r.text}"


def divide(build, mpi, seed, serial):
    """Trains with batches that are divided at random. Returns what is wrong, or None."""
    draw = random.Random(seed)
    n, dtype = draw.randrange(1, 9), draw.choice(list(BOUND))
    r = Run(build, mpi, n, f"random{seed}", dtype=dtype)
    bits = r.bits(n)
    got, want = ([float.fromhex(x) for x in (text or "").split()] for text in (bits, serial[dtype]))
    scale = max(abs(x) for x in want)
    if r.status == 0 and len(got) == len(want) and all(abs(a - b) <= BOUND[dtype] * scale for a, b in zip(got, want)):
        return None
    return f"{mpi}, {n} processes, {dtype}, random{seed}: status {r.status}, expected {serial[dtype]}\n{r.text}"


def main():
    build, each = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 20
    divisions = int(sys.argv[3]) if len(sys.argv) > 3 else each
    seed = int(os.environ.get("CFLUX_SEED", "0"))
    names = [name for name, _ in mpis.installed(build)]
    if not names:
        return
    print(f"CFLUX_SEED={seed}")
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(4) as pool:
        undisturbed = {(mpi, n): Run(build, mpi, n, "even").bits(n) for mpi in names for n in (2, 3, 4)}
        if None in undisturbed.values():
            sys.exit(f"an undisturbed run failed: {undisturbed}")
        runs = []
        for k in range(each):
            for kind in KINDS:
                mpi, n = names[k % len(names)], 2 + (seed + k) // len(names) % 3
                runs.append(pool.submit(inject, build, mpi, n, kind, 1000 * seed + k, undisturbed[mpi, n], folder))
        faults = len(runs)
        serial = {dtype: Run(build, names[0], 1, "even", dtype=dtype).bits(1) for dtype in BOUND}
        runs += [pool.submit(divide, build, names[k % len(names)], 1000 * seed + k, serial) for k in range(divisions)]
        mixed = [pool.submit(mix, build, mpi, folder) for mpi in names]
        wrong = []
        for k, run in enumerate(runs + mixed):
            if run.result():
                wrong.append(run.result())
                print(f"run {k}: {run.result()}", flush=True)
            if (k + 1) % 100 == 0:
                print(f"{k + 1} runs of {len(runs) + len(mixed)}, {len(wrong)} failures", flush=True)
        print(f"{faults} faults and {len(runs) - faults} divisions, {len(wrong)} failures")
    if wrong or len(runs) != len(KINDS) * each + divisions:
        sys.exit(1)


main()
