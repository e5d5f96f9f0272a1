"""rankbench methods: list the methods and their parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from rankbench.cli import candidates
from rankbench.cli.arguments import Plugin
from rankbench.cli.console import Json, out, print_json, print_table
from rankbench.core.errors import require
from rankbench.core.names import ALL
from rankbench.core.patterns import Families, is_pattern, matches
from rankbench.core.registry import nearest

if TYPE_CHECKING:
    from rankbench.experiment.method_facts import MethodFacts, ParamFacts

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
    from rankbench.experiment.method_facts import facts_of, families_of, method_facts

    known = method_facts()
    families = families_of(known.values())
    if listing := name is None or is_pattern(name):
        chosen = [known[each] for each in matches(name or ALL, known, "methods", families)]
    elif name in known:
        chosen = [known[name]]
    else:
        from rankbench.experiment.methods import method

        chosen = [facts_of(method(name))]  # which says what is wrong with the name
    about = chosen[0]
    able = () if listing else tuple(about.encoders)
    require(encoder is None or bool(able), f"--encoder {encoder}: {name or 'a list of methods'} has no encoder")
    params = [_params(each, encoder) for each in chosen]
    if json:
        found = [
            {"name": each.name, "families": each.families, "title": each.title, "source": each.source}
            | {"params": [{key: getattr(one, key) for key in ("name", "default", "help", "search")} for one in of]}
            for each, of in zip(chosen, params, strict=True)
        ]
        print_json(found if listing else found[0])
        return
    if listing:
        _show_list(chosen)
        if name is None:
            _show_families(families)
        return
    out.print(f"{about.name}: {about.title} ({about.source})", style="bold")
    if about.families:
        out.print(f"families: {', '.join(about.families)}")
    if about.reason:
        out.print(about.reason)
    body = [[one.name, "" if one.default is None else str(one.default), one.search, one.help] for one in params[0]]
    print_table(["parameter", "default", "search range", "description"], body) if body else out.print("no parameters")
    if able and encoder is None:
        out.print(f"parameters of an encoder: rankbench methods {name} --encoder {'|'.join(able)}")


def _show_list(chosen: Sequence[MethodFacts]) -> None:
    from rankbench.experiment.method_facts import without_losses

    print_table(
        ["method", "families", "parameters", "description", "source"],
        [[each.name, ", ".join(each.families), _short(each), each.title, each.source] for each in chosen],
        drop=("source", "parameters"),
    )
    out.print(
        without_losses() or "…: also takes the parameters of training and of the encoder; `rankbench methods bpr` lists them"
    )


def _show_families(families: Families) -> None:
    from rankbench.fitting.families import FAMILIES

    out.print()
    print_table(
        ["family", "methods", "what they have in common"],
        [[family, str(len(members)), FAMILIES.get(family, "")] for family, members in sorted(families.items())],
    )
    out.print("family:NAME selects a family in `rankbench sweep --methods` and in experiment files")


def _short(about: MethodFacts) -> str:
    return " ".join([*about.own, *(["…"] if len(about.own) < len(_params(about)) else [])])


def _params(about: MethodFacts, encoder: str | None = None) -> list[ParamFacts]:
    """The parameters of a method: its own, those of training, and those of the encoder, if one is given."""
    encoders = about.encoders
    require(encoder is None or encoder in encoders, f"--encoder: unknown encoder {encoder!r}{nearest(encoder or '', encoders)}")
    chosen = set(encoders.get(encoder or "", ()))
    left_out = set[str]().union(*encoders.values()) - chosen
    return sorted(
        (each for each in about.params if each.name not in left_out),
        key=lambda each: (each.name not in about.own, each.name in chosen),
    )
