"""rankbench leaderboard: every method on every dataset, each within the same budget of time."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankbench.cli.arguments import DryRun, Plugin, Tags, Track, skipping
from rankbench.cli.console import Json, clock, err, out, phase_progress, print_json, print_table
from rankbench.cli.declare import command
from rankbench.cli.run_by_default import RunByDefault
from rankbench.leaderboard.options import BoardOptions, LeaderboardOptions, ShowOptions

if TYPE_CHECKING:
    from rankbench.judge.ranking import Probabilities
    from rankbench.leaderboard.agenda import Agenda
    from rankbench.leaderboard.board import Board
    from rankbench.leaderboard.contest import Entry
    from rankbench.leaderboard.results import Result

EXAMPLES = """Examples:
  rankbench leaderboard --datasets movielens-100k --budget 10s
  rankbench leaderboard --methods ease,ials,bpr,lightgcn --datasets movielens-100k,lastfm --budget 30s
  rankbench leaderboard --methods family:softmax --datasets 'movielens-*' --budget 30s/M      per million interactions
  rankbench leaderboard --plugin my_loss.py --methods squared-hinge --datasets movielens-100k --budget 10s
  rankbench leaderboard --budget 30s --dry-run      what is left, and how long it takes
  rankbench leaderboard --budget 30s --address auto      on a Ray cluster
  rankbench leaderboard show      mean ranks, from the store
  rankbench leaderboard show --datasets movielens-100k --json
  rankbench leaderboard show --rope 0.01      and how probably each is better than the first, by more than 1 %
  rankbench leaderboard page --out site      a static site, from the store
  rankbench leaderboard page --out standings.md      the standings alone, as Markdown
"""

BAYESIAN = "worse / equal / better than the first"

app = typer.Typer(
    cls=RunByDefault,
    help="Compare all methods on all datasets at equal budgets of time. See also `leaderboard show`.",
    rich_markup_mode=None,
)


@command(app, "run", EXAMPLES)
def run(
    options: LeaderboardOptions,
    dry_run: DryRun = False,
    track: Track = True,
    tag: Tags = None,
    plugin: Plugin = None,
    json: Json = False,
) -> None:
    """Give every method the same time on every dataset: to search its settings on the validation set, and to be fitted.

    Reading data, and the measurement on test at the end, are not counted. Each result is stored at once, and the same command
    goes on where it ended; only new methods, datasets and budgets are run.
    """
    from rankbench.core.environment import Environment
    from rankbench.core.errors import require
    from rankbench.leaderboard.agenda import agenda, compete
    from rankbench.leaderboard.tracked import sink_of
    from rankbench.tracking.labels import Labels

    environment = Environment.from_env()
    require(track or not tag, "--no-track: no MLflow run is made; leave out --tag")
    labels = Labels.from_env("rankbench leaderboard", tag or ())
    sink = sink_of(environment, labels, lambda line: err.print(f"warning: {line}")) if track else None
    phase = "looking at datasets" if dry_run else "preparing datasets"
    with phase_progress() as progress:
        todo = agenda(options, environment, lambda name, done, total: progress(phase, done, total), dry_run)
    if not json:
        _announce(todo, options)
    if dry_run:
        _show_plan(todo.plan.left, json)
        return
    view = _View(todo, quiet=json)
    compete(todo, environment, options.address, view.done, sink, view.skipped)
    if json:
        skipped = [{"dataset": each.card.name, "entrant": each.entrant.name} for each in view.others]
        stores = todo.stores.public.folder, todo.stores.private and todo.stores.private.folder
        facts = dict(zip(("store", "own_store"), (each and str(each) for each in stores), strict=True))
        print_json(facts | {"done": [asdict(each) for each in view.results], "before": todo.plan.done, "skipped": skipped})


@command(app, "show", EXAMPLES)
def show(
    options: ShowOptions,
    plugin: Plugin = None,
    json: Json = False,
) -> None:
    """Show the mean ranks of methods over datasets, and which differences can be told from chance. Nothing is fitted."""
    from rankbench.core.environment import Environment
    from rankbench.leaderboard.stored import board

    with skipping(options.skip_bad) as skipped:
        found = board(options, Environment.from_env(), skipped)
    print_json(found.facts(options.rope)) if json else _show_board(found, options.rope)


@command(app, "page", EXAMPLES)
def page(
    options: BoardOptions,
    to: Annotated[Path, typer.Option("--out", help="Folder of the pages, or a file NAME.md for the standings alone.")] = Path(
        "leaderboard-site"
    ),
    plugin: Plugin = None,
    json: Json = False,
) -> None:
    """Write a static site from the store: standings, a page per dataset and per method, and the data. Nothing is fitted."""
    from rankbench.core.environment import Environment
    from rankbench.leaderboard.stored import site

    with skipping(options.skip_bad) as skipped, phase_progress() as progress:
        files = site(to, options, Environment.from_env(), progress, skipped)
    print_json({"files": [str(path) for path in files]}) if json else out.print(f"{len(files)} files; open {files[0]}")


def _announce(todo: Agenda, options: LeaderboardOptions) -> None:
    """Say on stderr what is left, how long it takes, and where results go."""
    from rankbench.core.threads import available_cpus

    plan, private = todo.plan, todo.stores.private
    for name, why in plan.not_available.items():
        err.print(f"not available: {name} ({why})", style="dim")
    if unknown := plan.of_unknown_size:
        err.print(f"size not known before they are prepared: {', '.join(unknown)}", style="dim")
    slots = max(1, available_cpus() // options.threads)
    hours = "" if options.address else f", at most {clock(plan.seconds / slots)}, {slots} at once"
    err.print(f"{len(plan.left)} entries left{hours}; {plan.done} are stored", highlight=False)
    for folder in dict.fromkeys(each.results.folder for each in plan.left):
        if private and folder == private.folder:
            err.print(f"results of your own datasets and methods go to {folder}; `leaderboard show --store` shows them")
        else:
            err.print(f"results go to {folder}")


class _View:
    """A line on stderr for each entry that ends or is left to another command, and what they were."""

    def __init__(self, todo: Agenda, quiet: bool):
        self.of, self.quiet, self.begun = len(todo.plan.left), quiet, time.monotonic()
        self.results: list[Result] = []
        self.others: list[Entry] = []

    def done(self, result: Result) -> None:
        self.results.append(result)
        number, of = len(self.results), self.of - len(self.others)
        left = (time.monotonic() - self.begun) / number * (of - number)
        self._say(f"{number}/{of}, {clock(left)} left  {_outcome(result)}")

    def skipped(self, entry: Entry) -> None:
        self.others.append(entry)
        self._say(f"{entry.entrant.name} on {entry.card.name}: skipped: another command is running it, or has")

    def _say(self, line: str) -> None:
        if not self.quiet:
            err.print(line, highlight=False)


def _show_board(found: Board, rope: float | None) -> None:
    from rankbench.judge.ranking import against_first

    probable = against_first(found.ranking, rope) if rope else {}
    body = [
        [
            str(each.place), each.method, f"{each.mean_rank:.2f}", f"{each.wins:+d}",
            *(f"{100 * share:.0f} %" for share in each.shares[:2]), str(each.no_result),
            "{} to {}".format(*(each.places or (each.place, each.place))),
            *([_percent(probable.get(each.method))] if rope else []),
        ]
        for each in found.standings
    ]  # fmt: skip
    header = ["place", "method", "mean rank", "wins − losses", "best", "within 5 %", "no result", "places without a dataset"]
    header += [BAYESIAN] if rope else []
    print_table(header, body, drop=("places without a dataset", "wins − losses"))
    for line in found.conclusions():
        out.print(line)


def _percent(found: Probabilities | None) -> str:
    return f"{100 * found.worse:.0f} / {100 * found.equal:.0f} / {100 * found.better:.0f} %" if found else ""


def _outcome(result: Result) -> str:
    where = f"{result.entrant} on {result.dataset}"
    if not result.finished:
        return f"{where}: {result.status}: {result.reason}"
    value, low, high = result.metrics[result.metric]
    seeds = f"{len(result.seeds)} seed{'s' if len(result.seeds) > 1 else ''}"
    interval = "" if low is None or high is None else f" [{low:.4f}, {high:.4f}]"
    return f"{where}: {result.metric} {value:.4f}{interval}, {result.tried} settings, {seeds}, {result.seconds['all']:.1f} s"


def _show_plan(left: Any, json: bool) -> None:
    rows: dict[str, list[Any]] = {}
    for each in left:
        rows.setdefault(each.card.name, []).append(each)
    facts = [
        {"dataset": name, "budget": entries[0].seconds, "methods": [each.entrant.name for each in entries]}
        for name, entries in rows.items()
    ]
    if json:
        print_json({"left": facts})
        return
    body = [
        [f["dataset"], f"{f['budget']:g} s" if f["budget"] else "not known", str(len(f["methods"])), ", ".join(f["methods"])]
        for f in facts
    ]
    print_table(["dataset", "budget", "entries", "methods"], body, drop=("methods",))
