"""Join or start Ray, safely: loopback and a private token for a local cluster, an explicit address for any other."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rankbench.cluster.join_deadline import join_deadline
from rankbench.cluster.local_node import local_node
from rankbench.cluster.machine import Machine
from rankbench.cluster.node_memory import OBJECTS, NodeMemory
from rankbench.cluster.private_folder import private_folder
from rankbench.cluster.ray_internals import address_of_this_host, job_config, silence_worker_logs, task_memory_option
from rankbench.core.errors import ClusterError, ConfigError, first_line
from rankbench.core.extras import require_extra

# Read by Ray at import and by every process that it starts. Without the keepalive a hung node would block a run forever;
# without the bound on retries an out-of-memory task would be retried forever.
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_ENABLE_AUTO_CONNECT": "0",
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "5",
    "RAY_grpc_client_keepalive_time_ms": "2000",
    "RAY_grpc_client_keepalive_timeout_ms": "3000",
    "RAY_task_oom_retries": "2",
    "RAY_memory_usage_threshold": "0.95",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_DEDUP_LOGS": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "60",
    "TUNE_MAX_PENDING_TRIALS_PG": "1000",  # `sweeps/trials/dispatch.py` decides how many trials are started
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "RAY_TRAIN_V2_ENABLED": "1",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "1",
    "RAY_TRAIN_WORKER_HEALTH_CHECK_TIMEOUT_S": "60",
    "RAY_TRAIN_METRICS_ENABLED": "0",
}


@dataclass(frozen=True)
class Session:
    """A connected cluster and the resources of its nodes."""

    local: bool
    machines: tuple[Machine, ...]

    @property
    def cpus(self) -> int:
        """Number of processors of all nodes."""
        return sum(machine.cpus for machine in self.machines)

    @property
    def gpus(self) -> int:
        """Number of GPUs of all nodes."""
        return sum(machine.gpus for machine in self.machines)

    @property
    def memory_bytes(self) -> int:
        """Memory of all nodes."""
        return sum(machine.memory_bytes for machine in self.machines)


@contextmanager
def session(
    address: str | None = None, cpus: int | None = None, gpus: bool = False, memory: NodeMemory | None = None
) -> Iterator[Session]:
    """Connect to Ray during the block; a local cluster is shut down afterwards.

    `address` (or RAY_ADDRESS) names a running cluster. Without one, a local cluster is started, with `cpus` processors, all
    GPUs of the host if `gpus`, and all sockets on loopback. `memory` bounds such a cluster, objects included; without it, tasks
    may reserve what Ray finds free. A running cluster is never joined unless it is named. If the Ray node of this host dies,
    the process ends with exit code 4.

    Ray reads its settings at import, so nothing may import it earlier. Raises ClusterError if it was imported earlier or the
    cluster cannot be joined, and ConfigError if authentication is switched off.
    """
    require_extra("sweep", "a Ray cluster")
    if os.environ.get("RAY_AUTH_MODE", "token") == "disabled":
        raise ConfigError("RAY_AUTH_MODE=disabled lets anyone run code on the cluster; unset it")
    address = address or os.environ.get("RAY_ADDRESS")
    if not address and "ray" in sys.modules and os.environ.get("RAY_AUTH_MODE") != "token":
        raise ClusterError(
            "ray was imported before rankbench set its environment variables; start a new process or set RAY_AUTH_MODE=token"
        )
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if address:
        address = ":".join(map(str, require_reachable(address)))
        hint = "is it up, and is RAY_AUTH_TOKEN_PATH its token?"
        yield from _running(f"cannot join the Ray cluster at {address}: {{}}; {hint}", address, local=False)
    else:
        with private_folder() as folder:
            sizes = {"object_store_memory": memory.objects, **task_memory_option(memory.tasks)} if memory else {}
            yield from _local(folder, cpus, {"object_store_memory": OBJECTS} | sizes, gpus)


def _local(folder: Path, cpus: int | None, sizes: dict[str, int], gpus: bool) -> Iterator[Session]:
    token = folder / "token"
    token.touch(mode=0o600)
    token.write_text(_process_token(), encoding="ascii")
    given = os.environ.get("RAY_AUTH_TOKEN_PATH")  # that of a cluster that this process may join later
    os.environ["RAY_AUTH_TOKEN_PATH"] = str(token)
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    try:
        options = {"num_cpus": cpus, "num_gpus": None if gpus else 0} | sizes
        with local_node(folder, **options) as address:
            yield from _running("cannot join the local Ray cluster: {}", address, local=True)
    finally:
        os.environ.pop("RAY_AUTH_TOKEN_PATH", None)
        if given is not None:
            os.environ["RAY_AUTH_TOKEN_PATH"] = given


@cache
def _process_token() -> str:
    """One token for all local clusters of this process, because Ray reads it only once."""
    return secrets.token_hex(32)


def _running(failure: str, address: str, local: bool) -> Iterator[Session]:
    """Join a cluster, and leave it afterwards; `failure` is the error message, with `{}` for the reason."""
    import ray

    silence_worker_logs()
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with join_deadline(failure):
            ray.init(address=address, job_config=job_config(), log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # Ray raises plain Exception, too
        raise ClusterError(failure.format(first_line(error))) from None
    finally:
        _restore(handler)
    try:
        with _watched(ray):
            # Imported here because it imports Ray.
            from rankbench.cluster.alive_nodes import alive_machines

            yield Session(local, tuple(alive_machines()))
    finally:
        ray.shutdown()


@contextmanager
def _watched(ray) -> Iterator[None]:
    """End the process with a message and exit code 4 if this host's Ray node or the head node dies within the block.

    Without its node, Ray ends the process silently with code 1 at the next access to the object store, even if an array is
    only released, and otherwise waits forever; without the head node it does so after a minute. An exception would not help,
    because unwinding the stack releases arrays. If an access coincides with the death of the node, Ray is still faster.
    """
    context, over = ray.get_runtime_context(), threading.Event()
    own = next(node for node in ray.nodes() if node["NodeID"] == context.get_node_id())
    watches = ((_watch_head, host_and_port(context.gcs_address)), (_watch_node, own["RayletSocketName"]))
    for watch, socket_address in watches:
        threading.Thread(target=watch, args=(socket_address, over), daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _watch_node(path: str, over: threading.Event) -> None:
    try:
        while not over.is_set():
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(path)
                connection.settimeout(1)
                while not over.is_set():
                    # The node sends nothing; the connection ends with the node, and then a new one fails.
                    with suppress(TimeoutError):
                        if not connection.recv(1):
                            break
    except OSError:
        if not over.is_set():
            _end_process("this host's Ray node died; restart it, and --resume continues")


def _watch_head(head: tuple[str, int], over: threading.Event) -> None:
    last_answer = time.monotonic()
    while not over.wait(5):
        with suppress(OSError):
            socket.create_connection(head, timeout=5).close()
            last_answer = time.monotonic()
        # A head with external storage may come back; Ray itself waits for it for a minute.
        if time.monotonic() - last_answer > 30 and not over.is_set():
            _end_process(
                f"the head of the Ray cluster at {head[0]}:{head[1]} does not answer; restart it, and --resume continues"
            )


def _end_process(message: str) -> None:
    """Exit with the code of ClusterError at once, without any clean-up that would use Ray."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    os.write(2, f"error: {message}\n".encode())
    os._exit(ClusterError.exit_code)


def host_and_port(address: str) -> tuple[str, int]:
    """Host and port of HOST:PORT, or for `auto` of the cluster that `ray start` started on this host or joined.

    Raises ConfigError for any other text, an invalid port, and `auto` without a cluster.
    """
    if address == "auto":
        address = address_of_this_host()
    host, _, port = address.rpartition(":")  # ray://HOST:PORT is that of Ray's client server, which speaks another protocol
    if not host or "/" in host or not port.isdecimal():
        raise ConfigError(f"--address (or RAY_ADDRESS): expected HOST:PORT or auto, got {address!r}")
    if not 1 <= int(port) <= 65535:
        raise ConfigError(f"--address: expected a port between 1 and 65535, got {address!r}")
    return host, int(port)


def require_reachable(address: str) -> tuple[str, int]:
    """Check that the cluster answers, because `ray.init` would wait for minutes.

    Returns its host and port. Raises ClusterError if it does not answer.
    """
    host, port = host_and_port(address)
    try:
        socket.create_connection((host, port), timeout=5).close()
    except OSError as error:
        raise ClusterError(f"cannot join the Ray cluster at {address}: {error.strerror or error}; is it up?") from None
    return host, port


def _restore(handler) -> None:
    """Restore the SIGTERM handler, which Ray replaces: it would exit with 15 instead of 143."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)
