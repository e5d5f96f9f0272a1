"""Sweeps built by hand: records, an experiment and the comparisons, as a finished sweep's folder holds them."""

import dataclasses
from pathlib import Path

import pytest

from rankbench.schema.stored_sweep import ChosenFile, ComparisonsFile, StoredSweep, SweepFile
from rankbench.tracking.record import DatasetInfo, Measured, RunRecord

COUNTS = {"users": 5, "items": 9, "train": 8, "valid": 1, "test": 2, "users_without_test_items": 0, "cold_test_items": 0}
ENVIRONMENT = {
    "machine": {"cpu": "c", "cores": 2, "memory_bytes": 1e9}, "packages": {"numpy": "2"}, "revision": "abc", "python": "3",
    "blas": ["openblas"],
}  # fmt: skip


@pytest.fixture(scope="session")
def make_run():
    """make_run(stage, arm, mean, dataset="x", half=0.01, **fields of RunRecord) → a record whose ndcg@20 is `mean` ± half."""

    def make(stage, arm, mean, dataset="x", half=0.01, data=None, **fields):
        info = DatasetInfo(dataset, "f", "published", recall="recall", counts=COUNTS)
        plain = RunRecord(
            id=f"{stage}-{dataset}-{arm}-{fields.get('params', {})}-{fields.get('seed', 0)}", method="ease", params={},
            dataset=dataclasses.replace(info, **data or {}), fit_on="train", measured_on="test", seed=0, dtype="float32",
            arm=arm, stage=stage, environment=ENVIRONMENT, seconds={"fit": 1.0},
            metrics={"ndcg@20": Measured(mean, mean - half, mean + half)},
        )  # fmt: skip
        return dataclasses.replace(plain, **fields)

    return make


@pytest.fixture(scope="session")
def make_sweep():
    """make_sweep(records, published, datasets=["x"], ...) → the stored sweep.

    `published`: arm → dataset → metric → number; it names the arms and their order. `about`, `experiment`, `chosen` and
    `compared` change the plain content of the files; `chosen` is None for a sweep that is not finished.
    """

    def make(
        records, published, datasets=("x",), not_run=(), recall="recall", metrics=("ndcg@20",), params=None,
        about=None, experiment=None, chosen=None, compared=None, finished=True,
    ):  # fmt: skip
        arms = [
            {"name": arm, "method": "ease", "params": params or {}, "chosen": {}, "published": said}
            for arm, said in published.items()
        ]
        content = {
            "name": "e", "question": "Which?", "datasets": list(datasets), "arms": arms, "not_run": list(not_run),
            "published": {"paper": "P", "table": 2, "figure": None, "recall": recall},
            "search": {"choose": {"metric": "ndcg@20", "on": "valid"}}, "final": {"fit_on": "auto"}, **(experiment or {}),
        }  # fmt: skip
        finals = [record for record in records if record.stage == "final"]
        rows = [
            {"dataset": dataset, "arm": arm, "final": [r.id for r in finals if (r.dataset.name, r.arm) == (dataset, arm)]}
            for dataset, arm in dict.fromkeys((record.dataset.name, record.arm) for record in finals)
        ]
        plain = {"id": "s", "experiment": content, "notes": [], "fits": 2, "started_at": "2026-11-21T10:00:00+00:00"}
        end = {"rows": [row | (chosen or {}) for row in rows], "finished_at": "2026-11-21T11:30:00+00:00"}
        tests = {"metrics": list(metrics), "models": [], "comparisons": []} | (compared or {})
        return StoredSweep(
            Path("s"), SweepFile.model_validate(plain | (about or {})), ChosenFile.model_validate(end) if finished else None,
            {record.id: record for record in records}, ComparisonsFile.model_validate(tests),
        )  # fmt: skip

    return make
