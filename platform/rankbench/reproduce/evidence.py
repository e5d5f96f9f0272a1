"""The store of what was measured: a line of JSON per fit, without values per user, small enough to be committed.

The files of a folder have one dataset each: DATASET.fits.jsonl, DATASET.searches.jsonl with what searches chose,
DATASET.studies.jsonl, DATASET.claims.jsonl, the tests of claims, and DATASET.neighbours.jsonl, the tests between rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rankbench.core.errors import DataError
from rankbench.core.json_lines import JsonLines
from rankbench.experiment.job import MethodConfig
from rankbench.reproduce.lines import (
    KINDS,
    Part,
    Stored,
    StoredClaim,
    StoredFit,
    StoredNeighbours,
    StoredSearch,
    StoredStudy,
)
from rankbench.tracking.record import Measured, RunRecord

PACKAGES = ("torch", "numpy", "scipy")  # whose versions can change a result


class Evidence:
    """The fits and searches in a folder. `add` writes the file of the dataset anew, whole or not at all; with `read_only` it
    only remembers the line.
    """

    def __init__(self, folder: Path, read_only: bool = False, skipped: list[str] | None = None):
        """Read the folder, which need not exist. Raises DataError naming file and line for what cannot be read; with `skipped`,
        it is described there and left out.
        """
        self.folder, self.read_only = folder, read_only
        self.fits: dict[str, list[StoredFit]] = {}
        self.searches: dict[str, list[StoredSearch]] = {}
        self.studies: dict[str, list[StoredStudy]] = {}
        self.claims: dict[str, list[StoredClaim]] = {}
        self.neighbours: dict[str, list[StoredNeighbours]] = {}
        self.read(skipped)

    def read(self, skipped: list[str] | None = None) -> None:
        """Read all files, to which other processes may have added lines."""
        for path in sorted(self.folder.glob("[!.]*.jsonl")):  # not what another process is writing
            dataset, _, kind = path.name.removesuffix(".jsonl").rpartition(".")
            if kind in KINDS and dataset:
                getattr(self, kind)[dataset] = self._file(dataset, kind).read(skipped)
                continue
            problem = f"{path}: expected a name that ends in {', '.join(f'.{each}.jsonl' for each in KINDS)}"
            if skipped is None:
                raise DataError(problem)
            skipped.append(problem)

    def _file(self, dataset: str, kind: str) -> JsonLines[Any]:
        return JsonLines(self.folder / f"{dataset}.{kind}.jsonl", KINDS[kind], _key, dataset)

    def find(
        self, dataset: str, card: str, config: MethodConfig, fit_on: str, dtype: str, metrics: Iterable[str] = ()
    ) -> list[StoredFit]:
        """Return the fits of a setting with all of `metrics`, one per seed, by seed: the last one, if a fit was made again. All
        are of the same prepared data, those of the last fit: a raw file may change, and its card does not.
        """
        needed = set(metrics)
        same = [
            fit
            for fit in sorted(self.fits.get(dataset, ()), key=lambda fit: fit.started_at)
            if (fit.card, fit.method, fit.fit_on, fit.dtype) == (card, config.method, fit_on, dtype)
            and same_params(config, fit.params)
            and needed <= set(fit.metrics)
        ]
        found = {fit.seed: fit for fit in same if fit.fingerprint == same[-1].fingerprint}
        return [found[seed] for seed in sorted(found)]

    def search_of(
        self, dataset: str, card: str, method: str, space: dict[str, Any], metric: str, on: Part
    ) -> StoredSearch | None:
        """Return the search of a space on a part, None if there is none."""
        wanted = json.dumps(space, sort_keys=True)
        for each in self.searches.get(dataset, ()):
            same = (each.card, each.method, each.metric, each.on) == (card, method, metric, on)
            if same and json.dumps(each.space, sort_keys=True) == wanted:
                return each
        return None

    def study_of(self, dataset: str, study: str, params: dict[str, Any], card: str | None = None) -> StoredStudy | None:
        """Return what a study measured with these parameters, on the data of `card` or else last; None if it was not run."""
        same = [each for each in self.studies.get(dataset, ()) if each.study == study and each.params == params]
        return max((each for each in same if card in (None, each.card)), key=lambda each: each.started_at, default=None)

    def claim_of(self, dataset: str, card: str, table: str, text: str, metric: str) -> StoredClaim | None:
        """Return the tests of a claim, None if it was not tested."""
        same = (each for each in self.claims.get(dataset, ()) if (each.card, *each.order) == (card, table, text, metric))
        return next(same, None)

    def neighbours_of(self, dataset: str, card: str, table: str, metric: str) -> StoredNeighbours | None:
        """Return the tests between the rows of a table, None if there are none."""
        same = (each for each in self.neighbours.get(dataset, ()) if (each.card, *each.order) == (card, table, metric))
        return next(same, None)

    def add(self, line: Stored) -> None:
        """Add a line; one of the same setting, data and seed is replaced. Lines that another process has added to the file of
        the dataset since it was read are kept.
        """
        kind = next(name for name, each in KINDS.items() if isinstance(line, each))
        lines: dict[str, list[Any]] = getattr(self, kind)
        if self.read_only:
            lines[line.dataset] = _with(line, lines.get(line.dataset, []))
            return
        lines[line.dataset] = self._file(line.dataset, kind).update(lambda stored: _with(line, stored))


def stored_fit(record: RunRecord, config: MethodConfig, card: str, idle: bool) -> StoredFit:
    """Return the line of a finished run of `config`."""
    about = record.environment
    packages = about.get("packages", {})
    return StoredFit(
        dataset=record.dataset.name,
        card=card,
        fingerprint=record.dataset.fingerprint,
        method=record.method,
        params=used_params(config),
        fit_on=record.fit_on,
        seed=record.seed,
        dtype=record.dtype,
        metrics={name: _rounded(m) for name, m in record.metrics.items()},
        users=record.users,
        counts=record.dataset.counts,
        iterations=record.iterations,
        seconds={name: round(value, 2) for name, value in record.seconds.items()},
        fit_shared_by=record.fit_shared_by,
        peak_memory_gb=round(record.peak_memory_bytes / 1e9, 2),
        threads=record.threads,
        device=record.device,
        idle=idle,
        revision=about.get("revision"),
        versions={name: packages[name] for name in PACKAGES if name in packages},
        cpu=str(about.get("machine", {}).get("cpu", "")),
        started_at=record.started_at,
        run=record.id,
    )


def used_params(config: MethodConfig) -> dict[str, Any]:
    """Return the parameters that a fit of `config` reads, by name."""
    flat = config.flat
    return {name: flat[name] for name in sorted(config.used)}


def same_params(config: MethodConfig, stored: dict[str, Any]) -> bool:
    """Whether a fit of `config` reads the stored parameters. One that is newer than the stored fit had its default then."""
    wanted = used_params(config)
    if not set(stored) <= set(wanted) or any(wanted[name] != value for name, value in stored.items()):
        return False
    newer = wanted.keys() - stored.keys()
    if not newer:
        return True
    # The parameters of an encoder have a default only beside its name, which is among the stored ones.
    defaults = config.spec.flat(config.spec.configure(stored, config.method))
    return all(wanted[name] == defaults[name] for name in newer)


def _rounded(m: Measured) -> tuple[float, float | None, float | None]:
    low, high = (None if value is None else round(value, 6) for value in (m.low, m.high))
    return round(m.mean, 6), low, high


def _key(line: Stored) -> tuple[Any, ...]:
    """What a line is of: a setting, data and seed, or a table."""
    return *line.order, line.card


def _with(line: Stored, known: Iterable[Any]) -> list[Any]:
    """Return the lines in order, with `line` in place of one of the same key."""
    return sorted([*(each for each in known if _key(each) != _key(line)), line], key=_key)
