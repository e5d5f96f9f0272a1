"""Register a saved model in MLflow's model registry, from which `mlflow models serve` answers requests."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankbench.core.errors import ConfigError, RankbenchError
from rankbench.tracking.address import is_server
from rankbench.tracking.labels import Labels
from rankbench.tracking.mlflow_runs import PARENT, MlflowRuns
from rankbench.tracking.spool import Placed, milliseconds
from rankbench.tracking.store import clear_errors, connect

if TYPE_CHECKING:
    import pandas as pd

EXPERIMENT = "models"  # unless the user names another


@dataclass(frozen=True)
class Servable:
    """A model folder, the module that loads it, and an example: a request, its parameters and the answer.

    `optional` are further columns that a request may have. `requirements` are pinned packages. `params`, `metrics`, `tags` and
    a `card` in Markdown describe the model.
    """

    folder: Path
    loader: str
    request: pd.DataFrame
    request_params: dict[str, Any]
    answer: pd.DataFrame
    requirements: list[str]
    optional: tuple[str, ...] = ()
    params: dict[str, Any] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    card: str = ""


@dataclass(frozen=True)
class Registered:
    """A version of a registered model. `uri` is its address for MLflow, as in `mlflow models serve -m URI`."""

    name: str
    version: int
    run_id: str

    @property
    def uri(self) -> str:
        return f"models:/{self.name}/{self.version}"


def checked_model_name(name: str, option: str) -> str:
    """Return `name`. Raises ConfigError if MLflow does not accept it as the name of a registered model."""
    if not re.fullmatch(r"[\w\-. ]{1,200}", name) or not name.strip(" ."):
        raise ConfigError(f"{option} {name!r}: a model's name has letters, digits, spaces and _ - . only")
    return name


def register(model: Servable, name: str, uri: str, artifacts: Path, labels: Labels) -> Registered:
    """Create the next version of the registered model `name` in the store at `uri`, with a run that made it.

    Raises StorageError if the store does not accept it.
    """
    with clear_errors(uri):
        client = connect(uri, artifacts)
        runs = MlflowRuns(client, artifacts.parent, None if is_server(uri) else artifacts)
        now = milliseconds()
        experiment, parent = runs.place(Placed(**labels.place(EXPERIMENT), time=now))
        tags = model.tags | labels.tags | ({PARENT: parent} if parent else {})
        run = client.create_run(experiment, start_time=now, run_name=labels.name or f"register {name}", tags=tags)
        run_id = run.info.run_id
        try:
            runs.log(run_id, model.metrics, model.params, now)
            version = _log(model, name, uri, run_id)
        except BaseException:
            client.set_terminated(run_id, "FAILED")
            raise
        client.set_terminated(run_id, "FINISHED")
        for key, value in model.tags.items():
            client.set_model_version_tag(name, str(version), key, value)
        if model.card:
            client.update_model_version(name, str(version), model.card)
    return Registered(name, version, run_id)


def _log(model: Servable, name: str, uri: str, run_id: str) -> int:
    import mlflow
    from mlflow.models import ModelSignature, infer_signature
    from mlflow.types.schema import AnyType, ColSpec, Schema

    answered = infer_signature(None, model.answer, model.request_params)
    # Of any type, so that values arrive as they were sent: MLflow would make the whole number 1 of 1.5.
    columns = [ColSpec(AnyType(), name, required=name in model.request) for name in (*model.request, *model.optional)]
    # The id of our own run, or MLflow would take the one in MLFLOW_RUN_ID. MLflow prints the version on stderr, too.
    with _tracking_at(uri), mlflow.start_run(run_id=run_id), redirect_stderr(io.StringIO()):
        logged = mlflow.pyfunc.log_model(
            name="model",
            loader_module=model.loader,
            data_path=str(model.folder),
            signature=ModelSignature(Schema(columns), answered.outputs, answered.params),
            input_example=(model.request, model.request_params),
            pip_requirements=model.requirements,
            registered_model_name=name,
        )
    return int(logged.registered_model_version)


@contextmanager
def _tracking_at(uri: str) -> Iterator[None]:
    """Let MLflow's functions write to the store at `uri`. MLflow also sets an environment variable, which is put back."""
    import mlflow

    earlier = mlflow.get_tracking_uri() if mlflow.is_tracking_uri_set() else None
    mlflow.set_tracking_uri(uri)
    try:
        yield
    finally:
        mlflow.set_tracking_uri(earlier)


@contextmanager
def clear_refusals() -> Iterator[None]:
    """Turn an error about the input into one whose message MLflow answers, with status 400; it hides all others."""
    try:
        yield
    except RankbenchError as error:
        from mlflow.exceptions import MlflowException

        raise MlflowException.invalid_parameter_value(str(error)) from None
