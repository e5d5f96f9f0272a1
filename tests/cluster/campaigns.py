"""Programs that strike a real cluster of three nodes again and again while ALS runs on it, and print what they saw as JSON.

    python campaigns.py nodes 10       kill a node at 10 drawn moments
    python campaigns.py workers 20     kill 20 worker processes in the course of one fit
    python campaigns.py freeze 120     a node hangs for 120 s while fits go on, and wakes up
    python campaigns.py poison         a closed form by tiles, each of whose tasks kills its worker

Each is a process of its own: Ray reads its settings when it is imported.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import scipy.sparse as sp
from nodes import cluster

from rankbench.cluster.session import session
from rankbench.core.errors import RankbenchError, first_line
from rankbench.core.threads import pinned
from rankbench.experiment.execution import Execution
from rankbench.experiment.fit import fit as fit_configs
from rankbench.experiment.job import configure
from rankbench.experiment.methods import registered
from rankbench.fitting.executors import ThreadMap
from rankbench.solvers.als import half_step
from rankbench.solvers.tiled.recommender import fit_tiled

half_step.BLOCK_CYCLES = 9e6  # small blocks, so that a half step has many
DIM = 128


def interactions() -> sp.csr_array:
    rng = np.random.default_rng(0)
    return sp.csr_array((rng.random((3000, 2000)) < rng.random((3000, 1)) ** 3).astype(np.float32))


class Fits:
    """Fits of one setting on any executor, compared with the one of this process."""

    def __init__(self, iterations: int):
        self.X, self.iterations = interactions(), iterations
        self.expected, _ = self._fit(ThreadMap(1))

    def _fit(self, executor: Any, each: Callable[[], None] = lambda: None) -> tuple[Any, list[float]]:
        chosen = configure("ials", {"embedding_dim": DIM, "iterations": self.iterations})
        ends = [time.monotonic()]
        execution = Execution(executor=executor)

        def observe(_: Any) -> dict[str, float]:
            ends.append(time.monotonic())
            each()
            return {}

        (model,) = fit_configs((chosen,), self.X, "float32", 0, execution, observe=observe).models
        return model, [b - a for a, b in itertools.pairwise(ends)]

    def on(self, executor: Any, each: Callable[[], None] = lambda: None) -> dict[str, Any]:
        """A fit on a cluster; `each` is called after every iteration."""
        plain, sizes = executor.map, []
        executor.map = lambda function, blocks, *shared: sizes.append(len(blocks)) or plain(function, blocks, *shared)
        model, seconds = self._fit(executor, each)
        same = np.array_equal(model.U, self.expected.U) and np.array_equal(model.V, self.expected.V)
        return {"same": bool(same), "seconds": sum(seconds), "longest": max(seconds), "again": executor.resubmitted,
                "blocks": max(sizes)}  # fmt: skip


def nodes(times: int) -> Iterator[tuple[str, Any]]:
    """SIGKILL of a node, or of its raylet alone, at drawn moments of a fit; another one joins afterwards."""
    fits, rng = Fits(iterations=5), random.Random(1)
    with cluster(3) as running, session(running.address):
        from rankbench.cluster.ray_map import RayMap

        fits.on(RayMap())  # workers start and compile
        calm = [fits.on(RayMap()) for _ in range(2)]
        yield "calm", calm
        whole, struck = min(each["seconds"] for each in calm), []
        alive = [1, 2]
        for number in range(times):
            victim, moment = rng.choice(alive), rng.uniform(0.02, 0.9) * whole
            kill = running.kill_raylet if number % 2 else running.kill_node
            killed: list[float] = []

            def strike(kill: Callable = kill, victim: int = victim, killed: list = killed) -> None:
                kill(victim)
                killed.append(time.monotonic())

            timer = threading.Timer(moment, strike)
            timer.start()
            seen = fits.on(RayMap())
            seen["in the fit"] = bool(killed) and killed[0] < time.monotonic()
            timer.join()
            alive.remove(victim)
            alive.append(running.add_node())
            struck.append(seen | {"moment": moment})
        yield "struck", struck


def workers(times: int) -> Iterator[tuple[str, Any]]:
    """SIGKILL of a worker process in each iteration of one fit. More at once could hit a block four times, which ends a fit."""
    fits, rng, killed = Fits(iterations=times + 5), random.Random(2), []
    with cluster(3) as running, session(running.address):
        from rankbench.cluster.ray_map import RayMap

        yield "calm", fits.on(RayMap())

        def strike() -> None:
            until = time.monotonic() + 5
            while time.monotonic() < until and len(killed) < times:
                if busy := [process for node in range(3) for process in running.busy(node)]:
                    with suppress(psutil.Error):
                        rng.choice(busy).kill()
                        killed.append(time.monotonic())
                    return

        # Some blocks after the iteration began, and in a process that computes one.
        yield "struck", fits.on(RayMap(), each=lambda: threading.Timer(rng.uniform(0.05, 0.3), strike).start())
        yield "killed", len(killed)


def freeze(seconds: int) -> Iterator[tuple[str, Any]]:
    """SIGSTOP of a node for a time, in which fits go on, then SIGCONT."""
    fits = Fits(iterations=5)
    with cluster(3) as running, session(running.address):
        from rankbench.cluster.ray_map import RayMap

        fits.on(RayMap())
        calm = fits.on(RayMap())
        yield "calm", calm
        frozen: list[Any] = []
        timer = threading.Timer(0.4 * calm["seconds"], lambda: frozen.extend(running.freeze_node(running.busy_node())))
        timer.start()
        first = fits.on(RayMap())
        timer.join()
        began, later = time.monotonic(), []
        yield "first", first
        while time.monotonic() < began + seconds:
            later.append(fits.on(RayMap()))
            time.sleep(5)
        yield "later", later
        running.thaw(frozen)
        yield "thawed", [fits.on(RayMap()) for _ in range(3)]


def poison(_: int) -> Iterator[tuple[str, Any]]:
    """Each worker that is busy with tiles dies, wherever it is."""
    method = registered().get("ease")
    with cluster(2) as running, session(running.address), tempfile.TemporaryDirectory() as folder:
        from rankbench.cluster.ray_map import RayMap

        over = threading.Event()

        def strike() -> None:
            while not over.wait(0.02):
                for node in range(2):
                    running.kill_worker(node)

        threading.Thread(target=strike, daemon=True).start()
        began = time.monotonic()
        try:
            with pinned(1):
                fit_tiled(interactions(), [(method, method.params(lam=3.0))], Path(folder), 10**10, flow=RayMap().flow())
            yield "error", None
        except RankbenchError as error:
            yield "error", [type(error).__name__, error.exit_code, first_line(error), str(error).count("\n")]
        over.set()
        yield "seconds", time.monotonic() - began


def main() -> None:
    program = {each.__name__: each for each in (nodes, workers, freeze, poison)}[sys.argv[1]]
    print(json.dumps(dict(program(int((sys.argv[2:] or ["0"])[0])))))


if __name__ == "__main__":
    main()
