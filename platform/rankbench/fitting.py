"""What a fit by iterations works with: where its blocks are solved, whom it tells of each iteration, where it saves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from rankbench.checkpoint import Checkpoints
from rankbench.mapping import BlockMap, ThreadMap
from rankbench.recommender import Recommender


@dataclass(frozen=True)
class Step:
    """An iteration that ended: its number, of how many at most, the training seconds so far (evaluation, checkpoints and
    the loss itself left out), the loss per interaction, the model as it now is, and what was watched on valid, if it was.
    """

    number: int
    of: int
    seconds: float
    loss: float
    model: Callable[[], Recommender] = field(repr=False)
    valid: float | None = None


@dataclass(frozen=True)
class Fitting:
    """`where`: who works on blocks. `tell`: called after every iteration. `checkpoints`: None saves nothing. `curve`: what the
    teller notes of each iteration; it is saved with the rest, and is there again when a fit goes on. `validate(model, metric)`:
    a look at the validation part, for fits that end when it stops to rise; None where there is none to look at. `kept`: gets
    the number of the iteration whose model was returned. `device`: where gradient steps and inverses are computed.
    """

    where: BlockMap = field(default_factory=ThreadMap)
    tell: Callable[[Step], None] = lambda step: None
    checkpoints: Checkpoints | None = None
    curve: list[dict[str, float]] = field(default_factory=list)
    validate: Callable[[Recommender, str], float] | None = None
    kept: list[int] = field(default_factory=list)
    device: str = "cpu"
