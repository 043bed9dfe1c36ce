#!/usr/bin/env python3
"""Makes the tables of README.md and docs/performance.md from the result files of one day.

Usage: tables.py DATE [--readme | --limits]

DATE is the first part of the names of the files in bench/results, such as 2026-11-27. Without an option it prints
one table for one thread, and another for two if there are such files. --readme prints a line of the README's table
for each of its cases. --limits compares each case with the least time that the machine needs for it (limits.py): the
share is that time divided by the time of cflux.
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import compare  # noqa: E402
import limits  # noqa: E402
import run  # noqa: E402

PEERS = {"torch": "PyTorch", "torch-tuned": "PyTorch tuned", "jax": "JAX", "openblas": "OpenBLAS"}
README = {
    "train/xor-2-3-bn-2-b64": "XOR 2-3-BN-2, B=64, training step",
    "record/xor-2-3-bn-2-b64": "the same, recorded",
    "record/mlp-784-256-10-b64": "784-256-10, B=64, training step",
    "record/mlp-784-256-10-b1024": "784-256-10, B=1024, training step",
    "record/lenet-b64": "LeNet-5, B=64, training step",
    "forward/lenet-b64": "LeNet-5, B=64, prediction",
    "record/vgg-bn-b64": "VGG with BatchNorm, B=64, training step",
    "forward/vgg-bn-b64": "VGG with BatchNorm, B=64, prediction",
    "record/lstm-64-128-seq50-b32": "LSTM 64-128, 50 time steps, B=32, training step",
    "record/gru-64-128-seq50-b32": "GRU 64-128, 50 time steps, B=32, training step",
    "record/block-256-h4-seq128-b8": "transformer block of width 256, 8 texts of 128, training step",
    "record/gpt2-4x256-seq64-b4": "GPT-2, 4 blocks of width 256, 4 texts of 64, training step",
    "chain/1e6-gradient": "tanh(a·x+b)·σ(x)+exp(−x²) with gradient, 10⁶",
    "rows/softmax-1000x1024": "softmax of the columns of 1000×1024",
    "rows/crossentropy-1000x1024-gradient": "cross-entropy of 1000×1024, with gradient",
    "rows/layernorm-768x8192-gradient": "layer norm of 768×8192, with gradient",
    "matrix/var-4096-strided": "variances of the rows of 4096²",
    "matmul/2048x2048x2048": "matrix product 2048³",
    "start/first-prediction": "start to first prediction",
}


class Peer:
    """A peer's name, like a run.Server's, and its fastest row of each case."""

    def __init__(self, name, rows):
        self.name, self.rows = name, rows


def by_case(path):
    return compare.read(path)[1] if os.path.exists(path) else {}


def results(folder, date, threads):
    """Returns the rows of cflux, those of cflux without oneDNN (both by case), and the peers."""
    def rows(kind):
        return by_case(os.path.join(folder, f"{date}-{kind}" + (f"-t{threads}" if threads > 1 else "") + ".jsonl"))

    return rows("cpu"), rows("cpu-own"), [Peer(name, rows(kind)) for kind, name in PEERS.items()]


def best_peer(peers, case):
    return run.best([(peer, peer.rows[case]) for peer in peers if case in peer.rows])


def columns(row, found, with_mode):
    """Returns our time, the peer's, and the ratio as columns of a table."""
    if row is None:
        return ["–", "–", "–"]
    if found is None:
        return [compare.shown(row), "–", "–"]
    peer, other = found
    mode = f" ({run.mode(peer, other)})" if with_mode else f" ({peer.name.split()[0]})"
    ratio = f"{other['median'] / row['median']:.2f}" if row["median"] > 0 else "–"
    return [compare.shown(row), compare.shown(other) + mode, ratio]


def line(cells):
    return "| " + " | ".join(cells) + " |"


def full_table(folder, date, threads):
    ours, own, peers = results(folder, date, threads)
    titles = ["case", "cflux", "without oneDNN", "best peer", "ratio"]
    table = [titles]
    for case, row in ours.items():
        ms, peer, ratio = columns(row, best_peer(peers, case), True)
        table.append([case, ms, compare.shown(own[case]) if case in own else "", peer, ratio])
    shown = [k for k in range(len(titles)) if own or titles[k] != "without oneDNN"]
    lines = [line([cells[k] for k in shown]) for cells in table]
    lines.insert(1, "|---|" + "---:|" * (len(shown) - 1))
    return lines if ours else []


def readme_table(folder, date):
    of_threads = [found for found in (results(folder, date, threads) for threads in (1, 2)) if found[0]]
    titles = ["cflux", "best peer", "ratio", "two threads", "best peer", "ratio"][:3 * len(of_threads)]
    lines = [line(["", *titles]), "|---|" + "---:|" * len(titles)]
    for case, title in README.items():
        cells = [columns(ours.get(case), best_peer(peers, case), False) for ours, _, peers in of_threads]
        if any(first != "–" for first, _, _ in cells):
            lines.append(line([title, *(cell for row in cells for cell in row)]))
    return lines


def limits_table(folder, date, threads):
    """Returns the table and the rates as a line below it; an empty list if the run has not measured the rates."""
    ours, _, peers = results(folder, date, threads)
    of_run = limits.rates(ours, [peer.rows for peer in peers])
    if not of_run:
        return []
    lines = [line(["case", "cflux", "limit", "share", "of", "best peer's share"]), "|---|---:|---:|---:|---|---:|"]
    for case, row in ours.items():
        found = limits.limit(case, of_run)
        if found is None:
            continue
        least, arithmetic = found
        peer = best_peer(peers, case)
        lines.append(line([case, compare.shown(row), compare.quantity(least, "us"), f"{least / row['median']:.2f}",
                           "arithmetic" if arithmetic else "memory",
                           f"{least / peer[1]['median']:.2f}" if peer else "–"]))
    flops, near, far = of_run
    return [*lines, "", f"Arithmetic: {flops / 1e3:.0f} GF/s. Memory: {near / 1e3:.1f} GB/s within the caches, "
                        f"{far / 1e3:.1f} beyond them, read and written."]


TABLES = {"--readme": lambda folder, date: [readme_table(folder, date)],
          "--limits": lambda folder, date: [limits_table(folder, date, threads) for threads in (1, 2)],
          "": lambda folder, date: [full_table(folder, date, threads) for threads in (1, 2)]}


def main(argv):
    date, option = (argv + ["", ""])[:2]
    if not date or option not in TABLES or len(argv) > 2:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    found = [table for table in TABLES[option](os.path.join(HERE, "results"), date) if table]
    for table in found:
        print("\n".join(table) + "\n")
    if not found:
        print(f"no such rows of {date}", file=sys.stderr)
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
