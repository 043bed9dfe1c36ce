"""cli.py: runs the command line for its tests, with pipes and in a terminal.

A test file defines classes over Cli and ends with cli.main(LEAST), which fails when fewer tests than
that ran. Usage of every such file: test_X.py PROGRAM [unittest's arguments]
"""
import json
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

SECONDS = 60
ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
DIGITS = os.path.join(ROOT, "data", "digits.csv.gz")
DATA = os.environ.get("CFLUX_DATA", "")
program = ""


class Ended:
    """The result of a run: its exit status (−N: ended by signal N) and its output."""

    def __init__(self, status, out, err):
        self.status, self.out, self.err = status, out, err

    def json(self):
        return json.loads(self.out)


def recorded(rest):
    """A path in the recorded data; a test without it prints a message and passes."""
    path = os.path.join(DATA, rest)
    if not DATA or not os.path.exists(path):
        print(f"skipped: no {rest} in CFLUX_DATA", flush=True)
        return None
    return path


class Cli(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        """Every test, and every program that it runs, has an empty current folder of its own."""
        self.folder = tempfile.mkdtemp(prefix="cflux-cli-")
        self.addCleanup(shutil.rmtree, self.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, content):
        with open(self.path(name), "wb") as f:
            f.write(content.encode() if isinstance(content, str) else content)
        return self.path(name)

    def read(self, name):
        with open(self.path(name), "rb") as f:
            return f.read()

    def environment(self, **more):
        kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "CFLUX_PROJECT", "COLUMNS")}
        return dict(kept, TERM="xterm-256color", LC_ALL="C.UTF-8", **more)

    def run_cli(self, *arguments, stdin="", **environment):
        """stdin: a text, or an open file."""
        source = {"input": stdin} if isinstance(stdin, str) else {"stdin": stdin}
        p = subprocess.run([program, *map(str, arguments)], cwd=self.folder, **source, text=True,
                           encoding="utf-8", capture_output=True, timeout=SECONDS,
                           env=self.environment(**environment))
        return Ended(p.returncode, p.stdout, p.stderr)

    def fine(self, *arguments, **more):
        """Runs the program, which must succeed."""
        ended = self.run_cli(*arguments, **more)
        self.assertEqual(ended.status, 0, ended.err)
        return ended

    def contents(self):
        paths = [os.path.relpath(os.path.join(at, name), self.folder)
                 for at, _, names in os.walk(self.folder) for name in names]
        return {path: self.read(path) for path in paths}

    def refused(self, *arguments, words, status=2, out=False, **more):
        """Checks the result of bad input: one line on stderr with these words, the status, no output
        (`out`: output is allowed), and an unchanged folder."""
        before = self.contents()
        ended = self.run_cli(*arguments, **more)
        self.assertEqual(ended.status, status, (arguments, ended.out, ended.err))
        self.assertEqual(ended.err.count("\n"), 1, ended.err)
        self.assertTrue(ended.err.startswith("cflux"), ended.err)
        for word in [words] if isinstance(words, str) else words:
            self.assertIn(word, ended.err)
        if not out:
            self.assertEqual(ended.out, "")
        self.assertEqual(self.contents(), before)
        return ended

    def terminal(self, *arguments, columns=80, until=None, send=None, resize=None, then=None, **environment):
        """Runs the program in a terminal of its own. When it has printed `until`, it is sent `send`: text as if it
        was typed ("\\x03" is Ctrl-C), or the number of a signal. With `resize`, the terminal first gets
        that many columns, and `send` is sent when the program has printed `then`. `out` is all that it printed. It
        does not contain what was typed: the terminal does not echo, because a "^C" in the middle of a line would be
        counted as the program's text."""
        import fcntl
        import termios

        pid, fd = pty.fork()
        if pid == 0:
            os.chdir(self.folder)
            modes = termios.tcgetattr(0)
            modes[3] &= ~termios.ECHO
            termios.tcsetattr(0, termios.TCSANOW, modes)
            os.execve(program, [program, *map(str, arguments)], self.environment(**environment))

        def resize_to(width):
            fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))

        resize_to(columns)
        text, text_before, end = b"", 0, time.monotonic() + SECONDS
        while time.monotonic() < end:
            if not select.select([fd], [], [], 0.1)[0]:
                continue
            try:
                part = os.read(fd, 65536)
            except OSError:  # the program's end is closed
                break
            if not part:
                break
            text += part
            if until and until.encode() in text and resize is not None:
                resize_to(resize)
                until, resize, text_before = then, None, len(text) + 300
            elif until and until.encode() in text[text_before:]:
                until = None
                os.kill(pid, send) if isinstance(send, int) else os.write(fd, send.encode())
        else:
            os.kill(pid, signal.SIGKILL)
            self.fail(f"{arguments} does not end: {text.decode(errors='replace')}")
        status = os.waitpid(pid, 0)[1]
        os.close(fd)
        self.assertIsNone(until, "never printed; all there was: " + text.decode(errors="replace"))
        code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        return Ended(code, text.decode().replace("\r\n", "\n"), "")


def main(least):
    global program
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    program = os.path.abspath(sys.argv.pop(1))
    done = unittest.main(module="__main__", exit=False, argv=sys.argv, verbosity=1)
    print(f"{done.result.testsRun} tests")
    if not done.result.wasSuccessful() or (done.result.testsRun < least and len(sys.argv) < 2):
        sys.exit(1)
