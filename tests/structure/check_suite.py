#!/usr/bin/env python3
"""scripts/suite divides the tests into parts: each test is in exactly one of them, or in all if ALWAYS names it.

For each kind of selection of the Makefile, the parts must together be the list of CTest, and of similar size. A
part that does not exist is refused. scripts/windows, which runs late, must expect as many programs as
tests/windows/CMakeLists.txt selects. Usage: check_suite.py BUILD
"""
import glob
import os
import re
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
SUITE = os.path.join(ROOT, "scripts", "suite")
PARTS = 4
# Arguments of CTest, ALWAYS, and the least number of tests.
SELECTIONS = [(["-L", "quick", "-LE", "once"], "", 200),
              (["-L", "quick", "-LE", "once"], "^(conform/quick|golden/recorded|unit/cpu_.*)$", 200),
              (["-L", "full"], "^(conform/full|docs/.*|install/.*|perf/.*|report/.*)$", 40)]


def suite(build, part, always, arguments):
    setting = dict(os.environ, PART=part, ALWAYS=always or "^$")
    return subprocess.run([SUITE, build, "--list", *arguments], env=setting, text=True, capture_output=True)


def names(build, part, always, arguments):
    ran = suite(build, part, always, arguments)
    if ran.returncode:
        sys.exit(f"scripts/suite with PART={part}: {ran.stderr}")
    return ran.stdout.split()


def windows_programs():
    """(number of test programs for Windows, the number that scripts/windows expects)"""
    with open(os.path.join(ROOT, "tests", "windows", "excluded.txt"), encoding="utf-8") as f:
        excluded = set(re.findall(r"^([a-z]\w*):", f.read(), re.MULTILINE))
    count, twice = 1, []  # conform/quick
    for source in glob.glob(os.path.join(ROOT, "tests", "unit", "test_*.c")):
        with open(source, encoding="utf-8") as f:
            marks = re.search(r"ctest:([ \n*]+[a-z=0-9]+)*", f.read(4000))
        elsewhere = marks and re.search(r"[: ](devices|simulated|native|full)", marks[0])
        name = os.path.basename(source)[len("test_"):-len(".c")]
        count += not elsewhere and name not in excluded
        if elsewhere and name in excluded:
            twice.append(name)
    with open(os.path.join(ROOT, "tests", "windows", "CMakeLists.txt"), encoding="utf-8") as f:
        listed = int(re.search(r"EXCLUDED_COUNT (\d+)", f.read())[1])
    if len(excluded) != listed:
        sys.exit(f"tests/windows/excluded.txt has {len(excluded)} lines, its CMakeLists.txt expects {listed}")
    if twice:
        sys.exit(f"tests/windows/excluded.txt: the marks of {sorted(twice)} leave them out already")
    with open(os.path.join(ROOT, "scripts", "windows"), encoding="utf-8") as f:
        return count, int(re.search(r"^PROGRAMS=(\d+)", f.read(), re.MULTILINE)[1])


def main():
    build, errors, seen = sys.argv[1], [], 0
    for arguments, always, least in SELECTIONS:
        whole = names(build, "1/1", always, arguments)
        parts = [names(build, f"{k}/{PARTS}", always, arguments) for k in range(1, PARTS + 1)]
        in_all = set.intersection(*map(set, parts))
        if len(whole) < least or len(set(whole)) < len(whole):
            errors.append(f"{arguments}: {len(whole)} tests, {least} expected at least, each once")
        if set().union(*parts) != set(whole):
            errors.append(f"{arguments}: no part has {sorted(set(whole) - set().union(*parts))}")
        if bool(always) != bool(in_all) or len(in_all) > len(whole) / 2:
            errors.append(f"{arguments}: all parts have {sorted(in_all)}")
        once = [len(set(p) - in_all) for p in parts]
        if sum(once) + len(in_all) != len(whole) or max(once) - min(once) > len(in_all) + 1:
            errors.append(f"{arguments}: {len(whole)} tests, {len(in_all)} in all parts, {once} in one")
        seen += len(whole)
    for wrong in ("0/3", "4/3", "1", "1/0", "x/3"):
        if suite(build, wrong, "", SELECTIONS[0][0]).returncode != 2:
            errors.append(f"PART={wrong} is not refused")
    found, expected = windows_programs()
    if found != expected:
        errors.append(f"tests/windows selects {found} programs, and scripts/windows expects PROGRAMS={expected}")
    print("\n".join(errors))
    print(f"{seen} tests in {PARTS} parts, {len(errors)} errors")
    sys.exit(bool(errors))


if __name__ == "__main__":
    main()
