"""A command with subcommands, one of which may be left out: `sweep FILE` is `sweep run FILE`."""

from __future__ import annotations

from typing import Any

import typer


class RunByDefault(typer.core.TyperGroup):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args if args and args[0] in self.commands else ["run", *args])
