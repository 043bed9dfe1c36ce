#!/usr/bin/env python3
"""Runs an example program and checks what it promises.

  --last RE       the last line of output matches RE entirely
  --find RE       some line contains RE; the last such line counts
  --at-least X    the group of RE is a number ≥ X
  --at-most X     the group of RE is a number ≤ X
  --seconds S     it takes at most S seconds of the processors' time (times --factor, for builds with
                  sanitizers): a machine that does other work as well does not count
  --need-data D   without the folder D in CFLUX_DATA say so and pass; @DATA@ in arguments is CFLUX_DATA

A non-zero exit status, and no output at all, always fail.
"""
import argparse
import os
import re
import resource
import subprocess
import sys


def wrong_with(options, output, seconds):
    lines = [l for l in output.split("\n") if l.strip()]
    if not lines:
        return "prints nothing"
    m = None
    if options.last:
        m = re.fullmatch(options.last, lines[-1].strip())
        if not m:
            return f"the last line is {lines[-1]!r}, not {options.last!r}"
    if options.find:
        m = next((f for f in (re.search(options.find, l) for l in reversed(lines)) if f), None)
        if not m:
            return f"no line contains {options.find!r}"
    if options.at_least is not None and not float(m.group(1)) >= options.at_least:
        return f"{m.group(0)!r} is below {options.at_least}"
    if options.at_most is not None and not float(m.group(1)) <= options.at_most:
        return f"{m.group(0)!r} is above {options.at_most}"
    limit = options.seconds and options.seconds * options.factor
    if limit and seconds > limit:
        return f"took {seconds:.1f} s of the processors, the limit is {limit:.1f} s"
    return ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--last")
    parser.add_argument("--find")
    parser.add_argument("--at-least", type=float)
    parser.add_argument("--at-most", type=float)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--factor", type=float, default=1)
    parser.add_argument("--need-data")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    data = os.environ.get("CFLUX_DATA", "")
    if options.need_data and not os.path.isdir(os.path.join(data, options.need_data)):
        print(f"skipped: {os.path.basename(options.command[0])}: no {options.need_data}/ in CFLUX_DATA")
        return 0
    command = [a.replace("@DATA@", data) for a in options.command]
    run = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                         errors="replace")  # a program may write any bytes
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = used.ru_utime + used.ru_stime
    print(run.stdout)
    wrong = f"exit status {run.returncode}" if run.returncode else wrong_with(options, run.stdout, seconds)
    print(f"{os.path.basename(command[0])}: {wrong or 'ok'}, {seconds:.1f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
