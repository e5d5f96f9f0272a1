"""What a command that fits one method is told: changes of the card, parameters, and options held against what the method is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankbench.config import assignments
from rankbench.errors import require
from rankbench.solvers.on_device import require_device
from rankbench.solvers.spec import Solver


@dataclass(frozen=True)
class Options:
    """What a command was told beside the method and its parameters; None, or cpu, where it was not."""

    address: str | None = None
    resume: bool = False
    memory: str | None = None
    spill: Path | None = None
    device: str = "cpu"


def card_and_method(words: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """PATH=VALUE words taken apart: those that begin with data. change the card, the others are the method's parameters."""
    given = assignments(words)
    changes = {key.removeprefix("data."): value for key, value in given.items() if key.startswith("data.")}
    return changes, {key: value for key, value in given.items() if not key.startswith("data.")}


def require_meaning(method: str, solver: Solver, options: Options) -> None:
    """Raise ConfigError for an option that would change nothing of how `method` is fitted."""
    closed = solver.shift is not None
    require(
        not options.address or closed or solver.shares,
        f"--address: {method} is fitted in this process; only alternating least squares and closed forms share out their work",
    )
    require(
        not options.resume or closed or solver.iterate is not None,
        f"--resume: {method} is fitted in one piece; there is nothing between to go on from",
    )
    for name in ("memory", "spill"):
        require(
            getattr(options, name) is None or closed,
            f"--{name}: {method} has no item-item matrix to solve by tiles; leave it out",
        )
    require(
        options.device == "cpu" or (solver.on_device and not options.address),
        f"--device: {method} is computed on processors{' of the cluster' if options.address else ''} only",
    )
    if options.device != "cpu":
        require_device(options.device)
