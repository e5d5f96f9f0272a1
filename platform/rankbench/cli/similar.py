"""rankbench similar: the items nearest to an item."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rankbench.cli.console import Json

EXAMPLES = """Examples:

  rankbench similar my-model --item 260

  rankbench similar my-model --items wanted.csv -k 20 --out similar.csv
"""


def similar(
    model: Annotated[Path, typer.Argument(help="A folder that `rankbench fit` made.")],
    item: Annotated[list[str] | None, typer.Option(help="An item's id; may be given again.")] = None,
    items: Annotated[Path | None, typer.Option(help="CSV or Parquet with a column item.")] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Neighbours an item.")] = 10,
    to: Annotated[Path | None, typer.Option("--out", help="Write a .csv or .parquet file.")] = None,
    json: Json = False,
) -> None:
    """List what the model would recommend to one who has met that item alone: columns item, rank, similar, score."""
    from rankbench.cli.frames import check_output, chosen_ids
    from rankbench.cli.recommend import deliver
    from rankbench.experiment.fitted_model import load

    check_output(to)
    deliver(load(model).similar(chosen_ids(item, items, "item"), k), to, json)
