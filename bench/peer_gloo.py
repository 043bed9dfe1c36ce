#!/usr/bin/env python3
"""Sums over two processes of this machine: cflux bench allreduce beside torch.distributed with gloo.

Each round runs, one after the other: cflux with shared memory, cflux without it (MPI moves the data), and gloo. The
table has the least time of each, in milliseconds, for arrays of Float32, and the ratio of the first to gloo's. Needs
mpirun and a Python with torch.
Usage: peer_gloo.py build-folder [--mpi openmpi|mpich] [--python PYTHON] [--rounds N] [--seconds S]
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

SIZES = (4, 4096, 65536, 800000, 4 << 20, 16 << 20, 40000000)
GLOO = """
import sys, time, torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=int(sys.argv[2]), world_size=2)
for size in map(int, sys.argv[4:]):
    x = torch.ones(size // 4)
    dist.all_reduce(x)
    least, end = 1e9, time.perf_counter() + float(sys.argv[3])
    for _ in range(5):
        x.fill_(1)
        dist.barrier()
        begin = time.perf_counter()
        dist.all_reduce(x)
        first = time.perf_counter() - begin
    runs = torch.tensor([max(1, int(float(sys.argv[3]) / 11 / first))])
    dist.broadcast(runs, 0)
    for _ in range(11):
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(int(runs)):
            dist.all_reduce(x)
        least = min(least, (time.perf_counter() - begin) / int(runs))
    if sys.argv[2] == "0":
        print(size, least, flush=True)
dist.barrier()
dist.destroy_process_group()  # without it, a thread of gloo ends some processes with "terminate called"
"""
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", FX_NUM_THREADS="1")


def cflux(a, choice):
    run = subprocess.run([f"mpirun.{a.mpi}", "-n", "2", os.path.join(a.build, "tools", "cflux", "cflux"), "bench", "allreduce",
                          "--seconds", str(a.seconds), "--json"], capture_output=True, text=True, check=False,
                         env=dict(ENVIRONMENT, FX_PLUGIN_PATH=a.build, FX_DIST_SHARED_MEMORY=choice))
    if run.returncode:
        sys.exit(run.stdout + run.stderr)
    return {row["bytes"]: row["least_seconds"] for row in json.loads(run.stdout)["rows"]}


def gloo(a):
    with tempfile.TemporaryDirectory() as folder:
        both = [subprocess.Popen([a.python, "-c", GLOO, os.path.join(folder, "meet"), str(rank), str(a.seconds), *map(str, SIZES)],
                                 stdout=subprocess.PIPE, text=True, env=dict(os.environ, GLOO_SOCKET_IFNAME="lo"))
                for rank in range(2)]
        out = [p.communicate()[0] for p in both][0]
    if any(p.returncode for p in both):
        sys.exit("gloo failed")
    return {int(size): float(seconds) for size, seconds in map(str.split, out.splitlines())}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("--mpi", default="openmpi")
    p.add_argument("--python", default=sys.executable)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=float, default=0.2)
    a = p.parse_args()
    a.build = os.path.abspath(a.build)
    rows = [(cflux(a, "on"), cflux(a, "off"), gloo(a)) for _ in range(a.rounds)]
    print(f"{'bytes':>10} {'shared memory':>14} {a.mpi:>10} {'gloo':>10}   shared / gloo")
    for size in SIZES:
        least = [min((r[k][size] for r in rows if size in r[k]), default=float("nan")) for k in range(3)]
        print(f"{size:10} {1e3 * least[0]:14.4f} {1e3 * least[1]:10.4f} {1e3 * least[2]:10.4f}   {least[0] / least[2]:.2f}")


if __name__ == "__main__":
    main()
