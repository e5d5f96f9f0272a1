"""Reuse of finished runs: a run of another sweep on the same data by the same code is copied, not repeated."""

from __future__ import annotations

import logging
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankbench.core.environment import Environment
from rankbench.core.errors import DataError
from rankbench.core.files import atomic_folder
from rankbench.data.prepare import prepare
from rankbench.sweeps.plan import Unit
from rankbench.tracking.environment import describe_environment
from rankbench.tracking.record import RunRecord, find_record, read_record

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Earlier:
    """Folders of the records of earlier sweeps by id, a hash of method, parameters, card, parts, metrics and seed."""

    records: dict[str, Path]
    code: tuple[str | None, ...]
    environment: Environment

    @classmethod
    def than(cls, folder: Path, environment: Environment) -> Earlier:
        """The records of all sweeps except that in `folder`. Empty if the code has uncommitted changes, and so no version."""
        code = _code(describe_environment())
        if code[0] is not None and code[0].endswith("+changes"):
            return cls({}, code, environment)
        paths = (environment.results / "sweeps").glob("*/records/[!.]*/record.json")
        by_age = sorted(paths, key=lambda path: path.stat().st_mtime)
        return cls({path.parent.name: path.parent for path in by_age if path.parents[2] != folder}, code, environment)

    def adopt(self, unit: Unit, records: Path) -> bool:
        """Copy the records of the unit's settings to `records` if all of them can be reused. Returns whether they can."""
        ids = [unit.job.run_id(config) for config in unit.job.configs]
        if not all(name in self.records for name in ids):
            return False
        try:
            reused = [read_record(self.records[name]) for name in ids]
        except DataError as error:
            log.warning("%s; the run is repeated", error)
            return False
        fingerprint = prepare(unit.job.card, self.environment).fingerprint
        if not all(self._same(record, fingerprint) for record in reused):
            return False
        for record in reused:
            own = find_record(records / record.id)
            if own is None or own.failed:
                with atomic_folder(records / record.id, replace=True) as scratch:
                    shutil.copytree(self.records[record.id], scratch, dirs_exist_ok=True)
        return True

    def _same(self, record: RunRecord, fingerprint: str) -> bool:
        return record.finished and record.dataset.fingerprint == fingerprint and _code(record.environment) == self.code


def _code(about: dict[str, Any]) -> tuple[str | None, ...]:
    """Revision and version of this program, and the hashes of the plugins."""
    plugins = sorted(plugin["sha256"] for plugin in about.get("plugins", ()))
    return about.get("revision"), about.get("packages", {}).get("rankbench"), *plugins
