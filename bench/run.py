#!/usr/bin/env python3
"""`make bench`: measures every case with cflux and its peers alternately, writes result files and a table.

The programs stay running. Each case is measured with one program after the other, so that a disturbance
of the machine affects all of them. The peers are those of scripts/bench-peers (PyTorch, JAX), otherwise the PyTorch
of the machine's python3; and OpenBLAS for matrix products, if it is installed. PyTorch is measured twice: with
default settings, and tuned (the widest instruction set in its own kernels and in OpenBLAS, which old
versions do not detect on new processors; a malloc that keeps its memory, with huge pages). Only the tuned one also
compiles (torch.compile). The table compares with the fastest peer. A row that other programs disturbed is measured
again, at most twice. The files are written after each case, so an interrupted run keeps what it has measured.
The last lines name the cases that no peer measured, and the variants that failed.

Usage: run.py --runner PATH [--out FOLDER] [--seconds S] [--threads N] [--commit C] [--warm-up S] [--no-onednn]
              [--peers FOLDER] [part of a name…]
"""
import argparse
import datetime
import glob
import json
import os
import statistics
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


def python_with(module, pythons):
    """Returns the first Python that can import the module, or None."""
    for python in dict.fromkeys(pythons):
        try:
            if subprocess.run([python, "-c", f"import {module}"], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, check=False).returncode == 0:
                return python
        except OSError:
            pass
    return None


class Server:
    """A program that reads the name of a case and prints its rows. kind: part of the name of its result file."""

    def __init__(self, name, kind, command, env=None):
        self.name, self.kind, self.rows = name, kind, []
        self.is_peer = name != "cflux"  # a peer prints several rows, and then an end row
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
        while self.is_peer and answer[-1]["row"] != "end":
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

    def repeat_as(self, case, rows):
        """Stores and returns the rows of another case under this name."""
        rows = [{**row, "case": case} for row in rows]
        self.rows += rows
        return rows

    def close(self):
        self.process.stdin.close()
        return self.process.wait()


class Peers:
    """The peers' programs. One that ends early is measured no more, and its error is kept."""

    def __init__(self, servers):
        self.servers, self.running, self.errors = servers, list(servers), []
        self.latest = (None, {})  # a case train/… and each peer's rows of it

    def measure(self, case):
        """Returns (server, row) for every row of the case. A peer has the same program for record/… and train/…, so
        it is measured once for both."""
        same = case.replace("record/", "train/", 1)
        known = self.latest[1] if self.latest[0] == same != case else {}
        found = {}
        for server in list(self.running):
            try:
                found[server] = server.repeat_as(case, known[server]) if server in known else server.measure(case)
            except (RuntimeError, OSError, ValueError) as e:  # ValueError: a line that is not JSON
                self.running.remove(server)
                self.errors.append(f"{server.name}: {e} ({case})")
        self.latest = (case, found)
        return [(server, row) for server, rows in found.items() for row in rows]


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
    """Returns the pair (server, row) with the lowest median, or None."""
    rows = [pair for pair in rows if pair[1]["row"] == "case"]
    return min(rows, key=lambda pair: pair[1]["median"]) if rows else None


def mode(server, row):
    """Returns the name of a peer with the variant of the row, such as "PyTorch tuned: compile"."""
    return server.name if row["variant"] in ("BLAS", "jit") else f"{server.name}: {row['variant']}"


def table_line(case, ours, rows):
    """Returns a line of Markdown (case, time of cflux, of the fastest peer, ratio peer / cflux), and the ratio or
    None. rows: the peers' pairs of server and row."""
    own, other = best([(None, row) for row in ours]), best(rows)
    if own is None:
        why = "skipped" if ours[0]["row"] == "skipped" else "failed"
        return f"| {case} | {why}: {ours[0].get('message', '')} | | |", None
    own = own[1]
    if other is None:
        return f"| {case} | {compare.shown(own)} | – | – |", None
    server, row = other
    ratio = row["median"] / own["median"] if own["median"] > 0 else None
    shown = "–" if ratio is None else f"{ratio:.2f}"
    return f"| {case} | {compare.shown(own)} | {compare.shown(row)} ({mode(server, row)}) | {shown} |", ratio


def summary(ratios, peers, unmeasured):
    """Returns the lines below the table. ratios: those of the cases by name."""
    lines = ["A ratio above 1: the peer takes that many times as long. *: other programs held the core; "
             "on one thread, processor time counts."]
    if ratios:
        slower = sum(r < 1 for r in ratios.values())
        lines.append(f"{len(ratios)} ratios, median {statistics.median(ratios.values()):.2f}, {slower} below 1.")
    if unmeasured:
        lines.append("No peer measured: " + ", ".join(unmeasured))
    failed = [f"{row['case']} ({mode(s, row)}: {row['message']})" for s in peers.servers for row in s.rows
              if row["row"] == "failure"]
    lines += [f"Failed: {text}" for text in failed + peers.errors]
    return lines


def write(server, out, date, threads):
    kind = server.kind + (f"-t{threads}" if threads > 1 else "")
    path = os.path.join(out, f"{date}-{kind}.jsonl")
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
            return [Server("OpenBLAS", "openblas", [*command, *seconds],
                           {"OMP_NUM_THREADS": str(args.threads), **tuned_environment()})]
    return []


def openmp_blas():
    """Returns LD_LIBRARY_PATH with OpenBLAS for OpenMP first: threads of other builds compete with PyTorch's."""
    folders = glob.glob("/usr/lib/*/openblas-openmp") + [os.environ.get("LD_LIBRARY_PATH", "")]
    return ":".join(filter(None, folders))


def start_torch(args, options, folder):
    """Starts PyTorch with default settings and tuned; an empty list without a Python that can import it."""
    python = python_with("torch", [os.path.join(folder, "bin/python"), sys.executable, "python3", "/usr/bin/python3"])
    if not python:
        return []
    command = [python, "-B", os.path.join(HERE, "peer_torch.py"), *options]
    env = {"OMP_NUM_THREADS": str(args.threads), "LD_LIBRARY_PATH": openmp_blas(),
           "TORCHINDUCTOR_CACHE_DIR": os.path.join(folder, "inductor"), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    return [Server("PyTorch", "torch", command, env),
            Server("PyTorch tuned", "torch-tuned", [*command, "--compile"], {**env, **tuned_environment()})]


def start_jax(args, options, folder):
    """Starts JAX, with the tuned malloc; an empty list if it is not installed."""
    python = python_with("jax", [os.path.join(folder, "bin/python"), sys.executable])
    command = [python, "-B", os.path.join(HERE, "peer_jax.py"), *options]
    return [Server("JAX", "jax", command, tuned_environment())] if python else []


def start_peers(args):
    """Starts the installed peers, and prints which ones are not."""
    seconds = ["--serve", "--seconds", str(args.seconds), "--threads", str(args.threads)]
    options = [*seconds, "--warm-up", str(args.warm_up)]
    folder = args.peers or os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(args.runner))), "bench-peers")
    found = {"PyTorch": start_torch(args, options, folder), "JAX": start_jax(args, options, folder),
             "OpenBLAS": blas_peer(args, seconds)}
    for name, servers in found.items():
        if not servers:
            how = "no library" if name == "OpenBLAS" else "no Python can import it; scripts/bench-peers installs it"
            print(f"not measured: {name} ({how})")
        elif name == "PyTorch" and not servers[-1].rows[0]["compile"]:
            print("not measured: torch.compile (this PyTorch is older than 2.0)")
    return Peers([server for servers in found.values() for server in servers])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runner", required=True)
    parser.add_argument("--out", default=os.path.join(HERE, "results"))
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--threads", type=int, default=1, help="threads of each program")
    parser.add_argument("--no-onednn", action="store_true", help="cflux without the oneDNN plugin")
    parser.add_argument("--commit", help="commit of the runner's library (default: of this tree)")
    parser.add_argument("--warm-up", type=float, default=60, help="limit for compiling a peer's variant, in seconds")
    parser.add_argument("--peers", help="folder of scripts/bench-peers (default: bench-peers beside the runner's)")
    parser.add_argument("part", nargs="*")
    args = parser.parse_args()
    names = subprocess.run([args.runner, "--list"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    names = [n for n in names if not args.part or any(p in n for p in args.part)]
    plain = ["--no-onednn"] if args.no_onednn else []
    ours = Server("cflux", "cpu-own" if args.no_onednn else "cpu",
                  [args.runner, "--commit", args.commit or commit(), *plain, "--serve", "--seconds",
                   str(args.seconds), "--threads", str(args.threads)])
    peers, ratios, unmeasured = start_peers(args), {}, []
    for server in (ours, *peers.servers):
        head = server.rows[0]
        print(", ".join(str(head[k]) for k in ("program", "version", "commit", "compiler", "cpu", "isa", "blas")
                        if k in head), flush=True)
    os.makedirs(args.out, exist_ok=True)
    date, files = datetime.date.today().isoformat(), []
    print("\n| case | cflux | best peer | ratio |\n|---|---:|---:|---:|", flush=True)
    for case in names:
        mine, rows = ours.measure(case), peers.measure(case)
        line, ratio = table_line(case, mine, rows)
        print(line, flush=True)
        files = [write(server, args.out, date, args.threads) for server in (ours, *peers.servers)]
        if ratio is not None:
            ratios[case] = ratio
        elif not best(rows):
            unmeasured.append(case)
    print("\n" + "\n".join(summary(ratios, peers, unmeasured)))
    for file in files:
        print("rows: " + os.path.relpath(file))
    return max(server.close() for server in (ours, *peers.running))


if __name__ == "__main__":
    sys.exit(main())
