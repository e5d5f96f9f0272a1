"""The Python interface: fit methods, recommend by raw ids, compare losses on datasets, and read results as DataFrames.

import rankbench.api as rb
model = rb.fit("movielens-1m", "ease", lam=300)
model.recommend([0, 17], k=10)
model.evaluate().metrics["ndcg@20"]
clicks = rb.dataset(frame, user="customer", item="product")
rb.sweep(datasets=clicks, methods=["bpr", "sl", "talos"], params={"epochs": 20}).table
"""

from __future__ import annotations

from rankbench.api.catalogue import datasets, methods
from rankbench.api.compare import compare
from rankbench.api.dataset import dataset
from rankbench.api.fit import fit
from rankbench.api.fit_from import fit_from
from rankbench.api.leaderboard import leaderboard
from rankbench.api.plugin import plugin
from rankbench.api.report import report
from rankbench.api.results import Results
from rankbench.api.sweep import sweep
from rankbench.core.errors import ConfigError, RankbenchError
from rankbench.core.memory import Spill
from rankbench.data.prepare import Dataset
from rankbench.experiment.evaluation import Evaluation
from rankbench.experiment.execution import Execution
from rankbench.experiment.fitted_model import Model, load

__all__ = [
    "ConfigError", "Dataset", "Evaluation", "Execution", "Model", "RankbenchError", "Results", "Spill", "compare", "dataset",
    "datasets", "fit", "fit_from", "leaderboard", "load", "methods", "plugin", "report", "sweep",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)
