"""rankbench data: list, fetch, describe, import, export and clean datasets."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankbench.cli import candidates
from rankbench.cli.arguments import DatasetName, Plugin
from rankbench.cli.console import Json, epilog, err, out, phase_progress, print_json, print_table, program
from rankbench.core.data_notes import data_notes
from rankbench.core.environment import Environment
from rankbench.core.errors import require
from rankbench.core.files import require_writable_file, write_text

if TYPE_CHECKING:
    from rankbench.data.prepare import Dataset

EXAMPLES = """Examples:
  rankbench data list
  rankbench data fetch movielens-1m
  rankbench data describe gowalla
  rankbench data import orders.csv --user buyer --item sku
  rankbench data export movielens-1m --split
"""

app = typer.Typer(
    help="List, fetch, describe, import, export and clean datasets.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog=epilog(EXAMPLES),
)


@app.command("list", epilog="Examples:\n\n  rankbench data list\n\n  rankbench data list --json")
def list_(json: Json = False, plugin: Plugin = None) -> None:
    """List all datasets with their sizes, prepared here or as published, and the locations of their raw data."""
    from rankbench.data.cards import card_names, load_card
    from rankbench.data.describe import raw_data, sizes

    environment = Environment.from_env()
    rows = []
    for path in card_names(environment).values():
        card = load_card(str(path), environment)
        row = {"name": card.name, "title": card.title, "protocol": card.split.protocol}
        rows.append(row | {"at_hand": raw_data(card, environment)} | sizes(card, environment))
    if json:
        print_json(rows)
        return
    columns = {"name": "dataset", "at_hand": "raw data", "protocol": "protocol", "title": "what it is"}
    numbers = ("users", "items", "interactions")
    body = [[*(row[key] for key in columns), *(_number(row[name], row["counted"]) for name in numbers)] for row in rows]
    print_table([*columns.values(), *numbers], body, drop=("protocol", "users", "items"))


def _number(count: int | None, counted: str | None) -> str:
    return "" if count is None else f"{'≤ ' if counted == 'raw' else ''}{count:,}"


@app.command(epilog="Example:\n\n  rankbench data fetch movielens-1m")
def fetch(
    datasets: Annotated[
        list[str],
        typer.Argument(
            metavar="DATASET...",
            help="Names of datasets (rankbench data list) or card files.",
            autocompletion=candidates.datasets,
        ),
    ],
    json: Json = False,
    plugin: Plugin = None,
) -> None:
    """Download, verify and prepare datasets. Later runs need no network."""
    from rankbench.data.cards import load_card
    from rankbench.data.prepare import prepare

    environment = Environment.from_env()
    cards = [load_card(name, environment) for name in datasets]  # all names are checked before the first download
    rows: list[dict[str, Any]] = []
    for card in cards:
        if not json:
            err.print(f"preparing {card.name}")
        with phase_progress() as progress:
            dataset = prepare(card, environment, progress)
        row = {"name": card.name, "fingerprint": dataset.fingerprint, "counts": dataset.counts}
        rows.append(row | {"sources": list(dataset.sources), "raw_gone": dataset.raw_gone})
    if json:
        print_json(rows)
        return
    body = [[r["name"], *[f"{r['counts'][c]:,}" for c in ("users", "items", "interactions")], r["fingerprint"]] for r in rows]
    print_table(["dataset", "users", "items", "interactions", "fingerprint"], body)
    for each in rows:
        for sentence in data_notes(each["counts"]):
            out.print(f"{each['name']}: {sentence}")
        if each["raw_gone"]:
            out.print(f"{each['name']}: {each['raw_gone']}", style="yellow")


@app.command(
    epilog="Examples:\n\n  rankbench data describe gowalla\n\n  rankbench data describe gowalla --plot gowalla.png\n\n"
    "  rankbench data describe gowalla --verify"
)
def describe(
    dataset: DatasetName,
    plot: Annotated[
        Path | None, typer.Option(help="Write activity and popularity curves to this .png, .pdf or .svg file.")
    ] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Read the raw files again and check their checksums.")] = False,
    json: Json = False,
    plugin: Plugin = None,
) -> None:
    """Describe a dataset: counts, density, protocol, checksums. Counts stand beside the published ones."""
    from rankbench.data.cards import load_card
    from rankbench.data.describe import curves, facts_of
    from rankbench.data.prepare import prepare

    formats = (".png", ".pdf", ".svg")
    require(plot is None or plot.suffix in formats, f"--plot {plot}: expected a name that ends in {', '.join(formats)}")
    if plot is not None:
        require_writable_file(plot)
    environment = Environment.from_env()
    card = load_card(dataset, environment)
    with phase_progress() as progress:
        prepared = prepare(card, environment, progress, verify)
    facts = facts_of(prepared) | {"verified": verify}
    if plot is not None:
        from rankbench.reports.draw import draw
        from rankbench.reports.figures import data_figure

        draw(data_figure(prepared.name, curves(prepared)), plot)
        facts["plot"] = str(plot)
    if json:
        print_json(facts)
    else:
        _show_description(prepared, facts)


def _show_description(prepared: Dataset, facts: dict[str, Any]) -> None:
    from rankbench.data.fetch import MIRROR_NAMES

    out.print(f"{prepared.name}: {prepared.card.title}", style="bold")
    if prepared.card.stand_in:
        out.print(f"stand-in: {prepared.card.stand_in}", style="yellow")
    rows = [[f"raw {name}", f"{number:,}"] for name, number in facts["raw_counts"].items()]
    rows += [[name.replace("_", " "), f"{number:,}"] for name, number in facts["counts"].items()]
    rows.append(["density", f"{facts['density']:.6f}"])
    for label, fact in (("per user", "interactions_a_user"), ("per item", "interactions_an_item")):
        rows.append([f"interactions {label}", "  ".join(f"{key} {value:,}" for key, value in facts[fact].items())])
    rows.append(["the top tenth of items has", f"{facts['share_of_top_tenth']:.1%} of the interactions"])
    if facts["time_span"]:
        rows.append(["time span", " to ".join(facts["time_span"])])
    rows += [["protocol", f"{facts['protocol']}: {', '.join(f'{k} {v}' for k, v in facts['split'].items())}"]]
    rows += [["recall means", facts["recall"]], ["fingerprint", facts["fingerprint"]]]
    rows += [[f"{s['part']} ({s['origin']})", f"{s['file']} sha256 {s['sha256'][:16]}…"] for s in facts["sources"]]
    print_table(["", ""], rows)
    for line in data_notes(prepared.counts):
        out.print(line)
    if prepared.raw_gone:
        out.print(prepared.raw_gone, style="yellow")
    if any(source["file"] in MIRROR_NAMES[source["part"]] for source in facts["sources"] if source["origin"] == "mirror"):
        out.print("ids are those of the mirror, which may have numbered users and items anew", style="yellow")
    if facts["verified"] and prepared.sources:
        out.print("the checksums of the raw files are correct", style="green")
    for line in prepared.differences:
        out.print(f"differs from the counts of the card: {line}", style="yellow")
    if not prepared.differences and (prepared.card.expect.model_dump(exclude_defaults=True)):
        out.print("all counts equal those that the card states", style="green")
    if "plot" in facts:
        out.print(f"plot {facts['plot']}")


@app.command(
    "import",
    epilog="Examples:\n\n  rankbench data import ml-1m.zip\n\n  rankbench data import orders.csv --user buyer --item sku\n\n"
    "  rankbench data import logs.zip --member logs/2024.csv --encoding latin-1 --time none\n\n"
    "  rankbench data import recbole/dataset/yelp --name yelp --out cards/yelp.yaml",
)
def import_(
    path: Annotated[
        Path, typer.Argument(help="A file, archive or folder: CSV, JSON, Parquet, MovieLens, RecBole, Elliot, Cornac.")
    ],
    name: Annotated[str | None, typer.Option(help="Name of the dataset. Default: that of --out, or of the path.")] = None,
    to: Annotated[Path | None, typer.Option("--out", help="Write the card here. Default: NAME.yaml in this folder.")] = None,
    user: Annotated[str | None, typer.Option(help="Column of the user, by name or by position from 0.")] = None,
    item: Annotated[str | None, typer.Option(help="Column of the item.")] = None,
    value: Annotated[str | None, typer.Option(help="Column of the value; none to leave it out.")] = None,
    time: Annotated[str | None, typer.Option(help="Column of the time; none to leave it out.")] = None,
    encoding: Annotated[str | None, typer.Option(help="Encoding of a text, such as latin-1. Default: utf-8.")] = None,
    member: Annotated[str | None, typer.Option(help="The file to read of an archive that has several.")] = None,
    json: Json = False,
) -> None:
    """Recognise the format of a dataset, say what it is, and write a card that reads it where it lies."""
    from rankbench.data.recognise import ALL_VALUES, card_text, recognise

    folder = to.parent if to is not None else Path()
    given = {"user": user, "item": item, "value": value, "time": time}
    called = name or (to.stem if to is not None else None)  # a card in datasets/ is found by the name of its file
    recognised = recognise(path, called, folder, given, Environment.from_env(), encoding, member)
    card = to or Path(f"{recognised.card['name']}.yaml")
    require(card.suffix in (".yaml", ".yml"), f"--out {card}: expected a name that ends in .yaml")
    require(not card.exists(), f"{card}: exists; choose another --name or --out")
    require_writable_file(card)
    write_text(card, card_text(recognised))
    facts = {"format": recognised.format, "parts": list(recognised.parts), "columns": list(recognised.columns)}
    if json:
        print_json({"card": str(card), **facts, "rows_of_the_first_block": recognised.n_rows, "content": recognised.card})
        return
    parts = "its own train and test parts" if "train" in recognised.parts else "one part, split by this card"
    out.print(f"{path}: {recognised.format}, {', '.join(recognised.columns)}; {parts}", style="bold")
    if named := {each: recognised.card["read"][each] for each in recognised.columns if each in recognised.card["read"]}:
        positions = all(isinstance(column, int) for column in named.values())
        kind = "columns by position, from 0" if positions else "columns"
        out.print(f"{kind}: {', '.join(f'{column} is the {each}' for each, column in named.items())}")
    if recognised.drops_missing:
        out.print("some rows lack something; the card drops and counts them: `prepare: [drop_missing]`", style="yellow")
    if "value" in recognised.columns:
        out.print(ALL_VALUES, style="yellow")
    out.print(f"{recognised.n_rows:,} rows in the first block; {card} is written")
    shown = shlex.quote(str(card if card.parent != Path() else f"./{card}"))
    out.print(f"try      {program()} run {shown} ease\ninspect  {program()} data describe {shown}")


@app.command(
    epilog="Examples:\n\n  rankbench data export movielens-1m --split\n\n"
    "  rankbench data export gowalla data.split.seed=1 --split --format recbole --out gowalla-1"
)
def export(
    dataset: DatasetName,
    changes: Annotated[
        list[str] | None, typer.Argument(metavar="[data.path=value]...", help="data.PATH=VALUE changes the card.")
    ] = None,
    split: Annotated[
        bool, typer.Option("--split", help="Write train, valid and test, and known histories, instead of one file.")
    ] = False,
    format: Annotated[str, typer.Option(help="parquet, csv, recbole or lenskit.")] = "parquet",
    to: Annotated[Path | None, typer.Option("--out", help="The new folder. Default: the name of the dataset.")] = None,
    json: Json = False,
    plugin: Plugin = None,
) -> None:
    """Write a dataset as it is prepared and split here, in raw ids, for other programs to fit on."""
    from rankbench.api.execution import only_card_changes
    from rankbench.data.cards import load_card
    from rankbench.data.export import export as write
    from rankbench.data.export import require_exportable
    from rankbench.data.prepare import prepare

    environment, changed = Environment.from_env(), only_card_changes(changes)
    card = load_card(dataset, environment, changed)
    folder = to or Path(card.name)
    require_exportable(folder, format)  # before the data are downloaded
    with phase_progress() as progress:
        prepared = prepare(card, environment, progress)
    about = write(prepared, folder, format, split, [dataset, *(changes or ())])
    if json:
        print_json(about | {"folder": str(folder)})
        return
    body = [[name, f"{file['interactions']:,}", file["is"]] for name, file in about["files"].items()]
    print_table(["file", "interactions", "what it is"], body)
    out.print(f"folder   {folder}\nmeasure  {about['evaluate']}")


@app.command(epilog="Examples:\n\n  rankbench data clean\n\n  rankbench data clean --yes\n\n  rankbench data clean --all --yes")
def clean(
    everything: Annotated[
        bool, typer.Option("--all", help="Also remove prepared data and downloads, which can be made again.")
    ] = False,
    own: Annotated[
        bool, typer.Option("--own", help="Also remove data given in memory or put there by hand, perhaps the only ones.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Remove the files instead of listing them.")] = False,
    json: Json = False,
) -> None:
    """Show what the cache holds. With --yes, remove stale and unfinished folders."""
    from rankbench.data import cache

    environment = Environment.from_env()
    entries = cache.entries(environment)
    yours = {"own", "given"}
    kinds = {entry.kind for entry in entries} - yours if everything else {"stale", "unfinished"}
    chosen = [entry for entry in entries if entry.kind in kinds | (yours if own else set())]
    removed = cache.clean(chosen) if yes else []
    freed = sum(entry.n_bytes for entry in removed)
    if json:
        rows = [
            {"kind": e.kind, "dataset": e.dataset, "path": str(e.path), "bytes": e.n_bytes}
            | {"chosen": e in chosen, "removed": e in removed}
            for e in entries
        ]
        print_json({"folder": str(environment.data), "entries": rows, "freed_bytes": freed})
        return
    print_table(
        ["kind", "dataset", "MB", "file", ""],
        [[e.kind, e.dataset, f"{e.n_bytes / 1e6:.1f}", e.path.name, _fate(e in chosen and yes, e in removed)] for e in entries],
    )
    total, removable = sum(e.n_bytes for e in entries), sum(e.n_bytes for e in chosen)
    out.print(f"{environment.data}: {total / 1e6:,.1f} MB")
    if yes:
        out.print(f"{freed / 1e6:,.1f} MB freed")
    elif chosen:
        out.print(
            f"{removable / 1e6:,.1f} MB can be removed: rankbench data clean {'--all ' * everything}{'--own ' * own}--yes"
        )


def _fate(wanted: bool, removed: bool) -> str:
    return "removed" if removed else "in use, kept" if wanted else ""
