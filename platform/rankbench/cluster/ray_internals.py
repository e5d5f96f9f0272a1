"""All uses of Ray that its documentation does not promise: tested with Ray 2.52 and 2.60.

They are the first thing to look at when Ray is renewed. Functions import Ray late, because it reads the environment variables
of `session` when it is imported.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from rankbench.core.errors import ConfigError


def session_folder_option(folder: Path) -> dict[str, Any]:
    """The option of `ray.init` that puts all files of a local cluster into `folder`."""
    return {"_temp_dir": str(folder)}


def task_memory_option(n_bytes: int) -> dict[str, Any]:
    """The option of `ray.init` with the bytes that tasks of a local node may reserve."""
    return {"_memory": n_bytes}


def silence_worker_logs() -> None:
    """Ray prints many lines about each death in the cluster on stdout, where results go. No setting stops it."""
    import ray

    ray._private.worker._worker_logs_enabled = False


def job_config() -> Any:
    """Have workers import from the folder of this process's script, and from the working folder only if this process does.

    Ray puts the working folder first on every worker's path, where a file `numpy.py` would be imported instead of NumPy. Only
    for the job of a client it does not, which means nothing else for a job without a runtime environment.
    """
    from ray.job_config import JobConfig

    here = str(Path.cwd())
    return JobConfig(_client_job=True, _py_driver_sys_path=[here] if {"", here} & {*sys.path} else [])


def wait_for_slow_nodes(patience: float) -> None:
    """Let Ray wait `patience` seconds, instead of 30, for a node that is slow to register, and not at all for one that died."""
    import ray

    services = ray._private.services
    original, deadline = services.get_node, time.monotonic() + patience

    def get_node(gcs_address: str, node_id: str) -> dict[str, Any]:
        while True:
            try:
                return original(gcs_address, node_id)
            except RuntimeError:
                if time.monotonic() > deadline or not _raylet_runs():
                    raise
            time.sleep(0.1)

    services.get_node = get_node


def without_monitors() -> None:
    """Let a local node start without two processes that nothing here uses, so that it starts sooner: the autoscaler's, and one
    that sends workers' output to drivers, which opens each log several times per second.
    """
    import ray

    parameter = ray._private.parameter
    parameter.RayParams = partial(parameter.RayParams, no_monitor=True, include_log_monitor=False)


def _raylet_runs() -> bool:
    children = psutil.Process().children()
    return any(child.name() == "raylet" and child.status() != psutil.STATUS_ZOMBIE for child in children)


def address_of_this_host() -> str:
    """The address of the cluster that `ray start` started on this host or joined, from the file that Ray itself reads.

    Raises ConfigError if there is none.
    """
    path = Path(os.environ.get("RAY_TMPDIR", tempfile.gettempdir())) / "ray" / "ray_current_cluster"
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        raise ConfigError("--address auto: no Ray cluster was started on this host; give its HOST:PORT") from None


def log_folder() -> str:
    """Where the logs of this host's Ray node are."""
    import ray

    node = ray._private.worker._global_node
    return str(node.get_logs_dir_path()) if node else "the logs of Ray"


def skip_usage_statistics() -> None:
    """Tune imports MLflow and others, which takes two seconds, to count callbacks for statistics that are switched off."""
    from ray.air._internal import usage

    usage.tag_callbacks = lambda callbacks: False


def carry_out(tune_controller: Any, trial: Any, decision: str) -> None:
    """Carry out a decision on a trial of Tune whose result was answered with NOOP; Tune has no other way to let it go on."""
    tune_controller._tune_controller._execute_action(trial, decision)


def data_parallel_trainer() -> Any:
    """The trainer of Ray Train that runs one function on all workers, without a framework for tensors."""
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    return DataParallelTrainer
