"""Errors about a request, as a server of MLflow passes them on to its client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rankbench.core.errors import RankbenchError


@contextmanager
def clear_refusals() -> Iterator[None]:
    """Turn an error about the input into one whose message MLflow answers, with status 400; it hides all others."""
    try:
        yield
    except RankbenchError as error:
        from mlflow.exceptions import MlflowException

        raise MlflowException.invalid_parameter_value(str(error)) from None
