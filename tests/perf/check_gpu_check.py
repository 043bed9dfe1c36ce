#!/usr/bin/env python3
"""scripts/gpu-check on simulated devices: `pack` copies all files that a machine with a GPU needs; an
interrupted run continues from its file; a failure is reported; the report has every case of the table.

  check_gpu_check.py BUILD DEVICE OPENCL|none [PART of a unit's name …]
"""
import glob
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))
from gpu_cases import CASES  # noqa: E402

# The text of a Python package that has every name.
EMPTY = """from unittest.mock import MagicMock


def __getattr__(name):
    if name in ("nn", "functional"):
        raise AttributeError(name)
    return MagicMock()


"""
BUILD, DEVICE, OPENCL, PARTS = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]


def call(folder, *args, expected=0):
    command = [sys.executable, os.path.join(ROOT, "scripts/gpu-check"), "--build", BUILD, "--pack", folder,
               "--out", folder, "--device", DEVICE, "--opencl", "" if OPENCL == "none" else OPENCL, "--tiny", *args]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != expected:
        sys.exit(f"{' '.join(args)}: exit status {done.returncode}, not {expected}\n{done.stdout}")
    return done.stdout


def state(folder):
    with open(os.path.join(folder, "gpu-check.json"), encoding="utf-8") as f:
        return json.load(f)["units"]


with tempfile.TemporaryDirectory() as folder:
    call(folder, "pack", "--data", "")
    # With almost no time every unit remains; exit status 3 requests another call.
    call(folder, "run", "--minutes", "0.001", *PARTS, expected=3)
    before = state(folder)
    print(call(folder, "run", "--minutes", "18", *PARTS))
    after = state(folder)
    if len(after) <= len(before):
        sys.exit("the second call did nothing")
    ran = [name for name, unit in after.items() if unit["status"] == "passed"]
    wrong = [name for name, unit in after.items() if unit["status"] not in ("passed", "skipped")]
    if wrong or len(ran) < 5:
        sys.exit(f"{wrong} failed, {len(ran)} passed")
    # A third call finds nothing to do, and --again runs a unit again.
    if "passed" in call(folder, "run", *PARTS).replace("0 left", ""):
        sys.exit("a unit that was done ran again")
    if "conformance/1-of-1: passed" not in call(folder, "run", "--again", "conformance/1-of-1", *PARTS):
        sys.exit("--again ran nothing")
    # Results of other sizes or another device do not count as those of this run.
    for what, words in ((["run", "--device", "cuda:7"], "--device"),
                        (["run", "nothing"], "no unit has nothing in its name")):
        if words not in call(folder, *what, expected=1):
            sys.exit(f"{what}: not refused in words")
    kept = os.path.join(folder, "other.json")
    with open(kept, "w", encoding="utf-8") as f:
        json.dump({"tiny": False, "device": DEVICE, "units": {"build": {"status": "passed"}}}, f)
    if "--tiny False" not in call(folder, "run", "--state", kept, expected=1):
        sys.exit("results of full sizes count as those of tiny ones")
    with open(kept, "w", encoding="utf-8") as f:
        f.write('{"units": {')
    if "is not a state" not in call(folder, "run", "--state", kept, expected=1):
        sys.exit("half a state is not told")
    # A library that fails is reported.
    os.remove(os.path.join(folder, "bin/conform_runner"))
    with open(os.path.join(folder, "bin/conform_runner"), "w", encoding="utf-8") as f:
        f.write("#!/bin/sh\necho broken; exit 1\n")
    os.chmod(os.path.join(folder, "bin/conform_runner"), 0o755)
    if "broken" not in call(folder, "run", "--again", "conformance/1-of-1", "conformance/1-of-1", expected=1):
        sys.exit("a failure is not told")
    printed = call(folder, "report")
    results = glob.glob(os.path.join(folder, "*-gpu-*.json"))
    with open(results[0], encoding="utf-8") as f:
        result = json.load(f)
    for key in ("date", "commit", "device", "driver", "table", "units"):
        if key not in result:
            sys.exit(f"the report lacks {key}")
    if [line["case"] for line in result["table"]] != list(CASES):
        sys.exit("the report lacks cases")
    measured = [line["case"] for line in result["table"] if line["cflux"]]
    print(f"{len(ran)} units ran: {', '.join(ran)}\n{len(measured)} of {len(CASES)} cases measured")
    if not measured or "not measured" not in printed:
        sys.exit(printed)
    # All but the start of a program are measured with queued evaluations, and so is the host's part.
    if any(not line["host"] and "first-step" not in line["case"] for line in result["table"] if line["cflux"]):
        sys.exit("a case lacks the host's time")

# Ratios of the report: the better variant of PyTorch, its eager mode, and cuBLASLt's own rate, which counts as a
# limit and not as PyTorch's time.
def unit(*rows):
    return {"status": "passed", "rows": [
        {"row": "case", "case": "gpu/matmul-4096-f32", "variant": variant, "median": median} for variant, median in rows]}


with tempfile.TemporaryDirectory() as folder:
    with open(os.path.join(folder, "gpu-check.json"), "w", encoding="utf-8") as f:
        json.dump({"date": "2026-01-02T03:04Z", "commit": "none", "device": DEVICE, "tiny": False, "units": {
            "bench/products": unit(("cflux", 100)), "bench/products without libraries": unit(("cflux", 160)),
            "peer/products": unit(("eager", 500), ("compile", 99), ("cublaslt", 96), ("eager tf32", 20))}}, f)
    printed = call(folder, "report")
    if "| 100.0 | – | 99.0 | 0.99 | 5.0 | 0.96 | 0.6 | – |" not in printed:
        sys.exit(f"other ratios: {printed}")

# bench_runner has exactly the cases of the table, and the peer has all of them except the start of a program. To list
# its cases the peer calls no function of PyTorch, so a package of that name without any contents replaces it here.
listed = subprocess.run([os.path.join(BUILD, "bench/bench_runner"), "--device", DEVICE, "--list"], stdout=subprocess.PIPE,
                        text=True, check=True).stdout.split()
known = [name for name in listed if name.startswith("gpu/")]
if sorted(known) != sorted(CASES):
    sys.exit(f"bench_runner and gpu_cases.py differ: {sorted(set(known) ^ set(CASES))}")
with tempfile.TemporaryDirectory() as folder:
    os.makedirs(os.path.join(folder, "torch/nn"))
    for path, text in (("torch/__init__.py", EMPTY), ("torch/nn/__init__.py", EMPTY + "Module = object\n"),
                       ("torch/nn/functional.py", "")):
        with open(os.path.join(folder, path), "w", encoding="utf-8") as f:
            f.write(text)
    listed = subprocess.run([sys.executable, "-B", os.path.join(ROOT, "bench/peer_torch_gpu.py"), "--list"],
                            stdout=subprocess.PIPE, text=True, check=True,
                            env={**os.environ, "PYTHONPATH": folder}).stdout.split()
wanted = set(CASES) - {"gpu/first-step-cold", "gpu/first-step-warm"}
if set(listed) != wanted:
    sys.exit(f"peer_torch_gpu.py and gpu_cases.py differ: {sorted(set(listed) ^ wanted)}")
