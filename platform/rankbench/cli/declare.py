"""Arguments and options of a command from the fields of its Options class.

The metadata of a field, beside its help: `flags` are its names if they are not that of the field, `argument` makes it
positional, `complete` names a function of `candidates.py`, `parse` reads the text of a value. Everything else is typer's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any

import typer

from rankbench.cli import candidates
from rankbench.core.options import takes_options, words_of

Command = Callable[..., Any]


def command(
    app: typer.Typer, name: str | None = None, examples: str = ""
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as a command of `app`; the fields of an Options class among its parameters become options."""

    def register(function: Command) -> Command:
        app.command(name, epilog=examples.replace("\n", "\n\n"))(takes_options(function, _declared))
        return function

    return register


def _declared(field: dataclasses.Field[Any], annotation: Any) -> tuple[Any, Any]:
    """The default and the annotation of a field for typer."""
    about, default = dict(field.metadata), field.default
    positional, flags, complete = about.pop("argument", False), about.pop("flags", ()), about.pop("complete", None)
    name = f"--{field.name.replace('_', '-')}"
    if parse := about.pop("parse", None):
        annotation, default = str | None, None
        about["callback"] = lambda value: words_of(name, parse, () if value is None else (value,))
    if default is False and not flags:  # without a name of its own, a switch could also be turned off
        flags = (name,)
    if complete:
        about["autocompletion"] = getattr(candidates, complete)
    return default, Annotated[annotation, typer.Argument(**about) if positional else typer.Option(*flags, **about)]
