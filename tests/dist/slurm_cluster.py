"""A Slurm of two nodes on this machine, for one test.

munged, slurmctld and a slurmd for each node run as the user who starts the test. Configuration, key, sockets, state and
logs are in a temporary folder, and the ports are free ones, so an installed Slurm is neither used nor changed.
`guarded` ends all processes, however the test ends.
"""
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from mpis import ENVIRONMENT

PACKAGES = "slurmctld slurmd slurm-client munge"
NODES = ("n1", "n2")
PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"])
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36

# Each node has more CPUs than the machine, so that the largest job fits. TmpFS: Slurm's PMIx plugin makes folders there
# whose names do not contain the node.
CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
TmpFS={folder}/tmp-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
PlugStackConfig={folder}/no-plugins
TaskProlog={folder}/prolog
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0
ReturnToService=2
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=64
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=64
PartitionName=all Nodes=n1,n2 Default=YES State=UP
"""

# Open MPI names files in these folders after the host, the job and a rank that counts from 0 on each node. The nodes
# share the host, so each of them needs folders of its own. They also share its cores, of which srun tells Open MPI nothing.
PROLOG = """\
#!/bin/sh
for name in TMPDIR OMPI_MCA_orte_tmpdir_base OMPI_MCA_btl_vader_backing_directory OMPI_MCA_osc_sm_backing_directory; do
    echo "export $name={folder}/tmp-$SLURMD_NODENAME"
done
echo "export OMPI_MCA_mpi_yield_when_idle=1"
"""


def missing():
    """The programs of Slurm that are not installed."""
    return [p for p in ("munged", "slurmctld", "slurmd", "srun", "sbatch", "salloc") if not shutil.which(p, path=PATH)]


def _prctl(option, value):
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _free_ports(n):
    sockets = [socket.create_server(("", 0)) for _ in range(n)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def descendants():
    """The processes below this one that have not ended."""
    children = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as f:
                state, parent = f.read().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        children.setdefault(int(parent), []).append((int(name), state))
    found, seek = [], [os.getpid()]
    while seek:
        for pid, state in children.get(seek.pop(), []):
            seek.append(pid)
            if state != "Z":
                found.append(pid)
    return found


def _end_all(folder):
    """Ends all processes below this one, and removes the folder."""
    end = time.monotonic() + 10
    while descendants() and time.monotonic() < end:
        for pid in descendants():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.02)
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:  # a container's first process may not do it
            pass
    except ChildProcessError:
        pass
    left = descendants()
    shutil.rmtree(folder, ignore_errors=True)
    if left or os.path.exists(folder):
        sys.exit(f"processes {left} or the folder {folder} remain")


def guarded(test):
    """Calls test(cluster) in a child process. Then no process of a daemon or a job is left, and no file.

    Processes whose parent has ended become children of the child, or of this process if the child has been killed. So each of the two
    finds them. If this process is killed, the child ends too.
    """
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    folder, status = tempfile.mkdtemp(prefix="fx"), 1
    try:
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            _prctl(PR_SET_CHILD_SUBREAPER, 1)
            _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
            test(Cluster(folder))
            sys.exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        _end_all(folder)
    sys.exit(1 if status else 0)


class Cluster:
    def __init__(self, folder):
        self.folder = folder
        own = {k: v for k, v in ENVIRONMENT.items() if not k.startswith(("SLURM", "SRUN", "SBATCH", "SALLOC", "PMI"))}
        self.environment = dict(own, SLURM_CONF=os.path.join(self.folder, "slurm.conf"), PATH=PATH)
        self._start()

    def _write(self, name, text, mode=0o644):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as f:
            f.write(text if isinstance(text, bytes) else text.encode())
        os.chmod(path, mode)

    def _daemon(self, *words):
        with open(os.path.join(self.folder, "daemons.log"), "a", encoding="utf-8") as log:
            subprocess.Popen(words, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                             preexec_fn=lambda: _prctl(PR_SET_PDEATHSIG, signal.SIGKILL))

    def _start(self):
        os.chmod(self.folder, 0o755)  # munged insists on a folder that everyone can enter
        for name in ("munge", "state", *(f"{kind}-{node}" for kind in ("spool", "tmp") for node in NODES)):
            os.mkdir(os.path.join(self.folder, name), 0o700)
        host = socket.gethostname().split(".")[0]
        self._write("munge/key", os.urandom(128), 0o400)
        self._write("slurm.conf", CONFIGURATION.format(folder=self.folder, host=host, user=os.getuid(), ports=_free_ports(3)))
        self._write("prolog", PROLOG.format(folder=self.folder), 0o755)
        munge = os.path.join(self.folder, "munge")
        self._daemon("munged", "--foreground", "--force", f"--socket={self.folder}/munge.socket", f"--key-file={munge}/key",
                     f"--pid-file={munge}/pid", f"--seed-file={munge}/seed", f"--log-file={munge}/log")
        self._wait("munged", lambda: os.path.exists(f"{self.folder}/munge.socket"))
        self._daemon("slurmctld", "-D", "-i")
        for node in NODES:
            self._daemon("slurmd", "-D", "-N", node)
        self._wait("idle nodes", lambda: self.run("sinfo", "-h", "-N", "-o", "%T")[1].split() == ["idle"] * len(NODES))

    def _wait(self, what, ready):
        end = time.monotonic() + 30
        while not ready():
            if time.monotonic() > end:
                sys.exit(f"Slurm does not start: no {what}\n{self.logs()}")
            time.sleep(0.05)

    def logs(self):
        """The ends of all logs."""
        text = ""
        for name in sorted(os.listdir(self.folder)):
            if name.endswith(".log"):
                with open(os.path.join(self.folder, name), encoding="utf-8", errors="replace") as f:
                    text += f"== {name}\n" + "".join(f.readlines()[-15:])
        return text

    def run(self, *words, cwd=None, more=None):
        """Returns the status of a command and what it printed."""
        done = subprocess.run(words, env=dict(self.environment, **(more or {})), cwd=cwd, text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
        return done.returncode, done.stdout
