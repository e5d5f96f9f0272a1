"""Deliveries to MLflow on a busy machine."""

import pytest

from rankbench.tracking import mlflow_sink


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """What is sent arrives, however long the uploader takes to import MLflow."""
    monkeypatch.setattr(mlflow_sink, "PATIENCE", 120.0)
    monkeypatch.setattr(mlflow_sink, "LIMIT", 240.0)
