"""Reuse of finished runs: a run of another sweep on the same data by the same code is copied, not repeated."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rankbench.core.environment import Environment
from rankbench.core.errors import DataError
from rankbench.core.replica import pull
from rankbench.data.prepare import prepare
from rankbench.schema.shared_sweeps import stored_records
from rankbench.sweeps.store import SweepStore
from rankbench.sweeps.units import Unit
from rankbench.tracking.environment import describe_environment
from rankbench.tracking.record import RunRecord, find_record, read_record

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Earlier:
    """Folders of the records of earlier sweeps by id, a hash of method, parameters, card, parts, metrics and seed.

    `stored`: ids of records in the store → their keys; they are copied to the folder before they are read.
    """

    records: dict[str, Path]
    code: tuple[str | None, ...]
    environment: Environment
    stored: dict[str, str] = field(default_factory=dict)

    @classmethod
    def than(cls, folder: Path, environment: Environment) -> Earlier:
        """The records of all sweeps except that in `folder`. Empty if the code has uncommitted changes, and so no version."""
        about = describe_environment()
        code = _code(about)
        if str(about["revision"]).endswith("+changes"):
            return cls({}, code, environment)
        paths = (environment.results / "sweeps").glob("*/records/[!.]*/record.json")
        by_age = sorted(paths, key=lambda path: path.stat().st_mtime)
        own = {path.parent.name: path.parent for path in by_age if path.parents[2] != folder}
        others = stored_records(environment.results_store) if environment.results_store else []
        stored = {name: key for name, key in others if key.startswith("sweeps/") and key.split("/")[1] != folder.name}
        copies = {name: environment.results / key.rpartition("/")[0] for name, key in stored.items()}
        return cls(own | copies, code, environment, stored)

    def adopt(self, unit: Unit, store: SweepStore) -> bool:
        """Copy the records of the unit's settings to `store` if all of them can be reused. Returns whether they can."""
        records = store.records
        ids = [unit.job.run_id(config) for config in unit.job.configs]
        if not all(name in self.records for name in ids):
            return False
        for name in ids:
            if name in self.stored and self.environment.results_store:
                pull(self.environment.results_store, self.stored[name], self.records[name])
        try:
            reused = [read_record(self.records[name]) for name in ids]
        except DataError as error:
            log.warning("%s; the run is repeated", error)
            return False
        fingerprint = prepare(unit.job.card, self.environment).fingerprint
        if not all(self._same(record, fingerprint) for record in reused):
            return False
        attempt = store.trial(unit.run_id, unit.ids)
        for record in reused:
            own = find_record(records / record.id)
            if own is None or own.failed:
                attempt.copy(self.records[record.id])
        store.fetch(ids)
        return True

    def _same(self, record: RunRecord, fingerprint: str) -> bool:
        return record.finished and record.dataset.fingerprint == fingerprint and _code(record.environment) == self.code


def _code(about: dict[str, Any]) -> tuple[str | None, ...]:
    """The hashes of the source files and of the plugins. A record of a version that stored none has no code to compare."""
    return about.get("code"), *sorted(plugin["sha256"] for plugin in about.get("plugins", ()))
