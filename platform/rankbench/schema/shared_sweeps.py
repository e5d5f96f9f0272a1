"""The stored form of sweeps and runs in a store, and the local copies that commands read.

    sweeps/<id>/attempts/<what>/<attempt>       who began the sweep or a trial, and when; <what>: sweep, or the id of a run
    sweeps/<id>/files/<attempt>/<name>          sweep.json, draws.jsonl, comparisons.json, chosen.json, report/...
    sweeps/<id>/files/<attempt>/draws.jsonl.<n> the file of draws from byte n on, where the part before ends
    sweeps/<id>/records/<run>/<attempt>/        record.json, per_user.parquet, checksums.json
    sweeps/<id>/running.json, stop              the heartbeat, and the request to stop
    runs/<run>/<attempt>/                       as the records of a sweep
    attempts/<run>/<attempt>                    who began a run, and when

Of each file and each record, that of the newest attempt counts (see `core.attempts`).
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rankbench.core.attempts import FolderAttempt, StoredAttempt, attempts
from rankbench.core.environment import Environment
from rankbench.core.files import Fence, atomic_file
from rankbench.core.replica import CHECKSUMS, is_copy_of, pull, push
from rankbench.core.storage import Storage
from rankbench.schema.sweep_id import by_start

SWEEPS, RUNS, FILES, RECORDS, ATTEMPTS = "sweeps", "runs", "files", "records", "attempts"
RUNNING, STOP = "running.json", "stop"
SILENT = 30.0  # seconds without a heartbeat after which a sweep counts as dead
_READ = ("sweep.json", "draws.jsonl", "comparisons.json", "chosen.json")  # the report is for people, and is not copied
_PART = re.compile(r"(.+)\.(\d{12})")


def stored_ids(storage: Storage) -> list[str]:
    """Ids of all stored sweeps, oldest first."""
    return by_start(storage.names(SWEEPS))


def copy_sweep(name: str, environment: Environment, take_over: bool = False) -> Path:
    """Bring the local copy of a stored sweep up to date; returns its folder.

    The copy in which a process of this host runs the sweep is left alone, because it has what is stored, and more; unless the
    caller is to `take_over` the sweep.
    """
    assert environment.results_store
    storage, folder = environment.results_store.below(f"{SWEEPS}/{name}"), environment.results / SWEEPS / name
    with suppress(FileNotFoundError):
        if not take_over and abs(time.time() - (folder / RUNNING).stat().st_mtime) < SILENT:
            return folder
    keys: dict[str, dict[str, dict[int, str]]] = defaultdict(lambda: defaultdict(dict))  # file → attempt → start of part → key
    for key in storage.objects(FILES):
        _, attempt, stored = key.split("/", 2)
        part = _PART.fullmatch(stored)
        file, start = (part[1], int(part[2])) if part else (stored, 0)
        if file in _READ and attempts([attempt]):
            keys[file][attempt][start] = key
    # A sweep without its file has not begun for readers, so that comes last.
    for file, by_attempt in sorted(keys.items(), key=lambda each: each[0] == "sweep.json"):
        _copy_file(storage, by_attempt[max(by_attempt)], folder / file)
    copy_records(storage, RECORDS, folder / RECORDS)
    return folder


def part_name(file: str, start: int) -> str:
    """The name under which the part of a file is stored that begins at the byte `start`."""
    return f"{file}.{start:012d}" if start else file


def copy_records(
    storage: Storage, key: str, folder: Path, only: Collection[str] | None = None, fence: Fence | None = None
) -> list[str]:
    """Bring local copies of the records below `key` up to date, all or those with the ids `only`; returns their ids."""
    keys = storage.objects(key) if only is None else [each for name in only for each in storage.objects(f"{key}/{name}")]
    newest = newest_records(_below(keys, key))
    for name, attempt in newest.items():
        copy_record(storage, f"{key}/{name}/{attempt}", folder / name, fence)
    return [*newest]


def copy_record(storage: Storage, key: str, folder: Path, fence: Fence | None = None) -> None:
    """Make the folder a copy of the record below `key`, if it is not one yet."""
    if not is_copy_of(folder, storage, key):
        pull(storage, key, folder, replace=True, fence=fence)


def newest_records(keys: Collection[str]) -> dict[str, str]:
    """Id of each record that is stored completely → its newest attempt. `keys` begin with the ids."""
    complete: dict[str, list[str]] = defaultdict(list)
    for key in keys:
        parts = key.split("/")
        if len(parts) == 3 and parts[2] == CHECKSUMS and attempts([parts[1]]):
            complete[parts[0]].append(parts[1])
    return {name: max(found) for name, found in sorted(complete.items())}


def stored_records(storage: Storage) -> list[tuple[str, str]]:
    """Id and key of every complete record: of runs, then of sweeps, oldest first."""
    keys = [*storage.objects(RUNS), *storage.objects(SWEEPS)]
    starts = [RUNS, *(f"{SWEEPS}/{sweep}/{RECORDS}" for sweep in stored_ids(storage))]
    newest = ((start, newest_records(_below(keys, start))) for start in starts)
    return [(name, f"{start}/{name}/{attempt}") for start, records in newest for name, attempt in records.items()]


def copy_records_from(start: str, environment: Environment) -> None:
    """Copy the records whose ids begin with `start`, of runs and sweeps, to the local copies of their places."""
    assert environment.results_store
    for name, key in stored_records(environment.results_store):
        if name.startswith(start):
            copy_record(environment.results_store, key, environment.results / key.rpartition("/")[0])


@contextmanager
def claimed_run(run_id: str, environment: Environment) -> Iterator[FolderAttempt | StoredAttempt]:
    """Claim the next attempt at a run for the block, and copy its stored record. It is given back if the block fails."""
    key, what = f"{ATTEMPTS}/{run_id}", f"the run {run_id}"
    folder = environment.results / key
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    attempt: FolderAttempt | StoredAttempt
    if environment.results_store is None:
        attempt = FolderAttempt.claim(folder, what, [environment.results / RUNS / run_id])
    else:
        copy_records(environment.results_store, RUNS, environment.results / RUNS, [run_id])
        attempt = StoredAttempt.claim(environment.results_store, key, what)
    try:
        yield attempt
    except BaseException:
        attempt.withdraw()
        for each in made:
            with suppress(OSError):  # something else is in it by now
                each.rmdir()
        raise


def store_run(folder: Path, attempt: StoredAttempt) -> None:
    """Store the record of a run under its attempt. Raises Superseded if a newer one exists."""
    attempt.require_newest()
    push(folder, attempt.storage, f"{RUNS}/{folder.name}/{attempt.name}")


def _below(keys: list[str], start: str) -> list[str]:
    return [key.removeprefix(f"{start}/") for key in keys if key.startswith(f"{start}/")]


def _copy_file(storage: Storage, parts: dict[int, str], target: Path) -> None:
    """Copy a file whose parts have the given keys, by the bytes where they start."""
    content = b""
    # A process that begins anew with a file stores it in larger parts, and may leave smaller ones, which begin within these.
    while len(content) in parts:
        part = storage.read(parts[len(content)])
        if not part:
            break
        content += part
    if not content or (target.is_file() and target.read_bytes() == content):
        return
    with atomic_file(target) as scratch:
        scratch.write_bytes(content)
