"""rankbench recommend: the best items for users, known to the model or new to it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rankbench.cli.console import Json, err, out, print_json, print_table

EXAMPLES = """Examples:

  rankbench recommend my-model --user 17 --user 4711

  rankbench recommend my-model --users wanted.csv -k 20 --out recommended.parquet

  rankbench recommend my-model --all --out recommended.csv

  rankbench recommend my-model --history new-users.csv
"""


def recommend(
    model: Annotated[Path, typer.Argument(help="A folder that `rankbench fit` made.")],
    user: Annotated[list[str] | None, typer.Option(help="A user's id; may be given again.")] = None,
    users: Annotated[Path | None, typer.Option(help="CSV or Parquet with a column user.")] = None,
    everybody: Annotated[bool, typer.Option("--all", help="Every user of the model.")] = False,
    history: Annotated[
        Path | None, typer.Option(help="CSV or Parquet with columns user, item: users new to the model, by what they met.")
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Items a user.")] = 10,
    keep_seen: Annotated[bool, typer.Option("--keep-seen", help="Do not leave out what the user has met.")] = False,
    to: Annotated[Path | None, typer.Option("--out", help="Write a .csv or .parquet file.")] = None,
    json: Json = False,
) -> None:
    """Recommend items by raw ids: columns user, rank, item, score."""
    from rankbench.cli.frames import check_output, chosen_ids, read_columns
    from rankbench.core.errors import require
    from rankbench.experiment.fitted_model import load

    check_output(to)
    require(sum([everybody, history is not None, bool(user or users)]) <= 1, "give one of --user/--users, --all, --history")
    fitted = load(model)
    if history is not None:
        import pandas as pd

        interactions = pd.DataFrame(read_columns(history, ("user", "item")))
        frame = fitted.recommend_new(interactions, k, not keep_seen)
        lost = interactions["user"].nunique() - frame["user"].nunique()
        if lost:
            err.print(f"warning: {lost:,} users have met no item that the model knows; they are left out", markup=False)
    else:
        ids = fitted.users.to_pylist() if everybody else chosen_ids(user, users, "user")
        frame = fitted.recommend(ids, k, not keep_seen)
    deliver(frame, to, json)


def deliver(frame, to: Path | None, json: bool) -> None:
    """A result to a file, or to the terminal."""
    from rankbench.cli.frames import write_frame

    if to is not None:
        write_frame(frame, to)
        print_json({"file": str(to), "rows": len(frame)}) if json else out.print(f"{len(frame):,} rows → {to}", markup=False)
    elif json:
        print_json(frame.to_dict("records"))
    else:
        rows = [
            [f"{value:.4f}" if isinstance(value, float) else str(value) for value in row]
            for row in frame.itertuples(index=False)
        ]
        print_table(list(frame.columns), rows)
