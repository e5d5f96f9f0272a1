"""Schemas of the JSON files in a sweep's folder, by which a file that somebody edited or cut is refused with its field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter

from rankbench.core.config import read_json, validate
from rankbench.core.errors import ConfigError, DataError
from rankbench.evaluation.compare import Comparison
from rankbench.schema.experiment import ExperimentSpec


class _File(BaseModel):
    """Keys that are not named here are kept as they are."""

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False)


class _Named(_File):
    name: str


class SweepFile(_File):
    """sweep.json: what was asked for."""

    id: str
    experiment: ExperimentSpec
    cards: tuple[_Named, ...] = ()
    changes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    not_available: dict[str, dict[str, str]] = {}
    fits: int
    started_at: str


class _Row(_File):
    dataset: str
    arm: str
    search: str | None = None
    final: tuple[str, ...]


class ChosenFile(_File):
    """chosen.json: the setting that was chosen for each dataset and arm, and the runs that measured it."""

    rows: tuple[_Row, ...]
    failed: tuple[str, ...] = ()
    finished_at: str


class _Mean(_File):
    dataset: str
    metric: str
    model: str
    mean: float
    low: float | None
    high: float | None
    std: float | None
    best: bool
    seeds: tuple[int, ...]


class ComparisonsFile(_File):
    """comparisons.json: means over users, and paired tests."""

    metrics: tuple[str, ...]
    models: tuple[_Mean, ...]
    comparisons: tuple[Comparison, ...]


def read_file(path: Path, schema: type[_File]) -> dict[str, Any]:
    """The JSON values of a file of `schema`, with the schema's defaults. Raises DataError naming the file and the field."""
    content = read_json(path, TypeAdapter(dict[str, Any]), f"the {path.name} of a sweep")
    try:
        return validate(schema, content, str(path)).model_dump(mode="json")
    except ConfigError as error:
        raise DataError(str(error)) from None
