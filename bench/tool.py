#!/usr/bin/env python3
"""Measures whole runs of the command line: how long it takes to start, and the cost of progress and logs.

  tool/inspect    `cflux inspect` of a small model
  tool/devices    `cflux devices` (includes the start of the OpenCL driver, if one is installed)
  tool/xor-step   a training step of XOR (Dense(2 => 3, tanh), BatchNorm(3), Dense(3 => 2), batches of 64),
                  with --quiet and no log
  tool/xor-told   the same with progress and a log
  tool/xor-told-by-quiet
                  the ratio of the two, measured in pairs
  tool/report     the size of the page of the run with a log, in bytes

The times of xor-… are processor time, without that of a run of one epoch (start, end, tables of the log).
Rows have the format of bench_runner. Usage: tool.py CFLUX [commit] >FILE
"""
import csv
import datetime
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time

STARTS, PAIRS, EPOCHS, POINTS = 20, 9, 2000, 1024
MODEL = "Chain(Dense(2 => 3, tanh), BatchNorm(3), Dense(3 => 2))"


def row(case, values, unit):
    print(json.dumps({"row": "case", "case": "tool/" + case, "variant": "cflux", "backend": "cpu", "threads": 1,
                      "n": len(values), "taken": len(values), "median": float(f"{statistics.median(values):.4g}"),
                      "min": float(f"{min(values):.4g}"), "max": float(f"{max(values):.4g}"), "unit": unit,
                      "contended": False}), flush=True)


def run(*command):
    """Runs a command. Returns its seconds and its seconds of processor time."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.monotonic() - start, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def write_xor(path):
    draw = random.Random(1)
    with open(path, "w", newline="", encoding="utf-8") as f:
        out = csv.writer(f)
        out.writerow(["a", "b", "class"])
        for _ in range(POINTS):
            a, b = draw.random(), draw.random()
            out.writerow([a, b, int((a > 0.5) != (b > 0.5))])


def main():
    cflux, commit = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "unknown"
    print(json.dumps({"row": "header", "program": "cflux", "commit": commit,
                      "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")}))
    with tempfile.TemporaryDirectory() as folder:
        data, model, log, page = (os.path.join(folder, n) for n in ("xor.csv", "m.bson", "log.jsonl", "page.html"))
        write_xor(data)
        train = [cflux, "train", "--data", data, "--model", MODEL, "--batchsize", "64"]
        run(*train, "--epochs", "1", "--save", model)
        row("inspect", [1e6 * run(cflux, "inspect", model)[0] for _ in range(STARTS)], "us")
        row("devices", [1e6 * run(cflux, "devices")[0] for _ in range(STARTS)], "us")
        quiet, told = ["--quiet"], ["--log", log]

        def cost(how, epochs):
            if os.path.exists(log):
                os.remove(log)
            return run(*train, *how, "--epochs", str(epochs))[1]

        start = {tuple(how): statistics.median(cost(how, 1) for _ in range(PAIRS)) for how in (quiet, told)}
        steps = (EPOCHS - 1) * POINTS // 64
        pairs = [[(cost(how, EPOCHS) - start[tuple(how)]) / steps for how in (quiet, told)] for _ in range(PAIRS)]
        row("xor-step", [1e6 * q for q, _ in pairs], "us")
        row("xor-told", [1e6 * t for _, t in pairs], "us")
        row("xor-told-by-quiet", [t / q for q, t in pairs], "ratio")
        run(cflux, "report", log, "-o", page)
        row("report", [os.path.getsize(page)], "bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
