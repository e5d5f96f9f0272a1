"""rankbench leaderboard: every method on every dataset, each within the same budget of time."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankbench.cli import candidates
from rankbench.cli.arguments import Plugin, SkipBad, Tags, comma_separated, skipping
from rankbench.cli.console import Json, clock, epilog, err, out, phase_progress, print_json, print_table
from rankbench.cli.run_by_default import RunByDefault

if TYPE_CHECKING:
    from rankbench.judge.ranking import Probabilities
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

Methods = Annotated[
    str | None,
    typer.Option(
        "--methods",
        help="Methods and encoders, patterns or family:NAME, comma-separated; !NAME leaves out. Default: all.",
        autocompletion=candidates.selected_methods,
    ),
]
Datasets = Annotated[
    str | None,
    typer.Option(
        "--datasets",
        help="Datasets or patterns, comma-separated; !NAME leaves out. Default: all that can be had.",
        autocompletion=candidates.selected_datasets,
    ),
]
Store = Annotated[
    Path | None,
    typer.Option(
        "--store",
        help="Folder of the results. Default: leaderboard/ beside the experiment files, or in the results folder, where those "
        "of your own datasets and methods always go.",
    ),
]
Shown = Annotated[
    int | None, typer.Option("--threads", min=1, help="Show entries with this number of threads. Default: that of most.")
]
Metric = Annotated[
    str, typer.Option("--metric", help="Metric that chooses on the validation set.", autocompletion=candidates.metrics)
]


@app.command("run", epilog=epilog(EXAMPLES))
def run(
    methods: Methods = None,
    datasets: Datasets = None,
    budget: Annotated[
        str, typer.Option("--budget", help="Time per method and dataset, such as 30s, or 30s/M per million interactions.")
    ] = "30s",
    metric: Metric = "ndcg@20",
    seeds: Annotated[int, typer.Option(min=1, max=20, help="Number of final fits, as far as the budget allows.")] = 3,
    threads: Annotated[int, typer.Option(min=1, help="Threads of each fit.")] = 1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what is left and how long it takes, and exit.")] = False,
    address: Annotated[
        str | None,
        typer.Option(envvar="RAY_ADDRESS", help="HOST:PORT of a running Ray cluster, or auto. Default: a local one."),
    ] = None,
    store: Store = None,
    track: Annotated[bool, typer.Option("--track/--no-track", help="Send the entries to MLflow.")] = True,
    tag: Tags = None,
    plugin: Plugin = None,
    json: Json = False,
) -> None:
    """Give every method the same time on every dataset: to search its settings on the validation set, and to be fitted.

    Reading data, and the measurement on test at the end, are not counted. Each result is stored at once, and the same command
    goes on where it ended; only new methods, datasets and budgets are run.
    """
    from rankbench.api.leaderboard import agenda, compete, rules_of, tracking
    from rankbench.cluster.session import host_and_port
    from rankbench.core.environment import Environment
    from rankbench.core.errors import require
    from rankbench.core.threads import available_cpus, require_threads
    from rankbench.leaderboard.budget import Budget
    from rankbench.tracking.labels import Labels

    environment = Environment.from_env()
    require(track or not tag, "--no-track: no MLflow run is made; leave out --tag")
    labels = Labels.from_env("rankbench leaderboard", tag or ())
    sink = tracking(environment, labels, lambda line: err.print(f"warning: {line}")) if track else None
    allowed = Budget.of(budget, "--budget")
    rules = rules_of(metric, seeds, threads)
    if address:
        host_and_port(address)
    else:
        require_threads(threads, "--threads")
    with phase_progress() as progress:
        todo, stores = agenda(
            comma_separated(methods),
            comma_separated(datasets),
            allowed,
            rules,
            environment,
            store,
            lambda name, done, total: progress("looking at datasets" if dry_run else "preparing datasets", done, total),
            dry_run,
        )
    slots = max(1, available_cpus() // threads)
    if not json:
        for name, why in todo.not_available.items():
            err.print(f"not available: {name} ({why})", style="dim")
        if unknown := todo.of_unknown_size:
            err.print(f"size not known before they are prepared: {', '.join(unknown)}", style="dim")
        hours = "" if address else f", at most {clock(todo.seconds / slots)}, {slots} at once"
        err.print(f"{len(todo.left)} entries left{hours}; {todo.done} are stored", highlight=False)
        folders = dict.fromkeys(str(each.results.folder) for each in todo.left)
        for folder in folders:
            if stores.private and folder == str(stores.private.folder):
                err.print(f"results of your own datasets and methods go to {folder}; `leaderboard show --store` shows them")
            else:
                err.print(f"results go to {folder}")
    if dry_run:
        _show_plan(todo.left, json)
        return
    done: list[Result] = []
    others: list[Entry] = []
    begun = time.monotonic()

    def told(result: Result) -> None:
        done.append(result)
        if not json:
            of = len(todo.left) - len(others)
            left = (time.monotonic() - begun) / len(done) * (of - len(done))
            err.print(f"{len(done)}/{of}, {clock(left)} left  {_outcome(result)}", highlight=False)

    def skipped(entry: Entry) -> None:
        others.append(entry)
        if not json:
            err.print(
                f"{entry.entrant.name} on {entry.card.name}: skipped: another command is running it, or has", highlight=False
            )

    compete(todo, rules, environment, address, told, sink, skipped)
    if json:
        by_others = [{"dataset": each.card.name, "entrant": each.entrant.name} for each in others]
        facts = {"done": [_facts(each) for each in done], "before": todo.done, "skipped": by_others}
        print_json({"store": str(stores.public.folder), "own_store": stores.private and str(stores.private.folder), **facts})


@app.command("show", epilog=epilog(EXAMPLES))
def show(
    methods: Methods = None,
    datasets: Datasets = None,
    budget: Annotated[
        str | None, typer.Option("--budget", help="Which budget, if the store has several. Default: the one with most entries.")
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            "--metric",
            help="Metric to rank by; entries that were chosen by it, if any were. Default: that of most.",
            autocompletion=candidates.metrics,
        ),
    ] = None,
    threads: Shown = None,
    rope: Annotated[
        float | None,
        typer.Option(
            help="Add the Bayesian signed-rank test against the first method. Differences up to this share of the best value "
            "mean nothing in practice, such as 0.01."
        ),
    ] = None,
    store: Store = None,
    skip_bad: SkipBad = False,
    plugin: Plugin = None,
    json: Json = False,
) -> None:
    """Show the mean ranks of methods over datasets, and which differences can be told from chance. Nothing is fitted."""
    from rankbench.api.leaderboard import board
    from rankbench.core.environment import Environment
    from rankbench.core.errors import require

    require(rope is None or 0 < rope < 1, f"--rope: {rope} is not between 0 and 1")
    words = comma_separated(methods), comma_separated(datasets)
    with skipping(skip_bad) as skipped:
        found = board(*words, Environment.from_env(), budget, metric, store, threads, skipped)
    if json:
        print_json(found.facts(rope))
        return
    _show_board(found, rope)


@app.command("page", epilog=epilog(EXAMPLES))
def page(
    to: Annotated[Path, typer.Option("--out", help="Folder of the pages, or a file NAME.md for the standings alone.")] = Path(
        "leaderboard-site"
    ),
    methods: Methods = None,
    datasets: Datasets = None,
    threads: Shown = None,
    store: Store = None,
    skip_bad: SkipBad = False,
    plugin: Plugin = None,
    json: Json = False,
) -> None:
    """Write a static site from the store: standings, a page per dataset and per method, and the data. Nothing is fitted."""
    from rankbench.api.leaderboard import site
    from rankbench.core.environment import Environment

    words = comma_separated(methods), comma_separated(datasets)
    with skipping(skip_bad) as skipped, phase_progress() as progress:
        files = site(to, *words, Environment.from_env(), store, progress, threads, skipped)
    if json:
        print_json({"files": [str(path) for path in files]})
        return
    out.print(f"{len(files)} files; open {files[0]}")


def _show_board(found: Board, rope: float | None) -> None:
    from rankbench.judge.ranking import against_first

    ranking = found.ranking
    probable = against_first(ranking, rope) if rope else {}
    place = {method: number for number, method in enumerate(ranking.order, start=1)}
    wins, near = ranking.copeland(), ranking.profiles([1.0, 1 / 0.95])
    body = []
    for i in ranking.order:
        method = ranking.methods[i]
        places = found.jackknife.places[method] if found.jackknife else (place[i], place[i])
        body.append(
            [
                str(place[i]), method, f"{ranking.mean_ranks[i]:.2f}", f"{wins[i]:+d}", f"{100 * near[i, 0]:.0f} %",
                f"{100 * near[i, 1]:.0f} %", str(found.without_result(method)), f"{places[0]} to {places[1]}",
                *([_percent(probable.get(method))] if rope else []),
            ]
        )  # fmt: skip
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


def _facts(result: Result) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(result)


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
