"""rankbench methods: what can be fitted, and with which parameters."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from rankbench.cli.console import Json, out, print_json, print_table

EXAMPLES = """Examples:

  rankbench methods

  rankbench methods deql-l2
"""


def methods(
    name: Annotated[str | None, typer.Argument(help="One method, with its parameters.")] = None, json: Json = False
) -> None:
    """List the methods, or the parameters of one."""
    from rankbench.methods import registered

    registry = registered()
    chosen = [registry.get(name)] if name else list(registry)
    facts = [{"name": s.name, "title": s.title, "source": s.source, "params": _params(s.params)} for s in chosen]
    if json:
        print_json(facts[0] if name else facts)
        return
    if not name:
        print_table(
            ["method", "parameters", "what it is", "source"],
            [[f["name"], " ".join(p["name"] for p in f["params"]), f["title"], f["source"]] for f in facts],
        )
        return
    out.print(f"{facts[0]['name']}: {facts[0]['title']} ({facts[0]['source']})", style="bold", markup=False)
    if chosen[0].reason:
        out.print(chosen[0].reason, markup=False)
    body = [[p["name"], "" if p["default"] is None else str(p["default"]), p["search"], p["help"]] for p in facts[0]["params"]]
    print_table(["parameter", "default", "searched", "meaning"], body) if body else out.print("no parameters")


def _params(cls: type) -> list[dict]:
    return [
        {
            "name": f.name,
            "default": f.default,
            "help": f.metadata.get("help", ""),
            "search": f.metadata.get("search", ""),
        }
        for f in dataclasses.fields(cls)
    ]
