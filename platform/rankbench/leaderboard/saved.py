"""What is saved of a race at a milestone, so that it goes on from there: in the results folder, apart from the store.

races/RACE/race.json          the candidates, the curve, and what was measured on test
races/RACE/users.parquet      the values of each user of the best model
races/RACE/NUMBER/            checkpoints of a candidate that has not ended

Models are not saved: what was measured of them is. The folder of a race that is over is removed, and others may be removed at
any time: then a race to the next milestone begins anew.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rankbench.core.code import code_fingerprint
from rankbench.core.environment import Environment
from rankbench.core.files import atomic_folder
from rankbench.fitting.drive import Row
from rankbench.sweeps.search.race import LIVE, Race
from rankbench.tracking.environment import processor
from rankbench.tracking.record import Measured

RACES = "races"  # folder in that of the results
VALUES, USERS = "race.json", "users.parquet"


@dataclass(frozen=True)
class Tested:
    """What was measured of a model on test, and how many seconds that took. `valid`: its value on the users of the validation
    set with which all entries are compared.
    """

    metrics: dict[str, Measured]
    seconds: float
    valid: float
    per_user: pa.Table | None = None


@dataclass(frozen=True)
class Kept:
    """What is read again: `candidates` as their `values`, how many of them may be `live`, and what was `tested` of the best
    model and of that of the defaults; without values, what a race begins with.
    """

    candidates: list[dict[str, Any]] = field(default_factory=list)
    live: int = LIVE
    curve: list[Row] = field(default_factory=list)
    joules: float | None = 0.0
    tested: list[Tested] = field(default_factory=list)


@dataclass(frozen=True)
class SavedRace:
    folder: Path

    @classmethod
    def of(cls, environment: Environment, race: str) -> SavedRace:
        return cls(environment.results / RACES / race)

    def checkpoints(self, number: int) -> Path:
        """The folder of the checkpoints of a candidate."""
        return self.folder / str(number)

    def clock(self) -> float:
        """The seconds that the race has run; 0 if it is not there, or if other code or another processor has run it."""
        return 0.0 if self.why_anew(math.inf) else self._about()["seconds"]

    def why_anew(self, milestone: float) -> str:
        """Why a race to a milestone cannot go on from here; empty if it can."""
        if not (about := self._about()):
            return "what was saved of the earlier one is not in the results folder"
        if about.get("code") != code_fingerprint():
            return "the earlier one was run by another version of the code"
        if about.get("cpu") != processor():
            return f"the earlier one was run by another processor ({about.get('cpu')})"
        return f"the earlier one has run for {about['seconds']:.0f} s already" if about["seconds"] > milestone else ""

    def _about(self) -> dict[str, Any]:
        """What was saved, with the seconds of the race; empty if it is not there."""
        try:
            about = json.loads((self.folder / VALUES).read_text(encoding="utf-8"))
            return about | {"seconds": float(sum(each["seconds"] for each in about["candidates"]))}
        except (OSError, ValueError, KeyError, TypeError):
            return {}

    def read(self, milestone: float) -> Kept:
        """Return the race, or the beginning of one if it cannot go on to a milestone."""
        if self.why_anew(milestone):
            return Kept()
        about = self._about()
        try:
            users = [pq.read_table(self.folder / USERS), None] if about["tested"] else []
            tested = [
                Tested({name: Measured(*values) for name, values in metrics.items()}, seconds, valid, per_user)
                for (metrics, seconds, valid), per_user in zip(about["tested"], users, strict=False)
            ]
            return Kept(about["candidates"], about["live"], about["curve"], about["joules"], tested)
        except (OSError, ValueError, KeyError, TypeError):
            return Kept()

    def write(self, race: Race, curve: Sequence[Row], joules: float | None, tested: Sequence[Tested]) -> None:
        """Save a race in place of what is saved of it. Raises StorageError if the disk is full."""
        about = {
            "code": code_fingerprint(),
            "cpu": processor(),
            "candidates": [each.values() for each in race.candidates],
            "live": race.live,
            "curve": [*curve],
            "joules": joules,
            "tested": [[{name: astuple(of) for name, of in each.metrics.items()}, each.seconds, each.valid] for each in tested],
        }
        with atomic_folder(self.folder, replace=True) as scratch:
            for number, each in enumerate(race.candidates):
                each.save(scratch / str(number))
            if tested and tested[0].per_user is not None:
                pq.write_table(tested[0].per_user, scratch / USERS)
            (scratch / VALUES).write_text(json.dumps(about), encoding="utf-8")

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
