#!/usr/bin/env python3
"""Training by two processes of this machine: cflux with MPI beside PyTorch's DistributedDataParallel (DDP) with gloo.

Each process has one thread and a batch of its own. Each round measures a network with one program and then with the other: cflux
(bench_runner --processes) and DDP, in each variant that a user could write. The files that result have the rows of all
rounds; the table has each program's row with the lowest median, in observations a second of both processes together, and
the ratios of these speeds and of the least times. A star marks a row that other programs disturbed. Needs mpirun and a Python with torch.

Usage: peer_ddp.py BUILD [--rounds N] [--seconds S] [--warm-up S] [--mpi openmpi|mpich] [--no-compile] [--out FOLDER]
       [part of a network…]
"""
import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import compare  # noqa: E402
import peer  # noqa: E402
import peer_gloo  # noqa: E402
import run  # noqa: E402

NETWORKS = {"mlp-784-256-10-b64": 128, "mlp-784-256-10-b1024": 2048, "lenet-b64": 128}  # and the observations of a training step


# ---- one of the two processes of PyTorch ---------------------------------------------------------------------------

def train(name):
    import peer_torch as T  # pylint: disable=import-outside-toplevel; only these processes need PyTorch
    from torch.nn.parallel import DistributedDataParallel as DDP  # pylint: disable=import-outside-toplevel
    make, shape, kind = T.NETWORKS[name]
    ways = {"DDP": {}, "DDP static": {"static_graph": True, "gradient_as_bucket_view": True}}
    for layout in T.layouts(shape):
        for label, options in T.optimisers().items():
            for way, settings in ways.items():
                yield " ".join(filter(None, [way, layout, label])), \
                    lambda l=layout, o=options, s=settings: T.train_variant(make, shape, kind, l, o, wrap_model=lambda m: DDP(m, **s))
    if T.compiling:
        yield "compile of DDP", lambda: T.train_variant(make, shape, kind, "", list(T.optimisers().values())[-1],
                                                        wrap_model=lambda m: T.compiled(DDP(m)))


def be_a_process(meet, rank, argv):
    import torch  # pylint: disable=import-outside-toplevel
    import torch.distributed as dist  # pylint: disable=import-outside-toplevel
    import peer_torch as T  # pylint: disable=import-outside-toplevel
    args = peer.arguments(argv)
    T.compiling = args.compile
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=2, timeout=datetime.timedelta(seconds=600))

    def largest(x):
        t = torch.tensor([x], dtype=torch.float64)
        dist.all_reduce(t, dist.ReduceOp.MAX)
        return t.item()
    peer.group = largest
    peer.run(args, {f"train/{name}": lambda n=name: train(n) for name in NETWORKS}, {**T.header(), "processes": 2}, "torch")
    dist.destroy_process_group()


# ---- the measurement -------------------------------------------------------------------------------------------------

def cflux(a, network):
    runner = os.path.join(a.build, "bench", "bench_runner")
    out = subprocess.run([f"mpirun.{a.mpi}", "-n", "2", runner, "--processes", "--seconds", str(a.seconds), "--commit", run.commit(), f"train/{network}", f"record/{network}"],
                         stdout=subprocess.PIPE, text=True, check=True, env=peer_gloo.ENVIRONMENT).stdout
    return [json.loads(line) for line in out.splitlines()]


def ddp(a, network):
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--rank", os.path.join(folder, "meet")]
        options = ["--seconds", str(a.seconds), "--warm-up", str(a.warm_up), *([] if a.no_compile else ["--compile"]), f"train/{network}"]
        both = [subprocess.Popen([*command, str(rank), *options], stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL, text=True,
                                 env={**os.environ, **run.tuned_environment(), "GLOO_SOCKET_IFNAME": "lo"}) for rank in range(2)]
        try:
            out = both[0].communicate()[0]
            if both[0].returncode or both[1].wait():
                sys.exit(f"DDP failed ({network})")
        finally:
            for p in both:
                p.kill()
    rows = [json.loads(line) for line in out.splitlines()]
    return rows + [{**row, "case": f"record/{network}"} for row in rows if row["row"] == "case"]  # PyTorch has no other program for it


def least(rows):
    """Returns the least time of each case."""
    found = {}
    for row in rows:
        if row["row"] == "case":
            found[row["case"]] = min(row["min"], found.get(row["case"], row["min"]))
    return found


def table(results):
    """Returns lines of Markdown; results: the two programs' rows."""
    best, shortest = [compare.best_rows(rows) for rows in results], [least(rows) for rows in results]
    lines = ["| case | cflux, observations/s | DDP with gloo | ratio | of the least times |", "|---|---:|---:|---:|---:|"]
    for case, batch in ((f"{kind}/{name}", batch) for name, batch in NETWORKS.items() for kind in ("train", "record")):
        rows = [rows.get(case) for rows in best]
        if all(rows):
            speeds = [1e6 * batch / row["median"] for row in rows]
            texts = [f"{speed:,.0f}{'*' if row['contended'] else ''}" for speed, row in zip(speeds, rows)]
            lines.append(f"| {case} | {texts[0]} | {texts[1]} ({rows[1]['variant']}) | {speeds[0] / speeds[1]:.2f} "
                         f"| {shortest[1][case] / shortest[0][case]:.2f} |")
    return lines


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seconds", type=float, default=1)
    p.add_argument("--warm-up", type=float, default=300)
    p.add_argument("--mpi", default="openmpi")
    p.add_argument("--no-compile", action="store_true")
    p.add_argument("--out", default=".")
    p.add_argument("part", nargs="*")
    a = p.parse_intermixed_args()
    a.build = os.path.abspath(a.build)
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
    paths = [os.path.join(a.out, f"{date}-{name}-processes.jsonl") for name in ("cpu", "ddp")]
    found = [[], []]
    for _ in range(a.rounds):
        for network in [n for n in NETWORKS if not a.part or any(part in n for part in a.part)]:
            found[0] += cflux(a, network)
            found[1] += ddp(a, network)
            for path, rows in zip(paths, found):
                with open(path, "w", encoding="utf-8") as f:
                    f.writelines(json.dumps(row) + "\n" for row in rows)
    print("\n".join(table(found)))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        be_a_process(sys.argv[2], int(sys.argv[3]), sys.argv[4:])
    else:
        main()
