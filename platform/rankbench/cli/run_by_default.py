"""A command with subcommands, one of which may be left out: `sweep FILE` is `sweep run FILE`."""

from __future__ import annotations

from typing import Any

import typer


class RunByDefault(typer.core.TyperGroup):
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
