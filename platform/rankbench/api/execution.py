"""How a fit is executed as options say, and checks that they apply to the method."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rankbench.cluster.workplace import crew_of, require_shared_folder, workplace
from rankbench.core.config import assignments
from rankbench.core.errors import require
from rankbench.core.memory import Spill, available_memory, bytes_of
from rankbench.core.threads import own_threads
from rankbench.experiment.execution import Execution, require_device
from rankbench.experiment.job import MethodConfig
from rankbench.experiment.options import FitOptions
from rankbench.fitting.checkpoints import Checkpoints
from rankbench.fitting.method import ClosedForm, Iterative, Method
from rankbench.sweeps.views.phases import err


@contextmanager
def open_execution(
    method: Method, options: FitOptions, checkpoints: Path, spill: Path, n_threads: int | None = None
) -> Iterator[Execution]:
    """Yield how a fit of `method` is executed; a named cluster stays connected during the block.

    `checkpoints` and `spill` are folders for this fit alone.
    """
    saved = None
    if isinstance(method, Iterative):
        saved = Checkpoints(checkpoints, options.resume, method.save_every, lambda number: _tell(number, method.length))
    tiles = Spill(spill.resolve(), memory_bytes(options), options.resume)
    with (
        workplace(options.address if method.distributed else "", n_threads) as executor,
        crew_of(options.workers, options.address, options.device != "cpu") as crew,
    ):
        if isinstance(method, ClosedForm) and executor.flow() is not None:  # the cluster may also come from RAY_ADDRESS
            require_shared_folder(tiles.folder.parent)
        yield Execution(n_threads or own_threads(), executor, options.device, saved, tiles, crew)


def _tell(number: int, length: str) -> None:
    """Say where a resumed fit goes on; `length` is the parameter that counts its iterations."""
    what = "epoch" if length == "epochs" else "iteration"
    err.print(f"continuing after {what} {number}" if number else "no checkpoint; this fit restarts from the beginning")


def memory_bytes(options: FitOptions) -> int:
    """The given limit in bytes, or most of the free memory."""
    return bytes_of(options.memory, "--memory") if options.memory else int(0.9 * available_memory())


def card_and_params(words: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split PATH=VALUE words into changes of the card, which begin with `data.`, and parameters of the method."""
    given = assignments(words)
    changes = {key.removeprefix("data."): value for key, value in given.items() if key.startswith("data.")}
    return changes, {key: value for key, value in given.items() if not key.startswith("data.")}


def only_card_changes(words: Sequence[str] | None) -> dict[str, Any]:
    """The changes of the card among PATH=VALUE words. Raises ConfigError if there is anything else."""
    changes, others = card_and_params(words or ())
    require(not others, f"{', '.join(others)}: only data.PATH=VALUE can be given, because nothing is fitted")
    return changes


def require_effect(config: MethodConfig, options: FitOptions) -> None:
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
            getattr(options, option, None) is None or closed,
            f"--{option}: {name} has no item-item matrix that could be solved by tiles; leave it out",
        )
    require(
        options.device == "cpu" or (method.on_device and (not options.address or options.workers > 1)),
        f"--device: {name} runs only on {'the CPUs of the cluster' if options.address else 'CPUs'}; leave it out",
    )
    require_device(options.device)
