#!/usr/bin/env python3
"""cflux in jobs of Slurm, with each MPI that is installed. The Slurm is this test's own (slurm_cluster.py), with two nodes.

The batch scripts of docs/cluster.md run with 2 tasks on each node, and with pmi2 for MPICH: one trains by srun, the other by `cflux launch`, where a rank is
killed and all processes start again from the checkpoint. Then a rank is killed without a restart, with and without
`cflux launch`; `cflux train` gives the model of one process, and ends in an orderly way at SIGTERM, as at the end of a
job's time. Mistakes give a message: srun without --mpi, the interface of another MPI, a program that does not join.
Without Slurm, or without an MPI and its plugin, the check prints a message and passes. About 40 s for both MPIs.
Usage: check_slurm.py build-folder page
"""
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import check_train_command
import mpis
import slurm_cluster

INTERFACES = {"openmpi": "pmix", "mpich": "pmi2"}
TASKS = 4  # of the batch scripts
BOUND = 1e-6  # of the largest parameter
ENDS = 5  # seconds in which a job must end after a rank has died
SECONDS = 240  # ctest's limit is longer: it could not remove the folder of this test
NO_MPI = "srun started 2 processes without an MPI interface: use srun --mpi=pmix for Open MPI, or srun --mpi=pmi2 for MPICH"
ALONE = "This is one of 2 processes that {}'s launcher started, but fx_dist_init was not called: each of them trains a model of its own"
# Without its interface, Open MPI itself ends the program in MPI_Init, with this text.
OWN = {"openmpi": 'The application appears to have been direct launched using "srun"'}

# What the batch scripts start as ./train. The first line of its output is what Slurm gave it.
TRAIN = """\
#!/bin/sh
echo "CPUs of task $SLURM_PROCID: $SLURM_CPUS_PER_TASK, srun: $SRUN_CPUS_PER_TASK, threads: $FX_NUM_THREADS"
exec '{program}' f32 even {arguments}
"""


def batch_scripts(page):
    """The batch scripts in the section of a page about Slurm."""
    with open(page, encoding="utf-8") as f:
        section = re.search(r"(?ms)^## Slurm\n(.*?)^## ", f.read())[1]
    return [s for s in re.findall(r"(?ms)^```sh\n(.*?)^```", section) if s.startswith("#!")]


class Check:
    def __init__(self, cluster, build, name, serial):
        self.cluster, self.name, self.serial, self.mpi = cluster, name, serial, "--mpi=" + INTERFACES[name]
        self.cflux = os.path.join(build, "tools", "cflux", "cflux")
        self.train, self.cases = (os.path.join(build, "tests", p) for p in ("train_cases", "mpi_cases"))
        self.folder = os.path.join(cluster.folder, name)
        self.build, own = build, os.path.join(self.folder, "lib")
        os.makedirs(own)
        # cflux launch chooses the interface by the plugins that it finds. So this is a library with one of them.
        for file in (f"libcflux-mpi-{name}.so", *(f for f in os.listdir(build) if f.startswith("libcflux.so"))):
            shutil.copy(os.path.join(build, file), own)
        self.environment = dict(cluster.environment, LD_LIBRARY_PATH=own,
                                PATH=os.path.dirname(self.cflux) + os.pathsep + cluster.environment["PATH"])
        self.draw = random.Random(f"{name} {os.environ.get('CFLUX_SEED', '0')}")
        self.count = 0

    def done(self, what):
        self.count += 1
        print(f"{self.name}: {what}", flush=True)

    def fail(self, what, text):
        sys.exit(f"{self.name}: {what}\n{text}\n{self.cluster.logs()}")

    def expect(self, what, right, text):
        if not right:
            self.fail(f"{what}: not as expected", text)

    def run(self, *words):
        return self.cluster.run(*words, cwd=self.folder, more=self.environment)

    def timed(self, mark, *words):
        """Returns the status and output of a command, and the seconds from the first line that matches to its end."""
        run = subprocess.Popen(words, cwd=self.folder, env=self.environment, text=True, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        text, began = "", None
        for line in run.stdout:
            text += line
            began = began or (time.monotonic() if re.search(mark, line) else None)
        run.wait()
        if began is None:
            self.fail(f"no line that matches {mark}", text)
        return run.returncode, text, time.monotonic() - began

    def batch(self, script, *options):
        """Runs a batch script, and returns its status and output. sbatch --wait would look for its end every 10 s."""
        output = os.path.join(self.folder, "output")
        status, text = self.run("sbatch", "--parsable", "-o", output, *options, *script)
        job = text.strip()
        self.expect("sbatch", status == 0 and job.isdigit(), text)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            state = self.run("scontrol", "-o", "show", "job", job)[1]
            found = re.search(r"JobState=(\S+) .* ExitCode=(\d+):(\d+)", state)
            if found and found[1] not in ("PENDING", "RUNNING", "COMPLETING"):
                with open(output, encoding="utf-8") as f:
                    return int(found[2]) or int(found[3]), f.read()
            time.sleep(0.05)
        return self.fail("the job does not end", state)

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(path, 0o755)

    # ---- the page's scripts ------------------------------------------------------------------------------------------

    def check_bits(self, what, text, n):
        """The ranks have the same bits, and the numbers of one process. Returns the bits."""
        found = mpis.bits(text, n)
        self.expect(what, found, text)
        got, want = ([float.fromhex(x) for x in t.split()] for t in (found, self.serial))
        scale = max(abs(x) for x in want)
        self.expect(what, len(got) == len(want) == 21 and all(abs(a - b) <= BOUND * scale for a, b in zip(got, want)), text)
        return found

    def check_page(self, scripts):
        update, rank = self.draw.randrange(10, 100), self.draw.randrange(TASKS)
        bits = []
        for k, (script, arguments) in enumerate(zip(scripts, ("", f"state kill:{update}:{rank}:0"))):
            # The page says that MPICH needs another interface; cflux launch chooses it.
            self.write("script", script.replace("--mpi=pmix", self.mpi))
            self.write("train", TRAIN.format(program=self.train, arguments=arguments))
            status, text = self.batch(["script"], f"--ntasks-per-node={TASKS // 2}")  # fewer than the page: this replaces its line
            self.expect(f"script {k + 1} of the page", status == 0, text)
            tasks = re.findall(r"(?m)^CPUs of task (\d): 8, srun: 8, threads: 8$", text)
            self.expect("the CPUs of the tasks", sorted(set(tasks)) == list(map(str, range(TASKS))), text)
            bits.append(self.check_bits(f"script {k + 1} of the page", text, TASKS))
            self.done(f"script {k + 1} of the page: {TASKS} processes on 2 nodes have the parameters of one process")
        for part in (self.sentence(rank), rf"starts all {TASKS} processes again \(1 of 3\)", rf"(?m)^from training step {update // 10 * 10}$"):
            self.expect("the restart", re.search(part, text), text)
        self.expect("the bits after the restart", bits[0] == bits[1], text)
        self.done(f"rank {rank} killed in update {update}: the restarted job has the bits of the undisturbed one")

    def sentence(self, rank):
        return (rf"cflux launch: rank {rank} on {re.escape(socket.gethostname())} was killed by signal 9 \(Killed\); "
                r"its last operation was number \d+, all_reduce \(mean\) of 21 Float32")

    # ---- ranks that die ----------------------------------------------------------------------------------------------

    def check_kill(self, what, mark, rank, *words):
        state = os.path.join(self.folder, f"state-{self.count}")
        status, text, seconds = self.timed(mark, *words, self.train, "f32", "even", state, f"kill:57:{rank}:0")
        self.expect(what, status != 0 and seconds <= ENDS, f"{text}\nstatus {status} after {seconds:.1f} s")
        self.expect(what, not self.processes_with(state), f"{text}\nprocesses remain")
        self.done(f"{what}: the job ends {seconds:.1f} s after rank {rank} is killed")

    def processes_with(self, word):
        """Slurm says that a job has ended when its processes may still be ending."""
        found = []
        for _ in range(40):
            found = []
            for pid in slurm_cluster.descendants():
                try:
                    with open(f"/proc/{pid}/cmdline", "rb") as f:
                        found += [pid] if word.encode() in f.read() else []
                except OSError:
                    pass
            if not found:
                break
            time.sleep(0.05)
        return found

    def check_kills(self):
        rank = self.draw.randrange(2)
        self.check_kill("cflux launch", self.sentence(rank), rank, "salloc", "-Q", "-N2", "-n2", self.cflux, "launch", "-n", "2")
        self.check_kill("srun", rf"srun: error: n[12]: task {rank}: Killed", rank, "srun", self.mpi, "--kill-on-bad-exit=1",
                        "-N2", "-n2")

    # ---- cflux train -------------------------------------------------------------------------------------------------

    def check_train(self):
        run = check_train_command.Run(self.build, self.folder, ["srun", "-Q", self.mpi, "-N2"])
        check_train_command.write_data(run.path("line.csv"))
        run.environment = self.environment
        run.train(0, "--save", "one.safetensors")
        out, err = run.train(3, "--save", "many.safetensors", "--log", "many.log")
        check_train_command.once(out, "finished after epoch 6, training step 18")
        check_train_command.once(err, "3 processes")
        worst = check_train_command.distance(run.path("one.safetensors"), run.path("many.safetensors"))
        self.expect("cflux train", worst <= BOUND, f"{worst:.1e} from the model of one process")
        self.done(f"cflux train: 3 processes, {worst:.1e} from the model of one process")

    def check_end_of_time(self):
        # In about one of 60 runs, MPI_Finalize of one MPICH process waits forever for Slurm's answer after the other has ended. So this
        # uses the page's option, which then ends it.
        words = ["srun", "-Q", self.mpi, "--kill-on-bad-exit=1", "-N2", "-n2", "--job-name", f"time-{self.name}", self.cflux, "train", "--data", "line.csv", "--model",
                 check_train_command.MODEL, "--epochs", "10000000", "--patience", "9000000", "--quiet", "--checkpoint", f"{self.name}.state", "--log", f"{self.name}.log"]
        run = subprocess.Popen(words, cwd=self.folder, env=self.environment, text=True, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        log, end = os.path.join(self.folder, f"{self.name}.log"), time.monotonic() + 30
        while time.monotonic() < end and not (os.path.exists(log) and '"event":"epoch"' in open(log, encoding="utf-8").read()):
            time.sleep(0.05)
        status, text = self.run("scancel", "--signal=TERM", "--name", f"time-{self.name}")
        out = run.communicate(timeout=30)[0]
        self.expect("scancel", status == 0, text)
        self.expect("SIGTERM to cflux train", run.returncode in (128 + signal.SIGTERM, 128 + signal.SIGKILL) and out.count("interrupted after") == 1,
                    f"status {run.returncode}\n{out}")
        self.expect("the checkpoint", os.path.exists(os.path.join(self.folder, f"{self.name}.state")), out)
        self.done("cflux train saves its checkpoint at SIGTERM")

    # ---- mistakes, and other ways to start ---------------------------------------------------------------------------

    def check_lines(self, what, count, line, *words):
        text = self.run(*words)[1]
        # The program calls fx_dist_init again after a failure, and prints those messages after "again" and "at last".
        first = [each for each in text.splitlines() if line in each and " again: " not in each and " at last: " not in each]
        self.expect(what, len(first) == count, text)
        self.done(f"{what}: the message says so")

    def check_mistakes(self, other):
        case = ["-N2", "-n2", self.cases]
        self.check_lines("srun without --mpi", 2, NO_MPI, "srun", *case, "none")
        self.check_lines("srun without --mpi, but with .library", 2, OWN.get(self.name, NO_MPI), "srun", *case, "none", self.name)
        launcher = {"openmpi": "PMIx", "mpich": "MPICH"}[self.name]
        self.check_lines("a program that does not join", 1, ALONE.format(launcher), "srun", self.mpi, *case, "never_joins")
        self.check_lines("a program that does not join, srun without --mpi", 1, ALONE.format("Slurm"), "srun", *case, "never_joins")
        if other:
            self.environment["FX_PLUGIN_PATH"] = self.build
            line = OWN.get(other, f'{launcher}\'s launcher started 2 processes, but MPICH Version')
            self.check_lines("the interface of another MPI", 2, line, "srun", self.mpi, *case, "none", other)

    def check_local_ranks(self):
        text = self.run("srun", self.mpi, "-N2", "--ntasks-per-node=2", self.cases, "local_rank")[1]
        found = re.findall(r"(?m)^(\d) local rank: (\d)$", text)
        self.expect("local ranks", sorted(found) == [("0", "0"), ("1", "1"), ("2", "0"), ("3", "1")], text)
        self.done("each node counts its ranks from 0")

    def check_mpirun(self):
        """mpirun without -n starts the tasks of the job. On one node: its processes do not get the folders of their nodes."""
        status, text = self.batch(["--wrap", f"mpirun.{self.name} {self.train} f32 even"], "-N1", "-n3")
        self.expect("mpirun", status == 0, text)
        self.check_bits("mpirun", text, 3)
        self.done("mpirun in a job starts a process for each task")


def check_all(cluster, build, names, scripts):
    signal.signal(signal.SIGALRM, lambda *_: sys.exit(f"not finished after {SECONDS} s"))
    signal.alarm(SECONDS)
    serial = mpis.bits(cluster.run(os.path.join(build, "tests", "train_cases"), "f32", "even")[1], 1)
    count = 0
    for name in names:
        check = Check(cluster, build, name, serial)
        check.check_page(scripts)
        check.check_kills()
        check.check_train()
        check.check_end_of_time()
        check.check_local_ranks()
        check.check_mpirun()
        check.check_mistakes(next((other for other in names if other != name), None))
        count += check.count
    least = {1: 13, 2: 28}[len(names)]
    print(f"{count} checks with {' and '.join(names)}")
    if count < least:
        sys.exit(f"{least} were expected")


def main():
    build, page = os.path.abspath(sys.argv[1]), sys.argv[2]
    scripts, names, missing = batch_scripts(page), [name for name, _ in mpis.installed(build)], slurm_cluster.missing()
    if len(scripts) != 2:
        sys.exit(f"{page} has {len(scripts)} batch scripts for Slurm, 2 are known")
    if missing:
        print(f"skipped: not installed: {' '.join(missing)} (Debian: apt-get install {slurm_cluster.PACKAGES})")
    elif names:
        slurm_cluster.guarded(lambda cluster: check_all(cluster, build, names, scripts))


main()
