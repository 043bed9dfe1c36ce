#!/usr/bin/env python3
"""bench/run.py, tables.py, limits.py, peer.py and peer_ddp.py with small programs in place of cflux and the peers: rows,
time limits, the tables, result files, and what is said about cases and peers that were not measured. Needs no peer.

  check_bench.py
"""
import contextlib
import io
import json
import os
import re
import sys
import tempfile
import time

BENCH = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "bench")
sys.path.insert(0, BENCH)
import limits  # noqa: E402
import peer  # noqa: E402
import peer_ddp  # noqa: E402
import run  # noqa: E402
import tables  # noqa: E402

# A program with the options of bench_runner, or of a peer with its own table. Medians are those of TIMES, in microseconds.
PROGRAM = """#!{python}
import json, sys
TIMES = {times}
if "--list" in sys.argv:
    print("\\n".join(TIMES))
    sys.exit(0)
print(json.dumps({{"row": "header", "program": "{name}", "version": "7.0", "cpu": "a processor", "compile": True}}), flush=True)
for case in map(str.strip, sys.stdin):
    if case == "matmul/crash":
        sys.exit(3) if {peer} else None
    for variant, median in TIMES.get(case, []):
        print(json.dumps({{"row": "case", "case": case, "variant": variant, "median": median, "min": median,
                           "max": median, "unit": "us", "contended": False}}), flush=True)
    if {peer}:
        print(json.dumps({{"row": "end"}}), flush=True)
"""
OURS = {"train/a": [("cflux", 100)], "record/a": [("cflux", 50)], "rows/b": [("cflux", 2000)],
        "matmul/crash": [("cflux", 1)], "graph/c": [("cflux", 3)]}
TORCH = {"train/a": [("eager fused", 300), ("compile fused", 240)], "rows/b": [("eager", 1500)]}
JAX = {"train/a": [("jit", 250)], "rows/b": [("jit", 1000)]}
checks = 0


def check(what, got, wanted):
    global checks
    checks += 1
    if got != wanted:
        sys.exit(f"{what}: got\n{got}\nexpected\n{wanted}")


def program(folder, name, times, is_peer=True):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as f:
        f.write(PROGRAM.format(python=sys.executable, times=times, name=name, peer=is_peer))
    os.chmod(path, 0o755)
    return path


def options(*argv):
    return peer.arguments(["--warm-up", "0.05", "--seconds", "0.01", *argv])


def never_ready():
    while True:
        time.sleep(0.01)


def wrong():
    raise ValueError("no such layout\nand more")


def check_sampling():
    row = peer.measure("x/y", "eager", lambda: lambda: time.sleep(0.003), options("--warm-up", "10"), "torch")
    check("a row", [row[k] for k in ("row", "case", "variant", "backend", "threads", "unit")],
          ["case", "x/y", "eager", "torch", 1, "us"])
    check("samples", row["n"] >= 3 and row["taken"] >= 7, True)
    # Two sleeps of 3 ms are one sample. Only processor time counts if other programs held the core.
    check("the median of a sleep of 3 ms", row["contended"] or 3000 <= row["median"] < 60000, True)
    repeat = peer.repeat
    for seconds, wanted in ((1e-4, (64, 7)), (0.006, (1, 7)), (0.6, (1, 3))):
        peer.repeat = lambda _, n, seconds=seconds: n * seconds
        check(f"repeats and samples of a step of {seconds} s", peer.calibrate(None), wanted)
    peer.repeat = repeat
    for prepare, message in ((never_ready, "TimeoutError: not ready after 0.05 s"),
                             (lambda: never_ready, "TimeoutError: not ready after 0.05 s"),
                             (wrong, "ValueError: no such layout")):
        check("a failure", peer.measure("x/y", "compile", prepare, options(), "torch"),
              {"row": "failure", "case": "x/y", "variant": "compile", "message": message})
    check("the machine", [type(peer.machine()[k]) for k in ("cpu", "cores", "system", "python", "date")],
          [str, int, str, str, str])


def check_group():
    """Samples of several processes: steps and samples follow the slowest process, whose time counts."""
    asked = []

    def largest(x):
        asked.append(x)
        return x + 10
    peer.group = largest
    row = peer.measure("x/y", "eager", lambda: lambda: None, options(), "torch")
    peer.group = None
    check("no step is repeated: another process takes 10 s", row["taken"], 3)
    check("the time of another process", row["median"] > 1e7, True)
    check("samples that were disturbed there", row["contended"], True)
    check("numbers that were exchanged", len(asked), 1 + 3 * 3 + 1)


def check_processes():
    """The table of peer_ddp.py has each program's fastest row."""
    row = {"row": "case", "case": "train/lenet-b64", "variant": "DDP", "contended": False, "median": 1000, "min": 900}
    slow = {**row, "median": 4000, "min": 1800, "contended": True}
    check("observations a second", peer_ddp.table([[row, {**row, "median": 1100, "min": 600}], [{**slow, "median": 5000}, slow]])[2:],
          ["| train/lenet-b64 | 128,000 | 32,000* (DDP) | 4.00 | 3.00 |"])


def check_program():
    """A peer's program: the header, then the rows of the requested cases."""
    table = {"x/y": lambda: iter([("eager", lambda: lambda: None)]), "x/z": lambda: iter([("eager", wrong)])}
    for argv, cases in ((["x/z"], ["x/z"]), ([], ["x/y", "x/z"])):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            peer.run(options(*argv), table, {"program": "P", "version": "1"}, "p")
        rows = [json.loads(line) for line in out.getvalue().splitlines()]
        check("the header", [rows[0][k] for k in ("row", "program", "version", "threads")], ["header", "P", "1", 1])
        check("the cases", [row["case"] for row in rows[1:]], cases)


def check_run(folder):
    """The whole of run.py."""
    ours = program(folder, "cflux", OURS, False)
    servers = {"torch": [run.Server("PyTorch", "torch", [program(folder, "PyTorch", TORCH)])],
               "jax": [run.Server("JAX", "jax", [program(folder, "JAX", JAX)])]}
    run.start_torch, run.start_jax = lambda *_: servers["torch"], lambda *_: servers["jax"]
    run.blas_peer = lambda *_: []
    sys.argv = ["run.py", "--runner", ours, "--out", folder, "--commit", "abc"]
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        check("exit status", run.main(), 0)
    text = out.getvalue()
    for line in ("not measured: OpenBLAS (no library)",
                 "PyTorch, 7.0, a processor",
                 "| train/a | 100 µs | 240 µs (PyTorch: compile fused) | 2.40 |",
                 "| record/a | 50 µs | 240 µs (PyTorch: compile fused) | 4.80 |",
                 "| rows/b | 2 ms | 1 ms (JAX) | 0.50 |",
                 "| matmul/crash | 1 µs | – | – |",
                 "3 ratios, median 2.40, 1 below 1.",
                 "No peer measured: matmul/crash, graph/c",
                 "Failed: PyTorch: PyTorch ended early (matmul/crash)",
                 "Failed: JAX: JAX ended early (matmul/crash)"):
        check(f"the output has {line!r}", line in text.splitlines(), True)
    files = {name.split("-", 3)[3]: name for name in os.listdir(folder) if name.endswith(".jsonl")}
    check("result files", sorted(files), ["cpu.jsonl", "jax.jsonl", "torch.jsonl"])
    with open(os.path.join(folder, files["torch.jsonl"]), encoding="utf-8") as f:
        rows = [json.loads(line) for line in f]
    check("PyTorch's rows", [(row.get("case"), row.get("variant")) for row in rows],
          [(None, None), ("train/a", "eager fused"), ("train/a", "compile fused"), ("record/a", "eager fused"),
           ("record/a", "compile fused"), ("rows/b", "eager")])
    check_tables(folder, files["cpu.jsonl"][:len("2026-11-27")])


def check_tables(folder, date):
    """The tables of the files that run.py wrote."""
    check("the table of one thread", tables.full_table(folder, date, 1),
          ["| case | cflux | best peer | ratio |",
           "|---|---:|---:|---:|",
           "| train/a | 100 µs | 240 µs (PyTorch: compile fused) | 2.40 |",
           "| record/a | 50 µs | 240 µs (PyTorch: compile fused) | 4.80 |",
           "| rows/b | 2 ms | 1 ms (JAX) | 0.50 |",
           "| matmul/crash | 1 µs | – | – |",
           "| graph/c | 3 µs | – | – |"])
    own = os.path.join(folder, f"{date}-cpu-own.jsonl")
    with open(own, "w", encoding="utf-8") as f:
        f.write('{"row": "case", "case": "rows/b", "median": 3000, "unit": "us"}\n')
    check("a table with a run without oneDNN", tables.full_table(folder, date, 1)[:5:2],
          ["| case | cflux | without oneDNN | best peer | ratio |",
           "| train/a | 100 µs |  | 240 µs (PyTorch: compile fused) | 2.40 |",
           "| rows/b | 2 ms | 3 ms | 1 ms (JAX) | 0.50 |"])
    os.remove(own)
    check("no table of two threads", tables.full_table(folder, date, 2), [])
    tables.README = {"rows/b": "rows of b", "rows/d": "not measured"}
    check("the table of the README", tables.readme_table(folder, date)[2:],
          ["| rows of b | 2 ms | 1 ms (JAX) | 0.50 |"])


def names_in(file):
    """The names of the cases that the macros of a file of the benchmark program make."""
    with open(os.path.join(BENCH, file), encoding="utf-8") as f:
        found = re.findall(r'(VALUE|GRADIENT|ALONG|PRODUCT|CONVOLUTION|\.name = )\(?"([^"]*[^"/])"', f.read())
    prefix, suffix = {"PRODUCT": "matmul/", "CONVOLUTION": "conv/"}, {"GRADIENT": "-gradient"}
    return [prefix.get(macro, "") + name + suffix.get(macro, "") for macro, name in found]


def check_limits(folder):
    """Operations and bytes that were counted by hand, a limit for each case of arrays, and the table."""
    def total(case):
        return tuple(sum(x) for x in zip(*limits.parts_of(case)))

    # One image of LeNet-5: 24² positions of 6 filters of 25 weights, 8² of 16 of 150, and 256-120-84-10.
    lenet = 2 * (24 * 24 * 6 * 25 + 8 * 8 * 16 * 150 + 256 * 120 + 120 * 84 + 84 * 10)
    first = 2 * 24 * 24 * 6 * 25
    weights = 6 * 25 + 6 + 16 * 150 + 16 + 256 * 120 + 120 + 120 * 84 + 84 + 84 * 10 + 10
    check("LeNet's prediction", total("forward/lenet-b64")[0], 64 * lenet)
    check("LeNet's training step", total("train/lenet-b64")[0], 64 * (3 * lenet - first))
    check("Adam's bytes", limits.parts_of("record/lenet-b64")[-1], (0, 24 * weights))
    check("a dense layer", total("matmul/256x64x784"), (2 * 256 * 64 * 784, 4 * (256 * 784 + 784 * 64 + 256 * 64)))
    check("a strided convolution", limits.conv(2, 56, 3, 64, 64, 4, stride=2, pad=1),
          (2 * 9 * 64 * 64 * 28 * 28 * 4, 4 * (56 * 56 * 64 * 4 + 9 * 64 * 64 + 28 * 28 * 64 * 4)))
    check("a transposed convolution", limits.conv(2, 28, 4, 64, 64, 4, stride=2, pad=1, transposed=True),
          (2 * 16 * 64 * 64 * 28 * 28 * 4, 4 * (28 * 28 * 64 * 4 + 16 * 64 * 64 + 56 * 56 * 64 * 4)))
    check("a depthwise convolution", limits.conv(2, 56, 3, 64, 64, 4, pad=1, groups=64)[0], 2 * 9 * 64 * 56 * 56 * 4)
    cases = [name for file in ("bench_arrays.c", "bench_convolutions.c") for name in names_in(file)]
    check("cases without a limit", [name for name in cases if not limits.parts_of(name)],
          ["limit/copy-1e6", "limit/copy-25e6"])
    check("at least 60 cases", len(cases) >= 60, True)
    rows = {"cpu": {"limit/copy-1e6": 100, "limit/copy-25e6": 5000, "rows/softmax-1000x1024": 204.8,
                    "matrix/sum-4096-strided": 1677.7216, "matmul/512x512x512": 2000, "graph/record": 1},
            "torch": {"matmul/2048x2048x2048": 85899.34592, "rows/softmax-1000x1024": 128}}
    for kind, times in rows.items():
        with open(os.path.join(folder, f"2020-01-01-{kind}.jsonl"), "w", encoding="utf-8") as f:
            for case, time_ in times.items():
                f.write(json.dumps({"row": "case", "case": case, "variant": "eager", "median": time_, "unit": "us"}) + "\n")
    check("the table of limits", tables.limits_table(folder, "2020-01-01", 1),
          ["| case | cflux | limit | share | of | best peer's share |",
           "|---|---:|---:|---:|---|---:|",
           "| rows/softmax-1000x1024 | 205 µs | 102 µs | 0.50 | memory | 0.80 |",
           "| matrix/sum-4096-strided | 1.68 ms | 1.68 ms | 1.00 | memory | – |",
           "| matmul/512x512x512 | 2 ms | 1.34 ms | 0.67 | arithmetic | – |",
           "", "Arithmetic: 200 GF/s. Memory: 80.0 GB/s within the caches, 40.0 beyond them, read and written."])
    check("no limits without the rates", tables.limits_table(folder, "2020-01-02", 1), [])


def check_missing(folder):
    """Without peers, run.py names them; a Python without the module is not taken."""
    check("no Python with the module", run.python_with("cflux_no_such_module", [sys.executable, "/no/python"]), None)
    check("a Python with the module", run.python_with("json", ["/no/python", sys.executable]), sys.executable)
    old = run.Server("PyTorch", "torch", [program(folder, "old", {})])
    old.rows[0]["compile"] = False
    run.start_torch, run.start_jax = lambda *_: [old], lambda *_: []
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        args = type("args", (), {"seconds": 1, "threads": 1, "warm_up": 1, "peers": "", "runner": "a/bench/b"})
        check("servers", run.start_peers(args).servers, [old])
    old.close()
    check("what is missing", out.getvalue().splitlines(),
          ["not measured: torch.compile (this PyTorch is older than 2.0)",
           "not measured: JAX (no Python can import it; scripts/bench-peers installs it)",
           "not measured: OpenBLAS (no library)"])


with tempfile.TemporaryDirectory() as temporary:
    check_sampling()
    check_group()
    check_processes()
    check_program()
    check_run(temporary)
    check_limits(temporary)
    check_missing(temporary)
assert checks >= 50, checks
print(f"{checks} checks of run.py, tables.py, limits.py, peer.py and peer_ddp.py")
