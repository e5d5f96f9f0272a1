"""A trainer whose steps are made by the workers of a crew, each of which has a `Trainer` with its part of every batch.

If a worker is lost, its crew starts new ones. They go on from the arrays that were last read for a checkpoint, or after
`KEEP_EVERY` seconds of training, and repeat the epochs since then, which gives the same bits.
"""

from __future__ import annotations

import time
from copy import deepcopy
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from rankbench.core.errors import ClusterError
from rankbench.fitting.crew import Crew, Place, Team
from rankbench.fitting.flow import Lost
from rankbench.fitting.recommenders import Recommender
from rankbench.losses.spec import Loss
from rankbench.losses.spec import registered as losses
from rankbench.training.params import TrainedParams
from rankbench.training.ring import Ring
from rankbench.training.schedule import Schedule
from rankbench.training.trainer import Trainer

KEEP_EVERY = 30.0  # seconds of training after which the arrays are read, if nobody else does
TRIES = 5  # how often workers may be lost in the same epoch
LOST = f"workers were lost {TRIES} times in one epoch"


class CrewedTrainer:
    """The workers of `crew`, with the methods of one `Trainer`."""

    def __init__(self, crew: Crew, X: sp.csr_array, given: TrainedParams, loss: Loss, seed: int, dtype: type, device: str):
        self.team: Team = crew.start(Member, X, given, loss.name, seed, np.dtype(dtype).name, device)
        self.kept: dict[str, np.ndarray] | None = None
        self.since: list[tuple[int, Schedule]] = []  # the epochs after the kept arrays
        self._call("ready")  # so that the start does not count as training
        self.kept_at = time.monotonic()

    def scheduled_epoch(self, number: int, schedule: Schedule) -> float:
        schedule = deepcopy(schedule)  # as it is now, if the epoch is repeated
        mean = self._call("scheduled_epoch", number, schedule)
        self.since.append((number, schedule))
        if time.monotonic() - self.kept_at > KEEP_EVERY:
            self.arrays()
        return mean

    def model(self) -> Recommender:
        return deepcopy(self._call("model"))  # arrays that come from another process are read-only

    def arrays(self) -> dict[str, np.ndarray]:
        self.kept = self._call("arrays")
        self.since, self.kept_at = [], time.monotonic()
        return self.kept

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        self.kept, self.since = arrays, []
        self._call("restore", arrays)

    def close(self) -> None:
        self.team.close()

    def _call(self, method: str, *arguments: Any) -> Any:
        behind = False
        for _ in range(TRIES):
            try:
                if behind:
                    self._catch_up()
                return self.team.call(method, *arguments)
            except Lost as error:
                reason, behind = error, True
        raise ClusterError(f"{LOST} ({reason}); --resume continues")

    def _catch_up(self) -> None:
        """Bring workers to where the lost ones were. Those that could not send their answer have trained the epochs already,
        and start again, too.
        """
        self.team.call(*(("begin",) if self.kept is None else ("restore", self.kept)))
        for number, schedule in self.since:
            self.team.call("scheduled_epoch", number, schedule)


class Member(Trainer):
    """One worker: a trainer that is connected with those of the other places."""

    def __init__(self, place: Place, X: sp.csr_array, given: TrainedParams, loss: str, seed: int, dtype: str, device: str):
        # Copies, because arrays that come from another process are read-only, for which the kernels would be compiled anew.
        own = sp.csr_array((X.data.copy(), X.indices.copy(), X.indptr.copy()), shape=X.shape)
        exchange = Ring(place, torch.device(device))
        self.arguments = own, given, losses().get(loss), seed, np.dtype(dtype).type, device, exchange
        self.begin()

    def begin(self) -> None:
        """Go back to before the first epoch."""
        super().__init__(*self.arguments)

    def ready(self) -> None:
        """Return once all workers are connected."""
        self.exchange.sum([torch.zeros(1, device=self.device)])

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        super().restore({name: np.array(array) for name, array in arrays.items()})
