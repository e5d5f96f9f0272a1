"""RunRecord: what one run was and what came out, as record.json and per_user.parquet. The truth; the rest are views."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rankbench.errors import DataError
from rankbench.files import atomic_folder

FORMAT = 1


@dataclass(frozen=True)
class RunRecord:
    """One setting, fitted and measured once, in JSON values only. `status`: finished, failed, or stopped before its end since
    others of its arm did better; `error` is the reason.

    `metrics`: name → {mean, low, high}. `curve`: of a method that goes by iterations a row each: iteration, training seconds,
    loss per interaction, and now and then metrics over a sample of users, or what was watched on valid. `iterations`: those of
    the model that was kept, where it chose itself when to end. `same_as`: the id of the run whose ranking is
    provably this one's. `seconds` by phase; of a fit that `fit_shared_by` settings shared, each states the whole.
    `tiles`: rows of a
    tile, where the item-item matrix did not fit into memory and lay in a file. `peak_memory_bytes`: resident.
    """

    id: str
    method: str
    params: dict[str, Any]
    dataset: dict[str, Any]
    fit_on: str
    measured_on: str
    seed: int
    dtype: str
    status: str = "finished"
    error: str | None = None
    arm: str | None = None
    stage: str = "run"
    metrics: dict[str, dict[str, float | None]] = field(default_factory=dict)
    users: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    curve: list[dict[str, float]] = field(default_factory=list)
    iterations: int | None = None
    fit_shared_by: int = 1
    tiles: int | None = None
    same_as: str | None = None
    peak_memory_bytes: int = 0
    threads: int = 0
    device: str = "cpu"
    environment: dict[str, Any] = field(default_factory=dict)
    started_at: str = ""
    format: int = FORMAT

    @property
    def finished(self) -> bool:
        return self.status == "finished"

    @property
    def failed(self) -> bool:
        return self.status == "failed"


def write_record(folder: Path, record: RunRecord, per_user: pa.Table | None, replace: bool = False) -> Path:
    """Write folder/<id>/ whole; returns it. An earlier finished record of the same id is kept unless `replace`, a failed one
    is not.
    """
    target = folder / record.id
    if target.is_dir() and (replace or not read_record(target).finished):
        shutil.rmtree(target)
    with atomic_folder(target) as scratch:
        text = json.dumps(asdict(record), indent=2, allow_nan=False)
        (scratch / "record.json").write_text(text + "\n", encoding="utf-8")
        if per_user is not None:
            pq.write_table(per_user, scratch / "per_user.parquet", compression="zstd")
    return target


def read_record(folder: Path) -> RunRecord:
    """The record in `folder`. Raises DataError when there is none, or it is of another format."""
    path = folder / "record.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content.get("format") != FORMAT:
            raise DataError(f"{path}: format {content.get('format')}, this version reads {FORMAT}")
        return RunRecord(**content)
    except FileNotFoundError:
        raise DataError(f"{path}: no such record") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: not a run record ({error})") from None


def read_records(folder: Path) -> list[RunRecord]:
    """Every record directly under `folder`, by id."""
    if not folder.is_dir():
        return []
    return [read_record(path.parent) for path in sorted(folder.glob("[!.]*/record.json"))]


def per_user_table(user_ids: pa.Array, values: dict[str, np.ndarray]) -> pa.Table:
    """Columns user (raw ids) and one a metric, float32: seven digits are more than a ranking metric has."""
    return pa.table({"user": user_ids} | {name: value.astype(np.float32) for name, value in values.items()})


def read_per_user(folder: Path) -> pa.Table:
    """The per-user metrics of a finished record."""
    path = folder / "per_user.parquet"
    try:
        return pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise DataError(f"{path}: {str(error).splitlines()[0]}") from None
