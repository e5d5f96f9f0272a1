"""The outcome of a run: its record, finished or not, the metrics of each user, and the model."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

import pyarrow as pa

from rankbench.core.errors import RankbenchError
from rankbench.data.prepare import Dataset
from rankbench.experiment.job import Job, MethodConfig
from rankbench.fitting.drive import Row
from rankbench.fitting.recommenders import Recommender
from rankbench.tracking.environment import describe_environment
from rankbench.tracking.record import DatasetInfo, RunRecord


@dataclass(frozen=True)
class Outcome:
    """A record with the metrics of each user and the model. Both are None for a failed run; the model is also None if it was
    solved by tiles.
    """

    record: RunRecord
    per_user: pa.Table | None = None
    model: Recommender | None = None


def base_record(job: Job, config: MethodConfig, dataset: DatasetInfo, started_at: str) -> RunRecord:
    """Return a record with what is known before the run; the caller replaces the rest."""
    return RunRecord(
        id=job.run_id(config),
        method=config.method,
        params=config.flat,
        dataset=dataset,
        fit_on=job.fit_on,
        measured_on=job.measure_on,
        seed=job.seed,
        dtype=job.dtype,
        arm=config.arm,
        stage=job.stage,
        environment=describe_environment(job.plugins(config)),
        started_at=started_at,
    )


def failure(job: Job, config: MethodConfig, error: BaseException | str) -> RunRecord:
    """Return the record of a run that failed, with the reason in one line."""
    of_itself = isinstance(error, str | RankbenchError)
    return stopped(job, config, str(error) if of_itself else f"{type(error).__name__}: {error}", [], "failed")


def stopped(
    job: Job, config: MethodConfig, reason: str, curve: list[Row], status: Literal["failed", "stopped"] = "stopped"
) -> RunRecord:
    """Return the record of a run that the search stopped; `curve` has the evaluations on the validation set until then."""
    record = base_record(job, config, DatasetInfo(job.card.name), now())
    error = " ".join(reason.split())[:500]
    return dataclasses.replace(record, status=status, error=error, curve=curve, fit_shared_by=len(job.configs))


def now() -> str:
    """Return the current UTC time in ISO format."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def describe(dataset: Dataset) -> DatasetInfo:
    """Return what a record says about its dataset."""
    return DatasetInfo(
        name=dataset.name,
        fingerprint=dataset.fingerprint,
        protocol=dataset.card.split.protocol,
        split_seed=dataset.card.split.seed,
        recall=dataset.card.recall,
        stand_in=dataset.card.stand_in,
        counts=dataset.counts,
        differences=list(dataset.differences),
        sources=list(dataset.sources),
        raw_gone=dataset.raw_gone,
        cold_users=dataset.card.split.cold_users,
    )
