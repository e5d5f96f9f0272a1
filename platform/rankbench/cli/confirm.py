"""The price of a sweep before its start: fits, time, memory, disk, and what is left out; a high price is confirmed."""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rankbench.cli.console import clock, err
from rankbench.core.errors import ConfigError
from rankbench.judge.printing import counted

if TYPE_CHECKING:
    from rankbench.sweeps.plan import Plan
    from rankbench.sweeps.request import SweepRequest

HIGH_SECONDS, HIGH_BYTES, MANY_DOWNLOADS = 3600.0, 10e9, 3  # from which on a terminal asks


def show_downloads(request: SweepRequest, ask: bool) -> None:
    """Name the datasets that will be downloaded, before the plan, which needs their data. Their sizes are not known yet.

    With `ask`, several downloads are confirmed. Raises ConfigError if they are declined.
    """
    from rankbench.data.describe import raw_data
    from rankbench.schema.datasets import card_of

    entries, environment = enumerate(request.spec.datasets), request.environment
    cards = [card_of(entry, environment, f"{request.source}: datasets[{number}]") for number, entry in entries]
    remote = [card.name for card in cards if raw_data(card, environment) == "download"]
    if remote:
        err.print(f"to be downloaded first: {', '.join(remote)}")
        if ask and len(remote) >= MANY_DOWNLOADS:
            _confirm(f"download {len(remote)} datasets?")


def show_price(request: SweepRequest, plan: Plan, begun: Path | None, ask: bool) -> None:
    """Print what a sweep costs, without what the sweep in the folder `begun` has finished. With `ask`, a high price is
    confirmed. Raises ConfigError if it is declined.
    """
    from rankbench.sweeps.dry_run import dry_run

    preview = dry_run(plan, request.environment, request.machines(), begun, request.options.fresh)
    bound = {"final": "at most "} if preview.at_most else {}
    stages = [f"{bound.get(stage.name, '')}{stage.fits:,} fits of the {stage.name} stage" for stage in preview.stages]
    known = [stage.seconds for stage in preview.stages if stage.seconds is not None]
    total = sum(known) if known else sum(stage.seconds_of_trials for stage in preview.stages)
    total += preview.statistics.seconds
    memory = max((row.memory_bytes for row in preview.rows), default=0)
    time = f"about {clock(total)} {'here' if known else 'of sequential trials'} (rough)"
    planned = [row for row in preview.rows if row.state == "planned"]
    datasets, models = (len({getattr(row, key) for row in planned}) for key in ("dataset", "model"))
    err.print(
        f"{plan.spec.name}: {counted(datasets, 'dataset')}, {counted(models, 'model')}, {' and '.join(stages)}: {time}, "
        f"up to {memory / 1e9:.1f} GB of memory a fit, {preview.bytes_written / 1e6:,.1f} MB on disk"
    )
    if preview.finished:
        err.print(f"  {counted(preview.finished, 'fit')} with a finished record will be reused (not counted above)")
    if preview.short:
        err.print(f"warning: the largest fit needs {preview.short / 1e9:.1f} GB more memory than is available")
    if ask and (total > HIGH_SECONDS or preview.bytes_written > HIGH_BYTES):
        _confirm("start?")


def can_ask(words: Collection[bool]) -> bool:
    """Whether somebody can answer a question: input and messages are a terminal, and none of `words` forbids it."""
    return sys.stdin is not None and sys.stdin.isatty() and err.is_terminal and not any(words)


def _confirm(question: str) -> None:
    if not typer.confirm(question, default=True, err=True):
        raise ConfigError("not started; --yes starts without a question")
