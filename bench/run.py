#!/usr/bin/env python3
"""`make bench`: measures every case with cflux and its peers alternately, writes result files and a table.

The programs stay running. Each case is measured with one program after the other, so that a disturbance
of the machine affects all of them. PyTorch is measured if a python3 of the machine can import it, twice: with
default settings, and tuned (the widest instruction set in its own kernels and in OpenBLAS, which old
versions do not detect on new processors; a malloc that keeps its memory, with huge pages). If OpenBLAS
is installed, its matrix products are measured directly. The table compares with the fastest peer. A row
that other programs disturbed is measured again, at most twice.

Usage: run.py --runner PATH [--out FOLDER] [--seconds S] [--threads N] [--commit C] [part of a name…]
"""
import argparse
import datetime
import glob
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import compare  # noqa: E402

TRIES = 3


def cpu_has(flag):
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        return any(line.startswith("flags") and flag in line.split() for line in f)


def tuned_environment():
    env = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
           "MALLOC_TOP_PAD_": str(64 << 20), "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
    if cpu_has("avx512f"):
        env.update(ATEN_CPU_CAPABILITY="avx512", OPENBLAS_CORETYPE="SkylakeX")
    return env


def python_with_torch():
    for python in dict.fromkeys([sys.executable, "python3", "/usr/bin/python3"]):
        try:
            if subprocess.run([python, "-c", "import torch"], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, check=False).returncode == 0:
                return python
        except OSError:
            pass
    return None


class Server:
    """A program that reads the name of a case and prints its rows."""

    def __init__(self, name, command, env=None):
        self.name, self.rows = name, []
        self.ends = name != "cflux"  # a peer prints several rows, and then an end row
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, **(env or {})})
        self.rows.append(self.receive())

    def receive(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended early")
        return json.loads(line)

    def ask(self, case):
        self.process.stdin.write(case + "\n")
        self.process.stdin.flush()
        answer = [self.receive()]
        while self.ends and answer[-1]["row"] != "end":
            answer.append(self.receive())
        return [row for row in answer if row["row"] != "end"]

    def measure(self, case):
        rows = self.ask(case)
        for _ in range(TRIES - 1):
            if not any(row.get("contended") for row in rows):
                break
            rows = self.ask(case)
        self.rows += rows
        return rows

    def close(self):
        self.process.stdin.close()
        return self.process.wait()


def commit():
    """Returns the commit of the measured library, with "+" if its sources have changed since then."""
    def git(*args):
        return subprocess.run(["git", "-C", HERE, *args], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True, check=True).stdout.strip()
    try:
        changed = git("status", "--porcelain", "--", "../src", "../include")
        return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def best(rows):
    rows = [row for row in rows if row["row"] == "case"]
    return min(rows, key=lambda row: row["median"]) if rows else None


def table_line(case, ours, peers):
    """Returns a line of Markdown: case, time of cflux, of the fastest peer, and the ratio peer / cflux."""
    own, other = best(ours), best([row for rows in peers for row in rows])
    if own is None:
        why = "skipped" if ours[0]["row"] == "skipped" else "failed"
        return f"| {case} | {why}: {ours[0].get('message', '')} | | |"
    if other is None:
        return f"| {case} | {compare.shown(own)} | – | – |"
    ratio = f"{other['median'] / own['median']:.2f}" if own["median"] > 0 else "–"
    tuned = ", tuned" if len(peers) > 1 and other in peers[1] else ""
    return f"| {case} | {compare.shown(own)} | {compare.shown(other)} ({other['variant']}{tuned}) | {ratio} |"


def write(server, out, kind, threads):
    kind += f"-t{threads}" if threads > 1 else ""
    path = os.path.join(out, f"{datetime.date.today().isoformat()}-{kind}.jsonl")
    with open(path, "w", encoding="utf-8") as f:
        for row in server.rows:
            f.write(json.dumps(row, ensure_ascii=False) + "\n")
    return path


BLAS = ["libopenblas.so.0", "libopenblas.so"]


def blas_peer(args, seconds):
    """Starts the measurement of OpenBLAS, tuned as in PyTorch; an empty list if it is not installed."""
    for library in BLAS:
        command = [args.runner, "--blas", library]
        if subprocess.run([*command, "--list"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                          check=False).returncode == 0:
            return [Server("OpenBLAS", [*command, *seconds],
                           {"OMP_NUM_THREADS": str(args.threads), **tuned_environment()})]
    return []


def start(args):
    """Starts cflux and the installed peers."""
    seconds = ["--serve", "--seconds", str(args.seconds), "--threads", str(args.threads)]
    plain = ["--no-onednn"] if args.no_onednn else []
    ours = Server("cflux", [args.runner, "--commit", args.commit or commit(), *plain, *seconds])
    python, script = python_with_torch(), os.path.join(HERE, "peer_torch.py")
    if not python:
        print("no python3 can import torch", file=sys.stderr)
        return ours, blas_peer(args, seconds)
    command = [python, script, *seconds]
    threads = {"OMP_NUM_THREADS": str(args.threads), "LD_LIBRARY_PATH": openmp_blas()}
    return ours, [Server("PyTorch", command, threads),
                  Server("PyTorch tuned", command, {**threads, **tuned_environment()}),
                  *blas_peer(args, seconds)]


def openmp_blas():
    """Returns LD_LIBRARY_PATH with OpenBLAS for OpenMP first: threads of other builds compete with PyTorch's."""
    folders = glob.glob("/usr/lib/*/openblas-openmp") + [os.environ.get("LD_LIBRARY_PATH", "")]
    return ":".join(filter(None, folders))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runner", required=True)
    parser.add_argument("--out", default=os.path.join(HERE, "results"))
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--threads", type=int, default=1, help="threads of each program")
    parser.add_argument("--no-onednn", action="store_true", help="cflux without the oneDNN plugin")
    parser.add_argument("--commit", help="commit of the runner's library (default: of this tree)")
    parser.add_argument("part", nargs="*")
    args = parser.parse_args()
    names = subprocess.run([args.runner, "--list"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    names = [n for n in names if not args.part or any(p in n for p in args.part)]
    ours, peers = start(args)
    for server in (ours, *peers):
        head = server.rows[0]
        print(", ".join(str(head[k]) for k in ("program", "version", "commit", "compiler", "cpu", "isa", "blas")
                        if k in head), flush=True)
    print("\n| case | cflux | best peer | ratio |\n|---|---:|---:|---:|", flush=True)
    for case in names:
        mine = ours.measure(case)
        print(table_line(case, mine, [p.measure(case) for p in peers]), flush=True)
    print("\nA ratio above 1: the peer takes that many times as long. *: other programs held the core; waiting is subtracted.")
    os.makedirs(args.out, exist_ok=True)
    kinds = [(ours, "cpu-own" if args.no_onednn else "cpu")]
    kinds += [(p, p.name.replace("PyTorch", "torch").replace(" ", "-").lower()) for p in peers]
    for server, kind in kinds:
        print("rows: " + os.path.relpath(write(server, args.out, kind, args.threads)))
    return max(server.close() for server, _ in kinds)


if __name__ == "__main__":
    sys.exit(main())
