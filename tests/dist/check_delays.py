#!/usr/bin/env python3
"""Training on several hosts (hosts.py) with Open MPI, when the network is late.

The program slow_switch delays the frames of each host by a constant or random time, lets frames overtake each other, loses some, or
holds all frames of a host for some seconds. Training must end with the bits of a run without delays, unless the pause is longer than the
time limit of an operation. Then each rank must name the operation, the array and the ranks that it waits for, no process may remain, and
training must continue from the last checkpoint to the same bits. Some cases are fixed; the others are drawn at random.
CFLUX_TIME_LIMIT is the number of seconds that a rank waits for another one: more than 3 for many runs on a busy machine.
Where namespaces or TAP devices cannot be made, or without Open MPI and its plugin, the check prints a message and passes.
Usage: check_delays.py build-folder [random runs]
"""
import collections
import concurrent.futures
import os
import queue
import random
import re
import subprocess
import sys
import time

import hosts
import mpis

LIMIT = float(os.environ.setdefault("CFLUX_TIME_LIMIT", "3"))  # seconds that train_cases waits for another rank
REST = 2  # seconds that a long pause lasts after the limit
GROUPS, SIZE = 6, 3  # of hosts
UPDATES, EVERY = 100, 10  # of train_cases: updates, and those between two checkpoints
DEVICE = "/dev/net/tun"

# Delays are in ms; lost is a share. `pause` is in seconds, at the start of an update of a rank.
Link = collections.namedtuple("Link", "least most ordered lost", defaults=(True, 0))
Case = collections.namedtuple("Case", "name n links changed pause update rank", defaults=((), 0, 57, 1))


def fixed_cases():
    short, long = LIMIT / 2, LIMIT + REST
    yield Case("20 ms", 3, [Link(20, 20)] * 3)
    yield Case("0 to 50 ms", 3, [Link(0, 50)] * 3)
    yield Case("0 to 50 ms with overtaking", 3, [Link(0, 50, False)] * 3)
    yield Case("short pause", 3, [Link(0, 0)] * 3, pause=short)
    for rank in range(3):
        yield Case(f"long pause of rank {rank}", 3, [Link(0, 0)] * 3, pause=long, rank=rank)


def draw_link(draw):
    most = 0.1 * 80 ** draw.random()
    return Link(draw.choice((0, most * draw.random(), most)), most, draw.random() < 0.5, draw.choice((0, 0, 0.005 * draw.random())))


def draw_case(seed):
    """A case of a steady link, of one that changes, or of a pause that is shorter or longer than the limit."""
    draw = random.Random(seed)
    n, kind = draw.choice((2, 3)), ("steady", "changed", "short", "long")[seed % 4]
    links, changed = ([draw_link(draw) for _ in range(n)] for _ in range(2))
    pause = {"short": LIMIT * (0.1 + 0.5 * draw.random()), "long": LIMIT + REST * (0.5 + 0.5 * draw.random())}.get(kind, 0)
    return Case(f"seed {seed}, {kind}", n, links, changed if kind == "changed" else (), pause, draw.randrange(EVERY, UPDATES - 5), draw.randrange(n))


class Wrong(Exception):
    """What differs from the expected result."""


def processes(names):
    """The processes in the networks of these hosts. A zombie has no network."""
    return [pid for name in names for pid in subprocess.run(["ip", "netns", "pids", name], check=True, text=True, capture_output=True).stdout.split()]


class Group:
    """Hosts of one slow switch, on which one job runs at a time."""

    def __init__(self, network, build, index):
        self.network, self.first, self.switch = network, index * SIZE, network.switches[index]
        self.cflux, self.program = os.path.join(build, "tools", "cflux", "cflux"), os.path.join(build, "tests", "train_cases")
        self.output = os.path.join(network.folder, f"output{index}")

    def names(self, n):
        return self.network.names[self.first:self.first + n]

    def set_links(self, links):
        for host, link in enumerate(links):
            self.switch.delay(host, *link)

    def train(self, n, *arguments):
        """Returns the status, the output and the seconds of a run, after which no process may remain."""
        began = time.monotonic()
        # The daemon of a host outlives the launcher, if the host cannot be reached, and has the output open: so it goes to a file.
        with open(self.output, "wb") as f:
            process = self.network.start(f, self.cflux, "launch", "--launcher", "mpirun.openmpi", "--grace", str(4 * REST), "-n", str(n), "--hosts",
                                         ",".join(self.names(n)), self.program, "f32", "even", *arguments, on=self.first)
        try:
            status = process.wait(timeout=120)
        except subprocess.TimeoutExpired:
            raise Wrong(f"does not end\n{self.text()}") from None
        seconds = time.monotonic() - began
        end = time.monotonic() + 10
        while processes(self.names(n)) and time.monotonic() < end:
            time.sleep(0.1)
        if processes(self.names(n)):
            raise Wrong(f"processes remain: {processes(self.names(n))}\n{self.text()}")
        return status, self.text(), seconds

    def text(self):
        with open(self.output, encoding="utf-8", errors="replace") as f:
            return f.read()

    def command(self, case, began):
        """What the rank of the case does at the start of its update."""
        if case.pause:
            return self.switch.pause_command(case.rank, case.pause, began)
        lines = "".join(self.switch.delay_line(host, *link) + "\\n" for host, link in enumerate(case.changed))
        return f"printf '{lines}' > {self.switch.control} && touch {began}"

    def run(self, case, undisturbed):
        """Raises Wrong, or returns the counters of the frames that each host sent in the first run."""
        checkpoint = os.path.join(self.network.folder, case.name.replace(" ", "-").replace(",", ""))
        began = checkpoint + ".began"
        event = bool(case.pause or case.changed)
        fault = [f"command:{case.update}:{case.rank}:0", self.command(case, began)] if event else []
        self.switch.report()
        self.set_links(case.links)
        status, text, seconds = self.train(case.n, checkpoint, *fault)
        frames = self.switch.report()[:case.n]
        if event and not os.path.exists(began):
            raise Wrong(f"nothing happened to the link: status {status}\n{text}")
        if case.pause > LIMIT:
            self.check_failure(case, status, text)
            self.set_links([Link(0, 0)] * case.n)
            status, text, _ = self.train(case.n, checkpoint)
            if f"from training step {case.update // EVERY * EVERY}\n" not in text:
                raise Wrong(f"does not continue from the last checkpoint\n{text}")
        if status != 0 or mpis.bits(text, case.n) != undisturbed[case.n]:
            raise Wrong(f"status {status}, or other bits than {undisturbed[case.n]}\n{text}")
        files = [f for f in os.listdir(self.network.folder) if f.startswith(os.path.basename(checkpoint) + ".") and re.search(r"\.(new|tmp\d+)$", f)]
        if files:
            raise Wrong(f"files remain: {files}")
        self.check_frames(case, frames, seconds)
        return frames

    def check_failure(self, case, status, text):
        """All ranks speak: the launcher still waits when the pause ends."""
        if status == 0:
            raise Wrong(f"status 0 after a pause of {case.pause:.1f} s\n{text}")
        for rank in range(case.n):
            others = [r for r in range(case.n) if r != rank]
            missing = ", ".join(map(str, others if rank == case.rank else [case.rank]))
            sentence = (rf"(?m)^{rank}: collective: .*rank {rank} of {case.n}: all_reduce \(mean\) of 21 Float32, operation (\d+): "
                        rf"no answer from rank {missing} within {LIMIT:g} s$")
            last = rf"(?m)^cflux launch: rank {rank} on {self.names(case.n)[rank]} ended with status 1; its last operation was number (\d+), all_reduce"
            said, reported = re.search(sentence, text), re.search(last, text)
            if not said or not reported or said[1] != reported[1]:
                raise Wrong(f"rank {rank} does not name its operation and rank {missing}\n{text}")

    def check_frames(self, case, frames, seconds):
        """The network did what the case says."""
        trips = 2 * UPDATES  # at least, one after the other: an all-reduce of each update, to a host and back
        slowest = max(link.least for link in case.links)
        updates = case.update if case.pause > LIMIT else UPDATES
        for link, sent in zip(case.links, frames):
            if sent["delivered"] < updates or (not case.changed and sent["mean"] < link.least):
                raise Wrong(f"frames {frames}, expected the delays {case.links}")
            if link.ordered and not case.changed and not case.pause and sent["overtaken"]:
                raise Wrong(f"frames overtake others: {frames}")
        if case.n == 3 and len(set(case.links)) == 1 and not case.pause and seconds < trips * slowest / 1000:
            raise Wrong(f"{seconds:.1f} s are too few for {trips} times {slowest} ms")
        if case.pause and (seconds < case.pause or not sum(sent["paused"] for sent in frames)):
            raise Wrong(f"{seconds:.1f} s are too few, or no frame was held: {frames}")


def main():
    build, count = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 20
    seed = int(os.environ.get("CFLUX_SEED", "0"))
    if "openmpi" not in [name for name, _ in mpis.installed(build)]:
        return
    try:
        os.close(os.open(DEVICE, os.O_RDWR))
    except OSError as e:
        print(f"skipped: no TAP devices: {e}")
        return
    reason = hosts.enter()
    if reason:
        print(f"skipped: {reason}")
        return
    print(f"CFLUX_SEED={seed}", flush=True)
    network = hosts.SlowHosts(GROUPS, SIZE, build, seed)
    free = queue.SimpleQueue()
    for k in range(GROUPS):
        free.put(Group(network, build, k))
    group = free.get()
    undisturbed = {n: mpis.bits(group.train(n)[1], n) for n in (2, 3)}
    free.put(group)
    if None in undisturbed.values():
        sys.exit(f"an undisturbed run failed: {undisturbed}\n{group.text()}")
    totals, wrong = collections.Counter(), []

    def run(case):
        with_group = free.get()
        try:
            return case, with_group.run(case, undisturbed), None
        except Wrong as e:
            return case, [], e
        finally:
            free.put(with_group)

    cases = [*fixed_cases(), *(draw_case(1000 * seed + k) for k in range(count))]
    with concurrent.futures.ThreadPoolExecutor(GROUPS) as pool:
        for case, frames, why in pool.map(run, cases):
            for sent in frames:
                totals.update({what: int(sent[what]) for what in ("delivered", "overtaken", "lost", "paused")})
            if why:
                wrong.append(case)
                print(f"{case}: {why}", flush=True)
    print(f"{len(cases)} runs, {len(wrong)} failures; frames: {dict(totals)}")
    if wrong or not all(totals.values()) or len(cases) != count + 7:
        sys.exit(1)


main()
