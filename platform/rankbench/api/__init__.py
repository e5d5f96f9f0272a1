"""The Python interface: fit a method, recommend by raw ids, evaluate, compare, save and load.

import rankbench.api as rb
model = rb.fit("movielens-1m", "ease", lam=300)
model.recommend([0, 17], k=10)
model.evaluate().metrics["ndcg@20"]
rb.compare({"ease": model, "edlae": rb.fit("movielens-1m", "edlae", lam=400)}, metric="ndcg@20")
"""

from __future__ import annotations

from rankbench.api.compare import compare
from rankbench.api.dataset import dataset
from rankbench.api.fit import fit
from rankbench.core.errors import ConfigError
from rankbench.core.memory import Spill
from rankbench.experiment.execution import Execution
from rankbench.experiment.fitted_model import Evaluation, Model, load

__all__ = ["ConfigError", "Evaluation", "Execution", "Model", "Spill", "compare", "dataset", "fit", "load"]


def __dir__() -> list[str]:
    return sorted(__all__)
