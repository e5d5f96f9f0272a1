"""rankbench methods: list the methods and their parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankbench.cli import candidates
from rankbench.cli.arguments import Plugin
from rankbench.cli.console import Json, out, print_json, print_table
from rankbench.core.errors import require
from rankbench.core.registry import nearest

if TYPE_CHECKING:
    from rankbench.fitting.method import Method

EXAMPLES = """Examples:
  rankbench methods
  rankbench methods deql-l2
  rankbench methods talos
  rankbench methods bpr --encoder lightgcn
  rankbench methods family:softmax
  rankbench methods 'deql*'
"""


def methods(
    name: Annotated[
        str | None,
        typer.Argument(
            help="A method, to list its parameters; or a pattern or family:NAME, to list methods.",
            autocompletion=candidates.selected_methods,
        ),
    ] = None,
    encoder: Annotated[
        str | None, typer.Option(metavar="NAME", help="List the parameters of this encoder, too; for a loss of gradient steps.")
    ] = None,
    json: Json = False,
    plugin: Plugin = None,
) -> None:
    """List all methods with their families, or the parameters of one method, its own first."""
    from rankbench.core.patterns import is_pattern, matches
    from rankbench.experiment.methods import families, method, registered

    if listing := name is None or is_pattern(name):
        registry = registered()
        names = matches(name, registry.names(), "methods", families()) if name else registry.names()
        chosen = [registry.get(each) for each in names]
    else:
        chosen = [method(name or "")]
    able = not listing and chosen[0].by_encoder()
    require(encoder is None or bool(able), f"--encoder {encoder}: {name or 'a list of methods'} has no encoder")
    facts: list[dict[str, Any]] = [
        {"name": s.name, "families": [*s.families], "title": s.title, "source": s.source, "params": _params(s, encoder)}
        for s in chosen
    ]
    if json:
        print_json(facts if listing else facts[0])
        return
    if listing:
        _show_list(chosen, facts, with_families=name is None)
        return
    out.print(f"{facts[0]['name']}: {facts[0]['title']} ({facts[0]['source']})", style="bold")
    if chosen[0].families:
        out.print(f"families: {', '.join(chosen[0].families)}")
    if chosen[0].reason:
        out.print(chosen[0].reason)
    body = [[p["name"], "" if p["default"] is None else str(p["default"]), p["search"], p["help"]] for p in facts[0]["params"]]
    print_table(["parameter", "default", "search range", "description"], body) if body else out.print("no parameters")
    if able and encoder is None:
        out.print(f"parameters of an encoder: rankbench methods {name} --encoder {'|'.join(able)}")


def _show_list(chosen: Sequence[Method], facts: Sequence[dict[str, Any]], with_families: bool) -> None:
    from rankbench.experiment.methods import families, without_losses
    from rankbench.fitting.families import FAMILIES

    print_table(
        ["method", "families", "parameters", "description", "source"],
        [
            [f["name"], ", ".join(f["families"]), _short(spec, f["params"]), f["title"], f["source"]]
            for f, spec in zip(facts, chosen, strict=True)
        ],
        drop=("source", "parameters"),
    )
    out.print(
        without_losses() or "…: also takes the parameters of training and of the encoder; `rankbench methods bpr` lists them"
    )
    if with_families:
        out.print()
        counts = {family: len(members) for family, members in sorted(families().items())}
        print_table(
            ["family", "methods", "what they have in common"],
            [[family, str(count), FAMILIES.get(family, "")] for family, count in counts.items()],
        )
        out.print("family:NAME selects a family in `rankbench sweep --methods` and in experiment files")


def _short(spec: Method, params: list[dict[str, Any]]) -> str:
    return " ".join([*spec.own, *(["…"] if len(spec.own) < len(params) else [])])


def _params(spec: Method, encoder: str | None) -> list[dict[str, Any]]:
    """The parameters of a method: its own, those of training, and those of the encoder, if one is given."""
    encoders = spec.by_encoder()
    require(encoder is None or encoder in encoders, f"--encoder: unknown encoder {encoder!r}{nearest(encoder or '', encoders)}")
    chosen = encoders.get(encoder or "", set())
    left_out = set[str]().union(*encoders.values()) - chosen
    ordered = sorted(
        (each for each in spec.fields() if each.name not in left_out),
        key=lambda each: (each.name not in spec.own, each.name in chosen),
    )
    texts = ("help", "search")
    return [
        {"name": each.name, "default": each.default} | {key: each.metadata.get(key, "") for key in texts} for each in ordered
    ]
