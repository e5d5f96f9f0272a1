"""One iteration of a fit: what a method yields, and what its driver sends back."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import NamedTuple

from rankbench.fitting.checkpoints import State
from rankbench.fitting.recommenders import Recommender


class Step(NamedTuple):
    """An iteration that ended. The first step of a fit is the point that it starts from, with the number 0, or the number of
    the iteration that was restored.

    `loss` is the mean per interaction, NaN at number 0 of most methods. `seconds` counts all iterations so far, without
    evaluations, checkpoints and computing the loss. `model` gives the recommender as it stands, and `state` the arrays and
    values that the next iteration depends on; both may be called only until the next step is asked for.
    """

    number: int
    loss: float
    seconds: float
    model: Callable[[], Recommender]
    state: Callable[[], State]


# The driver sends the metric on the validation set after a step, or None where it was not measured.
Steps = Generator[Step, float | None, None]
