"""What is left of a leaderboard, where its results are kept, and the work on it; for the command and for Python."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

from rankbench.cluster.session import host_and_port, require_reachable, session
from rankbench.cluster.workplace import require_shared
from rankbench.core.environment import Environment, is_of_the_product
from rankbench.core.errors import DownloadError, require
from rankbench.core.files import require_writable
from rankbench.core.patterns import selected
from rankbench.core.threads import available_cpus, require_threads
from rankbench.data.cards import Card, load_card
from rankbench.data.describe import at_hand
from rankbench.evaluation.metrics import METRICS, metric_set
from rankbench.experiment.estimate import Size
from rankbench.experiment.methods import families
from rankbench.fitting.drive import Row
from rankbench.leaderboard.collection import chosen_datasets, sources
from rankbench.leaderboard.contest import Entry, Plan, run
from rankbench.leaderboard.entrants import Entrant, entrants
from rankbench.leaderboard.entry import Rules
from rankbench.leaderboard.milestones import budget_of, milestones
from rankbench.leaderboard.options import LeaderboardOptions
from rankbench.leaderboard.results import Leaderboard, Result
from rankbench.leaderboard.tracked import describe, follow, send
from rankbench.sweeps.units import Unit
from rankbench.tracking.mlflow_sink import MlflowSink
from rankbench.tracking.record import RunRecord

FOLDER = "leaderboard"  # beside the experiment files, or in the results folder
# Measured on test at each milestone. A store has thousands of lines with them, so there is one metric of a kind.
MEASURED = (
    "ndcg@10", "ndcg@20", "ndcg@50", "recall@10", "recall@20", "recall@50", "mrr@20", "precision@20", "hit@20",
    "coverage@20", "popularity@20", "gini@20",
)  # fmt: skip


class Stores:
    """Where results are kept: in `public`, or in `private` if the dataset or the method is the user's own and `public` is a
    folder of a checkout, which git tracks.
    """

    def __init__(self, environment: Environment, given: Path | None = None):
        """`given`: the folder for all results. Raises DataError naming file and line for what cannot be read."""
        self.public = Leaderboard(environment.stored_beside_experiments(FOLDER, given))
        tracked = given is None and is_of_the_product(self.public.folder)
        self.private = Leaderboard(environment.results / FOLDER) if tracked else None

    def of(self, card: Card, entrant: Entrant) -> Leaderboard:
        own = not is_of_the_product(card.path) or bool(entrant.code)
        return self.private if self.private is not None and own else self.public

    def all(self) -> list[Result]:
        return [*self.public.all(Result), *(self.private.all(Result) if self.private else ())]


def agenda(
    options: LeaderboardOptions,
    environment: Environment,
    stores: Stores,
    on_dataset: Callable[[str, int, int], None] = lambda name, done, total: None,
    dry_run: bool = False,
) -> Plan:
    """Prepare the datasets that can be had, and return what is left of a leaderboard: small milestones first, and then small
    datasets. Results are in the `stores`. With `dry_run` nothing is downloaded, prepared or written, and data that are not
    prepared have the size that their card expects, if it says so. `on_dataset` is told of each dataset, the number of those
    before it, and of all.

    Raises ConfigError for unknown names and values out of range, DownloadError if no dataset of the selection is available.
    """
    budget = budget_of(options.budget, "--budget")
    rules = rules_of(options.metric, options.threads)
    if options.address:
        host_and_port(options.address)
    else:
        require_threads(options.threads, "--threads")
    cards = [load_card(name, environment) for name in chosen_datasets(options.datasets, environment)]
    # Without a name of their own, made-up datasets are left out.
    cards = [card for card in cards if card.name in options.datasets or not card.source.generator]
    known = entrants(rules.metric)
    chosen = [known[name] for name in selected(options.methods, known, "--methods", families())]
    every, problems = list[Entry](), dict[str, str]()
    for number, card in enumerate(cards):
        on_dataset(card.name, number, len(cards))
        dataset, why = at_hand(card, environment, dry_run)
        if why:
            problems[card.name] = why
            continue
        size = Size.of(dataset) if dataset else Size.known(card, environment)
        fingerprint = dataset.fingerprint if dataset else ""
        for entrant, milestone in product(chosen, milestones(budget)):
            every.append(Entry(entrant, card, size, milestone, stores.of(card, entrant), rules, fingerprint))
    if not every:
        reasons = ", ".join(f"{name} ({why})" for name, why in problems.items())
        raise DownloadError(f"none of the datasets is available: {reasons}")
    left = [each for each in every if not each.done]
    left.sort(key=lambda each: (each.milestone, each.size.interactions if each.size else math.inf, each.card.name))
    names = tuple(each.name for each in chosen), tuple(card.name for card in cards if card.name not in problems)
    used = {each.results.folder: each.results for each in every}
    return Plan(tuple(left), len(every) - len(left), problems, options.best, *names, tuple(used.values()), sources(environment))


def rules_of(metric: str, threads: int) -> Rules:
    """The rules of a leaderboard that chooses by `metric`. Raises ConfigError if a search cannot maximise it."""
    chooses = metric_set((metric,)).names
    require(len(chooses) == 1, f"--metric: write {metric} with a cutoff, as in ndcg@20")
    plain = metric.partition("@")[0] in METRICS
    require(plain, f"--metric: {metric} is not a mean over users of hits in their lists, which a search could maximise")
    measured = metric_set((*chooses, *MEASURED))
    return Rules(chooses[0], measured, threads)


def compete(
    todo: Plan,
    environment: Environment,
    address: str | None = None,
    on_done: Callable[[Result], None] = lambda result: None,
    sink: MlflowSink | None = None,
    on_other: Callable[[Entry], None] = lambda entry: None,
    on_anew: Callable[[Entry, str], None] = lambda entry, why: None,
) -> None:
    """Run the entries that are left. Each is stored as it ends, and a further call goes on where this one ended. `sink` sends
    them to MLflow; `on_other` and `on_anew` are those of `run`.

    Raises ClusterError if the cluster at `address` cannot be joined, or as `run` does, and StorageError if the store cannot be
    written.
    """
    for folder in {entry.results.folder for entry in todo.left}:
        require_writable(folder)
    environment.require_folder_of_results("leaderboard")
    if address:
        require_reachable(address)
    if not todo.left:
        return

    def done(result: Result, curve: list[Row]) -> None:
        if sink:
            send(sink, result, curve)
        on_done(result)

    def followed(unit: Unit, record: RunRecord) -> Callable[[Sequence[Row]], None]:
        return follow(sink, unit, record) if sink else lambda rows: None

    if sink:
        sink.open()
        describe(sink)
    try:
        with session(address, available_cpus()) as cluster:
            if not cluster.local:
                require_shared(environment)
            run(todo, environment, cluster, done, followed, on_other, on_anew)
    finally:
        if sink:
            sink.close()
