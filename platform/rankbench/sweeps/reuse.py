"""Finished runs of other sweeps: what was measured once on the same data by the same code is copied, not run again."""

from __future__ import annotations

import logging
import shutil
from dataclasses import dataclass
from pathlib import Path

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
    """The records of all sweeps under results/ by id, which is a hash of method, parameters, card, parts, metrics and seed."""

    records: dict[str, Path]
    code: tuple[str | None, str | None]
    environment: Environment

    @classmethod
    def than(cls, folder: Path, environment: Environment) -> Earlier:
        """All but those of the sweep in `folder`. None where this code has no name of its own: uncommitted changes."""
        code = _code(describe_environment())
        if code[0] is not None and code[0].endswith("+changes"):
            return cls({}, code, environment)
        found = sorted(
            (environment.results / "sweeps").glob("*/records/[!.]*/record.json"), key=lambda path: path.stat().st_mtime
        )
        others = {path.parent.name: path.parent for path in found if path.parents[2] != folder}
        return cls(others, code, environment)

    def adopt(self, unit: Unit, records: Path) -> bool:
        """Copy the records of all the unit's settings into `records`, if all are there. Returns whether they are."""
        ids = [unit.job.run_id(config) for config in unit.job.configs]
        if not all(name in self.records for name in ids):
            return False
        try:
            found = [read_record(self.records[name]) for name in ids]
        except DataError as error:
            log.warning("%s; the run is made again", error)
            return False
        fingerprint = prepare(unit.job.card, self.environment).fingerprint
        if not all(self._same(record, fingerprint) for record in found):
            return False
        for record in found:
            own = find_record(records / record.id)
            if own is None or own.failed:
                with atomic_folder(records / record.id, replace=True) as scratch:
                    shutil.copytree(self.records[record.id], scratch, dirs_exist_ok=True)
        return True

    def _same(self, record: RunRecord, fingerprint: str) -> bool:
        return record.finished and record.dataset.fingerprint == fingerprint and _code(record.environment) == self.code


def _code(about: dict) -> tuple[str | None, str | None]:
    return about.get("revision"), about.get("packages", {}).get("rankbench")
