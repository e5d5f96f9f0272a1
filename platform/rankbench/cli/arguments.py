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
Dataset = Annotated[
    str, typer.Argument(help="A dataset's name (rankbench data list) or a card file.", autocompletion=candidates.datasets)
]
Method = Annotated[str, typer.Argument(help="A method's name (rankbench methods).", autocompletion=candidates.methods)]
Params = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[param=value]...",
        help="Parameters of the method; data.PATH=VALUE changes the card.",
        autocompletion=candidates.params,
    ),
]
Dtype = Annotated[str, typer.Option(help="float32 or float64.", autocompletion=candidates.one_of("float32", "float64"))]
Device = Annotated[
    str,
    typer.Option(help="Device for gradient steps and inverses: cpu or cuda.", autocompletion=candidates.one_of("cpu", "cuda")),
]
Address = Annotated[
    str | None, typer.Option(help="HOST:PORT of a Ray cluster. Default: RAY_ADDRESS if it is set, otherwise no cluster.")
]
Workers = Annotated[
    int,
    typer.Option(min=1, help="Processes that make gradient steps together, by Ray Train, each with one processor (or GPU)."),
]
Memory = Annotated[
    str | None,
    typer.Option(
        help="Memory limit (of a worker, on a cluster), such as 4GB. A closed form that needs more is solved by tiles."
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue from the last saved iteration or tiles.")]
ModelFolder = Annotated[Path, typer.Argument(help="Folder of a model, written by `rankbench fit`.")]
TableFile = Annotated[Path | None, typer.Option("--out", help="Write the result to this .csv or .parquet file.")]
Tags = Annotated[
    list[str] | None, typer.Option("--tag", metavar="KEY=VALUE", help="A tag of the MLflow runs; may be repeated.")
]
Track = Annotated[bool, typer.Option("--track/--no-track", help="Send the entries to MLflow.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what is left and how long it takes, and exit.")]
RunName = Annotated[str | None, typer.Option(help="Beginning of the names of the MLflow runs.")]


@contextmanager
def skipping(skip_bad: bool) -> Iterator[list[str] | None]:
    """Yield the list for lines of a store that are skipped, None if they are errors; at the end, say which they were."""
    skipped: list[str] | None = [] if skip_bad else None
    yield skipped
    for problem in (skipped or [])[:SHOWN]:
        err.print(f"skipped: {problem}", highlight=False, markup=False)
    if skipped:
        err.print(f"lines skipped: {len(skipped)}", highlight=False)
