"""The JSON files in the folder of a sweep. A damaged file is refused with the name of the wrong field."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter

from rankbench.core.config import read_json, validate
from rankbench.core.environment import Environment
from rankbench.core.errors import ConfigError, DataError
from rankbench.judge.compare import LEVEL, Comparison
from rankbench.schema.experiment import ExperimentSpec
from rankbench.schema.shared_sweeps import copy_sweep, stored_ids
from rankbench.schema.sweep_id import by_start, experiment_of
from rankbench.tracking.record import RunRecord, read_records


class _File(BaseModel):
    """Base of these files. Unknown keys are kept. The order of the fields is the order in the file."""

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False)

    def content(self) -> dict[str, Any]:
        """The file's content as JSON values."""
        return self.model_dump(mode="json")


F = TypeVar("F", bound=_File)


class CardName(_File):
    """The name of a card. Sweeps that were stored earlier have more of it."""

    name: str


@dataclass(frozen=True)
class NotAvailable:
    """Why the raw data of a dataset are not available: in a few words for the cell of a table, and in a sentence."""

    brief: str
    reason: str

    @property
    def state(self) -> str:
        return f"not available: {self.brief}"


class SweepFile(_File):
    """sweep.json: the experiment, the command that was given, its changes of the experiment, and the plan. `command`: empty for
    a sweep from Python, None in files of earlier versions. `not_available`: dataset → reason.
    """

    id: str
    experiment: ExperimentSpec
    command: str | None = None
    changes: tuple[str, ...] = ()
    cards: tuple[CardName, ...] = ()
    not_available: dict[str, NotAvailable] = {}
    notes: tuple[str, ...] = ()
    settings: int = 0
    fits: int
    started_at: str

    @property
    def dataset_names(self) -> tuple[str, ...]:
        return tuple(card.name for card in self.cards) or self.experiment.dataset_names


class ChosenRow(_File):
    """`search`: id of the record whose setting was chosen, None without a search. `final`: ids of its runs on test. `ends`:
    parameters whose chosen value is at the end of what was tried → the smallest and the largest value that was tried.
    `seeded`: whether the seed changes the model; None in files of earlier versions.
    """

    dataset: str
    arm: str
    search: str | None = None
    final: tuple[str, ...]
    ends: dict[str, tuple[float, float]] = {}
    seeded: bool | None = None


class ChosenFile(_File):
    """chosen.json: the chosen setting of each dataset and arm, and its final runs. `datasets`: those that the sweep has done,
    also if no arm has a row there.
    """

    metric: str = ""
    on: str = "valid"
    rows: tuple[ChosenRow, ...]
    failed: tuple[str, ...] = ()
    finished_at: str
    datasets: tuple[str, ...] = ()


class PooledMean(_File):
    """The mean over users of one model, pooled over its runs, with its interval. `std`: over the runs, if there are several."""

    dataset: str
    metric: str
    model: str
    mean: float
    low: float | None
    high: float | None
    std: float | None
    best: bool
    seeds: tuple[int, ...]
    split_seeds: tuple[int, ...] = ()


class ComparisonsFile(_File):
    """comparisons.json: means over users, and paired tests of each model against the best one. `neighbours`: of each model
    against the next better one, if there are so many models that only these pairs were tested.
    """

    metrics: tuple[str, ...]
    level: float = LEVEL
    seed: int = 0
    models: tuple[PooledMean, ...]
    comparisons: tuple[Comparison, ...]
    neighbours: tuple[Comparison, ...] = ()

    def content(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude=None if self.neighbours else {"neighbours"})


@dataclass(frozen=True)
class StoredSweep:
    """A sweep read back from its folder. `chosen` and `compared` are None until it has finished. `foreign`: records of foreign
    lists that the user has put beside its own ones.
    """

    folder: Path
    about: SweepFile
    chosen: ChosenFile | None
    records: dict[str, RunRecord]
    compared: ComparisonsFile | None
    foreign: tuple[RunRecord, ...] = ()

    @property
    def rows(self) -> tuple[ChosenRow, ...]:
        """The chosen settings; none until it has finished."""
        return self.chosen.rows if self.chosen else ()

    @property
    def finished(self) -> bool:
        """Whether settings were chosen on every available dataset; one may have become available after the others were done."""
        available = {*self.about.dataset_names} - {*self.about.not_available}
        return self.chosen is not None and available <= {row.dataset for row in self.rows} | {*self.chosen.datasets}

    @property
    def finals(self) -> list[RunRecord]:
        """The finished runs of the final stage; once settings are chosen, those of these alone, as there may be older ones."""
        named = {name for row in self.rows for name in row.final} if self.chosen else self.records
        final = (record for record in self.records.values() if record.stage == "final" and record.finished)
        return [record for record in final if record.id in named]


def read_file(path: Path, schema: type[F]) -> F:
    """Return the content of a file as a `schema`. Raises DataError naming the file and the wrong field."""
    content = read_json(path, TypeAdapter(dict[str, Any]), f"the {path.name} of a sweep")
    try:
        return validate(schema, content, str(path), stored=True)
    except ConfigError as error:
        raise DataError(str(error)) from None


def read_if_there(path: Path, schema: type[F]) -> F | None:
    """Like `read_file`, but return None if the file does not exist."""
    return read_file(path, schema) if path.exists() else None


def read_sweep(folder: Path) -> StoredSweep:
    """Return the content of a sweep's folder. Raises DataError if it is not the folder of a sweep or a file is damaged."""
    about = read_file(folder / "sweep.json", SweepFile)
    every = read_records(folder / "records")
    foreign = tuple(each for each in every if each.lists)
    records = {each.id: each for each in every if not each.lists}
    labels = {arm.label for arm in about.experiment.arms}
    for record in records.values():
        if record.arm not in labels:
            raise DataError(f"{folder}: the record {record.id} belongs to the arm {record.arm!r}, which is not in sweep.json")
    chosen = read_if_there(folder / "chosen.json", ChosenFile)
    compared = read_if_there(folder / "comparisons.json", ComparisonsFile)
    return StoredSweep(folder, about, chosen, records, compared, foreign)


def find_sweep(name: str | None, environment: Environment, whole: bool = False) -> Path:
    """Return the folder of a sweep, given its path, its id, the name of its experiment, or the start of its id.

    The newest one of several is taken, and the newest one of all if `name` is None.

    `whole`: a `name` that only starts the names of other experiments finds nothing. If the results are in a store, sweeps that
    are on this machine alone are found, too; of a stored one, this is its local copy, brought up to date. Raises ConfigError if
    there is none, or if sweeps of several experiments start with `name`.
    """
    if name and (Path(name) / "sweep.json").is_file():
        return Path(name)
    here, store = ids_here(environment), environment.results_store
    stored = stored_ids(store) if store else []
    found = _newest(name or "", _in_order({*here, *stored}), place_of(environment), whole)
    return copy_sweep(found, environment) if found in stored else environment.results / "sweeps" / found


def ids_here(environment: Environment) -> list[str]:
    """The ids of the sweeps in the results folder, oldest first."""
    return _in_order({path.parent.name for path in (environment.results / "sweeps").glob("*/sweep.json")})


def place_of(environment: Environment) -> str:
    """Where sweeps are kept, as messages name it."""
    return f"{environment.results_store or environment.results}/sweeps"


def _in_order(names: set[str]) -> list[str]:
    ids = by_start(names)
    return [*sorted(names - {*ids}), *ids]  # what was renamed by hand says nothing of its start


def _newest(name: str, ids: Sequence[str], place: str, whole: bool) -> str:
    """Return the last of the `ids` that belongs to the experiment `name`, or else starts with `name`."""
    own = [each for each in ids if each == name or experiment_of(each) == name]
    matching = own or [each for each in ids if each.startswith(name) and not whole]
    if not matching:
        raise ConfigError(f"no sweep {name} in {place}".replace("  ", " "))
    experiments = sorted({experiment_of(each) for each in matching})
    if name and len(experiments) > 1:
        raise ConfigError(f"{name}: sweeps of several experiments start so: {', '.join(experiments)}; write one of these names")
    return matching[-1]
