#!/usr/bin/env python3
"""Every call with which the command line writes a file fails in turn: afterwards the file is complete, the old one or
the new one, and the message says which. Usage: test_faults.py PROGRAM"""
import errno
import os
import shutil
import signal
import subprocess

import cli
import formats as f

CALLS = ("open", "write", "fsync", "close", "rename", "link")
ERRORS = {"open": (errno.EACCES, errno.ENOSPC), "write": (errno.ENOSPC, errno.EIO, 0), "fsync": (errno.EIO, errno.ENOSPC),
          "close": (errno.EIO, errno.ENOSPC), "rename": (errno.EIO,), "link": (errno.EIO,)}
NEW, OLD = "the new file is in place but may not survive a power failure", " is unchanged"


class Faults(cli.Cli):
    """The system calls that the C library makes for a FILE cannot be replaced, so fewer calls of these writers fail."""

    def setUp(self):
        super().setUp()
        self.shim, source = self.path("shim.so"), os.path.join(cli.ROOT, "tests", "cli", "failing_files.c")
        compiler = shutil.which("cc")
        self.works = bool(compiler) and not subprocess.run(
            [compiler, "-shared", "-fPIC", "-O1", source, "-o", self.shim, "-ldl"], capture_output=True).returncode
        if not self.works:
            print("skipped: no compiler that makes failing_files.c")
        self.write("m.bson", f.bson({"model": f.chain(f.dense(3, 2, [0.5] * 6, [1.0, 2.0, 3.0]))}))
        self.write("line.csv", "a,b,y\n" + "".join(f"{i},{i % 3},{i}\n" for i in range(20)))
        self.write("x.csv", "a,b\n" + "".join(f"{i},{i % 3}\n" for i in range(2000)))

    def run_failing(self, call, at, error, arguments):
        return self.run_cli(*arguments, LD_PRELOAD=self.shim, FAIL_CALL=call, FAIL_AT=str(at), FAIL_AS=str(error),
                            FAIL_IN=os.path.realpath(self.folder))

    def others(self, out):
        return {name for name in os.listdir(self.folder) if name not in (out, out + ".1")}

    def each(self, out, *arguments, least=13):
        """Returns how many failures were reported, and how many of them with the new file in place."""
        if not self.works:
            return
        reported = in_place = survived = 0
        self.fine(*arguments)
        new, files = self.read(out), self.others(out)
        for call in CALLS:
            for error in ERRORS[call]:
                for at in range(1, 60):
                    old = b"an old file"
                    self.write(out, old)
                    ended = self.run_failing(call, at, error, arguments)
                    if "#failed" not in ended.err:
                        break
                    said = (call, error, at, ended.err)
                    self.assertEqual(self.others(out), files, said)
                    message = ended.err.replace("#failed\n", "")
                    if ended.status == 0:
                        self.assertEqual(self.read(out), new, said)
                        survived += 1
                        continue
                    self.assertEqual((ended.status, message.count("\n")), (1, 1), said)
                    self.assertIn(os.strerror(error), message, said)
                    self.assertEqual(NEW in message, self.read(out) == new, said)
                    self.assertEqual(OLD in message, self.read(out) == old, said)
                    reported += 1
                    in_place += NEW in message
                else:
                    self.fail(f"{call} has no end")
        self.assertGreaterEqual(reported, least)
        self.assertGreaterEqual(in_place, 3)
        print(f"{arguments[0]} {out}: {reported} failures reported, {in_place} with the new file in place, "
              f"{survived} survived")

    def test_every_format(self):
        for out, *more in (("o.bson",), ("o.safetensors",), ("o.npz",), ("o.npz", "--pytorch"), ("o.ckpt",)):
            self.each(out, "convert", "m.bson", out, *more)

    def test_predictions(self):
        self.each("p.csv", "predict", "m.bson", "-d", "x.csv", "--out", "p.csv", least=7)
        self.each("p.npy", "predict", "m.bson", "-d", "x.csv", "--out", "p.npy")

    def test_a_report(self):
        self.fine("train", "-q", "-d", "line.csv", "-m", "Dense(2 => 1)", "-e", "1", "-L", "run.jsonl")
        self.each("r.html", "report", "run.jsonl", "-o", "r.html", least=7)

    def test_killed(self):
        """A process that is killed leaves no file but the temporary one of its output, which the next run uses."""
        if not self.works:
            return
        killed = 0
        for out in ("m2.bson", "m2.safetensors"):
            train = ("train", "-q", "-d", "line.csv", "-m", "Dense(2 => 1)", "-e", "1", "-S", out)
            files = self.others(out)
            for call in ("open", "write", "fsync", "close", "rename"):
                for at in range(1, 60):
                    ended = self.run_failing(call, at, "kill", train)
                    if "#failed" not in ended.err:
                        break
                    self.assertEqual(ended.status, -signal.SIGKILL)
                    self.assertEqual(self.others(out) - {out + ".tmp0"}, files, (call, at))
                    killed += 1
                self.assertEqual(self.others(out), files)
        self.assertGreaterEqual(killed, 10)

    def test_no_memory(self):
        """If an allocation fails while a model is written as arrays, no other reason is reported."""
        shim, source = self.path("memory.so"), os.path.join(cli.ROOT, "tests", "cli", "failing_calloc.c")
        if not self.works or subprocess.run([shutil.which("cc"), "-shared", "-fPIC", "-O1", source, "-o", shim, "-ldl"],
                                            capture_output=True).returncode:
            print("skipped: no compiler that makes failing_calloc.c")
            return
        failed, convert = 0, ("convert", "m.bson", "o.safetensors")
        self.fine(*convert)
        new, files = self.read("o.safetensors"), self.others("o.safetensors")
        for call in ("malloc", "realloc"):
            for at in range(1, 100):
                os.remove(self.path("o.safetensors"))
                ended = self.run_cli(*convert, LD_PRELOAD=shim, FAIL_CALL=call, FAIL_AT=str(at), FAIL_IN=cli.program)
                if "#failed" not in ended.err:
                    break
                failed += 1
                self.assertEqual(self.others("o.safetensors"), files)
                if ended.status:
                    self.assertRegex(ended.err, r"^#failed\ncflux convert: .*(no|out of) memory[^\n]*\n$", (call, at))
                    self.write("o.safetensors", b"")
                else:
                    self.assertEqual(self.read("o.safetensors"), new, (call, at))
            self.assertEqual((ended.status, self.read("o.safetensors")), (0, new), ended.err)
        print(f"{failed} allocations failed")
        self.assertGreaterEqual(failed, 3)

    def test_interrupted_reads(self):
        """A signal that interrupts a read of a launcher's version does not change the version."""
        if not self.works:
            return
        self.write("mpirun", '#!/bin/sh\n[ "$1" = --version ] && { sleep 0.1; echo "mpirun (Open MPI) 4.1.4"; exit; }\necho launcher: $@')
        os.chmod(self.path("mpirun"), 0o755)
        arguments, failed = ("launch", "-n", 2, "--launcher", self.path("mpirun"), "prog"), 0
        for at in (1, 2):
            ended = self.run_failing("read", at, errno.EINTR, arguments)
            failed += "#failed" in ended.err
            self.assertIn(" -x CFLUX_RESTART ", ended.out)
        self.assertEqual(failed, 2)


if __name__ == "__main__":
    cli.main(5)
