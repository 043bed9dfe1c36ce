"""Hosts on this machine, each with its own network namespace and name, connected by a switch.

`enter` starts the test again in namespaces of its own: when it ends, in whatever way, the kernel ends its processes and removes
its networks and mounts. The switch is a bridge in the network of the test, or the program slow_switch, which delays frames. The
MPIs start processes on a host with the script `agent` in place of ssh. All hosts share the files and the process numbers.
"""
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

from mpis import ENVIRONMENT

PROGRAMS = ("unshare", "nsenter", "ip", "mount", "hostname")
INSIDE = "CFLUX_TEST_HOSTS"

# ssh's arguments are options, the host, and the words of a command for the shell.
AGENT = """\
#!/bin/sh
while :; do
    case $1 in -*) shift ;; *) break ;; esac
done
host=$1
shift
unset CFLUX_LAUNCH_FAILURE # ssh does not pass it on
exec ip netns exec "$host" unshare --uts sh -c 'hostname "$0" && eval "$1"' "$host" "$*"
"""


def run(*words):
    subprocess.run(words, check=True)


def enter():
    """Returns None in the namespaces of the test, else why they cannot be made."""
    if os.environ.get(INSIDE):
        run("mount", "-t", "tmpfs", "none", "/run")
        return None
    absent = [p for p in PROGRAMS if not shutil.which(p)]
    if absent:
        return f"not installed: {' '.join(absent)}"
    shutil.rmtree(ENVIRONMENT["OMPI_MCA_orte_tmpdir_base"])  # the test that is started makes its own
    words = ["unshare", "--net", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
    probe = ("mount -t tmpfs none /run && mount --bind /etc/hostname /etc/hosts && ip link add name one type bridge"
             " && ip link add name two type veth peer name three && ip netns add n && ip netns exec n unshare --uts hostname x")
    done = subprocess.run([*words, "sh", "-c", probe], text=True, capture_output=True)
    if done.returncode:
        return f"namespaces cannot be made: {done.stderr.strip()}"
    os.execvpe(words[0], [*words, sys.executable, *sys.argv], dict(os.environ, **{INSIDE: "1"}))


class Hosts:
    """h1, h2, …, which a bridge connects."""

    def __init__(self, n, build):
        self.folder, self.names = tempfile.mkdtemp(dir="/run"), [f"h{k}" for k in range(1, n + 1)]
        self.agent = os.path.join(self.folder, "agent")
        with open(self.agent, "w", encoding="utf-8") as f:
            f.write(AGENT)
        os.chmod(self.agent, 0o755)
        table = os.path.join(self.folder, "hosts")
        with open(table, "w", encoding="utf-8") as f:
            f.write("127.0.0.1 localhost\n" + "".join(f"10.77.0.{k} h{k}\n" for k in range(1, n + 1)))
        run("mount", "--bind", table, "/etc/hosts")
        for name in self.names:
            run("ip", "netns", "add", name)
        self.connect(build)
        for k, name in enumerate(self.names, 1):
            run("ip", "-n", name, "address", "add", f"10.77.0.{k}/24", "dev", "eth0")
            run("ip", "-n", name, "link", "set", "eth0", "up")
            run("ip", "-n", name, "link", "set", "lo", "up")
        self.environment = dict(ENVIRONMENT, FX_PLUGIN_PATH=build, OMPI_MCA_plm_rsh_agent=self.agent,
                                # Each host would bind its only rank to core 0, which is the same core for all hosts.
                                OMPI_MCA_hwloc_base_binding_policy="none")

    def connect(self, build):
        """Gives each host the device eth0."""
        del build
        run("ip", "link", "add", "switch", "type", "bridge")
        run("ip", "link", "set", "switch", "up")
        for name in self.names:
            run("ip", "link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0", "netns", name)
            self.mend(name)

    def start(self, output, *words, on=0):
        """Starts a command on a host, h1 unless `on` says otherwise, with output to a file, and returns the process."""
        return subprocess.Popen([self.agent, self.names[on], "exec " + shlex.join(words)], env=self.environment,
                                stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def limit(self, name, rate):
        """Limits what a host sends to `rate` Mb/s. None: no limit."""
        run("ip", "netns", "exec", name, "tc", "qdisc", "replace", "dev", "eth0", "root",
            *(["tbf", "rate", f"{rate}mbit", "burst", "72k", "latency", "200ms"] if rate else ["pfifo"]))

    def mend(self, name):
        """Connects a host to the switch."""
        run("ip", "link", "set", f"to-{name}", "master", "switch", "up")


class SlowSwitch:
    """The program slow_switch between the hosts first … end − 1 of `network`. Hosts are counted from 0 here."""

    def __init__(self, network, build, first, end, seed):
        self.control = os.path.join(network.folder, f"control{first}")
        devices = [f"tap{k}" for k in range(first, end)]
        self.process = subprocess.Popen([os.path.join(build, "tests", "slow_switch"), self.control, str(seed), *devices],
                                        stdout=subprocess.PIPE)
        if self.process.stdout.readline() != b"ready\n":
            sys.exit("slow_switch does not start")
        for k, device in enumerate(devices):
            name = network.names[first + k]
            run("ip", "link", "set", device, "netns", name, "name", "eth0", "address", f"02:00:00:00:00:{k + 1:02x}")

    def say(self, command):
        pipe = os.open(self.control, os.O_WRONLY | os.O_NONBLOCK)  # an error if slow_switch has ended
        os.write(pipe, (command + "\n").encode())
        os.close(pipe)

    @staticmethod
    def delay_line(host, least, most, ordered, lost):
        return f"delay {host + 1} {round(1000 * least)} {round(1000 * most)} {int(ordered)} {round(1e6 * lost)}"

    def delay(self, host, least, most, ordered=True, lost=0):
        """Delays the frames that a host sends by `least` to `most` ms, and loses a share of them."""
        self.say(self.delay_line(host, least, most, ordered, lost))

    def pause_command(self, host, seconds, began):
        """A command for a shell that holds all frames of a host. It makes the file `began`, and returns after that."""
        return (f"echo pause {host + 1} {round(1000 * seconds)} {began} > {self.control}"
                f"; while [ ! -e {began} ]; do sleep 0.01; done")

    def report(self):
        """Counters of the frames that each host sent since the last report. Commands that were given before it have been obeyed."""
        path = self.control + ".report"
        self.say(f"report {path}")
        for _ in range(1000):
            if os.path.exists(path):
                break
            time.sleep(0.01)
        with open(path, encoding="utf-8") as f:
            found = [dict(zip(("delivered", "overtaken", "lost", "paused", "least", "mean"), map(float, line.split()), strict=True)) for line in f]
        os.remove(path)
        return found


class SlowHosts(Hosts):
    """Groups of `size` hosts, h1 …, each with a slow switch of its own, so that jobs can run beside each other."""

    def __init__(self, groups, size, build, seed=0):
        self.groups, self.size, self.seed, self.switches = groups, size, seed, []
        super().__init__(groups * size, build)

    def connect(self, build):
        self.switches = [SlowSwitch(self, build, g * self.size, (g + 1) * self.size, self.seed + g) for g in range(self.groups)]
