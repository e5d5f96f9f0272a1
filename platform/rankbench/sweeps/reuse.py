"""Reuse of finished runs: a run of another sweep on the same data by the same code, on the same kind of device, is copied and
not repeated.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rankbench.core.code import package_fingerprint
from rankbench.core.environment import Environment
from rankbench.core.errors import DataError
from rankbench.core.plugins import Plugin, loaded
from rankbench.core.registry import plugins_behind
from rankbench.data.prepare import prepare
from rankbench.experiment.outcome import describe
from rankbench.schema.shared_sweeps import copy_record, stored_records
from rankbench.sweeps.store import SweepStore
from rankbench.sweeps.units import Unit
from rankbench.tracking.environment import describe_environment
from rankbench.tracking.record import RunRecord, find_record, read_record

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Earlier:
    """Folders of the records of earlier sweeps by id, a hash of method, parameters, card, parts, metrics and seed.

    `stored`: ids of records in the store → their keys; they are copied to the folder before they are read. `prunes`: a
    scheduler may end trials, which are not reused then, because what becomes of them depends on the others.
    """

    records: dict[str, Path]
    code: str | None
    environment: Environment
    stored: dict[str, str] = field(default_factory=dict)
    prunes: bool = False

    @classmethod
    def than(cls, folder: Path, environment: Environment, prunes: bool = False) -> Earlier:
        """The records of all sweeps except that in `folder`."""
        code = describe_environment()["code"]
        paths = (environment.results / "sweeps").glob("*/records/[!.]*/record.json")
        by_age = sorted(paths, key=lambda path: path.stat().st_mtime)
        own = {path.parent.name: path.parent for path in by_age if path.parents[2] != folder}
        others = stored_records(environment.results_store) if environment.results_store else []
        stored = {name: key for name, key in others if key.startswith("sweeps/") and key.split("/")[1] != folder.name}
        copies = {name: environment.results / key.rpartition("/")[0] for name, key in stored.items()}
        return cls(own | copies, code, environment, stored, prunes)

    def find(self, unit: Unit) -> list[RunRecord]:
        """The records of the unit's settings if all of them can be reused; otherwise none."""
        ids = unit.ids
        if (self.prunes and unit.can_end_early) or not all(name in self.records for name in ids):
            return []
        try:
            for name in ids:
                if name in self.stored and self.environment.results_store:
                    copy_record(self.environment.results_store, self.stored[name], self.records[name])
            reused = [read_record(self.records[name]) for name in ids]
            if ids != [each.id for each in reused]:
                return []
        except DataError as error:
            log.warning("%s; the run is repeated", error)
            return []
        dataset = prepare(unit.job.card, self.environment)
        files, card = checksums(dataset.sources), describe(dataset)
        for record, config in zip(reused, unit.job.configs, strict=True):
            # A record of a version that stored no hash of its code cannot be compared.
            same = record.dataset.fingerprint == dataset.fingerprint and record.environment.get("code") == self.code
            # Other files may name users otherwise, although the interactions are the same.
            same = same and checksums(record.dataset.sources) == files
            # Reports read from the record what the card says of published numbers.
            same = same and (record.dataset.recall, record.dataset.stand_in) == (card.recall, card.stand_in)
            same = same and record.dataset.differences == card.differences
            same = same and record.device.partition(":")[0] == unit.device.partition(":")[0]
            if not (record.finished and same) or other_plugins(record, unit.job.plugins(config)):
                return []
        return reused

    def adopt(self, unit: Unit, store: SweepStore) -> bool:
        """Copy the records of the unit's settings to `store` if all of them can be reused. Returns whether they can."""
        if not (reused := self.find(unit)):
            return False
        attempt = store.trial(unit.run_id, unit.ids)
        for record in reused:
            own = find_record(store.records / record.id)
            if own is None or own.failed:
                attempt.copy(self.records[record.id])
        store.fetch([record.id for record in reused])
        return True


def checksums(sources: Iterable[Mapping[str, Any]]) -> list[str]:
    return sorted(str(each["sha256"]) for each in sources)


def other_plugins(record: RunRecord, used: Iterable[Plugin]) -> set[str]:
    """Names of the plugins that make another result of a record: those of the loaded plugins that it would use now and that
    were not there, and those that it was made with and that are not loaded now in the same version.
    """
    then = {plugin["sha256"]: plugin["name"] for plugin in record.environment.get("plugins", ())}
    now, needed = ({plugin.sha256: plugin.name for plugin in each} for each in (loaded(), used))
    return {needed[digest] for digest in needed.keys() - then} | {then[digest] for digest in then.keys() - now}


def changed_code(records: Sequence[RunRecord]) -> list[str]:
    """Names of the plugins through which finished records would be made by other code now; and rankbench, if its source files
    differ and no plugin explains it.
    """
    finished = [record for record in records if record.finished]
    plugins = sorted({name for record in finished for name in other_plugins(record, plugins_behind(_words(record)))})
    codes = {record.environment.get("code") for record in finished}
    return plugins or (["rankbench"] if codes - {package_fingerprint()} else [])


def _words(record: RunRecord) -> list[str]:
    """The names in a record that a plugin may have registered."""
    words = [record.method, *map(str, record.params.values()), *record.metrics, record.dataset.protocol]
    return [word.partition("@")[0] for word in words]
