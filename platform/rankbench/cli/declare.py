"""Commands whose arguments and options are the fields of an Options class, and commands with one that may be left out.

The metadata of a field, beside its help: `flags` are its names if they are not that of the field, `argument` makes it
positional, `complete` names a function of `candidates.py`, `parse` reads the text of a value. Everything else is typer's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any

import typer

from rankbench.cli import candidates
from rankbench.cli.console import epilog
from rankbench.core.options import takes_options, words_of

Command = Callable[..., Any]


def command(app: typer.Typer, name: str, examples: str) -> Callable[[Command], Command]:
    """Register a function as a command of `app`; the fields of an Options class among its parameters become options."""

    def register(function: Command) -> Command:
        app.command(name, epilog=epilog(examples))(takes_options(function, _declared))
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


class RunByDefault(typer.core.TyperGroup):
    """A command with subcommands, one of which may be left out: `sweep FILE` is `sweep run FILE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and ctx.resilient_parsing:  # a shell completes the first word
            return super().parse_args(ctx, args)
        return super().parse_args(ctx, args if args and args[0] in self.commands else ["run", *args])

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Complete the names of subcommands, and options and the first argument of `run`."""
        run = self.commands["run"]
        within = run.make_context("run", [], parent=ctx, resilient_parsing=True)
        arguments = [each for each in run.params if isinstance(each, typer.core.TyperArgument)]
        first = arguments[0] if arguments and not incomplete.startswith("-") else run
        return [*super().shell_complete(ctx, incomplete), *first.shell_complete(within, incomplete)]
