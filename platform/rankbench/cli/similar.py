"""rankbench similar: list the items most similar to an item."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rankbench.cli.arguments import ModelFolder, Plugin, TableFile
from rankbench.cli.console import Json

EXAMPLES = """Examples:
  rankbench similar my-model --item 260
  rankbench similar my-model --items wanted.csv -k 20 --out similar.csv
"""


def similar(
    model: ModelFolder,
    item: Annotated[list[str] | None, typer.Option(help="Id of an item; may be repeated.")] = None,
    items: Annotated[Path | None, typer.Option(help="CSV or Parquet file with a column item.")] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Number of similar items per item.")] = 10,
    to: TableFile = None,
    json: Json = False,
    plugin: Plugin = None,
) -> None:
    """List the items most similar to an item.

    Of models with weights between items, and of autoencoders, they are the items recommended to a user whose only interaction
    is the item; of models with vectors, those with the largest cosine. The result has the columns item, rank, similar and
    score.
    """
    from rankbench.cli.frames import check_output, chosen_ids
    from rankbench.cli.recommend import deliver
    from rankbench.experiment.fitted_model import load

    check_output(to)
    deliver(load(model).similar(chosen_ids(item, items, "item"), k), to, json)
