#!/usr/bin/env python3
"""Mutation testing: would the quick tests notice a mistake?

    scripts/mutate FOLDER N SEED [--scratch PATH] [--records PATH] [-j JOBS] [--file PART] [--tests REGEX] [--list]

Draws N mutants of the C files of FOLDER (tests/mutation/mutants.py says of which kinds), the same ones for
the same SEED and tree, and runs the quick tests that execute the changed line, those first that are likely
to fail, until one does. Printed for each mutant: file:line, the changed line before and after, and the test
that killed it, or SURVIVED. A mutant that does not compile, or whose object is that of the original, is
replaced by another. Exit status 0 if every survivor is listed in tests/mutation/equivalent.txt.

A killed mutant is one with which a test fails, crashes or hangs; a test that fails without the mutant too
is left out, with a line that says so. Which tests take part: scratch.py.
"""
import argparse
import collections
import concurrent.futures
import os
import random
import shutil
import signal
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)
import mutants  # noqa: E402
import scratch  # noqa: E402

def read_equivalent(tree):
    """{(file, before, after): reason} from paragraphs of four lines: file, - before, + after, reason."""
    known, path = {}, os.path.join(tree, "tests/mutation/equivalent.txt")
    if not os.path.exists(path):
        return known
    with open(path, encoding="utf-8") as f:
        paragraphs = [p for p in f.read().split("\n\n") if p.strip()]
    for paragraph in paragraphs:
        lines = [l for l in paragraph.strip().split("\n") if not l.startswith("#")]
        if not lines:
            continue
        if len(lines) < 4 or lines[1][:2] != "- " or lines[2][:2] != "+ ":
            raise ValueError(f"{path}: not a file, a line with -, a line with + and a reason:\n{paragraph}")
        known[(lines[0].strip(), " ".join(lines[1][2:].split()), " ".join(lines[2][2:].split()))] = " ".join(lines[3:])
    return known


def draw(sources, seed):
    """All mutants of `sources` in a random order in which every kind is as frequent as the others."""
    kinds = collections.defaultdict(list)
    for path, text in sorted(sources.items()):
        for m in mutants.mutants(path, text):
            kinds[m.kind].append(m)
    rng = random.Random(seed)
    for some in kinds.values():
        rng.shuffle(some)
    while kinds:
        kind = rng.choice(sorted(kinds))
        yield kinds[kind].pop()
        if not kinds[kind]:
            del kinds[kind]


def runs_line(test, m, function):
    """True if `test` can notice m: it runs the changed line or, if that line has no code, the lines around it."""
    if not test.recorded:
        return True
    if m.path not in test.lines:
        known = test.functions.get(m.path, [])
        return m.path in test.functions and (function is None or function in known)
    lines = test.lines[m.path]
    span = range(m.line, m.line + m.before.count("\n") + 1)
    near = [max((n for n in lines if n <= m.line), default=None), min((n for n in lines if n >= m.line), default=None)]
    return any(lines.get(n) for n in [*span, *near] if n is not None)


class Session:
    def __init__(self, place, sources, say):
        self.place, self.sources, self.say = place, sources, say
        self.kills = collections.defaultdict(list)   # path → the tests that killed its mutants, latest last
        self.sound, self.unsound = set(), set()      # tests that pass, or fail, without a mutant
        self.originals = {}
        self.lock = threading.Lock()

    def original(self, path, folder):
        if path not in self.originals:
            out = self.place.compile(path, self.sources[path], folder)
            with open(out, "rb") as f:
                self.originals[path] = f.read()
        return self.originals[path]

    def prepare(self, m, folder):
        """Builds the library with m in it; False if m does not compile or gives the same object file."""
        original = self.original(m.path, folder)
        out = self.place.compile(m.path, m.applied(self.sources[m.path]), folder)
        if out is None:
            return False
        with open(out, "rb") as f:
            if f.read() == original:
                return False
        self.place.link_with(m.path, out, folder)
        return True

    def order(self, m):
        """The tests that can notice m, the likely ones first."""
        name = os.path.splitext(os.path.basename(m.path))[0]
        lately = self.kills[m.path][::-1]
        function = enclosing_function(self.sources[m.path], m.start)
        able = [t for t in self.place.tests if t.name not in self.unsound and runs_line(t, m, function)]
        return sorted(able, key=lambda t: (lately.index(t.name) if t.name in lately else len(lately),
                                           t.name != f"unit/{name}", t.seconds))

    def is_sound(self, test, folder):
        """Does the test pass without a mutant? Asked once of each test that kills one."""
        if test.name not in self.sound | self.unsound:
            passed = self.run(test, self.place.original, folder)[0] or self.run(test, self.place.original, folder)[0]
            (self.sound if passed else self.unsound).add(test.name)
            if not passed:
                self.say(f"left out: {test.name} fails without a mutant")
        return test.name in self.sound

    def run(self, test, library, folder):
        return self.place.execute(test, library, folder, 10 + 3 * test.seconds, 60 + 10 * test.wall)

    def judge(self, m, folder):
        """(the test that killed m or None, how, how many tests ran)."""
        able = self.order(m)
        for i, test in enumerate(able):
            passed, how = self.run(test, folder, folder)[:2]
            if not passed and self.is_sound(test, folder):
                with self.lock:
                    self.kills[m.path].append(test.name)
                return test.name, how, i + 1
        return None, "", len(able)


def enclosing_function(text, position):
    """The name of the function that a position is in: clang-format puts its first line at the margin."""
    heads = [l for l in text[:position].split("\n") if l[:1].isalpha() and "(" in l]
    return heads[-1].split("(")[0].split()[-1].lstrip("*") if heads else None


def show(m, verdict):
    changed = [f"  - {l.strip()}" for l in m.before.split("\n")] + [f"  + {l.strip()}" for l in m.after.split("\n")]
    print(f"{m.path}:{m.line}: {m.kind}: {verdict}", *changed, sep="\n", flush=True)


def survey(session, wanted, n, jobs, known):
    """Judges mutants until n counted; returns the verdicts: killed, survived or equivalent."""
    verdicts, stream, lock = collections.Counter(), iter(wanted), threading.Lock()

    def take():
        with lock:
            return next(stream, None) if sum(verdicts.values()) + take.running < n else None
    take.running = 0

    def worker(number):
        folder = os.path.join(session.place.folder, f"worker{number}")
        os.makedirs(folder, exist_ok=True)
        while (m := take()) is not None:
            with lock:
                take.running += 1
            verdict = None
            if session.prepare(m, folder):
                test, how, ran = session.judge(m, folder)
                listed = known.get(m.key())
                verdict = "killed" if test else "equivalent" if listed else "survived"
                words = f"killed by {test} ({how})" if test else f"equivalent: {listed}" if listed else \
                    f"SURVIVED {ran} tests" if ran else "SURVIVED: no test runs this line"
            with lock:
                take.running -= 1
                if verdict:
                    verdicts[verdict] += 1
                    show(m, words)

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        try:
            for done in [pool.submit(worker, k) for k in range(jobs)]:
                done.result()
        finally:
            take.running += n   # after a signal: no further mutant
    return verdicts


def sources_of(root, folder, part):
    found = {}
    for where, _, names in os.walk(os.path.join(root, folder)):
        for name in names:
            path = os.path.relpath(os.path.join(where, name), root)
            if name.endswith(".c") and part in path:
                with open(os.path.join(root, path), encoding="utf-8") as f:
                    found[path] = f.read()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("n", type=int)
    parser.add_argument("seed", type=int)
    parser.add_argument("--scratch", help="a folder for the copy and its build, kept for the next run (default: a temporary one)")
    parser.add_argument("--records", help="a folder for what each test runs, for several scratch folders (default: in the scratch folder)")
    parser.add_argument("-j", "--jobs", type=int, default=1, help="mutants at a time (default: 1)")
    parser.add_argument("--file", default="", help="only files whose path contains this")
    parser.add_argument("--tests", help="build and run only tests whose names match; those that are not recorded yet run for every mutant")
    parser.add_argument("--list", action="store_true", help="print the mutants, build and run nothing")
    parser.add_argument("--tree", default=ROOT, help="the tree that FOLDER is in (default: this one)")
    args = parser.parse_args()
    folder = os.path.relpath(os.path.join(args.tree, args.folder), args.tree)
    sources = sources_of(args.tree, folder, args.file)
    if not sources:
        sys.exit(f"mutate: no C files in {folder}")
    wanted = draw(sources, args.seed)
    if args.list:
        for m, _ in zip(wanted, range(args.n)):
            show(m, "not run")
        return 0

    def say(line):
        print(f"mutate: {line}", file=sys.stderr, flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    place_folder = args.scratch or tempfile.mkdtemp(prefix="cflux-mutate-")
    try:
        say(f"copy and build in {place_folder}")
        place = scratch.Scratch(args.tree, place_folder, args.records, max(args.jobs, 2), args.tests)
        unknown = sorted(set(sources) - set(place.commands))
        if unknown:
            sys.exit(f"mutate: not a part of the library: {unknown[0]}")
        if args.tests:
            place.only(args.tests)
        else:
            place.record(say)
        verdicts = survey(Session(place, sources, say), wanted, args.n, args.jobs, read_equivalent(args.tree))
    finally:
        if not args.scratch:
            shutil.rmtree(place_folder, ignore_errors=True)
    total = verdicts["killed"] + verdicts["survived"]
    print(f"{folder}: {verdicts['killed']}/{total} killed ({100 * verdicts['killed'] / max(total, 1):.0f} percent), "
          f"{verdicts['equivalent']} known to change nothing")
    return 1 if verdicts["survived"] or not total else 0


if __name__ == "__main__":
    sys.exit(main())
