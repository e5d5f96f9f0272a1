"""rankbench leaderboard: every method on every dataset, each within the same budget of time."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rankbench.cli.arguments import DryRun, Plugin, Tags, Track, skipping
from rankbench.cli.console import Json, clock, err, out, phase_progress, print_json, print_table
from rankbench.cli.declare import RunByDefault, command
from rankbench.core.environment import Environment
from rankbench.core.errors import ClusterError
from rankbench.core.threads import available_cpus
from rankbench.judge.printing import estimate, in_words, parts
from rankbench.leaderboard.milestones import before
from rankbench.leaderboard.options import BoardOptions, LeaderboardOptions, ShowOptions, VerifyOptions
from rankbench.tracking.labels import Labels

if TYPE_CHECKING:
    from rankbench.leaderboard.agenda import Stores
    from rankbench.leaderboard.board import Board
    from rankbench.leaderboard.contest import Entry, Plan
    from rankbench.leaderboard.results import Result
    from rankbench.leaderboard.verify import Verified

EXAMPLES = """Examples:
  rankbench leaderboard --datasets movielens-100k --budget 10s
  rankbench leaderboard --methods ease,ials,bpr,lightgcn --datasets movielens-100k,lastfm --budget 30s
  rankbench leaderboard --methods family:softmax --datasets 'movielens-*' --budget 100s --best 5
  rankbench leaderboard --plugin my_loss.py --methods squared-hinge --datasets movielens-100k --budget 10s
  rankbench leaderboard --budget 30s --dry-run      what is left, and how long it takes
  rankbench leaderboard --budget 30s --address auto      on a Ray cluster
  rankbench leaderboard show      mean ranks, from the store
  rankbench leaderboard show --datasets movielens-100k --json
  rankbench leaderboard show --rope 0.01      and how probably each is better than the first, by more than 1 %
  rankbench leaderboard page --out site      a static site, from the store
  rankbench leaderboard page --out standings.md      the standings alone, as Markdown
  rankbench leaderboard verify lastfm/ials lastfm/sl/10s      fits the chosen settings once more, and compares all metrics
  rankbench leaderboard verify --draw 20      of 20 entries at random
"""

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
    """Give every method the same time on every dataset, to search its settings on the validation set.

    All methods first get 10 s, then 30 s, 100 s and so on until the budget: fits go on where they were, and each time is a
    result of its own. Reading data, and the measurement on test, are not counted. Each result is stored at once, and the same
    command, or one with a larger budget, goes on where it ended.
    """
    from rankbench.leaderboard.agenda import Stores, agenda, compete
    from rankbench.leaderboard.tracked import EXPERIMENT
    from rankbench.tracking.mlflow_sink import MlflowSink

    environment = Environment.from_env()
    labels = Labels.if_tracked(track, "rankbench leaderboard", tag)
    sink = MlflowSink.of(environment, EXPERIMENT, labels, lambda line: err.print(f"warning: {line}")) if labels else None
    phase = "looking at datasets" if dry_run else "preparing datasets"
    stores = Stores(environment, options.store)
    with phase_progress() as progress:
        todo = agenda(options, environment, stores, lambda name, done, total: progress(phase, done, total), dry_run)
    if not json:
        _announce(todo, stores, options)
    if dry_run:
        _show_plan(todo, json)
        return
    view = _View(todo, quiet=json)
    compete(todo, environment, options.address, view.done, sink, view.skipped, view.anew)
    if json:
        skipped = [{"dataset": each.card.name, "entrant": each.entrant.name} for each in view.others]
        private = stores.private
        facts = {"store": str(stores.public.folder), "own_store": str(private.folder) if private else None}
        print_json(facts | {"done": [asdict(each) for each in view.results], "before": todo.done, "skipped": skipped})
    if any(each.status == "failed" for each in view.results):
        raise typer.Exit(ClusterError.exit_code)


@command(app, "show", EXAMPLES)
def show(
    options: ShowOptions,
    plugin: Plugin = None,
    json: Json = False,
) -> None:
    """Show the mean ranks of methods over datasets, and which differences can be told from chance. Nothing is fitted."""
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
    from rankbench.leaderboard.stored import site

    with skipping(options.skip_bad) as skipped, phase_progress() as progress:
        files = site(to, options, Environment.from_env(), progress, skipped)
    print_json({"files": [str(path) for path in files]}) if json else out.print(f"{len(files)} files; open {files[0]}")


@command(app, "verify", EXAMPLES)
def verify(
    options: VerifyOptions,
    plugin: Plugin = None,
    json: Json = False,
) -> None:
    """Fit the chosen settings of entries once more, and compare their metrics on test with the stored ones.

    On the same processor with the same versions every stored digit has to come back. Elsewhere the metric that chose the
    setting may differ by 0.5 %. The exit code is 1 if an entry differs.
    """
    from rankbench.leaderboard import verify as again

    def show(verified: Verified, done: int, total: int) -> None:
        about = verified.facts()
        values = f"{about['metric']} {about['stored']:.6g}, again {about['again']:.6g}"
        elsewhere = f"; measured with {', '.join(verified.elsewhere)}" if verified.elsewhere else ""
        largest = f"largest difference of {about['n_metrics']} metrics {about['largest_difference']:.1g}"
        err.print(f"{done} of {total}  {verified.name}: {verified.verdict}: {values}, {largest}{elsewhere}", highlight=False)

    with skipping(options.skip_bad) as skipped, phase_progress() as progress:
        found = again.verify(options, Environment.from_env(), skipped, show, progress)
    counts = Counter(each.verdict for each in found)
    if json:
        print_json({"entries": [each.facts() for each in found], "counts": counts})
    else:
        out.print(", ".join(f"{counts[name]} {name}" for name in ("equal", "close", "differs")) + f" of {len(found)}")
    if counts["differs"]:
        raise typer.Exit(1)


def _announce(plan: Plan, stores: Stores, options: LeaderboardOptions) -> None:
    """Say on stderr what is left, how long it takes, and where results go."""
    private, left = stores.private, plan.everything
    for name, why in plan.not_available.items():
        err.print(f"not available: {name} ({why})", style="dim")
    slots = max(1, available_cpus() // options.threads)
    hours = "" if options.address else f", about {clock(sum(each.seconds for each in left) / slots)}, {slots} at once"
    err.print(f"{len(left)} entries left{hours}; {plan.done} are stored", highlight=False)
    for folder in dict.fromkeys(each.results.folder for each in left):
        if private and folder == private.folder:
            err.print(f"results of your own datasets and methods go to {folder}; `leaderboard show --store` shows them")
        else:
            err.print(f"results go to {folder}")


class _View:
    """A line on stderr for each entry that ends or is left to another command, and what they were."""

    def __init__(self, todo: Plan, quiet: bool):
        self.todo, self.quiet, self.begun, self.milestone = todo, quiet, time.monotonic(), 0.0
        self.left: list[Result] = []
        self.results: list[Result] = []
        self.others: list[Entry] = []

    def done(self, result: Result) -> None:
        self.results.append(result)
        if result.budget != self.milestone:  # which entrants go on until it is known by now
            self.milestone = result.budget
            planned = [each.without_result() for each in self.todo.everything]
            failed = [each for each in self.results if each.status == "failed"]
            self.left = [each for each in planned if not any(each.continues(other) for other in failed)]
        over = result.over or result.status == "failed"  # then the race does not go on
        self.left = [
            each for each in self.left
            if not (each.continues(result) and (over or each.allowed == result.allowed))
        ]  # fmt: skip
        done, left = (sum(each.budget - before(each.budget) for each in entries) for entries in (self.results, self.left))
        seconds = (time.monotonic() - self.begun) / done * left
        self._say(f"{len(self.left)} left, about {clock(seconds)}  {_outcome(result)}")

    def skipped(self, entry: Entry) -> None:
        self.others.append(entry)
        self._say(f"{entry.entrant.name} on {entry.card.name}: skipped: another command is running it, or has")

    def anew(self, entry: Entry, why: str) -> None:
        self._say(f"{entry.entrant.name} on {entry.card.name}: a new race begins, because {why}")

    def _say(self, line: str) -> None:
        if not self.quiet:
            err.print(line, highlight=False)


def _show_board(found: Board, rope: float | None) -> None:
    from rankbench.judge.ranking import against_first

    header, body = found.columns
    if rope:
        probable = against_first(found.ranking, rope)
        header.append("worse / equal / better than the first")
        for row in body:
            row.append(parts((p.worse, p.equal, p.better)) if (p := probable.get(row[0])) else "")
    print_table(header, body, drop=("within 10 %", "wins − losses"))
    for line in found.conclusions():
        out.print(line)


def _outcome(result: Result) -> str:
    where = f"{result.entrant} on {result.dataset}"
    if not result.finished:
        return f"{where}, {result.allowed}: {result.status}: {result.reason}"
    default = f", defaults {result.default[result.metric]:.4f}" if result.default else ""
    return (
        f"{where}, {result.allowed}: {result.metric} {estimate(*result.metrics[result.metric])}{default}, "
        f"{result.tried} settings, {result.seconds['all']:.1f} s, {result.ended}"
    )


_NAMED = 12  # methods of a dataset that a plan names


def _show_plan(todo: Plan, json: bool) -> None:
    rows: dict[tuple[float, str], list[Entry]] = {}
    for each in todo.everything:
        rows.setdefault((each.milestone, each.card.name), []).append(each)
    known = {each: todo.best is None or not todo.until(before(each)) for each in todo.milestones}
    methods = [[each.entrant.name for each in entries] for entries in rows.values()]
    hours = [sum(each.seconds for each in entries) / 3600 for entries in rows.values()]
    if json:
        facts = [
            {"budget": key[0], "dataset": key[1]} | ({"methods": names} if known[key[0]] else {"best": todo.best})
            for key, names in zip(rows, methods, strict=True)
        ]
        print_json({"left": facts, "hours": sum(hours)})
        return
    body = [
        [
            f"{milestone:g} s", name, str(len(names)), f"{each:.2f}",
            in_words(names, "methods", _NAMED) if known[milestone] else "the best ones",
        ]
        for (milestone, name), names, each in zip(rows, methods, hours, strict=True)
    ]  # fmt: skip
    print_table(["budget", "dataset", "entries", "processor hours", "methods"], body, drop=("methods",))
