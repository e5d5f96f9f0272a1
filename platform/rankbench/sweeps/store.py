"""Where the records and files of a sweep live: in a folder that all hosts share, or in a store with a local copy.

With a store, the folder is the driver's copy. A trial stores its records itself, wherever it runs, and the driver copies them
when it ends. The sweep and each of its trials are numbered attempts, of which only the newest can publish.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from rankbench.core.attempts import FolderAttempt, StoredAttempt
from rankbench.core.environment import Environment
from rankbench.core.files import atomic_folder, write_json
from rankbench.core.replica import push
from rankbench.core.storage import Storage
from rankbench.schema.shared_sweeps import ATTEMPTS, FILES, RECORDS, SWEEPS, copy_records, part_name
from rankbench.tracking.record import RunRecord, write_record

SWEEP = "sweep"  # the name of the attempts at the sweep itself
OUTGOING = "outgoing"  # folder beside the records, of those that are being stored
CHECKPOINTS = "checkpoints"  # folder beside the records, with a folder of states for each fit that has not ended
PART = 1 << 16  # bytes after which the next part of a growing file begins


@dataclass(frozen=True)
class Claim:
    """An attempt at a sweep, in the folder and, if there is one, in the store. Other hosts see only one of the two."""

    local: FolderAttempt | None
    stored: StoredAttempt | None = None

    @property
    def number(self) -> int:
        assert self.local, "only its own host writes to the folder"
        return self.local.number

    @property
    def is_newest(self) -> bool:
        return all(attempt.is_newest for attempt in (self.local, self.stored) if attempt)

    def require_newest(self) -> None:
        """Raise Superseded if a newer attempt exists."""
        for attempt in (self.local, self.stored):
            if attempt:
                attempt.require_newest()


@dataclass(frozen=True)
class SweepStore:
    """The place of one sweep, or of the fits of a reproduction or a leaderboard, which are records in a folder without a claim.
    `shared`: the objects of this sweep; None if `folder` itself is shared. `claim`: that of the driver, None for the records of
    trials alone.
    """

    folder: Path
    shared: Storage | None = None
    claim: Claim | None = None

    @classmethod
    def of(cls, folder: Path, environment: Environment) -> SweepStore:
        """The place of the sweep in `folder`, not claimed."""
        shared = environment.results_store
        return cls(folder, shared.below(f"{SWEEPS}/{folder.name}") if shared else None)

    @property
    def records(self) -> Path:
        return self.folder / RECORDS

    def claimed(self) -> SweepStore:
        """Claim the sweep for this process: whoever ran it before can write nothing more."""
        what = f"the sweep {self.folder.name}"
        files = [self.folder / name for name in ("sweep.json", "comparisons.json", "chosen.json")]
        stored = StoredAttempt.claim(self.shared, f"{ATTEMPTS}/{SWEEP}", what) if self.shared else None
        return replace(self, claim=Claim(FolderAttempt.claim(self.folder / ATTEMPTS / SWEEP, what, files), stored))

    def here(self, environment: Environment) -> SweepStore:
        """This place as a worker sees it, whose local folders may be others."""
        if self.shared is None:
            return self
        claim = self.claim and Claim(None, self.claim.stored)
        return replace(self, folder=environment.results / SWEEPS / self.folder.name, claim=claim)

    def write(self, name: str, content: Any) -> None:
        """Write a JSON file of the sweep. Raises Superseded if another process has taken the sweep over."""
        write_json(self.folder / name, content, self.claim)
        self.publish(name)

    def publish(self, *names: str) -> None:
        """Store files of the folder under this attempt."""
        if self.shared and self.claim and self.claim.stored:
            for name in names:
                self.shared.upload(f"{FILES}/{self.claim.stored.name}/{name}", self.folder / name)

    def publish_part(self, name: str, start: int) -> int:
        """Store what a growing file of the folder has from byte `start` on. Returns where its next part begins.

        In a store nothing can be appended: there, such a file consists of parts, of which only the last is written again. A
        part is complete before the next one begins, so that readers have all that was published.
        """
        if not (self.shared and self.claim and self.claim.stored):
            return start
        with (self.folder / name).open("rb") as file:
            file.seek(start)
            content = file.read()
        self.shared.write(f"{FILES}/{self.claim.stored.name}/{part_name(name, start)}", content)
        return start + len(content) if len(content) >= PART else start

    def trial(self, run_id: str, ids: Sequence[str]) -> TrialRecords:
        """Claim the next attempt at a trial, which will write the records `ids`.

        Raises Superseded if another process has taken the sweep over, whose own trials then come first.
        """
        if self.claim:
            self.claim.require_newest()
        what, key = f"the trial {run_id}", f"{ATTEMPTS}/{run_id}"
        attempt: FolderAttempt | StoredAttempt
        if self.shared:
            attempt = StoredAttempt.claim(self.shared, key, what)
        else:
            attempt = FolderAttempt.claim(self.folder / key, what, [self.records / each for each in ids])
        if self.claim and not self.claim.is_newest:
            attempt.withdraw()
            self.claim.require_newest()
        return TrialRecords(self, attempt)

    def fetch(self, ids: Sequence[str] | None = None) -> None:
        """Copy the records that trials have stored to the folder, all or those with `ids`."""
        if self.shared:
            copy_records(self.shared, RECORDS, self.records, ids, self.claim and self.claim.local)


@dataclass(frozen=True)
class TrialRecords:
    """The records of one attempt at a trial."""

    store: SweepStore
    attempt: FolderAttempt | StoredAttempt

    def write(self, record: RunRecord, per_user: pa.Table | None) -> None:
        """Write a record, whole or not at all. Raises Superseded if a newer attempt at the trial exists."""
        if isinstance(self.attempt, FolderAttempt):
            write_record(self.store.records, record, per_user, replace=True, fence=self.attempt)
            return
        outgoing = self.store.folder / OUTGOING / self.attempt.name
        try:
            self._store(write_record(outgoing, record, per_user))
        finally:
            shutil.rmtree(outgoing, ignore_errors=True)

    def copy(self, folder: Path) -> None:
        """Write a copy of the record in `folder`."""
        if isinstance(self.attempt, StoredAttempt):
            self._store(folder)
            return
        with atomic_folder(self.store.records / folder.name, replace=True, fence=self.attempt) as scratch:
            shutil.copytree(folder, scratch, dirs_exist_ok=True)

    def _store(self, folder: Path) -> None:
        """Store the record in `folder`. Even if a newer attempt exists by now, its own key comes after this one."""
        assert self.store.shared and isinstance(self.attempt, StoredAttempt)
        self.attempt.require_newest()
        push(folder, self.store.shared, f"{RECORDS}/{folder.name}/{self.attempt.name}")
