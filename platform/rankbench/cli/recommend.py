"""rankbench recommend: recommend items to users of a model or to new users."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankbench.cli.arguments import ModelFolder, Plugin, TableFile
from rankbench.cli.console import Json, err, out, print_json, print_table
from rankbench.core.errors import require

if TYPE_CHECKING:
    import pandas as pd

EXAMPLES = """Examples:
  rankbench recommend my-model --user 17 --user 4711
  rankbench recommend my-model --users wanted.csv -k 20 --out recommended.parquet
  rankbench recommend my-model --all --out recommended.csv
  rankbench recommend my-model --history new-users.csv
  rankbench recommend my-model --users wanted.csv --unknown popularity      popular items for unknown users
"""


def recommend(
    model: ModelFolder,
    user: Annotated[list[str] | None, typer.Option(help="Id of a user; may be repeated.")] = None,
    users: Annotated[Path | None, typer.Option(help="CSV or Parquet file with a column user.")] = None,
    everybody: Annotated[bool, typer.Option("--all", help="Recommend to all users of the model.")] = False,
    history: Annotated[
        Path | None,
        typer.Option(help="CSV or Parquet file with columns user and item: interactions of users who are new to the model."),
    ] = None,
    unknown: Annotated[
        str, typer.Option(help="For unknown users: skip, popularity (the most popular items) or error.")
    ] = "skip",
    k: Annotated[int, typer.Option("-k", min=1, help="Number of items per user.")] = 10,
    keep_seen: Annotated[
        bool, typer.Option("--keep-seen", help="Do not exclude items that the user has interacted with.")
    ] = False,
    to: TableFile = None,
    json: Json = False,
    plugin: Plugin = None,
) -> None:
    """Recommend items to users. The result has the columns user, rank, item and score."""
    from rankbench.cli.frames import check_output, chosen_ids, read_columns
    from rankbench.experiment.fitted_model import UNKNOWN, load

    check_output(to)
    require(
        sum([everybody, history is not None, bool(user or users)]) <= 1, "give only one of --user/--users, --all and --history"
    )
    require(unknown in UNKNOWN, f"--unknown: expected {', '.join(UNKNOWN)}, got {unknown}")
    fitted, said = load(model), list[str]()
    how: dict[str, Any] = {"k": k, "filter_seen": not keep_seen, "unknown": unknown, "warn": said.append}
    if history is not None:
        import pandas as pd

        frame = fitted.recommend_new(pd.DataFrame(read_columns(history, ("user", "item"))), **how)
    else:
        otherwise = "; or --all, or for new users --history FILE"
        ids = fitted.users.to_pylist() if everybody else chosen_ids(user, users, "user", otherwise)
        frame = fitted.recommend(ids, **how)
    require(len(frame) > 0 or not said, "; ".join(said))
    for line in said:
        err.print(f"warning: {line}")
    deliver(frame, to, json)


def deliver(frame: pd.DataFrame, to: Path | None, json: bool) -> None:
    """Write a result to the file `to`, or print it."""
    from rankbench.cli.frames import write_frame

    if to is not None:
        write_frame(frame, to)
        print_json({"file": str(to), "rows": len(frame)}) if json else out.print(f"{len(frame):,} rows → {to}")
    elif json:
        print_json(frame.to_dict("records"))
    else:
        rows = [
            [f"{value:.4f}" if isinstance(value, float) else str(value) for value in row]
            for row in frame.itertuples(index=False)
        ]
        print_table(list(frame.columns), rows)
