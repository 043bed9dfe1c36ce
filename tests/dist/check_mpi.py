#!/usr/bin/env python3
"""examples/distributed with 1, 2 and 4 processes of each MPI that is installed prints the losses of one process.

The 1,000 observations are divided evenly, so the mean of the parts' losses is the loss of the whole, up to rounding.
Then tests/dist/mpi_cases.c shows what two processes say when something goes wrong.
Without an MPI and its plugin, the check prints a message and passes.
Usage: check_mpi.py build-folder
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

import mpis
from mpis import ENVIRONMENT



def losses(command, build):
    run = subprocess.run(command + [os.path.join(build, "examples", "distributed"), "50"], text=True,
                         capture_output=True, timeout=100, env=dict(ENVIRONMENT, FX_PLUGIN_PATH=build))
    if run.returncode != 0:
        sys.exit(f"{' '.join(command)}: {run.stdout}{run.stderr}")
    return [float(x) for x in re.findall(r"loss ([0-9.]+)", run.stdout)]


LIBRARIES = {"openmpi": "libmpi.so.40", "mpich": "libmpich.so.12"}
UNUSED = (["1 warning: update: the loss of rank 1 does not depend on layers.1.weight and 3 more parameters: zeros are used as "
           "the gradient", "0 kept: 2", "1 kept: 2"], True)
# By case: lines that must be printed (a part of each), and whether the processes succeed.
CASES = {
    "busy_at_end": (["0 saved: ok", "1 saved: ok"], True),
    # The launcher may end the others as soon as one rank has printed this.
    "stops_in_sum": ([" sum: collective: ", "all_reduce (sum) of 1048576 Float32, operation ", "no answer from rank 1 within 3 s"], False),
    "stops_in_broadcast": ([" broadcast: collective: "], False),
    "one_ends": (["the program has ended without this operation on rank 1"], False),
    "fork_one": (["is a child (fork) of the one that joined", "0 after: ok", "1 after: ok"], True),
    "folds_of_nan": (["0 fold: NaN", "1 fold: NaN"], True),
    "unused": UNUSED,
    "unused_clipped": UNUSED,
    "slow": (["epoch 1/2", "epoch 2/2", "  rank 1 is slow: the others wait "], True),
    "overlaps": (["0 overlap: same bits", "1 overlap: same bits"], True),
    "finalise_first": (["the program has finalised MPI"], True),
    "no_member": (["0 init: dist_init: the transport ", ": the communicator is MPI_COMM_NULL: this process is not one"], False),
    "never_joins": (["but fx_dist_init was not called: each of them trains a model of its own"], True),
    "never_joins_gradient": (["but fx_dist_init was not called: each of them computes its gradients alone"], True),
    "never_joins_predicts": (["but fx_dist_init was not called: each of them computes everything alone"], True),
}


# Expected lines by case and number of processes, on simulated GPUs with a simulated NCCL.
GPU_CASES = {
    ("gpu_sums", 1): ["0 sum: 1 1", "0 mean: 1 1", "0 last: 1 1", "0 half: 1 1"],
    ("gpu_sums", 2): ["0 sum: 3 2", "1 mean: 1.5 1", "0 last: 2 1", "1 most: 2 1", "0 half: 3 2"],
    ("gpu_sums", 4): ["0 sum: 10 4", "3 mean: 2.5 1", "0 last: 4 1", "2 most: 4 1", "1 half: 10 4"],
    ("gpu_mixed", 2): ["rank 1 calls all_reduce (sum) of 2 Float32, but rank 0 calls all_reduce (sum) of 2 Float32 in a GPU's memory"],
    ("gpu_refused", 2): ["0 NCCL: dist_init: fx_dist_init(FX_NCCL), operation 1: rank 1 cannot continue: ", "0 sum: 3 2", "1 sum: 3 2"],
    ("gpu_half", 2): ["rank 1 cannot continue: ncclCommInitRankConfig failed"],
    ("gpu_same", 2): ["cannot continue: NCCL failed: invalid usage: Duplicate GPU detected"],
    ("gpu_models", 2): ["0 weight: 2 2", "1 weight: 2 2"],
    ("gpu_wire", 2): ["0 by NCCL: -1.00098 -1.00098", "1 by NCCL: -1.00098 -1.00098", "0 by MPI: -1 -1", "1 by MPI: -1 -1"],
    ("gpu_plugins", 2): ["0 plugin: \n", "1 plugin: \n"],
    ("gpu_trains", 2): ["0 trained: ok", "0 parameters: same", "1 parameters: same"],
}


def started(launcher, options, build, case, before=(), n=2, more=None, after=()):
    command = [launcher, *options, "-n", str(n), *before, os.path.join(build, "tests", "mpi_cases"), case, *after]
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            env=dict(ENVIRONMENT, FX_PLUGIN_PATH=build, **(more or {})))


def check(what, process, lines, succeeds, stopped=1):
    out = process.communicate(timeout=60)[0]
    for line in lines:
        if line not in out:
            sys.exit(f"{what}: not printed: {line}\n{out}")
    # What a launcher returns after one that ended without MPI_Finalize differs between them.
    if succeeds and process.returncode != 0:
        sys.exit(f"{what}: status {process.returncode}\n{out}")
    if out.count("fx_dist_init was not called") != ("never_joins" in what):
        sys.exit(f"{what}: the warning about fx_dist_init is not printed once, by one rank, and only where it is needed: {out}")
    if out.count("warning: update:") > 1:
        sys.exit(f"{what}: an unused parameter is named more than once: {out}")
    if re.search(rf"(?m)^(?!{stopped})\d (sum|broadcast): .* no answer from rank \d,", out):
        sys.exit(f"{what}: ranks that wait are named as missing: {out}")
    if "a number" in out or "error occurred in MPI" in out:
        sys.exit(f"{what}: {out}")
    print(f"{what}: as expected")


def check_cases(name, launcher, options, build, other):
    slow = started(launcher, options, build, "busy_at_end")  # takes 11 s, so it runs beside the others
    stops = [started(launcher, options, build, "stops_in_sum", n=4)]  # these take 5 s
    stops += [started(launcher, options, build, "stops_in_broadcast", n=4, more={"CFLUX_STOPPED": r}) for r in "12"]
    try:
        for case, (lines, succeeds) in CASES.items():
            if case != "busy_at_end" and not case.startswith("stops_in_"):
                check(f"{name}, {case}", started(launcher, options, build, case), lines, succeeds)
        if other:
            # An MPI that did not start the processes puts each of them into a group of its own, without a message.
            run = started(launcher, options, build, "none", (), 2, None, [other])
            check(f"{name}, the plugin of {other}", run,
                  [f"launcher started 2 processes, but", f'use the launcher of the same MPI, or .library = "{name}"'], False)
            run = started(launcher, options, build, "none", ("env", "LD_PRELOAD=" + LIBRARIES[other]))
            check(f"{name}, a program with {other}", run, ["the program uses another MPI"], False)
        check(f"{name}, stops_in_sum", stops[0], *CASES["stops_in_sum"])
        for r, run in enumerate(stops[1:], 1):
            lines = [*CASES["stops_in_broadcast"][0], f"no answer from rank {r} within 3 s"]
            check(f"{name}, stops_in_broadcast, rank {r}", run, lines, False, r)
        check(f"{name}, busy_at_end", slow, *CASES["busy_at_end"])
    finally:
        slow.kill()
        for run in stops:
            run.kill()


def hashes(build, launcher, options, case, n, folder, before=(), more=None):
    """Returns the hash of each result of mpi_cases sums, and how many operations used shared memory."""
    file = os.path.join(folder, "timeline")
    run = started(launcher, options, build, case, before, n, dict(more or {}, FX_TIMELINE=file, CFLUX_HASHES=folder))
    out = run.communicate(timeout=60)[0]
    found = []
    for rank in range(n):
        with open(os.path.join(folder, f"hashes.{rank}"), encoding="utf-8") as f:
            found.append(dict(re.findall(r"(?m)^(\d \d \d) (\w+)$", f.read())))
        os.remove(f.name)
    if run.returncode != 0 or "wrong" in out or len(found[0]) != 5 * (4 * 5 + 3 * 4) + 6 or any(f != found[0] for f in found):
        sys.exit(f"{case}, {n} processes: {run.returncode}\n{out}")
    with open(f"{file}.1", encoding="utf-8") as f:
        return found[0], f.read().count(" in shared memory")


ONE_OFF = ("sh", "-c", '[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 1 ] && export FX_DIST_SHARED_MEMORY=off; exec "$@"', "sh")


def check_shared_memory(name, launcher, options, build, folder):
    """Sums in shared memory have the bits of MPI's, and are MPI's if a rank has no shared memory."""
    off = {"FX_DIST_SHARED_MEMORY": "off"}
    stub = os.path.join(folder, "stub.so")
    with open(os.path.join(folder, "stub.c"), "w", encoding="utf-8") as f:
        f.write("int MPI_Win_allocate_shared(void);\nint MPI_Win_allocate_shared(void) { return 15; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", os.path.join(folder, "stub.c"), "-o", stub], check=True)
    found = {}
    for case, n, without in (("sums", 2, {"more": off}), ("sums", 2, {"before": ONE_OFF}),
                             ("sums_in_order", 3, {"more": off}), ("sums_in_order", 4, {"before": ("env", f"LD_PRELOAD={stub}")})):
        if (case, n) not in found:
            found[case, n] = hashes(build, launcher, options, case, n, folder)
        shared, count = found[case, n]
        moved, none = hashes(build, launcher, options, case, n, folder, **without)
        if shared != moved or count != len(shared) + 6 or none != 0:
            sys.exit(f"{name}, {case}, {n} processes, {without}: {count} and {none} sums in shared memory, different: "
                     f"{[k for k in shared if shared[k] != moved[k]]}")
        print(f"{name}, {case}, {n} processes: {count} sums in shared memory have the bits of MPI's")
    hashes(build, launcher, options, "sums", 3, folder, more=off)  # all ranks have the same, and the sums of whole numbers are exact


def simulated(build):
    """The environment of programs on simulated GPUs."""
    return {"LD_LIBRARY_PATH": os.path.join(build, "tests", "sim"), "SIM_DEVICES": "4", "FX_CACHE": "off",
            "SIM_CACHE": os.environ.get("SIM_CACHE", "")}


RESULTS = ["{} sum: 3 2", "{} product: 2 1", "{} mean: 1.5 1", "{} whole most: 2 1", "{} last: 2 1", "{} most: 2 1", "{} half: 3 2",
           "{} update: -1.00098 -1.00098", "{} large: 3.3e+06", "{} parameters: same"]
# sum, product, mean, whole most, last; one update; large; five updates
ON_GPU = 5 + 1 + 1 + 5
ONLY_RANK_1 = ("sh", "-c", '[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 1 ] || export CFLUX_PROJECT=/; exec "$@"', "sh")


def stub_of_aware_mpi(name, folder):
    """A library that takes MPI's functions and can use the memory of simulated GPUs; None without a compiler."""
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "aware_mpi.c")
    return mpis.stub_of(name, source, folder, "GPU memory by MPI is skipped", "-ldl")


def preferring(build, folder, key, stub, backend="CUDA"):
    """The environment of a program on simulated GPUs whose project has this preference. stub: "" is none."""
    with open(os.path.join(folder, "LocalPreferences.toml"), "w", encoding="utf-8") as f:
        f.write(f"[Flux]\n{key}\n")
    return dict(simulated(build), CFLUX_PROJECT=folder, AWARE_OF=backend, **({"LD_PRELOAD": stub} if stub else {}))


CUDA_AWARE = "FluxDistributedMPICUDAAware = true"


def check_aware(name, launcher, options, build, folder, yes):
    """MPI gets addresses of GPUs if preference, query and probe agree: with such an address, a process on simulated GPUs ends."""
    copies = "rrays on GPUs are copied through host memory"
    hip = [f"MPIX_Query_hip_support returns 0. A{copies}"] if name == "mpich" else None  # Open MPI 4 has no query for ROCm
    more = {"wrong": {"AWARE_WRONG": "1"}, "nan": {"AWARE_WRONG": "nan"}, "tiny": {"TINY_FIRST": "1"}}
    for what, preload, key, backend, before, warning in (
            ("no preference", yes, "", "CUDA", (), None),
            ("a false preference", yes, "FluxDistributedMPICUDAAware = false", "CUDA", (), None),
            ("the preference", yes, CUDA_AWARE, "CUDA", (), []),
            ("the preference, for ROCm", yes, "FluxDistributedMPIROCMAware = true", "AMDGPU", (), []),
            ("a library that cannot", "", CUDA_AWARE, "CUDA", (),
             [f" cannot use memory of CUDA on rank 0: MPIX_Query_cuda_support returns 0. A{copies}"]),
            *([("a library for ROCm", "", "FluxDistributedMPIROCMAware = true", "AMDGPU", (), hip)] if hip else []),
            ("a library that is wrong", "wrong", CUDA_AWARE, "CUDA", (),
             [f" moved memory of CUDA wrongly: a{copies}"]),
            ("a library that gives NaN", "nan", CUDA_AWARE, "CUDA", (),
             [f" moved memory of CUDA wrongly: a{copies}"]),
            ("a product that underflows", "tiny", CUDA_AWARE, "CUDA", (), []),
            ("a preference of one rank", yes, CUDA_AWARE, "CUDA", ONLY_RANK_1,
             [f"not on rank 0: a{copies}"])):
        file = os.path.join(folder, "aware.json")
        environment = dict(preferring(build, folder, key, preload and yes, backend), FX_TIMELINE=file, OF_BACKEND=backend,
                           **more.get(preload, {}))
        out = started(launcher, options, build, "gpu_aware", before, 2, environment).communicate(timeout=60)[0]
        for line in [r.format(rank) for r in RESULTS for rank in (0, 1)] + ["0 root: 3 2", "1 root: 0 0"]:
            if line not in out:
                sys.exit(f"{name}, {what}: not printed: {line}\n{out}")
        with open(f"{file}.1", encoding="utf-8") as f:
            count = len(re.findall(r'"all_reduce \((?!mean)[^"]*in a GPU|"broadcast [^"]*in a GPU', f.read()))
        # After an operation has found that the library is wrong, the next ones copy, but are planned and named as before.
        want = 0 if warning is None or warning and preload not in more else ON_GPU + (preload == "tiny")
        said = [line for line in out.splitlines() if "arning: The preference" in line]
        if count != want or len(said) != len(warning or []) or any(w not in s for w, s in zip(warning or [], said)):
            sys.exit(f"{name}, {what}: {count} operations on the GPU's memory instead of {want}\n{out}")
        print(f"{name}, {what}: {count} operations on the GPU's memory")


def check_aware_stops(name, launcher, options, build, folder, stub):
    """An operation of MPI on the memory of GPUs that does not end fails at the time limit, and its process ends."""
    environment = dict(preferring(build, folder, CUDA_AWARE, stub), AWARE_STOPS="3")
    sentence = r"all ranks called the operation, but (?:Open MPI|MPICH)[^\n]* did not complete it within 3 s: a GPU, a link or a process has stopped"
    out = started(launcher, options, build, "gpu_aware_stops", (), 2, environment).communicate(timeout=60)[0]
    for rank in (0, 1):
        for line in (rf"{rank} sum: 3 2", rf"{rank} stops: .*all_reduce \(sum\) of 1100001 Float32 in a GPU's memory, operation 2: {sentence}",
                     rf"{rank} later: .*an earlier operation failed: {sentence}", rf"{rank} kept: {2 * rank + 2} 2"):
            if not re.search(rf"(?m)^{line}", out):
                sys.exit(f"{name}, an operation on a GPU's memory that does not end: not printed: {line}\n{out}")
    print(f"{name}: an operation on a GPU's memory that does not end fails")


def check_gpu_overlap(name, launcher, options, build, folder, stub):
    """A thread exchanges buckets of GPUs beside the backward pass, by NCCL, by MPI in their memory and on copies, with the bits of one process."""
    by_mpi, in_gpu = preferring(build, folder, CUDA_AWARE, stub), " in a GPU"
    for case, environment, where in (("gpu_overlaps", simulated(build), in_gpu), ("gpu_aware_overlaps", by_mpi, in_gpu),
                                     ("gpu_aware_overlaps", simulated(build), '( in shared memory)?"')):
        for more in ({}, {"SIM_DEFER": "1"}):
            file = os.path.join(folder, "overlap.json")
            check(f"{name}, {case}", started(launcher, options, build, case, (), 2, dict(environment, FX_TIMELINE=file, **more)),
                  ["0 overlap: same bits", "1 overlap: same bits"], True)
            for rank in (0, 1):
                with open(f"{file}.{rank}", encoding="utf-8") as f:
                    events = f.read()
                # An update of one process runs its plan in one part. Two of three buckets that are begun divide it into three parts.
                parts, moved = events.count('"plan"'), len(re.findall(r'"all_reduce [^"]*of 360600 Float32' + where, events))
                if parts < 3 + 3 * 3 or moved != 3 * 3:
                    sys.exit(f"{name}, {case}, rank {rank}: {moved} buckets instead of 9, {parts} parts of plans instead of 12 or more")


def check_aware_full(name, launcher, options, build, folder, stub):
    """The buffers of an operation of MPI on the memory of GPUs take the place of arrays that were freed."""
    environment = dict(preferring(build, folder, CUDA_AWARE, stub), SIM_MEMORY="64")
    check(f"{name}, GPUs without free memory", started(launcher, options, build, "gpu_aware_full", (), 2, environment),
          [f"{rank} {line}" for rank in (0, 1) for line in ("full: ok", "sum: 3 2")], True)


def check_aware_hook(name, launcher, options, build, folder, stub):
    """A failure in the thread of the group, beside the backward pass, is reported in the program's thread."""
    out = started(launcher, options, build, "gpu_aware_hook", (), 2, preferring(build, folder, CUDA_AWARE, stub)).communicate(timeout=60)[0]
    reason = r"collective: .*all_reduce \(\w+\) of 360600 Float32 in a GPU's memory, operation \d+: CUDA:1 \(.*\): cuMemcpyDtoDAsync_v2 failed with error 1"
    for line in (rf"1 hook: {reason}", rf"1 update: {reason}"):  # the launcher may end the other rank
        if not re.search(rf"(?m)^{line}", out):
            sys.exit(f"{name}, a failure in the group's thread: not printed: {line}\n{out}")
    if "in another thread" in out:
        sys.exit(f"{name}, a failure in the group's thread calls the error hook there\n{out}")
    print(f"{name}: a failure in the group's thread is reported in the program's thread")


def check_aware_late(name, launcher, options, build, folder, stub):
    """A rank that has given up an operation of MPI on a GPU's memory does not finalise MPI, whether its call has ended or not.

    Rank 1 is late: in MPI's reduction, which ends before the program; before it calls that; and in the two parts of an operation, which have one
    time limit. MPI_Isend counts too: while the thread is in MPI, no other one sends notices.
    """
    environment = preferring(build, folder, CUDA_AWARE, stub)
    runs = [(what, started(launcher, options, build, "gpu_aware_late", (), 2, dict(environment, LATE_LENGTH=length, **late)))
            for what, length, late in (("ends late", "2", {"AWARE_LATE": "4"}), ("begins late", "2", {"AWARE_ENTERS": "8"}),
                                       ("has late parts", "1100001", {"AWARE_LATE": "2"}))]
    outs = [(what, run.communicate(timeout=60)[0]) for what, run in runs]
    for what, out in outs:
        if not re.search(r"(?m)^1 late: .* did not complete it within 3 s: ", out) or "1 sum: 3 2" not in out:
            sys.exit(f"{name}, an operation on a GPU's memory that {what}: rank 1 does not give up\n{out}")
        if "MPI is finalised" in out or "two threads in MPI" in out:
            sys.exit(f"{name}, an operation on a GPU's memory that {what}: rank 1 calls MPI at its end\n{out}")
    print(f"{name}: an operation on a GPU's memory that is late fails, and its process ends without MPI_Finalize")


def check_ends_after(name, launcher, options, build, folder):
    """A rank that has called an operation may end while another rank still waits in it for a third one, here for two thirds of the limit."""
    source = os.path.join(folder, "late.c")
    with open(source, "w", encoding="utf-8") as f:
        f.write("""#include <mpi.h>
#include <unistd.h>
int MPI_Ireduce(const void *in, void *out, int n, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm, MPI_Request *request)
{
    int rank;
    PMPI_Comm_rank(comm, &rank);
    if (rank == 2 && type == MPI_FLOAT)
        sleep(2);
    return PMPI_Ireduce(in, out, n, type, op, root, comm, request);
}
""")
    stub = mpis.stub_of(name, source, folder, "a rank that ends after an operation is not tested")
    if stub:
        run = started(launcher, options, build, "one_ends_after", ("env", f"LD_PRELOAD={stub}"), 3, {"FX_DIST_SHARED_MEMORY": "off"})
        check(f"{name}, one_ends_after", run, ["0 sum: \n", "2 sum: \n"], True)


def check_joined_once(name, launcher, options, build, folder):
    """After a failure to join or to agree, fx_dist_init returns the same error again, and does not join a second time."""
    source = os.path.join(folder, "joins.c")
    with open(source, "w", encoding="utf-8") as f:
        f.write("""#include <mpi.h>
#include <unistd.h>
#ifdef NO_OPERATIONS
int MPI_Op_create(MPI_User_function *f, int commutes, MPI_Op *out)
{
    (void)f, (void)commutes, (void)out;
    return MPI_ERR_OTHER;
}
#endif
int MPI_Iallgather(const void *in, int n, MPI_Datatype a, void *out, int m, MPI_Datatype b, MPI_Comm c, MPI_Request *r)
{
    (void)in, (void)n, (void)a, (void)out, (void)m, (void)b, (void)c, (void)r;
    return MPI_ERR_OTHER;
}
int MPI_Comm_dup(MPI_Comm from, MPI_Comm *to)
{
    return write(2, "joins\\n", 6) == 6 ? PMPI_Comm_dup(from, to) : MPI_ERR_OTHER;
}
""")
    for define in ("AGREES_NOT", "NO_OPERATIONS"):
        stub = mpis.stub_of(name, source, folder, "a second fx_dist_init is not tested", f"-D{define}")
        if not stub:
            return
        run = started(launcher, options, build, "none", ("env", f"LD_PRELOAD={stub}"))
        out = run.communicate(timeout=60)[0]
        first, again = (sorted(re.findall(rf"(?m)^0 {word}: (dist_init: .*)$", out)) for word in ("init", "again"))
        if len(first) != 2 or again != first or out.count("joins\n") != 4 or ("MPI_Op_create" in first[0]) != (define == "NO_OPERATIONS"):
            sys.exit(f"{name}, {define}: fx_dist_init is called again after a failure: {out}")
    print(f"{name}: a failed fx_dist_init returns the same error again")


def check_other_joined_once(name, launcher, options, build, folder, other):
    """The plugin of another MPI joins once, however often it is asked for. The launcher's MPI can join after MPICH, but not after Open MPI.

    Open MPI makes its functions visible to all libraries that are loaded later, so MPICH's plugin calls them, and refuses to.
    """
    compiler, stub = shutil.which("cc"), os.path.join(folder, "other.so")
    with open(os.path.join(folder, "other.c"), "w", encoding="utf-8") as f:
        f.write("""#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
typedef int duplicate(void *from, void *to); /* registers that hold the handles of either library */
int MPI_Comm_dup(void *from, void *to);
int MPI_Comm_dup(void *from, void *to)
{
    void *library = dlopen(LAUNCHERS, RTLD_NOW | RTLD_NOLOAD); /* is opened last */
    library = library ? library : dlopen(OTHER, RTLD_NOW | RTLD_NOLOAD);
    duplicate *next = (duplicate *)dlsym(library, "PMPI_Comm_dup");
    return write(2, "joins\\n", 6) == 6 ? next(from, to) : 1;
}
""")
    subprocess.run([compiler, "-shared", "-fPIC", f'-DLAUNCHERS="{LIBRARIES[name]}"', f'-DOTHER="{LIBRARIES[other]}"',
                    os.path.join(folder, "other.c"), "-o", stub, "-ldl"], check=True)
    out = started(launcher, options, build, "none", ("env", f"LD_PRELOAD={stub}"), 2, None, [other]).communicate(timeout=60)[0]
    said = {word: sorted(re.findall(rf"(?m)^[01] {word}: (.*)$", out)) for word in ("init", "again", "then again", "barrier")}
    later = said["then again"] == said["barrier"] == ["ok", "ok"]
    refused = len(said["then again"]) == 2 and all("the program uses another MPI, Open MPI" in text for text in said["then again"])
    # A rank that joins makes two communicators: in a group of its own with one MPI, then in that of both with the other.
    joins = 2 * (2 + 2 * later)
    if len(said["init"]) != 2 or said["again"] != said["init"] or not (later if name == "openmpi" else refused) or out.count("joins\n") != joins:
        sys.exit(f"{name}: the plugin of {other} joins again, or that of {name} does not join: {out}")
    if name == "openmpi":  # neither of the two joins a second time if both have joined alone
        alone = dict(ENVIRONMENT, FX_PLUGIN_PATH=build, LD_PRELOAD=stub, OMPI_COMM_WORLD_SIZE="2")
        out = subprocess.run([os.path.join(build, "tests", "mpi_cases"), "none", other], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             timeout=60, env=alone).stdout
        said = {word: re.findall(rf"(?m)^0 {word}: (.*)$", out) for word in ("init", "again", "then again", "at last")}
        if not (said["init"] == said["again"] == said["at last"]) or "but MPICH" not in said["init"][0] or "but Open MPI" not in said["then again"][0] or out.count("joins\n") != 4:
            sys.exit(f"{name}: a plugin joins again after the other one: {out}")
    print(f"{name}: the plugin of {other} joins once{', then that of ' + name if later else ''}")


def check_own_mpi(name, launcher, options, build, folder):
    """A program that initialises MPI itself gives cflux a communicator, and finalises MPI. Below MPI_THREAD_SERIALIZED, another thread gets an error."""
    compiler, program, root = shutil.which(f"mpicc.{name}"), os.path.join(folder, "own_mpi"), os.path.join(os.path.dirname(__file__), "..", "..")
    if not compiler:
        print(f"{name}: no mpicc.{name}: a program that initialises MPI is not tested")
        return
    subprocess.run([compiler, os.path.join(root, "tests", "dist", "own_mpi.c"), "-I", os.path.join(root, "include"), "-I", os.path.join(build, "include"),
                    "-L", build, f"-Wl,-rpath,{build}", "-lcflux", "-lpthread", "-o", program], check=True)
    for level in ("single", "serialized"):
        run = subprocess.run([launcher, *options, "-n", "3", program, name, level], text=True, capture_output=True, timeout=60,
                             env=dict(ENVIRONMENT, FX_PLUGIN_PATH=build))
        refused = "the program initialised MPI with a thread level below MPI_THREAD_SERIALIZED: only the thread that initialised MPI may call this function"
        want = {"group": ("rank 1 of 2", "rank 0 of 1", "rank 0 of 2"), "sum": ("4", "2", "4"), "weight": ("-1", "-1", "-1"), "own sum": ("2", "1", "2"),
                "finalised": ("0", "0", "0"), "thread": ("4", "2", "4") if level == "serialized" else (refused, "2", refused)}
        for what, values in want.items():
            for rank, value in enumerate(values):
                if not re.search(rf"(?m)^{rank} {what}: .*{re.escape(value)}$", run.stdout):
                    sys.exit(f"{name}, a program that initialises MPI, {level}: {rank} {what} is not {value}\n{run.stdout}{run.stderr}")
        if run.returncode:
            sys.exit(f"{name}, a program that initialises MPI, {level}: status {run.returncode}\n{run.stdout}{run.stderr}")
        print(f"{name}: a program initialises MPI itself, {level}")


def check_chosen(name, launcher, options, build):
    """FX_DIST_AUTO takes the library that rank 0's environment names."""
    first = ("sh", "-c", '[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 0 ] && export FX_DIST_BACKEND=%s; exec "$@"', "sh")
    sums = ["0 sum: 3 2", "1 sum: 3 2", "0 group: same", "1 group: same"]
    for value, lines, succeeds in (("nccl", ["0 NCCL: yes", "1 NCCL: yes", *sums], True), ("NCCL", ["1 NCCL: yes", *sums], True),
                                   ("mpi", ["0 NCCL: no", "1 NCCL: no", *sums], True), ("", ["0 NCCL: no", "1 NCCL: no", *sums], True),
                                   ("gloo", ["init: dist_init: FX_DIST_BACKEND in the environment of rank 0 must be mpi or nccl", "0 initialized: no",
                                              "again: dist_init: FX_DIST_BACKEND in the environment of rank 0 must be mpi or nccl"], False)):
        before = (*first[:2], first[2] % value, *first[3:])
        check(f"{name}, FX_DIST_BACKEND={value}", started(launcher, options, build, "auto_sums", before, 2, simulated(build)), lines, succeeds)


def check_gpus(name, launcher, options, build):
    more = simulated(build)
    for (case, n), lines in GPU_CASES.items():
        check(f"{name}, {case}, {n} processes", started(launcher, options, build, case, (), n, more), lines, True)


def main():
    build = os.path.abspath(sys.argv[1])
    want = losses([], build)
    assert len(want) == 5, want
    for name, (launcher, *options) in mpis.installed(build):
        for n in (1, 2, 4):
            got = losses([launcher, *options, "-n", str(n)], build)
            worst = max(abs(a - b) for a, b in zip(got, want))
            # one line each, from rank 0 alone, of numbers with 6 decimals
            if len(got) != len(want) or worst > 3e-6:
                sys.exit(f"{name}, {n} processes: {got} instead of {want}")
            print(f"{name}, {n} processes: within {worst:.1e}")
        other = next(key for key in LIBRARIES if key != name)
        check_cases(name, launcher, options, build, other if shutil.which(f"mpirun.{other}") else None)
        with tempfile.TemporaryDirectory() as folder:
            check_shared_memory(name, launcher, options, build, folder)
            stub = stub_of_aware_mpi(name, folder)
            for check_of_stub in (check_aware, check_aware_stops, check_aware_late, check_aware_full, check_aware_hook, check_gpu_overlap) if stub else ():
                check_of_stub(name, launcher, options, build, folder, stub)
            check_own_mpi(name, launcher, options, build, folder)
            check_ends_after(name, launcher, options, build, folder)
            check_joined_once(name, launcher, options, build, folder)
            if shutil.which(f"mpirun.{other}"):
                check_other_joined_once(name, launcher, options, build, folder, other)
        check_gpus(name, launcher, options, build)
        check_chosen(name, launcher, options, build)


main()
