"""Hosts on this machine, each with its own network namespace and name, connected by a switch.

`enter` starts the test again in namespaces of its own: when it ends, in whatever way, the kernel ends its processes and removes
its networks and mounts. The switch is a bridge in the network of the test. The MPIs start processes on a host with the script
`agent` in place of ssh. All hosts share the files and the process numbers.
"""
import os
import shlex
import shutil
import subprocess
import sys
import tempfile

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
    """h1, h2, …, of which h1 starts the programs."""

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
        run("ip", "link", "add", "switch", "type", "bridge")
        run("ip", "link", "set", "switch", "up")
        for k, name in enumerate(self.names, 1):
            run("ip", "netns", "add", name)
            run("ip", "link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0", "netns", name)
            run("ip", "-n", name, "address", "add", f"10.77.0.{k}/24", "dev", "eth0")
            run("ip", "-n", name, "link", "set", "eth0", "up")
            run("ip", "-n", name, "link", "set", "lo", "up")
            self.mend(name)
        self.environment = dict(ENVIRONMENT, FX_PLUGIN_PATH=build, OMPI_MCA_plm_rsh_agent=self.agent)

    def start(self, output, *words):
        """Starts a command on h1 with output to a file, and returns the process."""
        return subprocess.Popen([self.agent, self.names[0], "exec " + shlex.join(words)], env=self.environment,
                                stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def limit(self, name, rate):
        """Limits what a host sends to `rate` Mb/s. None: no limit."""
        run("ip", "netns", "exec", name, "tc", "qdisc", "replace", "dev", "eth0", "root",
            *(["tbf", "rate", f"{rate}mbit", "burst", "64k", "latency", "200ms"] if rate else ["pfifo"]))

    def mend(self, name):
        """Connects a host to the switch."""
        run("ip", "link", "set", f"to-{name}", "master", "switch", "up")
