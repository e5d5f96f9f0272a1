"""Register a saved model in MLflow, with an example, a signature and pinned requirements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from rankbench.core.environment import Environment
from rankbench.experiment import methods, served_model
from rankbench.experiment.fitted_model import Model, load
from rankbench.experiment.served_model import DEFAULTS, HISTORY, ServedModel
from rankbench.tracking.address import artifacts_folder, tracking_uri
from rankbench.tracking.labels import Labels
from rankbench.tracking.model_registry import Registered, Servable
from rankbench.tracking.model_registry import register as register_servable

# Packages that a served model needs.
PACKAGES = ("mlflow", "numba", "numpy", "pandas", "pyarrow", "pydantic", "rankbench", "safetensors", "scipy")


def register(
    folder: Path,
    name: str,
    environment: Environment,
    labels: Labels,
    tags: Mapping[str, str] | None = None,
    metrics: Mapping[str, float] | None = None,
    card: str = "",
) -> Registered:
    """Register the model in `folder`, as written by `Model.save`, under `name`. What was measured of it are `metrics`, further
    `tags`, and a `card` in Markdown, which becomes the description of its version.

    Raises DataError if it is not a saved model, ConfigError for a wrong tracking address, and StorageError if MLflow's store
    does not accept it.
    """
    uri = tracking_uri(environment)
    model = load(folder)
    servable = _servable(model, folder)
    servable = replace(servable, tags=servable.tags | dict(tags or {}), metrics=dict(metrics or {}), card=card)
    return register_servable(servable, name, uri, artifacts_folder(environment), labels)


def _servable(model: Model, folder: Path) -> Servable:
    import pandas as pd

    request = pd.DataFrame({"user": [model.first_known_user]})
    params = DEFAULTS | {"k": min(DEFAULTS["k"], len(model.items))}
    answer = ServedModel(model).predict(request, params)
    about = {"method": model.method, "dataset": model.dataset["name"], "seed": model.seed, "fit_on": model.fit_on}
    # Parameters are checked by the method, and one trained by gradient steps is defined with PyTorch.
    trained = type(methods.method(model.method)).__module__.startswith("rankbench.training")
    packages = (*PACKAGES, "torch") if trained else PACKAGES
    tags = {f"rankbench.{key}": str(value) for key, value in about.items()}
    return Servable(
        folder=folder,
        loader=served_model.__name__,
        request=request,
        request_params=params,
        answer=answer,
        optional=(HISTORY,) if model.folds_in else (),
        requirements=[f"{package}=={version(package)}" for package in packages],
        params=about | model.params,
        tags=tags | {"rankbench.fingerprint": model.dataset["fingerprint"]},
    )
