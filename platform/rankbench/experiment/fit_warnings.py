"""What a user should know of a fit that has ended: its loss grew, or a part of its method never began."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankbench.experiment.divergence import divergence
from rankbench.experiment.methods import method
from rankbench.tracking.record import RunRecord


def fit_warnings(record: RunRecord) -> list[str]:
    """Return a sentence for each of them."""
    found = divergence(record.curve, record.params), unstarted(record.method, record.params, record.iterations)
    return [each for each in found if each]


def unstarted(name: str, params: Mapping[str, Any], iterations: int | None) -> str | None:
    """Return a sentence if the measured model is from an epoch before the first in which a part of the method works."""
    for field in method(name).fields():
        late, first = field.metadata.get("late", {}).get(params.get("objective")), params.get(field.name)
        if late and first is not None and iterations is not None and first > iterations:
            return f"{field.name}={first}, but the measured model is that of epoch {iterations}: {late}"
    return None
