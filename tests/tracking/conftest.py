"""Empty stores, and deliveries to MLflow on a busy machine."""

import shutil

import pytest

from rankbench.tracking import mlflow_sink
from rankbench.tracking.store import make_tables


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """What is sent arrives, however long the uploader takes to import MLflow."""
    monkeypatch.setattr(mlflow_sink, "PATIENCE", 120.0)
    monkeypatch.setattr(mlflow_sink, "LIMIT", 240.0)


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory):
    """A store without runs, to be copied: making its tables takes a second."""
    folder = tmp_path_factory.mktemp("store")
    make_tables(f"sqlite:///{folder}/mlflow.db", folder / "artifacts")
    return folder / "mlflow.db"


@pytest.fixture
def root(empty_store, tmp_path):
    """A results folder with an empty store."""
    shutil.copy(empty_store, tmp_path / "mlflow.db")
    return tmp_path
