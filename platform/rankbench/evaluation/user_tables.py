"""Tables of users: the column user with raw ids, one column per metric, and the weights of metrics that are ratios."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

WEIGHT = "weight of "


class UserValues(NamedTuple):
    """Raw ids of users (m,) and their values (m,). Of a metric that is a ratio of two sums, `weights` (m,) are the user's part
    of what is divided by, as in PerUser. They depend on the data alone and are the same for all models.
    """

    users: np.ndarray
    values: np.ndarray
    weights: np.ndarray | None = None


def weight_column(metric: str) -> str:
    """The name of the column with the weights of a metric."""
    return f"{WEIGHT}{metric}"


def metrics_of(columns: Iterable[str]) -> list[str]:
    """The metrics among the columns of a table."""
    return [each for each in columns if each != "user" and not each.startswith(WEIGHT)]


def values_of(table: pa.Table, metric: str) -> UserValues:
    """Return the values of a metric. Tables of earlier versions have no weights."""
    weights = weight_column(metric)
    given = table[weights].to_numpy() if weights in table.column_names else None
    return UserValues(table["user"].to_numpy(), table[metric].to_numpy(), given)
