#!/usr/bin/env python3
"""Training by two processes of this machine, with buckets or one exchange for each array, and by one process, in a group or not.

Each round measures a network in four ways: gradients in buckets (fx_dist_optimiser), one fx_dist_allreduce for each array of the gradient,
one process that has joined a group of one, and one process that has not. The table has the least time of all rounds, in µs for a training
step, and the ratios: arrays / buckets, and joined / alone. Needs mpirun.

Usage: buckets.py BUILD [--rounds N] [--seconds S] [--mpi openmpi|mpich] [part of a network…]
"""
import argparse
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import peer_gloo  # noqa: E402

NETWORKS = ("xor-2-3-bn-2-b64", "mlp-784-256-10-b64", "lenet-b64", "lstm-64-128-seq50-b32", "gru-64-128-seq50-b32", "block-256-h4-seq128-b8")
WAYS = {"buckets": (2, ("--processes",)), "arrays": (2, ("--processes", "--each-array")), "joined": (1, ("--processes",)), "alone": (0, ())}


def least(args, name, way):
    processes, options = WAYS[way]
    mpirun = [f"mpirun.{args.mpi}", "-n", str(processes)]
    command = [*(mpirun if processes else []), os.path.join(args.build, "bench", "bench_runner"), *options, "--seconds", str(args.seconds), f"train/{name}"]
    out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=peer_gloo.ENVIRONMENT).stdout
    rows = [json.loads(line) for line in out.splitlines()]
    return next(row["min"] for row in rows if row.get("case") == f"train/{name}")


def main():
    parser = argparse.ArgumentParser(usage=__doc__.partition("Usage: ")[2])
    parser.add_argument("build", type=os.path.abspath)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--mpi", default="openmpi", choices=("openmpi", "mpich"))
    parser.add_argument("parts", nargs="*")
    args = parser.parse_intermixed_args()
    print("| network | buckets | arrays | arrays / buckets | joined | alone | joined / alone |\n|---|--:|--:|--:|--:|--:|--:|")
    for name in NETWORKS:
        if args.parts and not any(part in name for part in args.parts):
            continue
        times = {way: [] for way in WAYS}
        for _ in range(args.rounds):
            for way, all_times in times.items():
                all_times.append(least(args, name, way))
        b, a, j, o = (min(all_times) for all_times in times.values())
        print(f"| {name} | {b:.1f} | {a:.1f} | {a / b:.2f} | {j:.1f} | {o:.1f} | {j / o:.3f} |")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
