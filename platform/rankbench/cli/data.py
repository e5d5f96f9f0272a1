"""rankbench data: the datasets, fetched, prepared and described."""

from __future__ import annotations

from typing import Annotated

import typer

from rankbench.cli.console import Json, err, out, print_json, print_table

app = typer.Typer(help="List, fetch and describe datasets.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list")
def list_(json: Json = False) -> None:
    """Every dataset that can be named, and whether its raw data are at hand."""
    from rankbench.data.cards import card_names, load_card
    from rankbench.settings import Settings

    settings = Settings.from_env()
    rows = []
    for path in card_names(settings).values():
        card = load_card(str(path), settings)
        rows.append(
            {
                "name": card.name,
                "title": card.title,
                "protocol": card.split.protocol,
                "at_hand": _at_hand(card, settings),
            }
        )
    if json:
        print_json(rows)
        return
    print_table(
        ["dataset", "raw data", "protocol", "what it is"],
        [[r["name"], r["at_hand"], r["protocol"], r["title"]] for r in rows],
    )


def _at_hand(card, settings) -> str:
    if card.source.generator:
        return "built in"
    if settings.mirror and any((settings.mirror / card.mirror_folder).glob("*")):
        return "mirror"
    if any(remote.file for remote in card.source.parts().values()):
        return "local file"
    cached = all((settings.data / "raw" / card.name / remote.filename).is_file() for remote in card.source.parts().values())
    return "cached" if cached else "offline" if settings.offline else "download"


@app.command(epilog="Example:\n\n  rankbench data fetch movielens-1m")
def fetch(
    datasets: Annotated[list[str], typer.Argument(metavar="DATASET...", help="Names or card files.")],
    json: Json = False,
) -> None:
    """Fetch, verify and prepare datasets, so that later runs need no network."""
    from rankbench.data.cards import load_card
    from rankbench.data.prepare import prepare
    from rankbench.settings import Settings

    settings = Settings.from_env()
    cards = [load_card(name, settings) for name in datasets]  # every name is checked before the first download
    rows = []
    for card in cards:
        if not json:
            err.print(f"{card.name} ...", markup=False)
        dataset = prepare(card, settings)
        rows.append(
            {
                "name": card.name,
                "fingerprint": dataset.fingerprint,
                "counts": dataset.counts,
                "sources": list(dataset.sources),
            }
        )
    if json:
        print_json(rows)
        return
    body = [[r["name"], *[f"{r['counts'][c]:,}" for c in ("users", "items", "interactions")], r["fingerprint"]] for r in rows]
    print_table(["dataset", "users", "items", "interactions", "fingerprint"], body)


@app.command(epilog="Example:\n\n  rankbench data describe gowalla")
def describe(dataset: Annotated[str, typer.Argument(help="A name or a card file.")], json: Json = False) -> None:
    """Counts against published ones, density, cold items, protocol and checksums of a prepared dataset."""
    from rankbench.data.prepare import load
    from rankbench.experiment import describe as facts_of
    from rankbench.settings import Settings

    prepared = load(dataset, Settings.from_env())
    facts = facts_of(prepared) | {"title": prepared.card.title, "raw_counts": prepared.raw_counts}
    counts = prepared.counts
    facts["density"] = counts["interactions"] / (counts["users"] * counts["items"])
    if json:
        print_json(facts)
        return
    out.print(f"{prepared.name}: {prepared.card.title}", style="bold", markup=False)
    rows = [[f"raw {name}", f"{number:,}"] for name, number in prepared.raw_counts.items()]
    rows += [[name.replace("_", " "), f"{number:,}"] for name, number in counts.items()]
    rows += [["density", f"{facts['density']:.6f}"], ["protocol", f"{facts['protocol']}, seed {facts['split_seed']}"]]
    rows += [["recall means", facts["recall"]], ["fingerprint", facts["fingerprint"]]]
    rows += [[f"{s['part']} ({s['origin']})", f"{s['file']} sha256 {s['sha256'][:16]}…"] for s in facts["sources"]]
    print_table(["", ""], rows)
    for line in prepared.differences:
        out.print(f"differs from what was published: {line}", style="yellow", markup=False)
    if not prepared.differences and (prepared.card.expect.model_dump(exclude_defaults=True)):
        out.print("all counts are those published", style="green")
