#!/usr/bin/env python3
"""Makes the tables of README.md and docs/performance.md from the result files of one day.

Usage: tables.py DATE [--readme]

DATE is the first part of the names of the files in bench/results, such as 2026-11-27. Without an option it prints
one table for one thread, and another for two if there are such files. --readme prints a line of the README's table
for each of its cases.
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import compare  # noqa: E402
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


def main(argv):
    folder = os.path.join(HERE, "results")
    if len(argv) == 2 and argv[1] == "--readme":
        print("\n".join(readme_table(folder, argv[0])))
        return 0
    if len(argv) != 1:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    for threads in (1, 2):
        print("\n".join(full_table(folder, argv[0], threads)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
