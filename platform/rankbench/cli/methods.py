"""rankbench methods: list the methods and their parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankbench.cli.arguments import Plugin
from rankbench.cli.console import Json, out, print_json, print_table

if TYPE_CHECKING:
    from rankbench.fitting.method import Method

EXAMPLES = """Examples:
  rankbench methods
  rankbench methods deql-l2
  rankbench methods talos
"""


def methods(
    name: Annotated[str | None, typer.Argument(help="Name of a method, to list its parameters.")] = None,
    json: Json = False,
    plugin: Plugin = None,
) -> None:
    """List all methods, or the parameters of one method."""
    from rankbench.experiment.methods import method, registered, without_losses

    chosen = [method(name)] if name else list(registered())
    facts: list[dict[str, Any]] = [{"name": s.name, "title": s.title, "source": s.source, "params": _params(s)} for s in chosen]
    if json:
        print_json(facts[0] if name else facts)
        return
    if not name:
        print_table(
            ["method", "parameters", "description", "source"],
            [[f["name"], _short(spec, f["params"]), f["title"], f["source"]] for f, spec in zip(facts, chosen, strict=True)],
        )
        out.print(
            without_losses()
            or "…: also takes the parameters of training and of the encoder; `rankbench methods bpr` lists them"
        )
        return
    out.print(f"{facts[0]['name']}: {facts[0]['title']} ({facts[0]['source']})", style="bold")
    if chosen[0].reason:
        out.print(chosen[0].reason)
    body = [[p["name"], "" if p["default"] is None else str(p["default"]), p["search"], p["help"]] for p in facts[0]["params"]]
    print_table(["parameter", "default", "search range", "description"], body) if body else out.print("no parameters")


def _short(spec: Method, params: list[dict[str, Any]]) -> str:
    return " ".join([*spec.own, *(["…"] if len(spec.own) < len(params) else [])])


def _params(spec: Method) -> list[dict[str, Any]]:
    texts = ("help", "search")
    return [
        {"name": each.name, "default": each.default} | {key: each.metadata.get(key, "") for key in texts}
        for each in spec.fields()
    ]
