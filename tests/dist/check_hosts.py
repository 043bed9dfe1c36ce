#!/usr/bin/env python3
"""Training on several hosts (hosts.py) with Open MPI, when the link of a host is cut.

Training on 2 and 3 hosts gives the parameters of one process. Then the link of host h2 goes down in a training step, or the switch drops
its packets. cflux launch must end, with lines that name ranks and hosts, and all ranks too: Open MPI's launcher does neither for a host that
it does not reach. After the link is mended, training continues from the checkpoint to the bits of an undisturbed run. The launcher's host may
also have no rank: then cflux launch learns of the failure from a file, if the hosts share the folder for temporary files, as here.
Not with MPICH: its MPI_Finalize sometimes does not end over TCP (docs/design/0051-distribution.md). Where namespaces cannot be made, or without Open MPI and its
plugin, the check prints a message and passes.
Usage: check_hosts.py build-folder
"""
import os
import re
import subprocess
import sys
import time

import hosts
import mpis

BOUND = 1e-12  # of the largest parameter, in f64
LIMIT, GRACE, SLACK = 3, 2, 8  # seconds: of an operation, of the launcher, and for everything else
SENTENCE = rf"rank (\d) of 3: all_reduce \(mean\) of 21 Float32, operation \d+: no answer from rank 1 within {LIMIT} s"
LAST = r"cflux launch: rank (\d) on h(\d) ended with status 1; its last operation was number \d+, all_reduce"
ENDED = f"mpirun.openmpi still ran {GRACE} seconds after a process had failed, and was ended"


def ranks():
    """The processes that train. One that has ended is a zombie if its parent has ended before: this process does not wait for it."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8") as f:
                if re.match(r"\d+ \(train_cases\) [^ZX]", f.read()):
                    found.append(name)
        except OSError:
            pass
    return found


def wait_for(condition, seconds):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


class Check:
    def __init__(self, build):
        self.network = hosts.Hosts(3, build)
        self.cflux, self.program = os.path.join(build, "tools", "cflux", "cflux"), os.path.join(build, "tests", "train_cases")
        self.output = os.path.join(self.network.folder, "output")

    def start(self, n, *arguments, first=0):
        """Each of n hosts has one rank, from h1 on, or h2 if `first` is 1. The output goes to a file, because Open MPI leaves a daemon on the unreachable host, which has it open."""
        names = ",".join(self.network.names[first:first + n])
        with open(self.output, "wb") as f:
            return self.network.start(f, self.cflux, "launch", "--launcher", "mpirun.openmpi", "--grace", str(GRACE), "-n", str(n),
                                      "--hosts", names, self.program, *arguments)

    def text(self):
        with open(self.output, encoding="utf-8", errors="replace") as f:
            return f.read()

    def train(self, n, *arguments):
        """Returns the bits of the parameters of a run in which nothing fails."""
        process = self.start(n, *arguments)
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            sys.exit(f"{n} hosts, {arguments}: does not end\n{self.text()}")
        bits = mpis.bits(self.text(), n)
        if process.returncode or not bits:
            sys.exit(f"{n} hosts, {arguments}: status {process.returncode}\n{self.text()}")
        return bits

    def equal_to_serial(self):
        serial, *others = ([float.fromhex(x) for x in self.train(n, "f64", "even").split()] for n in (1, 2, 3))
        scale = max(map(abs, serial))
        for n, got in enumerate(others, 2):
            if any(abs(a - b) > BOUND * scale for a, b in zip(got, serial, strict=True)):
                sys.exit(f"{n} hosts: {got}\none process: {serial}")

    def cut_link(self, how, n, rank, checkpoint, first=0):
        """Starts training on n hosts, in which the rank on h2 cuts its own link. Returns what is said, and the status of cflux launch."""
        cut_at = os.path.join(self.network.folder, f"{how}.{n}.time")
        # The switch is in the network of this process.
        words = {"down": "down", "silent": "nomaster"}[how]
        command = f"nsenter --net=/proc/{os.getpid()}/ns/net ip link set to-h2 {words} && touch {cut_at}"
        process = self.start(n, "f32", "even", checkpoint, f"command:57:{rank}:0", command, first=first)
        what = f"link of h2 {how}, {n} ranks"
        if not wait_for(lambda: os.path.exists(cut_at), 60):
            sys.exit(f"{what}: was not cut\n{self.text()}")
        if not wait_for(lambda: process.poll() is not None, LIMIT + 2 * GRACE + SLACK):
            sys.exit(f"{what}: cflux launch does not end\n{self.text()}")
        if not wait_for(lambda: not ranks(), SLACK):
            sys.exit(f"{what}: these ranks have not ended: {ranks()}\n{self.text()}")
        self.network.mend("h2")
        return self.text(), process.returncode

    def cut(self, how, undisturbed):
        checkpoint = os.path.join(self.network.folder, f"{how}.state")
        text, status = self.cut_link(how, 3, 1, checkpoint)
        named = re.findall(LAST, text)
        if (status == 0 or not re.search(SENTENCE, text) or not named or ENDED not in text
                or any(int(host) != int(rank) + 1 for rank, host in named)):
            sys.exit(f"link of h2 {how}: status {status}\n{text}")
        bits = self.train(3, "f32", "even", checkpoint)
        if bits != undisturbed or "from training step 50" not in self.text():
            sys.exit(f"link of h2 {how}: training does not continue to the bits of an undisturbed run\n{self.text()}\n{undisturbed}")

    def cut_elsewhere(self):
        """The ranks are on h2 and h3, and the launcher is on h1."""
        text, status = self.cut_link("down", 2, 0, os.path.join(self.network.folder, "elsewhere.state"), first=1)
        lines = ("rank 1 of 2: all_reduce (mean) of 21 Float32, operation ", f": no answer from rank 0 within {LIMIT} s",
                 "cflux launch: rank 1 on h3 ended with status 1; its last operation was number ", ENDED)
        if status == 0 or any(line not in text for line in lines):
            sys.exit(f"link of h2, and no rank on the launcher's host: status {status}\n{text}")


def main():
    build = os.path.abspath(sys.argv[1])
    if "openmpi" not in [name for name, _ in mpis.installed(build)]:
        return
    reason = hosts.enter()
    if reason:
        print(f"skipped: {reason}")
        return
    check = Check(build)
    check.equal_to_serial()
    undisturbed = check.train(3, "f32", "even")
    for how in ("down", "silent"):
        check.cut(how, undisturbed)
    check.cut_elsewhere()
    print("2 and 3 hosts are equal to one process; 3 cut links")


main()
