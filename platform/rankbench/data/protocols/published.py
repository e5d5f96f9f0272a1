"""The split of the dataset's authors, one file per part."""

from __future__ import annotations

from typing import Literal

import numpy as np

from rankbench.core.errors import DataError
from rankbench.data.interactions import PARTS, Interactions
from rankbench.data.protocols.spec import VALID, CarvedValid, protocol


class Published(CarvedValid):
    protocol: Literal["published"] = "published"


@protocol("published", Published)
def published(data: Interactions, p: Published) -> np.ndarray:
    """The published train, valid and test parts, and what is known of held-out users if it is in parts of its own; without a
    valid part, a share of train becomes validation.
    """
    if (data.part == PARTS.index("all")).any():
        raise DataError("split.protocol is published, but the data come in one part, `all`")
    labels = data.part.copy()
    if not (labels == VALID).any():
        return p.carve(data, labels)
    if p.valid != Published.model_fields["valid"].default:
        raise DataError(f"split.valid is {p.valid:g}, but the data come with a validation part, which is used; leave it out")
    return labels
