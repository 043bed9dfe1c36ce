"""What the programs that measure peers share: sampling as in bench_sample.c, and the exchange with run.py.

A peer is a table: the name of each case, and a function that yields its variants, programs that a user of the
peer could write for the same numbers. A variant is a label and a function that prepares it and returns its body.
Every variant gives a row; the programs that read the rows use the fastest. Preparing, which includes compiling,
and the first calls have a time limit; what takes longer gives a row of kind failure.

  peer_X.py [--threads N] [--seconds S] [--warm-up S] [--compile] [part of a name…]
  peer_X.py --list           prints the names
  peer_X.py --serve          reads one name per line; prints its rows and then a line {"row": "end"}
"""
import argparse
import contextlib
import datetime
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import time

group = None  # in one of several processes (peer_ddp.py): a function that returns the largest of the processes' numbers
MIN_SAMPLE, MIN_SAMPLES, MAX_SAMPLES, WARM_UP = 5e-3, 7, 400, 3
SLOW, FEW_SAMPLES = 0.5, 3  # a call of more than SLOW seconds is measured FEW_SAMPLES times


# ---- sampling --------------------------------------------------------------------------------------------------

def run_delay():
    """Returns the seconds in which threads of this process were runnable but had no core."""
    total = 0
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/schedstat", encoding="utf-8") as f:
                total += int(f.read().split()[1])
        except (OSError, IndexError):
            pass
    return 1e-9 * total


def of_all(x):
    return group(x) if group else x


def repeat(body, n):
    start = time.perf_counter()
    for _ in range(n):
        body()
    return time.perf_counter() - start


def calibrate(body):
    """Returns how often a sample calls the body, and how many samples a row needs."""
    n = 1
    while (t := of_all(repeat(body, n))) < MIN_SAMPLE:
        n *= 2 if t > MIN_SAMPLE / 8 else 8
    return n, FEW_SAMPLES if n == 1 and t > SLOW else MIN_SAMPLES


def row_of(values, unit, taken=None, contended=False):
    return {"n": len(values), "taken": taken or len(values), "median": statistics.median(values),
            "min": min(values), "max": max(values), "unit": unit, "contended": contended}


def sample(body, seconds, threads=1):
    (n, least), clean, ran = calibrate(body), [], []
    start = time.perf_counter()
    while len(ran) < MAX_SAMPLES:
        spent = of_all(time.perf_counter() - start)
        if (len(clean) >= least and spent >= seconds) or (len(ran) >= least and spent >= 5 * seconds + 1):
            break
        before, cpu, t = run_delay(), time.process_time(), repeat(body, n)
        waited, cpu, t = of_all(run_delay() - before), time.process_time() - cpu, of_all(t)
        ran.append(1e6 * (min(t, cpu) if threads == 1 and not group else t) / n)
        if waited < 0.01 * t:
            clean.append(1e6 * t / n)
    contended = len(clean) < 3
    return row_of(ran if contended else clean, "us", len(ran), contended)


@contextlib.contextmanager
def time_limit(seconds):
    """Raises TimeoutError in the block once it has taken that long."""
    def stop(*_):
        raise TimeoutError(f"not ready after {seconds:g} s")
    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


# ---- starting --------------------------------------------------------------------------------------------------

def print_start(value):
    """Prints what the child process of start/… reports: the moment, the peak of memory in KiB, its result."""
    moment = time.monotonic()
    with open("/proc/self/status", encoding="utf-8") as f:
        peak = [line for line in f if line.startswith("VmHWM")][0].split()[1]
    print(f"{moment:.9f} {peak} {value}")


def start(script, want_memory):
    """Returns the row of start/…: the time to the first prediction of a new process, or its memory."""
    values = []
    for _ in range(7):
        begin = time.monotonic()
        out = subprocess.run([sys.executable, script, "--first-prediction"], check=True,
                             stdout=subprocess.PIPE, text=True).stdout.split()
        values.append(float(out[1]) / 1024 if want_memory else 1e6 * (float(out[0]) - begin))
    return row_of(values, "MiB" if want_memory else "us")


# ---- the program -----------------------------------------------------------------------------------------------

def machine():
    """Returns the fields of a header that describe the machine."""
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        names = [line.split(":", 1)[1].strip() for line in f if line.startswith("model name")]
    return {"cpu": names[0] if names else "unknown", "cores": os.cpu_count(), "system": platform.platform(),
            "python": platform.python_version(),
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")}


def environment(prefixes):
    return {k: os.environ[k] for k in sorted(os.environ) if k.startswith(prefixes)}


def arguments(argv=None):
    parser = argparse.ArgumentParser(description="Measures the cases of bench_runner with a peer.")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--warm-up", type=float, default=60, help="limit for preparing a variant, in seconds")
    parser.add_argument("--compile", action="store_true", help="measure variants that the peer compiles, too")
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("part", nargs="*")
    return parser.parse_args(argv)


def measure(name, variant, prepare, args, backend):
    """Returns the row of a variant: its time, or a row of kind failure with the message."""
    row = {"row": "case", "case": name, "variant": variant, "backend": backend, "threads": args.threads}
    began = time.perf_counter()
    try:
        if name.startswith("start/"):
            return {**row, **prepare()}
        with time_limit(args.warm_up):
            body = prepare()
            body()
            row["first"] = round(time.perf_counter() - began, 3)  # seconds to the end of the first call
            repeat(body, WARM_UP - 1)
        return {**row, **sample(body, args.seconds, args.threads)}
    except Exception as e:  # pylint: disable=broad-except; a peer raises errors of many types
        message = f"{type(e).__name__}: {e}".split("\n")[0][:200]
        return {"row": "failure", "case": name, "variant": variant, "message": message}


def emit(row):
    print(json.dumps(row), flush=True)


def run(args, table, header, backend):
    """Runs the program: prints the header, then the rows of the requested cases."""
    if args.list:
        print("\n".join(table))
        return
    emit({"row": "header", **header, **machine(), "threads": args.threads})
    names = sys.stdin if args.serve else [n for n in table if not args.part or any(p in n for p in args.part)]
    for name in names:
        name = name.strip()
        for variant, prepare in table[name]() if name in table else ():
            emit(measure(name, variant, prepare, args, backend))
        if args.serve:
            emit({"row": "end", "case": name})
