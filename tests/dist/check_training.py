#!/usr/bin/env python3
"""Training by several processes of each MPI that is installed gives the parameters of one process.

train_cases.c trains for 100 updates, with parts of the data that are even, or uneven with a rank that has none, and with
sums of four gradients, and with gradients that are sent as BFloat16. The ranks must end with the same bits, and with the serial run's numbers: Float64 to 1e-12, Float32 to 1e-6 of the largest parameter.
In some of these runs they must have the same bits after every update.
Then a rank is stopped: the others name it. With `cflux launch` a rank is killed: the job ends within 5 seconds, and the run that starts again from the
checkpoint ends with the bits of an undisturbed one.
Without an MPI and its plugin, the check prints a message and passes.
Usage: check_training.py build-folder
"""
import collections
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import mpis
from mpis import ENVIRONMENT

BOUND = {"f64": 1e-12, "f32": 1e-6}
ENDS = 5  # seconds in which a job must end after a rank has died
TRIES = 6  # on a busy machine the thread that sends gradients may run only after the computation
HALF = 5e-3  # of gradients that are sent as BFloat16: each mean has an error of at most 2⁻⁸, and there are 100 updates


def run(build, command, status=0, more=None):
    done = subprocess.run(command, text=True, capture_output=True, timeout=100,
                          env=dict(ENVIRONMENT, FX_PLUGIN_PATH=build, **(more or {})))
    if status is not None and done.returncode != status:
        sys.exit(f"{' '.join(command)}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def bits(text, n):
    """Returns the printed parameters, which must be equal on all n ranks."""
    found = mpis.bits(text, n)
    if not found:
        sys.exit(f"{n} ranks with the same bits were expected:\n{text}")
    return found


def numbers(text):
    return [float.fromhex(x) for x in text.split()]


def check_numbers(what, got, want, bound):
    scale = max(abs(x) for x in want)
    worst = max(abs(a - b) for a, b in zip(got, want)) / scale
    if len(got) != len(want) or len(want) != 21 or not worst <= bound:
        sys.exit(f"{what}: {worst:.1e} from the serial run, at most {bound:.0e}")
    print(f"{what}: same bits on all ranks, {worst:.1e} from the serial run")


def check_parameters(name, start, program, build, serial):
    for n, dtype, kind in [(2, "f64", "even"), (3, "f64", "even"), (4, "f64", "uneven"), (2, "f32", "even"),
                           (3, "f32", "uneven"), (4, "f32", "even"), (1, "f64", "sums"), (2, "f64", "sums"), (4, "f32", "sums"), (2, "f64", "divided"), (3, "f32", "divided"), (2, "f32", "half"), (4, "f32", "half"), (8, "f64", "even"), (8, "f32", "uneven")]:
        got = bits(run(build, [*start, "-n", str(n), program, dtype, kind]), n)
        check_numbers(f"{name}, {n} processes, {dtype}, {kind}", numbers(got), serial[dtype, kind == "sums"], HALF if kind == "half" else BOUND[dtype])


def check_each_update(name, start, program, build):
    """The ranks have the same bits after every update."""
    for n, dtype, kind in ((2, "f64", "even"), (4, "f32", "uneven"), (3, "f32", "half"), (3, "f32", "divided")):
        out = run(build, [*start, "-n", str(n), program, dtype, kind], more={"CFLUX_EACH_UPDATE": "1"})
        found = re.findall(r"(?m)^\d: 100 updates have (\w+)$", out)
        if len(found) != n or len(set(found)) != 1:
            sys.exit(f"{name}, {n} processes, {dtype}, {kind}: other bits after an update\n{out}")
        print(f"{name}, {n} processes, {dtype}, {kind}: the same bits after each of 100 updates")


def check_stop(name, start, program, build, folder):
    out = run(build, [*start, "-n", "2", program, "f32", "even", os.path.join(folder, "stop"), "stop"], None)
    if "no answer from rank 1 within 3 s" not in out:
        sys.exit(f"{name}: a rank that stops is not named:\n{out}")
    print(f"{name}: a rank that stops is named")


def check_restart(name, mpirun, build, folder):
    program, cflux = os.path.join(build, "tests", "train_cases"), os.path.join(build, "tools", "cflux", "cflux")
    launch = [cflux, "launch", "--launcher", mpirun, "-n", "2"]
    whole = bits(run(build, [*launch, program, "f32", "even"]), 2)
    moment = os.path.join(folder, "moment")  # its time is that of the death
    died = run(build, [*launch, program, "f32", "even", os.path.join(folder, "dies"), "command:57:1:0", f"touch {moment}; kill -KILL $PPID"], None)
    after = time.time() - os.stat(moment).st_mtime
    if after > ENDS:
        sys.exit(f"{name}: the job ends {after:.1f} s after a rank has died\n{died}")
    again = run(build, [*launch, "--max-restarts", "2", program, "f32", "even", os.path.join(folder, "again"), "kill"])
    sentence = re.compile(r"(?m)^cflux launch: rank 1 on \S+ was killed by signal 9 \(Killed\); its last operation was number "
                          r"\d+, all_reduce \(mean\) of 21 Float32$")
    if not sentence.search(died) or not sentence.search(again) or "all 2 processes again (1 of 2)" not in again:
        sys.exit(f"{name}: a rank that dies is not named:\n{died}\n{again}")
    if bits(again, 2) != whole:
        sys.exit(f"{name}: the run that started again has other bits:\n{again}")
    print(f"{name}: a rank that dies is named, the job ends {after:.1f} s later, and the run that starts again has the same bits")


def check_divided(name, mpirun, build, folder):
    """States that are divided among the ranks (ZeRO-1), with a checkpoint of the whole state or one of each rank."""
    program, cflux = os.path.join(build, "tests", "train_cases"), os.path.join(build, "tools", "cflux", "cflux")
    launch = [cflux, "launch", "--launcher", mpirun, "-n"]
    whole = bits(run(build, [*launch, "2", program, "f32", "even"]), 2)
    for kind, files in (("divided", ["divided"]), ("shards", ["shards.rank0", "shards.rank1"])):
        file = os.path.join(folder, kind)
        again = run(build, [*launch, "2", "--max-restarts", "1", program, "f32", kind, file, "kill"])
        if "all 2 processes again (1 of 1)" not in again or bits(again, 2) != whole:
            sys.exit(f"{name}, {kind}: the run that started again has other bits than with an undivided state:\n{again}")
        found = sorted(x for x in os.listdir(folder) if x.startswith(kind) and not x.endswith(".1"))  # a previous one
        if found != files:
            sys.exit(f"{name}, {kind}: the checkpoints are {found}, expected {files}")
    # One process continues from a whole state.
    file = os.path.join(folder, "fewer")
    died = run(build, [*launch, "2", program, "f32", "divided", file, "kill"], None)
    got = bits(run(build, [program, "f32", "divided", file]), 1)
    if "was killed by signal 9" not in died:
        sys.exit(f"{name}, divided: no rank died:\n{died}")
    check_numbers(f"{name}, 2 ranks with a divided state, then 1", numbers(got), numbers(whole), BOUND["f32"])
    print(f"{name}: divided states resume with the same bits, from whole and from divided checkpoints")


def events(file, ranks):
    """Returns the events of a timeline with that many ranks."""
    with open(file, encoding="utf-8") as f:
        all_events = json.load(f)
    if {e["pid"] for e in all_events} != set(range(ranks)) or not all(e["dur"] >= 0 for e in all_events if e["ph"] == "X"):
        sys.exit(f"{file}: not the events of {ranks} ranks")
    return [e for e in all_events if e["ph"] == "X"]


def during(a, b):
    return a["pid"] == b["pid"] and a["ts"] < b["ts"] + b["dur"] and b["ts"] < a["ts"] + a["dur"]


def check_timeline(name, mpirun, build, folder):
    cases, cflux = os.path.join(build, "tests", "mpi_cases"), os.path.join(build, "tools", "cflux", "cflux")
    file = os.path.join(folder, "timeline.json")
    launch = [cflux, "launch", "--launcher", mpirun, "--timeline", file, "-n"]
    hidden = collections.Counter()
    for choice, words in TRIES * [("on", " in shared memory"), ("off", "")]:
        if hidden[choice] >= 2:
            continue
        run(build, [*launch, "2", cases, "overlaps"], more={"FX_DIST_SHARED_MEMORY": choice})
        found = events(file, 2)
        count = collections.Counter((e["cat"], e["pid"]) for e in found if e["tid"] == 0)
        # 3 updates with 3 groups of gradients each; an operation begins when all ranks have come to it
        if count != {("waiting", 0): 9, ("waiting", 1): 9, ("communication", 0): 9, ("communication", 1): 9}:
            sys.exit(f"{name}: a timeline with other operations: {count}")
        sent, computed = ([e for e in found if e["cat"] == cat] for cat in ("communication", "compute"))
        if any(e["name"] != f"all_reduce (mean) of 360600 Float32{words}" for e in sent):
            sys.exit(f"{name}: operations with other names: {sent}")
        if not any(e["name"] == "matmul 600×3 Float32" for e in computed):
            sys.exit(f"{name}: a timeline without matrix products")
        # An operation begins to wait for the other rank while this one computes.
        hidden[choice] += sum(any(during(a, b) for b in computed) for a in found if a["tid"] == 0)
    if min(hidden["on"], hidden["off"]) < 2:
        sys.exit(f"{name}: no gradients are sent while others are computed: {hidden}")
    run(build, [*launch, "2", os.path.join(build, "tests", "train_cases"), "f32", "even", os.path.join(folder, "ends"), "kill"], None)
    events(file, 2)  # also of a rank that was killed
    run(build, [*launch, "2", cases, "fork_one"])
    found = [json.dumps(e) for e in events(file, 2)]
    if len(found) != len(set(found)) or len(found) < 8:  # a child of rank 0 ends with a copy of its streams
        sys.exit(f"{name}: a timeline of {len(found)} events, {len(set(found))} of them different")
    out = run(build, [cases, "overlaps"], more={"FX_TIMELINE": os.path.join(folder, "no", "file")})
    if "FX_TIMELINE: cannot create" not in out or "No such file" not in out:
        sys.exit(f"{name}: a timeline that cannot be written:\n{out}")
    run(build, [*launch, "1", cases, "overlaps"])
    if len(events(file, 1)) < 100 or sorted(os.listdir(folder)).count("timeline.json") != 1 or any("json." in x for x in os.listdir(folder)):
        sys.exit(f"{name}: the timeline of one process, or files that remain: {os.listdir(folder)}")
    print(f"{name}: timelines of 1 and 2 processes")


def check_killed_wrapper(name, mpirun, build):
    """A rank whose cflux launch --each is killed is named, and the ranks that the launcher then ends are not."""
    launch = [os.path.join(build, "tools", "cflux", "cflux"), "launch", "--launcher", mpirun, "-n", "3", "--max-restarts", "1"]
    out = run(build, [*launch, os.path.join(build, "tests", "mpi_cases"), "kills_wrapper"])
    said = re.findall(r"(?m)^cflux launch: (.*)$", out)
    if len(said) != 2 or not re.match(r"rank 1 on \S+ lost its wrapper \(cflux launch --each\), which was killed by signal 9 "
                                      r"\(Killed\); its last operation was number \d+, all_reduce \(sum\) of 1 Float32$", said[0]):
        sys.exit(f"{name}: a killed wrapper: {said}\n{out}")
    print(f"{name}: a killed wrapper is named")


# SIGTERM arrives directly after the first fork.
EARLY_SIGNAL = """#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>
pid_t fork(void)
{
    pid_t (*real)(void), child;
    *(void **)&real = dlsym(RTLD_NEXT, "fork");
    child = real();
    if (child > 0)
        raise(SIGTERM);
    return child;
}
"""


def check_early_signal(build, folder):
    """A signal that ends cflux launch --each before its program runs is not reported as SIGKILL."""
    source, stub = os.path.join(folder, "early.c"), os.path.join(folder, "early.so")
    with open(source, "w", encoding="utf-8") as f:
        f.write(EARLY_SIGNAL)
    subprocess.run(["cc", "-D_GNU_SOURCE", "-shared", "-fPIC", source, "-o", stub, "-ldl"], check=True)
    done = subprocess.run([os.path.join(build, "tools", "cflux", "cflux"), "launch", "--each", "true"], text=True, timeout=60,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=dict(os.environ, LD_PRELOAD=stub), check=False)
    if done.returncode != -signal.SIGTERM or done.stdout:
        sys.exit(f"an early signal: status {done.returncode}: {done.stdout}")
    print("an early signal is not reported as SIGKILL")


def main():
    build = os.path.abspath(sys.argv[1])
    program = os.path.join(build, "tests", "train_cases")
    serial = {(dtype, kind == "sums"): numbers(bits(run(build, [program, dtype, kind]), 1))
              for dtype in BOUND for kind in ("even", "sums")}
    with tempfile.TemporaryDirectory() as folder:
        check_early_signal(build, folder)
    for name, command in mpis.installed(build):
        with tempfile.TemporaryDirectory() as folder:
            check_parameters(name, command, program, build, serial)
            check_each_update(name, command, program, build)
            check_stop(name, command, program, build, folder)
            check_restart(name, f"mpirun.{name}", build, folder)
            check_divided(name, f"mpirun.{name}", build, folder)
            check_timeline(name, f"mpirun.{name}", build, folder)
            check_killed_wrapper(name, f"mpirun.{name}", build)


main()
