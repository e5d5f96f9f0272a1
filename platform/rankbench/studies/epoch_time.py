"""Seconds per epoch of each loss, on one dataset and encoder (Talos, Table F.1).

The result is the median of a few epochs after a first one that is not counted (kernels are compiled, memory is allocated). The
published seconds are from the authors' GPU: only the ratios to SL on the same machine can be compared.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from rankbench.core import threads
from rankbench.core.environment import Environment
from rankbench.core.palette import COLOURS
from rankbench.core.params import Params, param
from rankbench.core.progress import Progress
from rankbench.data.prepare import load
from rankbench.experiment.job import configure
from rankbench.experiment.outcome import describe
from rankbench.losses.spec import registered as losses
from rankbench.reports.figure import Figure, Marks, Panel, Style, height
from rankbench.studies.published import DATASETS, SECONDS
from rankbench.studies.spec import Findings, study
from rankbench.training.trainer import Trainer

BASELINE = "sl"
PAPER = {"model": "mf", "embedding_dim": 64, "batch_size": 1024, "n_negatives": 1024}  # of the published seconds


@dataclass(frozen=True)
class EpochTime(Params):
    dataset: str = param("amazon-beauty", "dataset whose train part is used")
    losses: str = param("all", "names of losses, comma-separated, or all; sl is always included")
    model: str = param("mf", "encoder, such as mf or lightgcn")
    embedding_dim: int = param(64, "length of the vectors", gt=0)
    batch_size: int = param(1024, "interactions per step", gt=0)
    n_negatives: int = param(1024, "negatives per positive; bpr has 1, as in the paper", gt=0)
    epochs: int = param(3, "number of timed epochs, after one that is not timed", ge=1)

    def config_of(self, loss: str) -> dict[str, Any]:
        shared = {name: getattr(self, name) for name in ("model", "embedding_dim", "batch_size")}
        return shared | {"n_negatives": 1 if loss == "bpr" else self.n_negatives, "patience": 0}


@study("epoch-time", EpochTime, title="Seconds per epoch of each loss", source="Zhang et al., WWW 2026, Table F.1")
def epoch_time(p: EpochTime, seed: int, environment: Environment, progress: Progress) -> Findings:
    registry = losses()
    requested = registry.names() if p.losses == "all" else [name.strip() for name in p.losses.split(",")]
    names = list(dict.fromkeys([BASELINE, *requested]))
    # All configurations are checked before the first is timed.
    configs = {name: (registry.get(name), configure(name, p.config_of(name)).params) for name in names}
    data = load(p.dataset, environment)
    n_threads = threads.own_threads()
    rows: list[dict[str, Any]] = []
    with threads.pinned(n_threads):
        for index, (name, (loss, params)) in enumerate(configs.items()):
            progress("time", index, len(names))
            trainer = Trainer(data.split.train, params, loss, seed, np.float32, "cpu")
            trainer.epoch(1, 1.0)
            seconds = []
            for number in range(2, p.epochs + 2):
                start = time.perf_counter()
                trainer.epoch(number, 1.0)
                seconds.append(time.perf_counter() - start)
            as_published = all(getattr(p, name) == value for name, value in PAPER.items())
            published = SECONDS.get(name, {}).get(DATASETS.get(p.dataset, "")) if as_published else None
            negatives = None if trainer.sampler is None else params.training.n_negatives
            row = {"loss": name, "negatives": negatives, "published": published}
            rows.append(row | {"seconds": median(seconds), "least": min(seconds), "most": max(seconds)})
    sl_seconds, sl_published = rows[0]["seconds"], rows[0]["published"]
    for row in rows:
        row["against_sl"] = row["seconds"] / sl_seconds
        row["published_against_sl"] = row["published"] / sl_published if row["published"] and sl_published else None
    columns = {
        "loss": "loss", "negatives": "negatives", "seconds": "seconds", "least": "least", "most": "most",
        "against_sl": "relative to SL", "published": "published seconds, another machine",
        "published_against_sl": "published, relative to SL",
    }  # fmt: skip
    notes = [
        f"{data.split.train.nnz:,} interactions, {p.model}, vectors of {p.embedding_dim}, batches of {p.batch_size}; median of "
        f"{p.epochs} epochs after a first one that is not counted; {n_threads} threads, no GPU.",
        "Published seconds are from the authors' RTX 4090; only the columns relative to SL can be compared.",
    ]
    return Findings(columns, rows, [vars(describe(data))], notes, _figure(rows))


def _figure(rows: list[dict[str, Any]]) -> Figure:
    ordered = sorted(rows, key=lambda row: row["against_sl"])
    published = [(row["published_against_sl"], y) for y, row in enumerate(ordered) if row["published_against_sl"]]
    marks = [Marks([row["against_sl"] for row in ordered], range(len(ordered)), Style(COLOURS[0]), name="measured here")]
    if published:
        diamond = Style(COLOURS[1], marker="D")
        marks.append(Marks(*zip(*published, strict=True), diamond, name="published, on the authors' GPU", hollow=True))
    label, names = "seconds per epoch relative to SL on the same machine", [row["loss"] for row in ordered]
    panel = Panel("", label, marks=marks, size=(7, height(len(names))), rows=names, log_x=True, grid="x")
    return Figure("plot", "Seconds per epoch of each loss.", [panel])
