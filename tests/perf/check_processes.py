#!/usr/bin/env python3
"""bench_runner --processes in two processes, with the first MPI that is installed, also with --each-array: one header and one row, of both
processes.

Usage: check_processes.py build-folder
"""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "dist"))
import mpis  # noqa: E402


def main(build):
    for name, command in list(mpis.installed(build))[:1]:
        for options in (["--processes"], ["--processes", "--each-array"]):
            out = subprocess.run([*command, "-n", "2", os.path.join(build, "bench", "bench_runner"), *options, "--seconds", "0.01", "train/xor"],
                                 stdout=subprocess.PIPE, text=True, check=True, env=mpis.ENVIRONMENT).stdout
            rows = [json.loads(line) for line in out.splitlines()]
            if [(r["row"], r.get("case"), r.get("processes")) for r in rows] != [("header", None, None), ("case", "train/xor-2-3-bn-2-b64", 2)]:
                sys.exit(f"{name} {options}: {out}")
            print(f"{name} {options[-1]}: {rows[1]['taken']} samples, median {rows[1]['median']} us")


main(sys.argv[1])
