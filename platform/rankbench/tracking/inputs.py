"""The data of a run as MLflow's dataset inputs: the part that was fitted and the part that was measured."""

from __future__ import annotations

import json
from typing import Any

from rankbench.tracking.record import RunRecord

CONTEXT = "mlflow.data.context"


def dataset_inputs(record: RunRecord) -> list[Any]:
    """Return one MLflow DatasetInput per part, empty if the run ended before its data were known.

    The digest is the fingerprint of the prepared data. MLflow takes inputs of equal name and digest for one, so that each part
    has a name of its own.
    """
    from mlflow.entities import Dataset, DatasetInput, InputTag

    data = record.dataset
    if not data.fingerprint:
        return []
    files = [{name: str(source[name]) for name in ("file", "sha256", "origin") if source.get(name)} for source in data.sources]
    source = json.dumps({"files": files, "protocol": data.protocol, "split_seed": data.split_seed})
    profile = json.dumps(data.counts)
    contexts = [(part, "train") for part in record.fit_on.split("+")] + [(record.measured_on, record.measured_on)]
    return [
        DatasetInput(
            Dataset(f"{data.name} {part}", data.fingerprint[:36], "rankbench", source, profile=profile),
            [InputTag(CONTEXT, context)],
        )
        for part, context in dict.fromkeys(contexts)
    ]
