"""A copy of the tree with a build of its own, in which mutants are compiled and tests run.

The library of this build is one shared object that hides nothing (CFLUX_TESTS_SHARED); the test programs
are linked once. A mutant costs one compilation and one link. A second build with gcov's counters says
once which lines of the library each test runs, so that a mutant meets only the tests that can notice it.

    SCRATCH/tree      the copy; what git tracks or would track
    SCRATCH/build     objects, test programs, build/original/libcflux-whole.so
    SCRATCH/coverage  the objects with counters
    SCRATCH/records   TEST.KEY.json: the lines that a test ran; other scratch folders may share it
"""
import dataclasses
import fcntl
import glob
import hashlib
import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time

LIBRARY = "libcflux-whole.so"
PROGRAM = re.compile(r"^test_|_runner$|^standins$")
# The test programs in C except those of OpenCL and of GPU compilers, and one run each of the conformance cases
# and of the recorded cases.
KINDS = re.compile(r"^(unit|fault|report|fuzz)/|^gpu/gpu_values$|^conform/(quick|devices_queued)$|^golden/recorded$")
LEFT_OUT = re.compile(r"opencl")
GIB = 1 << 30


def run(command, **options):
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if result.returncode:
        sys.exit(f"mutate: failed: {' '.join(command)}\n{result.stdout[-3000:]}")
    return result.stdout


@dataclasses.dataclass
class Test:
    name: str
    command: list
    environment: dict
    seconds: float = 0      # CPU time of the run that recorded its lines
    wall: float = 0
    recorded: bool = False
    lines: dict = dataclasses.field(default_factory=dict)   # path → the lines that it runs
    functions: dict = dataclasses.field(default_factory=dict)   # path → the functions that it runs


def copy_tree(source, tree):
    """Makes `tree` the same as `source`, touching only what differs."""
    listed = run(["git", "-C", source, "ls-files", "-co", "--exclude-standard", "-z"]).split("\0")
    wanted = {p for p in listed if p and os.path.isfile(os.path.join(source, p))}
    for folder, folders, files in os.walk(tree):
        for name in files:
            path = os.path.relpath(os.path.join(folder, name), tree)
            if path not in wanted:
                os.remove(os.path.join(tree, path))
    for path in wanted:
        old, new = os.path.join(tree, path), os.path.join(source, path)
        with open(new, "rb") as f:
            content = f.read()
        if os.path.isfile(old):
            with open(old, "rb") as f:
                if f.read() == content:
                    continue
        os.makedirs(os.path.dirname(old), exist_ok=True)
        shutil.copy(new, old)


def limits(seconds):
    def apply():
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 5))
        resource.setrlimit(resource.RLIMIT_DATA, (8 * GIB, 8 * GIB))
        resource.setrlimit(resource.RLIMIT_FSIZE, (8 * GIB, 8 * GIB))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return apply


class Scratch:
    def __init__(self, source, folder, records, jobs, only=None):
        self.folder = os.path.abspath(folder)
        self.records = os.path.abspath(records or os.path.join(folder, "records"))
        os.makedirs(self.records, exist_ok=True)
        self.tree = os.path.join(self.folder, "tree")
        self.build = os.path.join(self.folder, "build")
        self.coverage = os.path.join(self.folder, "coverage")
        os.makedirs(self.tree, exist_ok=True)
        self.lock = open(os.path.join(self.folder, "lock"), "w", encoding="utf-8")  # held until the process ends
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"mutate: another run uses {self.folder}")
        copy_tree(source, self.tree)
        self.make(jobs, only)
        self.tests = self.list_tests()
        self.original = os.path.join(self.build, "original")
        os.makedirs(self.original, exist_ok=True)
        shutil.copy(os.path.join(self.build, LIBRARY), self.original)

    # ---- the builds ----

    def configure(self, build, flags):
        gold = ["-DCMAKE_SHARED_LINKER_FLAGS=-fuse-ld=gold"] if shutil.which("ld.gold") else []
        run(["cmake", "-S", self.tree, "-B", build, "-G", "Unix Makefiles", "-Wno-dev", "-DCMAKE_BUILD_TYPE=Mutation",
             f"-DCMAKE_C_FLAGS_MUTATION={flags}", f"-DCMAKE_CXX_FLAGS_MUTATION={flags}", "-DCFLUX_TESTS=ON",
             "-DCFLUX_TESTS_SHARED=ON", "-DCFLUX_EXAMPLES=OFF", "-DCFLUX_BENCH=OFF",
             "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", *gold])

    def make(self, jobs, only):
        self.configure(self.build, "-O1 -w")
        self.names = re.findall(r"(?m)^ +Test +#\d+: (\S+/\S+)$", run(["ctest", "--test-dir", self.build, "-N", "-L", "quick"]))
        targets = re.findall(r"(?m)^\.\.\. (\S+)$", run(["cmake", "--build", self.build, "--target", "help"]))
        programs = [t for t in targets if PROGRAM.search(t) and self.is_wanted(t, only)]
        run(["cmake", "--build", self.build, "-j", str(jobs), "--target", "cflux_whole", *programs])
        with open(os.path.join(self.build, "compile_commands.json"), encoding="utf-8") as f:
            self.commands = {os.path.relpath(c["file"], self.tree): shlex.split(c["command"]) for c in json.load(f)
                             if "/cflux_objects.dir/" in c["command"]}
        with open(os.path.join(self.build, "CMakeFiles/cflux_whole.dir/link.txt"), encoding="utf-8") as f:
            self.link = shlex.split(f.read())

    def is_wanted(self, program, only):
        """True if a test that takes part runs the program. Decided by the names, because the program is not built yet."""
        stem = program.removeprefix("test_").removesuffix("_runner")
        return program == "standins" or any(stem == name.split("/")[0] or name.split("/")[1].startswith(stem)
                                            for name in self.names if re.search(only or "", name))

    def list_tests(self):
        shown = json.loads(run(["ctest", "--test-dir", self.build, "--show-only=json-v1", "-L", "quick"]))
        found = []
        for t in shown["tests"]:
            if not KINDS.match(t["name"]) or LEFT_OUT.search(t["name"]) or "python" in t.get("command", ["python"])[0]:
                continue
            properties = {p["name"]: p["value"] for p in t["properties"]}
            environment = dict(e.split("=", 1) for e in properties.get("ENVIRONMENT", []))
            found.append(Test(t["name"], t["command"], environment))
        return found

    def compile(self, path, text, folder):
        """The object file of `text` in place of `path`, or None if it does not compile."""
        command = self.commands[path]
        source, out = os.path.join(folder, "mutant.c"), os.path.join(folder, "mutant.o")
        with open(source, "w", encoding="utf-8") as f:
            f.write(f'#line 1 "{os.path.join(self.tree, path)}"\n{text}')
        command = [w for w in command if not w.endswith("ccache")]
        command[command.index("-o") + 1] = out
        command[command.index("-c") + 1] = source
        include = f"-I{os.path.dirname(os.path.join(self.tree, path))}"
        result = subprocess.run(command + [include, "-Wno-error", "-w"], cwd=self.build, stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL, check=False)
        return out if result.returncode == 0 else None

    def link_with(self, path, instead, folder):
        """The whole library with the object `instead` in place of that of `path`, in `folder`."""
        object_file = f"CMakeFiles/cflux_objects.dir/{path}.o"
        command = [instead if w == object_file else w for w in self.link]
        command[command.index("-o") + 1] = os.path.join(folder, LIBRARY)
        run(command, cwd=self.build)

    # ---- what runs ----

    def environment(self, test, library, temporary):
        home = os.path.join(self.folder, "home")
        os.makedirs(home, exist_ok=True)
        return {**os.environ, "HOME": home, "TMPDIR": temporary, "LD_LIBRARY_PATH": library, **test.environment}

    def execute(self, test, library, folder, cpu, wall, extra=None):
        """Runs a test: (passed, a word on how it ended, CPU seconds, wall seconds)."""
        temporary = os.path.join(folder, "tmp")
        shutil.rmtree(temporary, ignore_errors=True)
        os.makedirs(temporary)
        start, before = time.time(), os.times()
        environment = {**self.environment(test, library, temporary), **(extra or {})}
        process = subprocess.Popen(test.command, cwd=self.tree, env=environment, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
                                   preexec_fn=limits(cpu))
        try:
            status = process.wait(wall)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        after = os.times()
        used = after.children_user + after.children_system - before.children_user - before.children_system
        how = "hangs" if status in (None, -signal.SIGXCPU) else "fails" if status > 0 else "crashes"
        return status == 0, how, used, time.time() - start

    # ---- which test runs which lines ----

    def record(self, say):
        """Runs with gcov's counters every test that has no record, or whose program has changed since its record."""
        missing = [t for t in self.tests if not self.recall(t)]
        if not missing:
            return
        self.configure(self.coverage, "-O1 -w --coverage -fprofile-update=atomic")
        say(f"building with counters, then running {len(missing)} tests once to see which lines they run")
        run(["cmake", "--build", self.coverage, "-j2", "--target", "cflux_whole"])
        for i, test in enumerate(missing):
            say(f"{i + 1}/{len(missing)} {test.name}")
            self.record_one(test)

    def only(self, pattern):
        """Leaves out the tests whose names do not match. Those without a record run once, to know their time."""
        self.tests = [t for t in self.tests if re.search(pattern, t.name)]
        for test in self.tests:
            if not self.recall(test):
                test.seconds, test.wall = self.execute(test, self.original, self.original, 600, 1200)[2:]

    def record_one(self, test):
        counts = os.path.join(self.coverage, "counts")
        shutil.rmtree(counts, ignore_errors=True)
        depth = len(self.coverage.strip("/").split("/"))
        extra = {"GCOV_PREFIX": counts, "GCOV_PREFIX_STRIP": str(depth)}
        passed, how, seconds, wall = self.execute(test, self.coverage, self.coverage, 600, 1200, extra)
        found = self.read_counts(counts)
        found.update(passed=passed, how=how, seconds=seconds, wall=wall)
        with open(self.record_file(test), "w", encoding="utf-8") as f:
            json.dump(found, f)
        self.recall(test)

    def read_counts(self, counts):
        """The report of gcov about the files in `counts`: path → its hash, the lines and the functions that ran."""
        data = sorted(glob.glob(counts + "/**/*.gcda", recursive=True))
        for gcda in data:
            notes = os.path.relpath(gcda, counts)[:-len("gcda")] + "gcno"
            os.symlink(os.path.join(self.coverage, notes), gcda[:-len("gcda")] + "gcno")
        lines, functions, hashes = {}, {}, {}
        if data:
            out = subprocess.run(["gcov", "--json-format", "--stdout", *data], cwd=counts, stdout=subprocess.PIPE,
                                 stderr=subprocess.DEVNULL, text=True, check=True).stdout
            for part in out.splitlines():
                for file in json.loads(part)["files"]:
                    path = os.path.relpath(os.path.join(self.coverage, file["file"]), self.tree)
                    if path.startswith("src/") and path.endswith(".c"):
                        lines[path] = {l["line_number"]: int(l["count"] > 0) for l in file["lines"]}
                        functions[path] = [f["name"] for f in file["functions"] if f["execution_count"]]
                        hashes[path] = self.hash(os.path.join(self.tree, path))
        return {"lines": lines, "functions": functions, "hashes": hashes}

    def hash(self, path):
        with open(path, "rb") as f:
            return hashlib.sha256(f.read()).hexdigest()[:16]

    def record_file(self, test):
        """Named for the sources of the test: a test that is changed is recorded again."""
        program = os.path.basename(test.command[0])
        folder = os.path.join(self.tree, "tests", program.removesuffix("_runner"))
        parts = glob.glob(f"{self.tree}/tests/*/{program}.c*") or sorted(glob.glob(f"{folder}/*.[ch]"))
        key = " ".join([*map(self.hash, parts), *test.command[1:], *sorted(test.environment)])
        key = hashlib.sha256(key.encode()).hexdigest()[:16]
        return os.path.join(self.records, f"{test.name.replace('/', '.')}.{key}.json")

    def recall(self, test):
        try:
            with open(self.record_file(test), encoding="utf-8") as f:
                found = json.load(f)
        except FileNotFoundError:
            return False
        test.recorded = True
        test.seconds, test.wall, test.functions = found["seconds"], found["wall"], found["functions"]
        for path, lines in found["lines"].items():
            if os.path.isfile(os.path.join(self.tree, path)) and found["hashes"][path] == self.hash(os.path.join(self.tree, path)):
                test.lines[path] = {int(n): ran for n, ran in lines.items()}
        return True
