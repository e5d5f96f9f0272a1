"""Arguments and options that several commands have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from rankbench.cli import candidates
from rankbench.cli.console import err

SHOWN = 5  # skipped lines that are described


def _load(words: list[str] | None) -> list[str]:
    if words:
        from rankbench.experiment.methods import load_plugin

        for word in words:
            load_plugin(word, source="--plugin")
    return words or []


Plugin = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin",
        metavar="FILE",
        callback=_load,
        is_eager=True,
        help="Load a file (or module) with your own losses, solvers, readers and so on; may be repeated.",
    ),
]
DatasetName = Annotated[
    str, typer.Argument(help="Name of a dataset (rankbench data list) or a card file.", autocompletion=candidates.datasets)
]
ModelFolder = Annotated[Path, typer.Argument(help="Folder of a model, written by `rankbench fit`.")]
TableFile = Annotated[Path | None, typer.Option("--out", help="Write the result to this .csv or .parquet file.")]
Tags = Annotated[
    list[str] | None, typer.Option("--tag", metavar="KEY=VALUE", help="A tag of the MLflow runs; may be repeated.")
]
Track = Annotated[bool, typer.Option("--track/--no-track", help="Send the entries to MLflow.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what is left and how long it takes, and exit.")]
RunName = Annotated[str | None, typer.Option(help="Name of the MLflow run; of a sweep, also the beginning of its runs' names.")]


@contextmanager
def skipping(skip_bad: bool) -> Iterator[list[str] | None]:
    """Yield the list for lines of a store that are skipped, None if they are errors; at the end, say which they were."""
    skipped: list[str] | None = [] if skip_bad else None
    yield skipped
    for problem in (skipped or [])[:SHOWN]:
        err.print(f"skipped: {problem}", highlight=False, markup=False)
    if skipped:
        err.print(f"lines skipped: {len(skipped)}", highlight=False)
