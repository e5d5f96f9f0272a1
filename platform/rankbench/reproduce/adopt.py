"""Take finished runs of this machine into the evidence: whatever command made them, an equal setting is the same fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from rankbench.core.environment import Environment
from rankbench.core.errors import ConfigError, DataError, DownloadError
from rankbench.data.prepare import prepare
from rankbench.experiment.job import configure
from rankbench.reproduce.evidence import Evidence, stored_fit, used_params
from rankbench.reproduce.required_fits import RequiredFit
from rankbench.reproduce.schedule import measurement_of
from rankbench.tracking.record import RunRecord, read_record
from rankbench.tracking.run_fields import CHANGED


def adopt(fits: Iterable[RequiredFit], evidence: Evidence, environment: Environment, warn: Callable[[str], None]) -> int:
    """Add a line for each wanted fit without one that some command has run on the same data. Returns how many were added."""
    missing = [fit for fit in fits if not measurement_of(fit, evidence)]
    if not missing:
        return 0
    records: dict[tuple[str, str, str, int, str], list[RunRecord]] = {}
    for _, record in stored_runs(environment, warn):
        if record.finished and record.measured_on == "test" and not record.tiles:
            key = record.dataset.name, record.method, record.fit_on, record.seed, record.dtype
            records.setdefault(key, []).append(record)
    added = 0
    for fit in missing:
        alike = records.get((fit.card.name, fit.config.method, fit.part, fit.seed, fit.dtype), ())
        same = (each for each in alike if _same(each, fit, environment))
        if record := max(same, key=lambda each: each.started_at, default=None):
            evidence.add(stored_fit(record, fit.config, fit.card_key, idle=False, metrics=fit.metrics))
            added += 1
    return added


def stored_runs(environment: Environment, warn: Callable[[str], None] = lambda line: None) -> Iterator[tuple[Path, RunRecord]]:
    """Yield the folders and records of the runs of this machine, whatever command made them, but those that cannot be read."""
    for path in environment.record_files():
        try:
            yield path.parent, read_record(path.parent)
        except DataError as error:
            warn(f"{error}; left out")


def _same(record: RunRecord, fit: RequiredFit, environment: Environment) -> bool:
    changed = str(record.environment.get("revision") or "").endswith(CHANGED)
    if changed or not set(fit.metrics) <= set(record.metrics):
        return False
    try:
        same = used_params(configure(record.method, record.params, record.id)) == used_params(fit.config)
        return same and prepare(fit.card, environment).fingerprint == record.dataset.fingerprint
    except (ConfigError, DownloadError):  # also parameters of another version, and an encoder of a plugin that is not loaded
        return False
