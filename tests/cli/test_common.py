#!/usr/bin/env python3
"""The command line as a whole: help, usage, errors for bad options, devices, preferences, bench, the manual
page and the completion. Usage: test_common.py PROGRAM"""
import gzip
import os
import pty
import re
import shutil
import signal
import subprocess
import time
import unittest

import cli
import formats

COMMANDS = ["train", "eval", "predict", "generate", "inspect", "convert", "report", "launch", "bench", "devices", "backend",
            "kernels"]
NETWORK = "Chain(Dense(4 => 8, relu), Dense(8 => 3))"


class Help(cli.Cli):
    def test_the_list_has_every_command(self):
        listed = re.findall(r"^  (\w+) ", self.fine("help").out, re.M)
        self.assertEqual(listed, COMMANDS + ["help"])
        self.assertEqual(self.fine("--help").out, self.fine("help").out)
        self.assertEqual(self.fine("help", "help").out, self.fine("help").out)

    def test_every_command_explains_itself(self):
        for name in COMMANDS:
            text = self.fine(name, "--help").out
            self.assertEqual(text, self.fine("help", name).out)
            self.assertTrue(text.startswith(f"Usage: cflux {name}"), text)
            self.assertIn("--help", text)
            self.assertLessEqual(max(map(len, text.split("\n"))), 80, name)
            self.assertTrue(all(line == line.rstrip() for line in text.split("\n")), name)

    def test_long_lists_of_options_have_groups(self):
        """More than ten options beside --help are in groups of at most fifteen, and the manual has the same groups."""
        manual = self.fine("help", "--man").out
        groups = 0
        for name in COMMANDS:
            text = self.fine("help", name).out.split("\nExamples:\n")[1].split("\n\n", 1)[1]
            parts = re.findall(r"(?<=\n\n)([A-Z][\w ]+):\n((?:  .*\n)+)", "\n\n" + text)
            sizes = [len(re.findall(r"(?m)^  (?:-\w, |    )--", rows)) for _, rows in parts]
            self.assertEqual(sum(sizes), len(re.findall(r"(?m)^  (?:-\w, |    )--", text)), name)
            self.assertTrue(all(1 <= size <= 15 for size in sizes), (name, sizes))
            if len(parts) == 1:
                self.assertEqual(parts[0][0], "Options", name)
                self.assertLessEqual(sizes[0], 11, name)
                continue
            section = manual.split(f".SS cflux {name} ")[1].split("\n.SS ")[0]
            self.assertEqual(re.findall(r"\n\.PP\n([A-Z][\w ]+):\n\.TP", section), [group for group, _ in parts], name)
            groups += len(parts)
        self.assertGreaterEqual(groups, 11)

    def test_the_examples_run(self):
        """The commands of Examples: in their order, except those that need an hour, an MPI, a GPU, or a second."""
        with gzip.open(cli.DIGITS) as f:
            self.write("digits.csv", f.read())
        self.write("story.txt", "Once upon a time there was a king.\n" * 40)
        ran = 0
        for name in COMMANDS:
            lines = self.fine("help", name).out.split("\nExamples:\n")[1].split("\n\n")[0]
            for line in re.split(r"\n  (?! )", lines.strip()):
                self.assertTrue(line.startswith("cflux " + name), line)
                if name in ("generate", "launch", "bench", "kernels") or "--text" in line:
                    continue
                if "other.jsonl" in line:
                    shutil.copy(self.path("run.jsonl"), self.path("other.jsonl"))
                p = subprocess.run(["bash", "-c", line.replace("cflux", cli.program, 1)], cwd=self.folder, text=True,
                                   encoding="utf-8", capture_output=True, env=self.environment())
                self.assertEqual(p.returncode, 0, line + "\n" + p.stderr)
                ran += 1
        self.assertGreaterEqual(ran, 13)

    def test_version(self):
        with open(os.path.join(cli.ROOT, "include", "cflux", "base.h"), encoding="utf-8") as f:
            version = re.search(r'FX_VERSION_STRING "(.*)"', f.read()).group(1)
        self.assertEqual(self.fine("--version").out, f"cflux {version}\n")

    def test_nothing_to_do_is_usage(self):
        ended = self.run_cli()
        self.assertEqual((ended.status, ended.out), (2, ""))
        self.assertIn("Usage: cflux COMMAND", ended.err)

    def test_names_that_are_nearly_right(self):
        self.refused("inspekt", words=['unknown command "inspekt"', "did you mean inspect?"])
        self.refused("qwertz", words=['unknown command "qwertz"', "cflux help lists the commands"])
        self.refused("inspect", "--stat5", "x", words=["--stat5", "did you mean --stats?"])
        self.refused("train", "--see", "1", words=["--see is short for --seed and for --seeds"])
        self.refused("train", "--se=1", words=["--se is short for --separator and for --seed"])
        self.refused("inspect", "-Z", "x", words=["-Z", "cflux help inspect"])
        self.refused("help", "trian", words="did you mean train?")

    def test_kernels(self):
        """A cache is packed by unit/kernel_packs; this pack is written by formats.py."""
        version = self.fine("--version").out.split()[1]
        cuda, text = ["cuda", "sm_90", "NVRTC 13.0", "--fmad=false"], "source"
        data = formats.kernel_pack(version, [
            (*cuda, text, b"one"), (*cuda, text + "s", b"two, longer than sixteen"),
            ("amdgpu", "gfx90a", "hipRTC 7.0", "-ffp-contract=off", text, b"ELF")])
        pack = self.write("good.pack", data)
        empty = {"XDG_CACHE_HOME": self.folder}
        self.assertRegex(self.fine("kernels", **empty).out, r"^no kernels of cflux \S+ in the cache\n$")
        lines = self.fine("kernels", "list", pack).out.split("\n")
        self.assertEqual(lines[0].split(), ["BACKEND", "KERNELS", "BYTES", "ARCHITECTURE,", "COMPILER"])
        self.assertIn(["cuda", "2", "27", "sm_90,", "NVRTC", "13.0"], [line.split() for line in lines])
        told = self.fine("kernels", "list", pack, "--json").json()
        self.assertEqual((told["file"], told["count"], told["bytes"]), (pack, 3, 30))
        self.assertEqual([k["backend"] for k in told["kernels"]], ["amdgpu", "cuda"])
        self.write("half", data[:200])
        self.refused("kernels", "list", "half", words="half: it has 200 bytes instead of")
        self.refused("kernels", "list", "half", "--json", words="the file is incomplete or damaged")
        self.refused("kernels", "pick", words='unknown action "pick"; known are list, pack')
        self.refused("kernels", "pack", words="the name of the pack is missing")
        ended = self.run_cli("kernels", "pack", "new", **empty)
        self.assertEqual((ended.status, ended.out), (1, ""))
        self.assertRegex(ended.err, r"^cflux kernels: the cache has no kernels of cflux \S+: run the program")
        self.assertFalse(os.path.exists(self.path("new")))

    def test_launch(self):
        self.refused("launch", words=["too few operands", "PROGRAM"])
        self.refused("launch", "-n", "0", "x", words=["--processes", '"0"'])
        self.refused("launch", "--launcher", "nowhere", "x", words="there is no program nowhere")
        self.refused("launch", "--launcher", self.folder, "x", words="there is no program /")
        ended = self.run_cli("launch", "--each", "false", "--json")
        self.assertEqual(ended.status, 1)
        self.assertRegex(ended.err, r"^cflux launch: rank 0 on \S+ ended with status 1\n$")
        ended = self.run_cli("launch", "--each", "./nowhere")
        self.assertEqual(ended.status, 127)
        self.assertIn("could not start ./nowhere", ended.err)
        self.assertEqual(self.fine("launch", "--each", "echo", "-n", "3").out, "3")
        # A program that uses the lowest numbers of files for its own file keeps that file.
        ended = self.run_cli("launch", "--each", "sh", "-c",
                             "exec 3>kept; exec 4>&3 5>&3 6>&3 7>&3 8>&3 9>&3; echo 5, sum > $FX_DIST_PROGRESS; exit 6")
        self.assertIn("ended with status 6; its last operation was number 5, sum\n", ended.err)
        self.assertEqual(os.path.getsize(self.path("kept")), 0)

    def test_killed_wrapper(self):
        """If the process of launch --each is killed, another one says which rank that was."""
        program = "echo 7, sum > $FX_DIST_PROGRESS; echo x > started; exec sleep 300"
        for number, name, noted in ((signal.SIGKILL, "9 \\(Killed\\)", ""), (signal.SIGSEGV, "11 \\(Segmentation fault\\)", ""),
                                    (signal.SIGKILL, "", "failed\n"), (signal.SIGTERM, "", "")):
            failure = self.write("failure", noted)
            environment = dict(self.environment(), CFLUX_LAUNCH_FAILURE=failure, PMI_RANK="3")
            run = subprocess.Popen([cli.program, "launch", "--each", "sh", "-c", program], cwd=self.folder, text=True,
                                   stderr=subprocess.PIPE, env=environment)
            self.wait_for("started")
            os.remove(self.path("started"))
            run.send_signal(number)
            said = run.communicate(timeout=cli.SECONDS)[1]  # the guard has ended too: nothing else has the stream
            want = (rf"cflux launch: rank 3 on \S+ lost its wrapper \(cflux launch --each\), which was killed by signal {name}; "
                    r"its last operation was number 7, sum\n") if name else ""
            self.assertRegex(said, rf"^{want}$")
            self.assertEqual(self.read("failure"), b"failed\n")
        # A machine without the file does not know whether another rank has failed before.
        environment["CFLUX_LAUNCH_FAILURE"] = self.path("absent")
        run = subprocess.Popen([cli.program, "launch", "--each", "sh", "-c", program], cwd=self.folder, text=True,
                               stderr=subprocess.PIPE, env=environment)
        self.wait_for("started")
        os.remove(self.path("started"))
        run.kill()
        self.assertEqual(run.communicate(timeout=cli.SECONDS)[1], "")
        # Open MPI's launcher would have sent SIGTERM before.
        environment["OMPI_COMM_WORLD_RANK"] = "2"
        run = subprocess.Popen([cli.program, "launch", "--each", "sh", "-c", program], cwd=self.folder, text=True,
                               stderr=subprocess.PIPE, env=environment)
        self.wait_for("started")
        run.kill()
        self.assertRegex(run.communicate(timeout=cli.SECONDS)[1], r"^cflux launch: rank 2 on \S+ lost its wrapper ")
        self.assertFalse(os.path.exists(self.path("absent")))

    @unittest.skipUnless(os.path.exists("/proc/self/stat"), "needs /proc")
    def test_killed_guard(self):
        """If the guard is killed, the program still runs to its end, and its status is reported."""
        program = "echo x > started; while [ -e started ]; do sleep 0.02; done; exit 6"
        run = subprocess.Popen([cli.program, "launch", "--each", "sh", "-c", program], cwd=self.folder, text=True,
                               stderr=subprocess.PIPE, env=self.environment())
        self.wait_for("started")
        guards = []
        for process in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{process}/stat", encoding="utf-8") as f:
                    parent = int(f.read().rpartition(")")[2].split()[1])
                with open(f"/proc/{process}/cmdline", encoding="utf-8") as f:
                    each = "--each" in f.read().split("\0")
            except OSError:  # the process has ended
                continue
            if parent == run.pid and each:
                guards.append(int(process))
        self.assertEqual(len(guards), 1)
        os.kill(guards[0], signal.SIGKILL)
        os.remove(self.path("started"))
        said = run.communicate(timeout=cli.SECONDS)[1]
        self.assertEqual(run.returncode, 6)
        self.assertRegex(said, r"^cflux launch: rank 0 on \S+ ended with status 6\n$")

    def launcher(self, path, version, rest="echo launcher: $@"):
        """A stand-in for mpirun or srun, which prints its arguments."""
        os.makedirs(os.path.dirname(self.path(path)), exist_ok=True)
        self.write(path, f'#!/bin/sh\n[ "$1" = --version ] && {{ echo "{version}"; exit; }}\n{rest}\n')
        os.chmod(self.path(path), 0o755)
        return self.path(path)

    def test_launchers(self):
        """The name of a launcher decides on its options, also after a folder."""
        for path, version, words in (
                ("a b/srun", "slurm 22.05", "-n 2 --kill-on-bad-exit=1 --nodelist m,n "),
                ("a b/mpirun", "mpirun (Open MPI) 4.1.4", "-n 2 -x CFLUX_RESTART -x CFLUX_LAUNCH_FAILURE --host m,n "),
                ("a b/mpirun", "HYDRA build details:" + "\n" * 70000, "-n 2 -hosts m,n "),  # longer than a pipe
                ("a b/mpirun.openmpi", "", "-n 2 -x CFLUX_RESTART -x CFLUX_LAUNCH_FAILURE --host m,n ")):
            launcher = self.launcher(path, version)
            ended = self.fine("launch", "-n", 2, "--hosts", "m,n", "--launcher", launcher, "prog", "a  b")
            self.assertIn("launcher: " + words, ended.out)
            self.assertTrue(ended.out.rstrip().endswith("launch --each -- prog a b"), ended.out)
            colon = ["launch", "--launcher", launcher, "prog", ":", "x"]
            if path.endswith("srun"):
                self.fine(*colon)
            else:
                self.refused(*colon, words='the argument ":" separates programs')

    def test_interface_of_srun(self):
        """If Slurm's default connects no processes, srun gets the interface for the first MPI that has a plugin."""
        build = os.path.dirname(os.path.dirname(os.path.dirname(cli.program)))
        listed = "[ \"$1\" = --mpi=list ] && { printf 'MPI plugin types are...\\n\\tpmix\\n\\tnone\\n\\tpmi2\\n'; exit; }\necho launcher: $@"
        srun = self.launcher("a/srun", "slurm 22.05", listed)
        found = [option for plugin, option in (("openmpi", "--mpi=pmix "), ("mpich", "--mpi=pmi2 "))
                 if os.path.exists(os.path.join(build, f"libcflux-mpi-{plugin}.so"))]
        path = {"PATH": self.path("a") + os.pathsep + os.environ["PATH"], "FX_PLUGIN_PATH": build}
        for default, more, option in (("none", {}, (found + [""])[0]), ("pmi2", {}, ""), ("none", {"SLURM_MPI_TYPE": "pmi2"}, "")):
            self.launcher("a/scontrol", "", f"echo 'MpiDefault              = {default}'\necho 'MpiParams               = (null)'")
            ended = self.fine("launch", "-n", 2, "--launcher", srun, "prog", **path, **more)
            self.assertIn(f"launcher: -n 2 --kill-on-bad-exit=1 {option}/", ended.out)

    def test_hanging_launcher(self):
        """A launcher that still runs after a process has failed is ended, also if it ignores SIGTERM."""
        each = 'while [ "$2" != launch ]; do shift; done\n"$@"\n'
        for trap, signals in (("", 1), ("trap '' TERM\n", 2)):
            launcher = self.launcher("mpirun", "Open MPI", trap + each + "while :; do sleep 0.05; done")
            started = time.monotonic()
            ended = self.run_cli("launch", "--grace", 0.4, "--launcher", launcher, "false")
            self.assertNotEqual(ended.status, 0)
            self.assertIn("rank 0 on", ended.err)
            self.assertIn("mpirun still ran 0.4 seconds after a process had failed, and was ended", ended.err)
            self.assertGreater(time.monotonic() - started, 0.4 * signals)
            self.assertLess(time.monotonic() - started, 20)

    def test_killed_launch(self):
        """A launcher ends its processes after SIGTERM, not after SIGKILL."""
        launcher = self.launcher("mpirun", "Open MPI", "trap 'echo ended > ended; exit' TERM\n"
                                 "echo started > started\nwhile :; do sleep 0.05; done")
        run = subprocess.Popen([cli.program, "launch", "--launcher", launcher, "prog"], cwd=self.folder,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.wait_for("started")
        run.kill()
        run.wait()
        self.wait_for("ended")

    def test_status_after_signal(self):
        """MPICH's mpirun can have status 0 although a signal ended the job."""
        for version, status in (("HYDRA build details:", 143), ("mpirun (Open MPI) 4.1.4", 0)):
            launcher = self.launcher("mpirun", version, "trap 'exit 0' TERM\n"
                                     "echo started > started\nwhile :; do sleep 0.05; done")
            run = subprocess.Popen([cli.program, "launch", "--launcher", launcher, "prog"], cwd=self.folder,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.wait_for("started")
            run.terminate()
            self.assertEqual(run.wait(cli.SECONDS), status, version)
            os.remove(self.path("started"))

    def test_signal_at_start(self):
        """A signal reaches a program that is just being started."""
        shim, source = self.path("slow.so"), os.path.join(cli.ROOT, "tests", "cli", "slow_fork.c")
        compiler = shutil.which("cc")
        if not compiler or subprocess.run([compiler, "-shared", "-fPIC", "-O1", source, "-o", shim, "-ldl"],
                                          capture_output=True).returncode:
            print("skipped: no compiler that makes slow_fork.c")
            return
        environment = dict(self.environment(), LD_PRELOAD=shim, FORKED=self.path("forked"))
        run = subprocess.Popen([cli.program, "launch", "--each", "sh", "-c", "echo x > started; exec sleep 3"], cwd=self.folder,
                               stderr=subprocess.DEVNULL, env=environment)
        end = time.monotonic() + cli.SECONDS
        while not os.path.exists(self.path("forked")) and run.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        if not os.path.exists(self.path("forked")):
            self.assertFalse(os.path.exists(self.path("started")), "slow_fork.c has not delayed the program's fork")
            print("skipped: the program does not start with slow_fork.c")  # a sanitizer refuses it
            return
        time.sleep(0.05)  # until the program waits for the other one
        run.terminate()
        self.assertEqual(run.wait(cli.SECONDS), 143)
        self.assertFalse(os.path.exists(self.path("started")))

    def test_interrupted_launch(self):
        """Ctrl-C reaches the launcher once: a second one would make mpirun kill the processes."""
        launcher = self.launcher("mpirun", "Open MPI", "trap 'echo x >> caught' INT\n"
                                 "echo $PPID > parent\nwhile [ ! -e done ]; do sleep 0.05; done")
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.folder)
            os.execv(cli.program, [cli.program, "launch", "--launcher", launcher, "prog"])
        self.wait_for("parent")
        os.kill(pid, signal.SIGSTOP)  # so that the launcher has handled the first one before a second
        os.write(terminal, b"\x03")
        self.wait_for("caught")
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.3)
        self.write("done", "")
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
        os.close(terminal)
        self.assertEqual(self.read("caught"), b"x\n")

    def wait_for(self, name):
        end = time.monotonic() + cli.SECONDS
        while not os.path.exists(self.path(name)) and time.monotonic() < end:
            time.sleep(0.02)
        self.assertTrue(os.path.exists(self.path(name)), name)

    def test_values_of_options(self):
        self.refused("bench", "--seconds", "x", words=["--seconds", '"x"'])
        self.refused("bench", "--seconds", "nan", words=["--seconds", '"nan"'])
        self.refused("bench", "--seconds", "-1", words=["--seconds", "0.001", '"-1"'])
        self.refused("bench", "--batchsize", "1.5", words=["--batchsize", "whole number", '"1.5"'])
        self.refused("bench", "--batchsize", "99999999999999999999", words="--batchsize")
        self.refused("bench", "--batchsize", words=["--batchsize needs a value", "N"])
        self.refused("bench", "nothing", words='did you mean allreduce?')
        self.refused("bench", "allreduce", words="one process moves no data")
        self.refused("bench", "-b", words="--batchsize needs a value")
        self.refused("devices", "--json=1", words="--json takes no value")
        self.refused("devices", "more", words=['"more"', "usage: cflux devices"])
        self.refused("convert", "one", words=["too few", "IN OUT"])

    def test_options_that_are_given_twice(self):
        """An option that is given twice either adds to the first, as its help states, or is refused."""
        listed = re.findall(r"(?m)^  (\w+) +\S", self.fine("help").out.split("Commands:")[1])
        refused = added = flags = 0
        for command in listed:
            if command == "help":
                continue
            text = self.fine("help", command).out
            rows = re.split(r"\n(?=  (?:-\w, |    )--|\n\w)", text)
            rows = [row for row in rows if re.match(r"  (?:-\w, |    )--", row)]
            for row in rows:
                name, metavar = re.match(r" +(?:-\w, )? *--([\w-]+)(?: (\S+))?", row).groups()
                takes_value = bool(re.match(rf" +(?:-\w, )? *--{name} \S", row))
                with self.subTest(command=command, option=name):
                    if not takes_value:
                        flags += 1
                        continue
                    value = metavar.split("|")[0] if not metavar[0].isupper() else "2"
                    ended = self.run_cli(command, f"--{name}", value, f"--{name}", value)
                    several = "may be given several times" in re.sub(r"\s+", " ", row)
                    said = f'cflux {command}: --{name} is given twice: "{value}" and "{value}"\n'
                    self.assertEqual(ended.err == said, not several, ended.err)
                    self.assertEqual((ended.status, ended.out) == (2, "") or several, True)
                    added += several
                    refused += not several
        self.assertGreaterEqual(refused, 35)
        self.assertGreaterEqual(added, 7)
        self.assertGreaterEqual(flags, 20)
        self.refused("bench", "-s1", "--seconds=2", words='--seconds is given twice: "1" and "2"')

    def test_output_that_cannot_be_written(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            p = subprocess.run([cli.program, "help"], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(p.returncode, 1)
        self.assertEqual(p.stderr, "cflux: cannot write to standard output: No space left on device\n")

    def test_an_earlier_write_failed(self):
        """stdio reports the reason once: when its buffer was full, not at the end."""
        self.fine("train", "-q", "-d", cli.DIGITS, "-m", "Dense(64 => 10)", "-e", "1", "-L", "run.jsonl")
        log = self.path("run.jsonl")
        for page, whose in (("-", "cannot write to standard output"), ("/dev/full", "/dev/full")):
            with open("/dev/full", "w", encoding="utf-8") as full:
                p = subprocess.run([cli.program, "report", log, "-o", page], stdout=full, stderr=subprocess.PIPE, text=True)
            self.assertEqual((p.returncode, p.stderr), (1, f"cflux report: {whose}: No space left on device\n"))


class Devices(cli.Cli):
    def test_the_cpu_is_there_and_the_absent_say_why(self):
        told = self.fine("devices", "--json").json()
        names = [d["device"] for d in told["devices"]]
        self.assertEqual(names[:2], ["CPU", "ref"])
        self.assertEqual(len(names), len(set(names)))
        here = {d["backend"] for d in told["devices"]}
        for name in ["CUDA", "AMDGPU", "Metal", "OpenCL"]:
            self.assertNotEqual(name in here, name in told["absent"], name)
        self.assertTrue(all(len(why) > 20 for why in told["absent"].values()))
        self.assertIn(told["default"], names)
        with open("/proc/meminfo", encoding="utf-8") as f:
            total = 1024 * int(re.search(r"MemTotal:\s*(\d+)", f.read()).group(1))
        self.assertEqual(told["devices"][0]["memory_total"], total)

    def test_plugins_of_both_kinds(self):
        folder = os.path.join(os.path.dirname(os.path.abspath(cli.program)), "..", "..", "tests", "standin")
        told = self.fine("devices", "--json", FX_PLUGIN_PATH=folder).json()
        # The folders beside the program contain plugins of the same names, but are searched later.
        here = [p for p in told["plugins"] if os.path.samefile(os.path.dirname(p["file"]), folder)]
        plugins = {os.path.basename(p["file"]): p for p in here}
        cuda, cudnn = plugins["libcflux-cuda.so"], plugins["libcflux-cuda-cudnn.so"]
        self.assertEqual((cuda["kind"], cuda["name"], cuda["serves"], cuda["why"]), ("backend", "CUDA", None, ""))
        self.assertEqual((cudnn["kind"], cudnn["name"], cudnn["serves"], cudnn["why"], cudnn["version"]),
                         ("kernel library", "cuDNN", "CUDA", "", "0.0.1"))
        self.assertEqual([d["parts"] for d in told["devices"] if d["backend"] == "CUDA"], [["cuDNN"]] * 3)
        text = self.fine("devices", FX_PLUGIN_PATH=folder).out
        self.assertRegex(text, r"(?m)^backend +CUDA +/.*/libcflux-cuda\.so$")
        self.assertRegex(text, r"(?m)^kernel library +cuDNN for CUDA +/.*/libcflux-cuda-cudnn\.so$")
        self.assertRegex(text, r"(?m)^CUDA +2 .*cuDNN$")

    def test_a_folder_without_plugins(self):
        told = self.fine("devices", "--json", OCL_ICD_VENDORS="/nowhere", FX_NUM_THREADS="1").json()
        self.assertIn("libcflux-metal.so", told["absent"]["Metal"])
        self.assertEqual(told["threads"], 1)

    def test_the_text_says_the_same(self):
        told, text = self.fine("devices", "--json").json(), self.fine("devices").out
        for d in told["devices"]:
            self.assertRegex(text, rf"(?m)^{re.escape(d['backend'])} +{d['id']}\b.*{re.escape(d['name'])}")
        for name, why in told["absent"].items():
            self.assertRegex(text, rf"(?m)^{name} +{re.escape(why)}$")


class Preference(cli.Cli):
    FILE = "LocalPreferences.toml"

    def test_read_and_set(self):
        self.assertIsNone(self.fine("backend", "--json").json()["preference"])
        self.assertIn("no preference: the first of CUDA, AMDGPU, Metal, OpenCL that works and is not a CPU", self.fine("backend").out)
        ended = self.fine("backend", "opencl")
        self.assertEqual(ended.out, "OpenCL\n")
        self.assertIn("Restart", ended.err)
        self.assertEqual(self.fine("backend").out, "OpenCL\n")
        self.assertEqual(self.fine("backend", "--json").json(), {"preference": "OpenCL"})

    def test_the_rest_of_the_file_stays(self):
        self.write(self.FILE, '# mine\n[Other]\nx = 1\n\n[Flux]\ngpu_backend = "CUDA" # was\n')
        self.assertEqual(self.fine("backend").out, "CUDA\n")
        self.fine("backend", "CPU")
        text = self.read(self.FILE).decode()
        self.assertIn("# mine\n[Other]\nx = 1\n", text)
        self.assertIn('gpu_backend = "CPU"', text)
        self.assertNotIn("CUDA", text)

    def test_another_project(self):
        os.mkdir(self.path("project"))
        self.fine("backend", "metal", CFLUX_PROJECT=self.path("project"))
        self.assertEqual(list(self.contents()), [os.path.join("project", self.FILE)])

    def test_what_cannot_be(self):
        self.refused("backend", "CUDDA", words=['"CUDDA"', "did you mean CUDA?", "AMDGPU, Metal, OpenCL"])
        self.refused("backend", "vulkan", words=['unknown backend "vulkan"', "known are"])
        self.refused("backend", "CPU", words="nowhere", status=1, CFLUX_PROJECT=self.path("nowhere"))
        self.write(self.FILE, "[Flux\n")
        ended = self.run_cli("backend", "CPU")
        self.assertEqual(ended.status, 2)
        self.assertIn("line 1", ended.err)
        self.assertEqual(self.read(self.FILE), b"[Flux\n")


class Bench(cli.Cli):
    def rows(self, *arguments):
        told = self.fine("bench", "--json", "--seconds", "0.02", *arguments).json()
        for row in told["rows"]:
            self.assertGreater(row["seconds"], 0)
            self.assertGreater(row["rate"], 0)
        return told, {row["name"]: row for row in told["rows"]}

    def test_a_model(self):
        told, rows = self.rows("--model", NETWORK, "--input", "4", "--batchsize", "8", "--device", "cpu")
        self.assertEqual((told["device"], told["batchsize"]), ("CPU", 8))
        self.assertEqual(set(rows), {"model, forward", "model, training step"})
        for row in rows.values():
            self.assertAlmostEqual(row["rate"] * row["seconds"], 8, places=6)
        text = self.fine("bench", "--model", NETWORK, "--input", "4", "--seconds", "0.02").out
        self.assertRegex(text, r"(?m)^model, forward +[\d.]+ (µs|ms) +\S+ observations/s$")

    def test_images(self):
        self.rows("--model", "Chain(Conv((3, 3), 2 => 3), Flux.flatten, Dense(108 => 1))",
                  "--input", "8x8x2", "--batchsize", "2")

        for sizes in ("8×8×2", "8,8*2"):
            self.rows("--model", "Chain(Flux.flatten, Dense(128 => 1))", "--input", sizes, "--batchsize", "2")

    def test_a_row_that_fails_midway_is_left_out(self):
        """The activations between these layers exceed the memory of any machine."""
        large = ("bench", "--device", "cpu", "--model", "Chain(Dense(1 => 4000000), Dense(4000000 => 1))", "--input",
                 "1", "--batchsize", "10000000", "--seconds", "0.01")
        for ended in (self.run_cli(*large, "--json"), self.run_cli(*large)):
            self.assertEqual(ended.status, 2)
            self.assertIn("no memory for 1600", ended.err)
            self.assertIn("10000000", ended.out)  # the header was printed
            self.assertNotIn("forward", ended.out)

    def test_what_does_not_fit(self):
        self.refused("bench", "--json", "--model", NETWORK, "--input", "5", words=["Dense(4 => 8, relu)", "5×64"])
        self.refused("bench", "--model", NETWORK, words="--input")
        self.refused("bench", "--model", NETWORK, "--input", "4y", words='"4y"')
        self.refused("bench", "--model", "Chain(Dens(4 => 8))", "--input", "4",
                     words=["model, column 7", "Dens"])
        self.refused("bench", "--input", "4", words=["--input", "--model"])
        self.refused("bench", "--device", "cudda", words="cudda")

    def test_ctrl_c_ends_it(self):
        self.assertEqual(self.terminal("bench", "--seconds", "30", until="threads", send="\x03").status,
                         -signal.SIGINT)


class Texts(cli.Cli):
    def test_the_manual_has_every_command_and_option(self):
        page = self.fine("help", "--man").out
        self.assertTrue(page.startswith(".TH CFLUX 1"))
        for name in COMMANDS:
            self.assertIn(f".SS cflux {name}", page)
            for option in re.findall(r"--([a-z-]+)", self.fine(name, "--help").out):
                self.assertIn("\\-\\-" + option.replace("-", "\\-"), page, name)

    @unittest.skipUnless(shutil.which("man") or shutil.which("groff"), "no groff")
    def test_the_manual_is_formatted_without_a_complaint(self):
        self.write("cflux.1", self.fine("help", "--man").out)
        command = ["groff", "-man", "-Kutf8", "-Tutf8", "-ww", "cflux.1"] if shutil.which("groff") \
            else ["man", "-l", "--warnings", "-E", "UTF-8", "cflux.1"]
        p = subprocess.run(command, cwd=self.folder, text=True, encoding="utf-8", capture_output=True,
                           env=self.environment(MANWIDTH="80"))
        self.assertEqual((p.returncode, p.stderr), (0, ""))
        self.assertIn("cflux inspect", re.sub(r"\x1b\[[\d;]*m|.\x08", "", p.stdout))

    def complete(self, *words):
        script = self.fine("help", "--completion").out
        typed = " ".join(f"'{w}'" for w in words)
        script += f"\nCOMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; _cflux; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        p = subprocess.run(["bash", "-u", "-c", script], cwd=self.folder, text=True, capture_output=True)
        self.assertEqual(p.stderr, "")
        return p.stdout.split()

    def test_completion(self):
        self.write("model.bson", "")
        self.write("data.csv", "")
        self.assertEqual(sorted(self.complete("cflux", "")), sorted(COMMANDS + ["help"]))
        self.assertEqual(self.complete("cflux", "ins"), ["inspect"])
        self.assertEqual(self.complete("cflux", "help", "dev"), ["devices"])
        self.assertEqual(self.complete("cflux", "inspect", "mo"), ["model.bson"])
        self.assertEqual(self.complete("cflux", "inspect", "--st"), ["--stats"])
        self.assertEqual(self.complete("cflux", "train", "--data", "d"), ["data.csv"])
        self.assertEqual(self.complete("cflux", "train", "--normalise", "fe"), ["features"])
        self.assertEqual(self.complete("cflux", "train", "--epochs", ""), [])
        for name in COMMANDS:
            options = set(re.findall(r"(--[a-z-]+)", self.fine("help", name).out))
            self.assertLessEqual(set(self.complete("cflux", name, "--")), options, name)
            self.assertIn("--help", self.complete("cflux", name, "--"))


class Terminal(cli.Cli):
    def test_output_is_the_same_in_a_terminal(self):
        for arguments in (["help"], ["backend"], ["inspect", cli.DIGITS]):
            self.assertEqual(self.terminal(*arguments).out, self.fine(*arguments).out)


if __name__ == "__main__":
    cli.main(24)
