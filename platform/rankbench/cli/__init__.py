"""The command line: one file per command, which parses its arguments, calls one function and prints the result."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from importlib import import_module
from typing import Annotated

import typer

from rankbench.cli.completion import VARIABLE, answer
from rankbench.cli.console import SIGNALS
from rankbench.cli.declare import command
from rankbench.cli.interrupts import watch
from rankbench.cli.streams import ended, guard
from rankbench.core.errors import LONGEST_MESSAGE, RankbenchError, own_error, printable, shortened
from rankbench.core.plugins import exits_are_errors

try:  # recent typer carries a click of its own
    from typer._click.exceptions import ClickException, NoArgsIsHelpError
except ImportError:
    from click.exceptions import ClickException, NoArgsIsHelpError  # type: ignore[assignment]

app = typer.Typer(
    name="rankbench",
    help="Benchmark recommendation losses on implicit feedback: closed forms, full ranking, Ray Tune sweeps, MLflow.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(ctx: typer.Context, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from rankbench.cli.version import described_version

        print(f"rankbench {described_version()}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Write log messages to stderr.")] = False,
) -> None:
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, format="%(levelname)s %(name)s %(message)s")
    if not verbose:
        logging.getLogger("ray").setLevel(logging.ERROR)


def _register() -> None:
    names = (
        "run evaluate fit check recommend similar report compare methods study ui doctor demo completion sweep reproduce "
        "leaderboard data tracking"
    )
    for name in names.split():
        module = import_module(f"rankbench.cli.{name}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name)
        else:
            command(app, name, module.EXAMPLES)(getattr(module, name))


_register()


def main() -> None:
    """Entry point: every failure is one line on stderr and an exit code (2 input, 3 numeric, 4 cluster, 5 storage)."""
    if VARIABLE in os.environ:
        sys.exit(answer(app))
    watch(_continuation(sys.argv[1:]))
    guard()
    sys.exit(ended(lambda: _main(sys.argv[1:])))


def _main(words: list[str]) -> int:
    try:
        with exits_are_errors("rankbench"):
            result = app(words, standalone_mode=False, prog_name="rankbench")
        # Some versions of typer return the code 130 for an interrupt.
        return _stopped(words) if result == 130 else result if isinstance(result, int) else 0
    except NoArgsIsHelpError as error:
        print(error.ctx.get_help())
        return 2
    except ClickException as error:
        return _fail(error.format_message(), 2, words)
    except (KeyboardInterrupt, typer.Abort) as stop:
        # Typer also turns an EOFError into an Abort, but that is an error like any other.
        if isinstance(stop.__cause__, EOFError) and not SIGNALS:
            raise stop.__cause__ from None
        return _stopped(words)
    except Exception as error:
        from rankbench.core.attempts import Superseded

        # An error during the clean-up of a stopped command is not reported, unless it says that another one goes on.
        if SIGNALS and not isinstance(error, Superseded):
            return _stopped(words)
        error = own_error(error)
        if isinstance(error, RankbenchError):
            return _fail(str(error), error.exit_code, words)
        raise


_ITERATIONS = "the same command with --resume continues from the last saved iteration or tiles, if there are any"
_CONTINUATIONS = {  # command → how a stopped command can be continued
    "run": _ITERATIONS,
    "fit": _ITERATIONS,
    "sweep": "finished runs are kept; the same command with --resume continues the sweep if it had begun",
    "reproduce": "finished fits are kept; the same command goes on",
    "leaderboard": "finished entries are kept; the same command goes on",
}
_WITHOUT = {"status", "stop", "pages", "show", "page", "verify"}  # commands beside them that keep nothing


def _stopped(words: list[str]) -> int:
    terminated = bool(SIGNALS) and SIGNALS[0] == signal.SIGTERM
    what = "terminated" if terminated else "interrupted"
    then = _continuation(words)
    return _fail(f"{what}; {then}" if then else what, 143 if terminated else 130, words)


def _continuation(words: list[str]) -> str:
    """How what these words of a command begin can be continued; empty if it cannot, or if there is nothing to continue."""
    command, second, *_ = [*(word for word in words if not word.startswith("-")), "", ""]
    return "" if second in _WITHOUT or "--dry-run" in words else _CONTINUATIONS.get(command, "")


def _fail(message: str, code: int, words: list[str]) -> int:
    message = shortened(message, LONGEST_MESSAGE)
    print(f"error: {printable(' '.join(message.split()))}", file=sys.stderr)
    if "--json" in words:
        print(json.dumps({"error": message, "exit_code": code}))
    return code
