"""A leaderboard of methods and datasets at equal budgets of time; for the command and for Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from rankbench.cluster.session import require_reachable, session
from rankbench.cluster.workplace import require_shared
from rankbench.core.environment import Environment, is_of_the_product, require_environment
from rankbench.core.errors import ConfigError, DownloadError, require
from rankbench.core.files import require_writable
from rankbench.core.patterns import selected
from rankbench.core.plain import whole_number
from rankbench.core.threads import available_cpus
from rankbench.data.cards import Card, card_names, load_card
from rankbench.data.own import is_data
from rankbench.evaluation.metrics import DEFAULT_METRICS, METRICS, metric_set, require_better_if_larger
from rankbench.leaderboard.attempt import Rules
from rankbench.leaderboard.board import Board
from rankbench.leaderboard.budget import Budget
from rankbench.leaderboard.comparable import comparable
from rankbench.leaderboard.contest import Entry, Plan, plan, run
from rankbench.leaderboard.entrants import Entrant, entrants
from rankbench.leaderboard.results import Leaderboard, Result
from rankbench.leaderboard.site import Told, write_site, write_summary
from rankbench.leaderboard.tracked import EXPERIMENT, send
from rankbench.sweeps.selection import families
from rankbench.tracking.labels import Labels
from rankbench.tracking.mlflow_sink import MlflowSink, tracking_uri

FOLDER = "leaderboard"  # beside the experiment files, or in the results folder


def leaderboard(
    methods: str | Sequence[str] = (),
    datasets: str | Sequence[str] = (),
    budget: str = "30s",
    *,
    metric: str = "ndcg@20",
    seeds: int = 3,
    threads: int = 1,
    address: str | None = None,
    store: str | Path | None = None,
    environment: Environment | None = None,
) -> Board:
    """Give every method the same time on every dataset, and return their standings.

    `methods` and `datasets` are names or patterns, all without words. `budget` is a time such as 30s or 2m, or 30s/M for 30
    seconds per million interactions to train on. `metric` chooses on the validation set. Each fit has `threads` threads, and
    the chosen setting is fitted with `seeds` seeds, as far as the budget allows. Entries that are in the folder `store` are
    not run again; by default, the store is leaderboard/ in the results folder or, in a checkout of this project and for its own
    methods and datasets, the one in experiments/ that its pages are made from. `address` is that of a Ray cluster, by default
    this machine.

    Raises ConfigError for unknown names and values out of range, DownloadError if no dataset is available, ClusterError if the
    cluster cannot be joined, and StorageError if the store cannot be written.
    """
    require_environment(environment)
    environment = environment or Environment.from_env()
    methods, datasets = _words("methods", methods), _words("datasets", datasets)
    seeds, threads = whole_number("seeds", seeds, 1), whole_number("threads", threads, 1)
    require(isinstance(budget, str), f"budget: expected a time such as 30s or 2m, got {budget!r}")
    require(store is None or isinstance(store, str | Path), f"store: expected a folder, got {store!r}")
    folder = None if store is None else Path(store)
    try:
        rules = rules_of(metric, seeds, threads)
        todo, stores = agenda(methods, datasets, Budget.of(budget, "budget"), rules, environment, folder)
    except ConfigError as error:  # that of the command names its options
        raise ConfigError(str(error).removeprefix("--")) from None
    compete(todo, rules, environment, address)
    return _boards(methods, datasets, stores.all(), stores.public.folder, budget, metric, threads)[0]


def _words(argument: str, given: str | Sequence[str]) -> list[str]:
    listed = isinstance(given, Iterable) and not is_data(given)
    words: list[Any] = [given] if isinstance(given, str) or not listed else [*given]
    wrong = next((type(word).__name__ for word in words if not isinstance(word, str)), None)
    advice = "; write a card for data of your own (rankbench data import)" if argument == "datasets" else ""
    require(wrong is None, f"{argument}: expected names or patterns, got {wrong}{advice}")
    return words


def rules_of(metric: str, seeds: int, threads: int) -> Rules:
    """The rules of a leaderboard that chooses by `metric`. Raises ConfigError if a search cannot maximise it."""
    chooses = metric_set((metric,)).names
    require(len(chooses) == 1, f"--metric: write {metric} with a cutoff, as in ndcg@20")
    plain = metric.partition("@")[0] in METRICS
    require(plain, f"--metric: {metric} is not a mean over users of hits in their lists, which a search could maximise")
    measured = metric_set((*chooses, *DEFAULT_METRICS, "beyond@20", "groups@20"))
    return Rules(chooses[0], measured, tuple(range(seeds)), threads)


def store_folder(environment: Environment, given: Path | None = None) -> Path:
    """Return the folder of the store: as given; leaderboard/ in the folder of the experiment files if it is there, as in a
    checkout; otherwise leaderboard/ in the results folder.
    """
    return given or environment.stored_beside("experiments", FOLDER)


class Stores:
    """Where results are kept: in `public`, or in `private` if the dataset or the method is the user's own and `public` is a
    folder of a checkout, which git tracks.
    """

    def __init__(self, environment: Environment, given: Path | None = None):
        """`given`: the folder for all results. Raises DataError naming file and line for what cannot be read."""
        self.public = Leaderboard(store_folder(environment, given))
        tracked = given is None and is_of_the_product(self.public.folder)
        self.private = Leaderboard(environment.results / FOLDER) if tracked else None

    def of(self, card: Card, entrant: Entrant) -> Leaderboard:
        own = not is_of_the_product(card.path) or bool(entrant.code)
        return self.private if self.private is not None and own else self.public

    def all(self) -> list[Result]:
        return [*self.public.all(Result), *(self.private.all(Result) if self.private else ())]


def tracking(environment: Environment, labels: Labels, warn: Callable[[str], None]) -> MlflowSink:
    """Return what sends entries to MLflow. Raises ConfigError for a wrong address of its store."""
    return MlflowSink(tracking_uri(environment), EXPERIMENT, environment.results / "mlartifacts", warn, labels=labels)


def chosen_entrants(words: Sequence[str], rules: Rules) -> list[Entrant]:
    """The entrants that names, patterns and families select, all without words. Raises ConfigError for an unknown name."""
    known = entrants(rules.metric)
    return [known[name] for name in selected(words, known, "--methods", families())]


def chosen_cards(words: Sequence[str], environment: Environment) -> list[Card]:
    """The datasets that names and patterns select. Without a name of their own, made-up datasets are left out.

    Raises ConfigError for an unknown name.
    """
    names = selected(words, list(card_names(environment)), "--datasets")
    cards = [load_card(name, environment) for name in names]
    return [card for card in cards if card.name in words or not card.source.generator]


def agenda(
    methods: Sequence[str],
    datasets: Sequence[str],
    budget: Budget,
    rules: Rules,
    environment: Environment,
    store: Path | None = None,
    on_dataset: Callable[[str, int, int], None] = lambda name, done, total: None,
    dry_run: bool = False,
) -> tuple[Plan, Stores]:
    """Return what is left of a leaderboard, and its stores. With `dry_run` nothing is downloaded, prepared or written.

    Raises ConfigError for unknown names, DownloadError if no dataset of the selection is available.
    """
    stores = Stores(environment, store)
    cards = chosen_cards(datasets, environment)
    todo = plan(chosen_entrants(methods, rules), cards, budget, rules, stores.of, environment, on_dataset, dry_run)
    if len(todo.not_available) == len(cards):
        reasons = ", ".join(f"{name} ({why})" for name, why in todo.not_available.items())
        raise DownloadError(f"none of the datasets is available: {reasons}")
    return todo, stores


def compete(
    todo: Plan,
    rules: Rules,
    environment: Environment,
    address: str | None = None,
    on_done: Callable[[Result], None] = lambda result: None,
    sink: MlflowSink | None = None,
    on_other: Callable[[Entry], None] = lambda entry: None,
) -> None:
    """Run the entries that are left. Each is stored as it ends, and a further call goes on where this one ended. `sink` sends
    them to MLflow; `on_other` is told of entries that another command runs.

    Raises ClusterError if the cluster at `address` cannot be joined, StorageError if the store cannot be written.
    """
    for folder in {entry.results.folder for entry in todo.left}:
        require_writable(folder)
    environment.require_folder_of_results("leaderboard")
    if address:
        require_reachable(address)
    if not todo.left:
        return

    def done(result: Result) -> None:
        if sink:
            send(sink, result)
        on_done(result)

    if sink:
        sink.open()
    try:
        with session(address, available_cpus()) as cluster:
            if not cluster.local:
                require_shared(environment)
            run(todo, rules, environment, cluster, done, on_other)
    finally:
        if sink:
            sink.close()


def board(
    methods: Sequence[str],
    datasets: Sequence[str],
    environment: Environment,
    budget: str | None = None,
    metric: str | None = None,
    store: Path | None = None,
    threads: int | None = None,
    skipped: list[str] | None = None,
) -> Board:
    """Return what the store says about the selected methods and datasets at one budget, by default the one with most entries.
    Of entries with several numbers of threads, those with `threads` are shown; of those chosen by several metrics, those chosen
    by `metric`; by default, what most have. With `skipped`, lines that cannot be read are described there and left out.

    Raises ConfigError if nothing is stored, or nothing of what is selected.
    """
    results = Leaderboard(store_folder(environment, store), skipped=skipped)
    return _boards(methods, datasets, [*results.all(Result)], results.folder, budget, metric, threads)[0]


def site(
    to: Path,
    methods: Sequence[str],
    datasets: Sequence[str],
    environment: Environment,
    store: Path | None = None,
    on_page: Told = lambda what, done, total: None,
    threads: int | None = None,
    skipped: list[str] | None = None,
) -> list[Path]:
    """Write the pages of the selected methods and datasets to a folder, and return their paths. If `to` is the name of a
    Markdown file, write the standings alone to it, with their pictures beside it. `threads` and `skipped`: as for `board`.

    Raises ConfigError if nothing is stored, or nothing of what is selected, StorageError if the folder cannot be written.
    """
    one_page = to.suffix == ".md"
    require_writable(to.parent if one_page else to)
    results = Leaderboard(store_folder(environment, store), skipped=skipped)
    boards = _boards(methods, datasets, [*results.all(Result)], results.folder, threads=threads)
    of = {name: [family for family, members in families().items() if name in members] for name in _entered(boards)}
    return write_summary(to, boards, of) if one_page else write_site(to, boards, results, of, on_page)


def _boards(
    methods: Sequence[str],
    datasets: Sequence[str],
    entries: list[Result],
    folder: Path,
    budget: str | None = None,
    metric: str | None = None,
    threads: int | None = None,
) -> list[Board]:
    """One board of the entries in a folder per budget, that with most entries first; with `budget`, that one alone."""
    require(bool(entries), f"{folder}: no results; `rankbench leaderboard --budget 30s` measures some")
    budgets = [name for name, _ in Counter(each.allowed for each in entries).most_common()]
    if budget is not None:
        wanted = str(Budget.of(budget, "--budget"))
        require(wanted in budgets, f"{folder}: no results with a budget of {wanted}")
        budgets = [wanted]
    entries = [each for each in entries if each.allowed in budgets]
    if threads is not None:
        entries = [each for each in entries if each.threads == threads]
        require(bool(entries), f"{folder}: no results with {threads} threads")
    names = selected(methods, _sorted(each.entrant for each in entries), "--methods", families())
    places = selected(datasets, _sorted(each.dataset for each in entries), "--datasets")
    entries = [each for each in entries if each.entrant in names and each.dataset in places]
    require(bool(entries), f"{folder}: no results of these methods on these datasets")
    if metric is not None:
        metric = metric_set((metric,)).names[0]
        require_better_if_larger(metric, "--metric")
        require(any(metric in each.metrics for each in entries), f"--metric: {metric} was not measured")
    boards = []
    for allowed in budgets:
        if of_budget := [each for each in entries if each.allowed == allowed]:
            shown, notes = comparable(of_budget, metric)
            boards.append(Board(tuple(shown), allowed, metric or shown[0].metric, notes))
    return boards


def _entered(boards: Sequence[Board]) -> list[str]:
    return _sorted(each.entrant for board in boards for each in board.entries)


def _sorted(names: Iterable[str]) -> list[str]:
    return sorted(set(names))
