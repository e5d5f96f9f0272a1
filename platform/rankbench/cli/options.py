"""Options of the commands that fit one method, and checks that they apply to the method."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankbench.cli.console import err
from rankbench.cluster.workplace import crew_of, require_shared_folder, workplace
from rankbench.core.config import assignments
from rankbench.core.errors import require
from rankbench.core.memory import Spill, available_memory, bytes_of
from rankbench.core.threads import available_cpus
from rankbench.experiment.execution import Execution
from rankbench.experiment.job import MethodConfig
from rankbench.fitting.checkpoints import Checkpoints
from rankbench.fitting.method import ClosedForm, Iterative, Method


@dataclass(frozen=True)
class Options:
    """Options of a command beside the method and its parameters; None (cpu for `device`) if not given."""

    address: str | None = None
    resume: bool = False
    memory: str | None = None
    spill: Path | None = None
    device: str = "cpu"
    threads: int | None = None
    workers: int = 1

    @property
    def memory_bytes(self) -> int:
        """The given limit in bytes, or most of the free memory."""
        return bytes_of(self.memory, "--memory") if self.memory else int(0.9 * available_memory())


@contextmanager
def open_execution(method: Method, options: Options, checkpoints: Path, spill: Path) -> Iterator[Execution]:
    """Yield how a fit of `method` is executed; a named cluster stays connected during the block.

    `checkpoints` and `spill` are folders for this fit alone.
    """
    saved = None
    if isinstance(method, Iterative):
        saved = Checkpoints(checkpoints, options.resume, method.save_every, lambda number: _tell(number, method.length))
    tiles = Spill(spill.resolve(), options.memory_bytes, options.resume)
    with (
        workplace(options.address if method.distributed else "", options.threads) as executor,
        crew_of(options.workers, options.address, options.device != "cpu") as crew,
    ):
        if isinstance(method, ClosedForm) and executor.flow() is not None:  # the cluster may also come from RAY_ADDRESS
            require_shared_folder(tiles.folder.parent)
        yield Execution(options.threads or available_cpus(), executor, options.device, saved, tiles, crew)


def _tell(number: int, length: str) -> None:
    """Say where a resumed fit goes on; `length` is the parameter that counts its iterations."""
    what = "epoch" if length == "epochs" else "iteration"
    err.print(f"continuing after {what} {number}" if number else "nothing is saved of this fit; it starts anew")


def card_and_method(words: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split PATH=VALUE words into changes of the card, which begin with `data.`, and parameters of the method."""
    given = assignments(words)
    changes = {key.removeprefix("data."): value for key, value in given.items() if key.startswith("data.")}
    return changes, {key: value for key, value in given.items() if not key.startswith("data.")}


def require_effect(config: MethodConfig, options: Options) -> None:
    """Raise ConfigError for an option that has no effect on how `config` is fitted."""
    method = config.spec
    name, closed = method.name, isinstance(method, ClosedForm)
    config.require_workers(options.workers, f"--workers {options.workers}")
    alone = "only alternating least squares, closed forms and gradient steps with --workers run on a cluster"
    require(
        not options.address or method.distributed or options.workers > 1,
        f"--address: {name} is fitted in this process; {alone}",
    )
    require(
        not options.resume or closed or isinstance(method, Iterative),
        f"--resume: {name} is fitted in one step and saves nothing to continue from; leave it out",
    )
    for option in ("memory", "spill"):
        require(
            getattr(options, option) is None or closed,
            f"--{option}: {name} has no item-item matrix that could be solved by tiles; leave it out",
        )
    require(
        options.device == "cpu" or (method.on_device and (not options.address or options.workers > 1)),
        f"--device: {name} runs only on {'the CPUs of the cluster' if options.address else 'CPUs'}; leave it out",
    )
    if options.device != "cpu":
        from rankbench.training.device import require_device  # imports PyTorch, which takes seconds

        require_device(options.device)
