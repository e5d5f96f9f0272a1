"""A real Ray cluster of several nodes on loopback, whose nodes can be killed, frozen and added: for tests, and by hand.

Each node has its own raylet, object store and workers. `python tests/cluster/nodes.py --nodes 3` starts one, prints one
line of JSON (`address`; `environment`, what another process needs to join; `raylets`, the pid of each node's raylet, the
driver's own node first; `state`, the pid of the head's memory) and ends with its standard input or SIGTERM. Another process
joins with

    RAY_AUTH_TOKEN_PATH=<token> RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 rankbench ... --address <address>

Without the second setting Ray takes 127.0.0.1 for the host's outside address, where nobody listens, and waits for good.
Ray reads its settings when it is imported: import this before ray, in a process made for it.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from rankbench.cluster.session import _ENVIRONMENT


@dataclass
class Cluster:
    """`raylets`: the pid of each node's raylet in order of joining. The first is the head, and the driver's own. `state`: the
    pid of the process that knows the cluster's state, which Ray cannot do without.
    """

    address: str
    environment: dict[str, str]
    state: int
    raylets: list[int]
    _ray: object = field(default=None, repr=False)
    _options: dict = field(default_factory=dict, repr=False)

    def add_node(self) -> int:
        """The number of a node that joins now."""
        node = self._ray.add_node(**self._options)
        self.raylets.append(node.all_processes["raylet"][0].process.pid)
        return len(self.raylets) - 1

    def processes(self, node: int) -> list[psutil.Process]:
        """The raylet, its agents and its workers."""
        with suppress(psutil.NoSuchProcess):
            raylet = psutil.Process(self.raylets[node])
            return [raylet, *raylet.children(recursive=True)]
        return []

    def busy(self, node: int) -> list[psutil.Process]:
        """The worker processes of a node that run a task: Ray names a process after what it does."""
        others = ("ray::IDLE", "ray::DashboardAgent", "ray::RuntimeEnvAgent")
        names = {process: _name(process) for process in self.processes(node)}
        return [process for process, name in names.items() if name.startswith("ray::") and name not in others]

    def busy_node(self) -> int:
        """A node that is in the middle of a task, other than the driver's own. Waits for one."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            for node in range(1, len(self.raylets)):
                if self.busy(node):
                    return node
            time.sleep(0.02)
        raise AssertionError("no node but the first runs a task")

    def kill_node(self, node: int) -> None:
        """As when the power goes: nothing on it says goodbye."""
        self._send(signal.SIGKILL, self.processes(node))

    def kill_raylet(self, node: int) -> None:
        os.kill(self.raylets[node], signal.SIGKILL)

    def freeze_node(self, node: int) -> list[psutil.Process]:
        """As when the network goes: its sockets stay open and silent. The processes, for `thaw`."""
        frozen = self.processes(node)
        self._send(signal.SIGSTOP, frozen)
        return frozen

    def thaw(self, frozen: list[psutil.Process]) -> None:
        self._send(signal.SIGCONT, frozen)

    def kill_worker(self, node: int) -> None:
        """The process of a block. Waits for one, because between two blocks there is none."""
        busy, until = self.busy(node), time.monotonic() + 60
        while not busy:
            assert time.monotonic() < until, "no worker of the node runs a task"
            busy = self.busy(node)
        self._send(signal.SIGKILL, busy)

    @staticmethod
    def _send(number: int, processes: list[psutil.Process]) -> None:
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)


def _name(process: psutil.Process) -> str:
    try:
        return (process.cmdline() or [""])[0]
    except psutil.Error:
        return ""


@contextmanager
def cluster(
    nodes: int = 3, cpus: int = 1, object_store_memory: int = 80 << 20, memory: int | None = None, spill: str | None = None
) -> Iterator[Cluster]:
    """`nodes` nodes of `cpus` processors each, for the length of the block; nothing of them is left after it. `memory`: bytes
    that each lends out to tasks, by default a share of what the machine has. `spill`: folder for objects that do not fit.
    """
    with tempfile.TemporaryDirectory(prefix="rb-", dir="/tmp", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        token = folder / "token"
        token.touch(mode=0o600)
        token.write_text(secrets.token_hex(32), encoding="ascii")
        joining = {"RAY_AUTH_TOKEN_PATH": str(token), "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
        os.environ |= {**_ENVIRONMENT, **joining, "RAY_TMPDIR": str(folder)}
        from ray.cluster_utils import Cluster as RayCluster

        logging.getLogger("ray").setLevel(logging.ERROR)
        handler = signal.getsignal(signal.SIGTERM)
        options = {"num_cpus": cpus, "object_store_memory": object_store_memory, "include_dashboard": False}
        if memory:
            options["memory"] = memory
        if spill:
            options["object_spilling_directory"] = spill
        ray = RayCluster(initialize_head=True, head_node_args=options)
        signal.signal(signal.SIGTERM, handler)
        state, raylet = (ray.head_node.all_processes[name][0].process.pid for name in ("gcs_server", "raylet"))
        found = Cluster(ray.address, joining, state, [raylet], ray, options)
        try:
            for _ in range(nodes - 1):
                found.add_node()
            yield found
        finally:
            started = psutil.Process().children(recursive=True)
            found._send(signal.SIGCONT, started)
            # Not Ray's own shutdown, which is polite to each process in turn and waits for those that are gone.
            found._send(signal.SIGKILL, started)
            psutil.wait_procs(started, timeout=10)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--nodes", type=int, default=3)
    arguments.add_argument("--cpus", type=int, default=1)
    arguments.add_argument("--memory", type=int, help="Bytes that a node lends out.")
    options = arguments.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with cluster(options.nodes, options.cpus, memory=options.memory) as running:
        told = ("address", "environment", "state", "raylets")
        print(json.dumps({name: getattr(running, name) for name in told}), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
