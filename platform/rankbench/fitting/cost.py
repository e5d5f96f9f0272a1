"""What a function of a flow costs, told by the function itself, so that a flow on paper can time it without calling it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Cost:
    """Floating-point operations, which take as long as `work` of them in a matrix product, in `parts` equal parts that may run
    in parallel; pairs of items counted; bytes that are read or written on the disk that all nodes share; and bytes of each
    array that is made.
    """

    flops: float = 0.0
    work: float = 0.0
    parts: int = 1
    pairs: float = 0.0
    disk: float = 0.0
    array: float = 0.0


class Costly(Protocol):
    """A function that tells its cost; `arguments` are those that it is called with, apart from arrays."""

    def __call__(self, *arguments: Any) -> Any: ...

    def cost(self, *arguments: Any) -> Cost: ...
