"""One iteration of a fit: what a method yields, and what the driver sends back."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import NamedTuple

from rankbench.fitting.checkpoints import State
from rankbench.fitting.recommenders import Recommender


class Step(NamedTuple):
    """A completed iteration. The first step of a fit is its starting point, numbered 0 or as the restored iteration.

    `loss` is the mean per interaction, NaN at number 0 of most methods. `seconds` counts all iterations so far, without
    evaluations, checkpoints and the computation of the loss. `model` returns the current recommender, and `state` the arrays
    and values that the next iteration depends on; both may only be called before the next step starts.
    """

    number: int
    loss: float
    seconds: float
    model: Callable[[], Recommender]
    state: Callable[[], State]


# The driver sends the metric on the validation set after a step, or None if it was not measured.
Steps = Generator[Step, float | None, None]
