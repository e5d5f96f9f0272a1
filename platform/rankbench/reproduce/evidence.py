"""The evidence of papers: a ledger of fits, of what searches chose, of studies, and of the tests of claims and between rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from rankbench.experiment.job import MethodConfig
from rankbench.judge.convergence import TrainingCurve
from rankbench.ledger.ledger import Ledger
from rankbench.ledger.line import measured_in
from rankbench.reproduce.ledger_records import Part, StoredClaim, StoredFit, StoredNeighbours, StoredSearch, StoredStudy
from rankbench.tracking.record import Measured, RunRecord


class Evidence(Ledger):
    """The fits, searches, studies and tests in a folder."""

    kinds = {
        "fits": StoredFit,
        "searches": StoredSearch,
        "studies": StoredStudy,
        "claims": StoredClaim,
        "neighbours": StoredNeighbours,
    }

    def find(
        self, dataset: str, card: str, config: MethodConfig, fit_on: str, dtype: str, metrics: Iterable[str] = ()
    ) -> list[StoredFit]:
        """Return the fits of a setting with all of `metrics`, one per seed, by seed: the last one, if a fit was made again. All
        are of the same prepared data, those of the last fit: a raw file may change, and its card does not.
        """
        needed = set(metrics)
        same = [
            fit
            for fit in sorted(self.lines(StoredFit, dataset), key=lambda fit: fit.started_at)
            if (fit.card, fit.method, fit.fit_on, fit.dtype) == (card, config.method, fit_on, dtype)
            and same_params(config, fit.params)
            and needed <= set(fit.metrics)
        ]
        found = {fit.seed: fit for fit in same if fit.fingerprint == same[-1].fingerprint}
        return [found[seed] for seed in sorted(found)]

    def search_of(
        self, dataset: str, card: str, method: str, space: dict[str, Any], metric: str, on: Part, seed: int
    ) -> StoredSearch | None:
        """Return the search of a space on a part, with the draws of a seed; None if there is none."""
        return self.with_key(StoredSearch, dataset, (method, json.dumps(space, sort_keys=True), metric, on, seed, card))

    def study_of(self, dataset: str, card: str, study: str, params: dict[str, Any]) -> StoredStudy | None:
        """Return what a study measured last with these parameters; None if it was not run."""
        lines = self.lines(StoredStudy, dataset)
        same = (each for each in lines if (each.card, each.study, each.params) == (card, study, params))
        return max(same, key=lambda each: each.started_at, default=None)

    def claim_of(self, dataset: str, card: str, table: str, text: str, metric: str) -> StoredClaim | None:
        """Return the tests of a claim, None if it was not tested."""
        return self.with_key(StoredClaim, dataset, (table, text, metric, card))

    def neighbours_of(self, dataset: str, card: str, table: str, metric: str) -> StoredNeighbours | None:
        """Return the tests between the rows of a table, None if there are none."""
        return self.with_key(StoredNeighbours, dataset, (table, metric, card))


def stored_fit(record: RunRecord, config: MethodConfig, card: str, idle: bool, metrics: Sequence[str] = ()) -> StoredFit:
    """Return the line of a finished run of `config`. `metrics`: those of the rows that it serves, the most wanted one first."""
    measured = measured_in(record) | {
        "metrics": {name: _rounded(m) for name, m in record.metrics.items()},
        "peak_memory_gb": round(record.peak_memory_bytes / 1e9, 4),
    }
    return StoredFit(
        dataset=record.dataset.name,
        card=card,
        method=record.method,
        params=used_params(config),
        fit_on=record.fit_on,
        seed=record.seed,
        dtype=record.dtype,
        counts=record.dataset.counts,
        fit_shared_by=record.fit_shared_by,
        device=record.device,
        idle=idle,
        run=record.id,
        curves=curves_of(record, metrics),
        **measured,
    )


def curves_of(record: RunRecord, metrics: Sequence[str] = ()) -> tuple[TrainingCurve, ...]:
    """Return the curves of a run, thinned: on the validation set, and on test in the first of `metrics` that it has, or in the
    first of all.
    """
    columns = dict.fromkeys(name for row in record.curve for name in row if "@" in name)
    first = next((name for name in (*metrics, *columns) if name in columns), "") if record.measured_on == "test" else ""
    curves = [
        TrainingCurve.of(record.curve, "valid", str(record.params.get("stop_metric", "")), "valid"),
        TrainingCurve.of(record.curve, first, first, "test"),
    ]
    return tuple(curve.thinned(record.iterations) for curve in curves if curve.points)


def used_params(config: MethodConfig) -> dict[str, Any]:
    """Return the parameters that a fit of `config` reads, by name."""
    flat = config.flat
    return {name: flat[name] for name in sorted(config.used)}


def same_params(config: MethodConfig, stored: dict[str, Any]) -> bool:
    """Whether a fit of `config` reads the stored parameters. One that is newer than the stored fit had its default then. One
    that the fit does not read may have any value.
    """
    wanted = used_params(config)
    if not set(stored) <= set(config.flat) or any(wanted.get(name, value) != value for name, value in stored.items()):
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
