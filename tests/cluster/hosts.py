"""Hosts of their own on one machine: network namespaces that a switch joins, and in each a Ray node with its own address.

Nothing of the machine's own network is touched. It takes Linux, `ip`, and the right to make namespaces, which is root's. Hosts
that are `private` share no folder either: each has a /tmp of its own, where Ray, the caches and the working folder are.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import groups
import psutil

from rankbench.cluster.session import _ENVIRONMENT

NETWORK = "10.77.0"
PORT = 6379
GROUPS = Path("/sys/fs/cgroup/cpu")  # version 1 of control groups, which must be writable
PERIOD = 100_000  # microseconds over which a group's share is counted
SHARED = (Path(__file__).parents[2], Path(sys.prefix))  # what a private host still sees of /tmp: the tree and its Python

# Words: the folder that is to be /tmp, what stays visible of /tmp, "--", the command. It has mounts of its own, which `ip netns
# exec` made. What stays visible cannot be written, so that nothing can remove the tree through a private folder.
_PRIVATE = """
own=$1; shift
while [ "$1" != -- ]; do
    mkdir -p "$own${1#/tmp}" && mount --bind "$1" "$own${1#/tmp}" && mount -o remount,bind,ro "$own${1#/tmp}" || exit 1; shift
done
shift
mount --rbind "$own" /tmp && cd /tmp && exec "$@"
"""


def unavailable() -> str | None:
    """Why hosts cannot be made here, or None."""
    name = f"rb-probe-{os.getpid()}"
    try:
        _ip("netns", "add", name)
        _ip("netns", "delete", name)
    except OSError as error:
        return f"network namespaces cannot be made here: {error}"
    return None


@dataclass
class Hosts:
    """`names` of the namespaces; the first is the head's, and the driver's own. `add` lets one more host join, and returns its
    number.
    """

    names: list[str]
    switch: str
    environment: dict[str, str]
    groups: list[Path] = field(default_factory=list)  # of control: what each host's Ray node runs in
    add: Callable[[], int] = lambda: 0
    folders: list[Path] = field(default_factory=list)  # what each private host has as its /tmp

    @property
    def address(self) -> str:
        return f"{_address(0)}:{PORT}"

    def start(self, words: list[str], host: int = 0, grouped: bool = False, **options) -> subprocess.Popen:
        """A process on a host, in the host's group of control if `grouped`; on a private host it works in its /tmp."""
        if self.folders:
            seen = [str(path) for path in SHARED if path.is_relative_to("/tmp")]
            words = ["sh", "-c", _PRIVATE, "sh", str(self.folders[host]), *seen, "--", *words]
        inside = ["ip", "netns", "exec", self.names[host], *words]
        if grouped:  # before the namespace, in which groups cannot be seen
            inside = ["sh", "-c", f'echo $$ > {self.groups[host]}/cgroup.procs && exec "$@"', "sh", *inside]
        return subprocess.Popen(inside, env=self.environment | options.pop("env", {}), text=True, **options)

    def received(self, host: int) -> int:
        """Bytes that came to the host over the network since it was made."""
        (link,) = json.loads(_ip("-n", self.names[host], "-json", "-statistics", "link", "show", "eth0"))
        return link["stats64"]["rx"]["bytes"]

    def limit(self, share: float) -> None:
        """From now on the Ray node of each host and its workers have `share` of a processor."""
        for group in self.groups:
            (group / "cpu.cfs_quota_us").write_text(str(int(share * PERIOD)), encoding="ascii")

    def used(self, host: int) -> float:
        """Processor-seconds that the processes in the host's group have used."""
        seconds = 0.0
        for pid in (self.groups[host] / "cgroup.procs").read_text(encoding="ascii").split():
            with suppress(psutil.Error):
                times = psutil.Process(int(pid)).cpu_times()
                seconds += times.user + times.system
        return seconds

    def kill(self, host: int) -> None:
        """As when the power goes: nothing on it says goodbye."""
        for pid in _ip("netns", "pids", self.names[host]).split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)

    def unplug(self, host: int) -> None:
        """Its cable is out: connections stay open and silent."""
        _ip("-n", self.switch, "link", "set", f"port{host}", "down")

    def plug_in_again(self, host: int) -> None:
        _ip("-n", self.switch, "link", "set", f"port{host}", "up")


@contextmanager
def hosts(
    number: int = 3,
    cpus: int = 1,
    object_store_memory: int = 80 << 20,
    gigabits: float | None = None,
    grouped: bool = False,
    private: bool = False,
) -> Iterator[Hosts]:
    """`number` hosts of one Ray cluster for the length of the block; nothing of them is left after it.

    `gigabits` limits the line of each host in both directions. If they are `grouped`, `Hosts.limit` works. `private` hosts
    share no folder; `Hosts.folders` shows theirs.
    """
    prefix = f"rb-{os.getpid()}"
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rb-", dir="/tmp", ignore_cleanup_errors=True)))
        token = secrets.token_hex(32)
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "RANKBENCH_"))}
        home = "/tmp" if private else str(folder)  # of Ray, as the hosts see it
        ours = {"RAY_AUTH_TOKEN_PATH": f"{home}/token"} | ({"TMPDIR": home} if private else {})
        made = Hosts([], f"{prefix}-switch", plain | _ENVIRONMENT | ours)
        _namespace(stack, made.switch)
        _ip("-n", made.switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", made.switch, "link", "set", "bridge", "up")

        def plug_in() -> int:
            host = len(made.names)
            own = folder / f"host{host}" if private else folder
            own.mkdir(exist_ok=True)
            (own / "token").touch(mode=0o600)
            (own / "token").write_text(token, encoding="ascii")
            if private:
                made.folders.append(own)
            _plug_in(stack, made, f"{prefix}-{host}")
            if gigabits:
                _shape(made, host, gigabits)
            if grouped:
                made.groups.append(stack.enter_context(groups.made(GROUPS / f"{prefix}-{host}")))
            stack.callback(_end_children)  # what runs on a host ends before its namespace
            return host

        def start(host: int) -> int:
            head = ["--head", f"--port={PORT}", f"--temp-dir={home}/ray", "--include-dashboard=false"]
            role = [f"--address={made.address}"] if host else head
            words = [sys.executable, "-m", "ray.scripts.scripts", "start", *role, "--block", "--disable-usage-stats"]
            words += [f"--node-ip-address={_address(host)}", f"--num-cpus={cpus}"]
            words += [f"--object-store-memory={object_store_memory}"]
            with (folder / f"host{host}.log").open("w") as printed:
                made.start(words, host, grouped, stdout=printed, stderr=subprocess.STDOUT, start_new_session=True)
            _wait_for(made, host, folder / f"host{host}.log")
            return host

        for host in [plug_in() for _ in range(number)]:
            start(host)
        made.add = lambda: start(plug_in())
        yield made


def _plug_in(stack: ExitStack, made: Hosts, name: str) -> None:
    host, port = len(made.names), f"port{len(made.names)}"
    _namespace(stack, name)
    made.names.append(name)
    _ip("-n", made.switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
    _ip("-n", made.switch, "link", "set", port, "master", "bridge", "up")
    _ip("-n", name, "address", "add", f"{_address(host)}/24", "dev", "eth0")
    for link in ("lo", "eth0"):
        _ip("-n", name, "link", "set", link, "up")
    # Ray takes for its own address the one from which it would speak to the world.
    _ip("-n", name, "route", "add", "default", "via", f"{NETWORK}.254")


def _shape(made: Hosts, host: int, gigabits: float) -> None:
    """Both ends of the host's cable send no faster than that; the bucket holds four milliseconds."""
    words = ["root", "tbf", "rate", f"{gigabits}gbit", "burst", f"{int(gigabits * 5e5)}b", "latency", "50ms"]
    for namespace, device in ((made.switch, f"port{host}"), (made.names[host], "eth0")):
        done = subprocess.run(
            ["tc", "-n", namespace, "qdisc", "add", "dev", device, *words], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise OSError(f"tc: {done.stderr.strip()}")


def _wait_for(made: Hosts, host: int, log: Path) -> None:
    """Until the node has joined: then its `ray start` says so, and blocks."""
    until = time.monotonic() + 60
    while "--block" not in log.read_text():
        if time.monotonic() > until:
            raise AssertionError(f"host {host} did not start:\n{log.read_text()}")
        time.sleep(0.2)


def _namespace(stack: ExitStack, name: str) -> None:
    _ip("netns", "add", name)
    stack.callback(lambda: _ip("netns", "delete", name))


def _address(host: int) -> str:
    return f"{NETWORK}.{host + 1}"


def _ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def _end_children() -> None:
    started = psutil.Process().children(recursive=True)
    for process in started:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL)
    psutil.wait_procs(started, timeout=10)
