"""The MPIs that are installed, and the environment of their programs, for the tests in several processes."""
import atexit
import os
import re
import shutil
import socket
import subprocess
import tempfile

# Two launchers of Open MPI that begin at the same time both make the folder ompi.HOST.USER, and one of them may fail.
# A launcher that ends removes it if it is empty, and then one that begins may fail too. So each test has its own folder
# for it, makes it beforehand, and keeps a file in it. Open MPI deletes other files than output-* there. The path is
# short, because Open MPI makes sockets below it.
_folder = tempfile.mkdtemp(prefix="fx")
atexit.register(shutil.rmtree, _folder, ignore_errors=True)
for _host in {socket.gethostname(), socket.gethostname().split(".")[0]}:
    os.makedirs(os.path.join(_folder, f"ompi.{_host}.{os.getuid()}"), mode=0o700)
    open(os.path.join(_folder, f"ompi.{_host}.{os.getuid()}", "output-keep"), "w", encoding="utf-8").close()

ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", FX_NUM_THREADS="1",
                   OMPI_MCA_orte_tmpdir_base=_folder, PRTE_MCA_prte_tmpdir_base=_folder)


def installed(build):
    """Yields the name of each MPI that has a launcher and a plugin, and the first words of its command."""
    for name, options in (("openmpi", ["--oversubscribe"]), ("mpich", [])):
        launcher = shutil.which(f"mpirun.{name}")
        if launcher and os.path.exists(os.path.join(build, f"libcflux-mpi-{name}.so")):
            yield name, [launcher, *options]
        else:
            print(f"{name}: not installed, or its plugin was not built: skipped")


def bits(text, n):
    """The parameters that the n ranks of train_cases printed, which must be equal; None if they are not."""
    found = dict(re.findall(r"(?m)^(\d+): (-?0x\S+(?: \S+)*)$", text))
    return found["0"] if sorted(found) == sorted(map(str, range(n))) and len(set(found.values())) == 1 else None


def stub_of(name, source, folder, skipped, *options):
    """Compiles a library that is loaded before a program (LD_PRELOAD) and has some of MPI's functions. Returns None, and prints what is `skipped`, if
    there is no compiler for this MPI."""
    compiler, stub = shutil.which(f"mpicc.{name}"), os.path.join(folder, f"{os.path.basename(source)}.{name}.so")
    if not compiler:
        print(f"{name}: no mpicc.{name}: {skipped}")
        return None
    subprocess.run([compiler, "-shared", "-fPIC", source, "-o", stub, *options], check=True)
    return stub


def processes_with(word):
    """The processes that have a word in their command line."""
    found = []
    for process in os.listdir("/proc"):
        try:
            with open(f"/proc/{process}/cmdline", "rb") as f:
                if process.isdigit() and word.encode() in f.read():
                    found.append(process)
        except OSError:
            pass
    return found
