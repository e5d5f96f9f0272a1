"""From a row of a finished sweep to a model that can be kept: the fit of its final run, again."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankbench.api.display import fit_display
from rankbench.api.fit import fit
from rankbench.api.results import Results
from rankbench.core.environment import Environment
from rankbench.core.errors import ConfigError, require
from rankbench.core.progress import Progress
from rankbench.core.public import public
from rankbench.core.registry import nearest
from rankbench.data.prepare import Dataset, prepare
from rankbench.experiment.execution import Execution, ignore_progress
from rankbench.experiment.fitted_model import Model
from rankbench.experiment.job import MethodConfig, configure
from rankbench.experiment.model_files import Part
from rankbench.schema.datasets import card_of, with_split_seed
from rankbench.schema.find import find
from rankbench.sweeps.reuse import changed_code
from rankbench.tracking.record import RunRecord

log = logging.getLogger(__name__)


@public
def fit_from(
    sweep: str | Path | Results,
    row: str,
    *,
    dataset: str | None = None,
    fit_on: Part | None = None,
    seed: int | None = None,
    environment: Environment | None = None,
    progress: Progress | bool = True,
    execution: Execution | None = None,
    workers: int = 1,
) -> Model:
    """Fit what won: the final run of `row` of a sweep, with its setting, length, type of numbers, seed and split.

    `sweep` is what `rb.sweep` returned, or the folder or id of a sweep, or the name of its experiment; `row` is the label of
    the arm. `dataset` names one if the sweep has several. `fit_on`: by default the parts of the final run; with "all", the
    model knows the test part, too, and cannot be measured any more. If valid ended the final fit, and is now fitted itself,
    the fit ends after the same number of iterations. `seed`: by default that of the first final run. `progress`, `execution`
    and `workers` are those of `fit`. Why the model may be another one than that of the final run is a warning of the log.

    Raises ConfigError if there is no such sweep, row or dataset, if the sweep is not finished, and if its data have changed;
    otherwise as `fit`.
    """
    environment = environment or Environment.from_env()
    with fit_display(progress) as (on_progress, _):
        won = winner(sweep, row, dataset, environment, on_progress)
    for warning in won.warnings(fit_on, execution.device if execution else "cpu"):
        log.warning(warning)
    how: dict[str, Any] = {"environment": environment, "progress": progress, "execution": execution, "workers": workers}
    return fit(won.data, won.record.method, **won.arguments(fit_on, seed), **how)


@dataclass(frozen=True)
class Winner:
    """The first final run of a row of a sweep, with its data. `n_runs`: the number of its final runs. `changed`: the names of
    plugins, or rankbench, whose code is another one now.
    """

    sweep: str
    data: Dataset
    record: RunRecord
    n_runs: int
    changed: tuple[str, ...] = ()

    def config(self, fit_on: str | None) -> MethodConfig:
        """The setting for a fit on `fit_on`, by default on the parts of the final run."""
        config = configure(self.record.method, self.record.params, f"{self.sweep}: {self.record.arm}")
        return config if (fit_on or self.record.fit_on) == "train" else config.without_valid(self.record.iterations)

    def warnings(self, fit_on: str | None, device: str) -> list[str]:
        """Why the model of a fit on `fit_on`, on a device, may be another one than that of the final run."""
        record, config, won = self.record, self.config(fit_on), self.config("train")
        found = [f"{name} has changed since the sweep, so that the model may be another one" for name in self.changed]
        if record.device.partition(":")[0] != device.partition(":")[0]:
            found.append(f"the final run was fitted on {record.device}; on {device}, the last digits may differ")
        if config != won and not won.spec.nested(won.params):
            what = f"valid chose iteration {record.iterations} of the final run"
            found.append(f"{what}; a fit of so many is not its beginning, because the learning rate depends on their number")
        return found

    def arguments(self, fit_on: str | None, seed: int | None) -> dict[str, Any]:
        """The arguments of `fit` beside dataset and method."""
        record = self.record
        about = {"fit_on": fit_on or record.fit_on, "dtype": record.dtype, "seed": record.seed if seed is None else seed}
        config = self.config(fit_on)
        return about | {name: value for name, value in config.flat.items() if name in config.used}


def winner(
    sweep: str | Path | Results, row: str, dataset: str | None, environment: Environment, progress: Progress = ignore_progress
) -> Winner:
    """Return what the final run of `row` on `dataset` was. Raises ConfigError as `fit_from` does."""
    stored = sweep.stored if isinstance(sweep, Results) else find(str(sweep), environment)
    name, experiment = stored.about.id or str(sweep), stored.about.experiment
    if stored.chosen is None:
        state = "is not finished; resume the sweep first" if stored.about.id else "was never run; run it first"
        raise ConfigError(f"{name}: {state}")
    datasets = [*dict.fromkeys(each.dataset for each in stored.chosen.rows)]
    require(dataset is not None or len(datasets) == 1, f"{name}: name one of its datasets: {', '.join(datasets)}")
    dataset = dataset or datasets[0]
    require(dataset in datasets, f"{name}: no dataset {dataset!r}{nearest(dataset, datasets)}; it has {', '.join(datasets)}")
    rows = {each.arm: each for each in stored.chosen.rows if each.dataset == dataset}
    require(row in rows, f"{name}: no row {row!r}{nearest(row, rows)}; its rows: {'; '.join(rows)}")
    finals = [stored.records[each] for each in rows[row].final if each in stored.records]
    finished = [each for each in finals if each.finished]
    why = next((each.error for each in finals if each.error), "it has none")
    require(bool(finished), f"{name}: {row} has no finished final run on {dataset}: {why}")
    record = finished[0]
    entry = experiment.entry_of(dataset)
    stand_in = isinstance(entry, dict) and "card" in entry
    require(not stand_in, f"{name}: {dataset} stands in for data that were not available; run the sweep on the data first")
    card = card_of(entry, environment, name)
    if card.split.seed != record.dataset.split_seed:
        card = card_of(with_split_seed(entry, record.dataset.split_seed), environment, name)
    data = prepare(card, environment, progress)
    unchanged = data.fingerprint == record.dataset.fingerprint
    require(unchanged, f"{name}: the data of {dataset} have changed since; run the sweep again")
    return Winner(name, data, record, len(finished), tuple(changed_code([record])))
