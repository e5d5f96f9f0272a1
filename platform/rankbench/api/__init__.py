"""The Python interface: fit methods, recommend by raw ids, compare losses on datasets, and read results as DataFrames.

import rankbench.api as rb
model = rb.fit("movielens-1m", "ease", lam=300)
model.recommend([0, 17], k=10)
model.evaluate().metrics["ndcg@20"]
clicks = rb.dataset(frame, user="customer", item="product")
rb.sweep(datasets=clicks, methods=["bpr", "sl", "talos"], params={"epochs": 20}).table
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rankbench.api.catalogue import datasets, methods
    from rankbench.api.compare import compare
    from rankbench.api.dataset import dataset
    from rankbench.api.evaluate import evaluate
    from rankbench.api.fit import fit
    from rankbench.api.fit_from import fit_from
    from rankbench.api.leaderboard import leaderboard
    from rankbench.api.plugin import plugin
    from rankbench.api.results import Results, report
    from rankbench.api.sweep import sweep
    from rankbench.core.errors import ConfigError, RankbenchError
    from rankbench.core.memory import Spill
    from rankbench.data.prepare import Dataset
    from rankbench.experiment.evaluation import Evaluation
    from rankbench.experiment.execution import Execution
    from rankbench.experiment.fitted_model import Model, load

__all__ = [
    "ConfigError", "Dataset", "Evaluation", "Execution", "Model", "RankbenchError", "Results", "Spill", "compare", "dataset",
    "datasets", "evaluate", "fit", "fit_from", "leaderboard", "load", "methods", "plugin", "report", "sweep",
]  # fmt: skip

_MODULES = {  # of names whose module is not called like them
    "ConfigError": "core.errors",
    "Dataset": "data.prepare",
    "Evaluation": "experiment.evaluation",
    "Execution": "experiment.execution",
    "Model": "experiment.fitted_model",
    "RankbenchError": "core.errors",
    "Results": "api.results",
    "Spill": "core.memory",
    "datasets": "api.catalogue",
    "load": "experiment.fitted_model",
    "methods": "api.catalogue",
    "report": "api.results",
}


class _Loaded:
    """A name of this package, whose module is imported when the name is used: together they take more than a second."""

    def __init__(self, name: str):
        self.name, self.module = name, f"rankbench.{_MODULES.get(name, f'api.{name}')}"

    def __get__(self, package: object, owner: type) -> Any:
        return getattr(import_module(self.module), self.name)

    def __set__(self, package: object, value: object) -> None:
        """Ignore the value: when `rankbench.api.fit` is imported, Python would put this module in the place of the function."""


class _Api(ModuleType):
    def __dir__(self) -> list[str]:
        return sorted(__all__)


for _name in __all__:
    setattr(_Api, _name, _Loaded(_name))
sys.modules[__name__].__class__ = _Api
