"""A leaderboard of methods and datasets at equal budgets of time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rankbench.core.environment import Environment, given_environment
from rankbench.core.errors import ConfigError, require
from rankbench.core.options import takes_options
from rankbench.core.plain import whole_number
from rankbench.data.own import is_data
from rankbench.leaderboard.agenda import agenda, compete
from rankbench.leaderboard.board import Board
from rankbench.leaderboard.collection import sources
from rankbench.leaderboard.foreign import Foreign
from rankbench.leaderboard.options import LeaderboardOptions
from rankbench.leaderboard.stored import boards


@takes_options
def leaderboard(options: LeaderboardOptions, *, environment: Environment | None = None) -> Board:
    """Give every method the same time on every dataset, and return their standings.

    `methods` and `datasets` are names or patterns, all without words. `budget` is a time such as 30s or 2m; all methods first
    get 10 s, then 30 s and so on, and with `best` only so many of each time go on to the next. `metric` chooses on the
    validation set. Each fit has `threads` threads. Entries that are in the folder `store` are not run again; by default, the
    store is leaderboard/ in the results folder or, in a checkout of this project and for its own methods and datasets, the one
    in experiments/ that its pages are made from. `address` is that of a Ray cluster, by default this machine.

    Raises ConfigError for unknown names and values out of range, DownloadError if no dataset is available, ClusterError if the
    cluster cannot be joined, and StorageError if the store cannot be written.
    """
    environment = given_environment(environment)
    store, budget = options.store, options.budget
    require(isinstance(budget, str), f"budget: expected a time such as 30s or 2m, got {budget!r}")
    require(store is None or isinstance(store, str | Path), f"store: expected a folder, got {store!r}")
    options = replace(
        options,
        methods=_words("methods", options.methods),
        datasets=_words("datasets", options.datasets),
        best=None if options.best is None else whole_number("best", options.best, 1),
        threads=whole_number("threads", options.threads, 1),
        store=None if store is None else Path(store),
    )
    try:
        todo = agenda(options, environment)
    except ConfigError as error:  # that of the command names its options
        raise ConfigError(str(error).removeprefix("--")) from None
    compete(todo, environment, options.address)
    stores = todo.stores
    lines, foreign = stores.all(), [*stores.public.all(Foreign)]
    # Datasets that are not available, and methods that another call runs, have no lines.
    datasets = {each.dataset for each in lines} & {*todo.plan.datasets}
    methods = {each.entrant for each in lines} & {*todo.plan.entrants}
    options = replace(options, datasets=sorted(datasets), methods=sorted(methods))
    of = sources(environment)
    return boards(options, lines, stores.public.folder, of, budget, options.metric, options.threads, foreign)[0]


def _words(argument: str, given: str | Sequence[str]) -> list[str]:
    listed = isinstance(given, Iterable) and not is_data(given)
    words: list[Any] = [given] if isinstance(given, str) or not listed else [*given]
    wrong = next((type(word).__name__ for word in words if not isinstance(word, str)), None)
    advice = "; write a card for data of your own (rankbench data import)" if argument == "datasets" else ""
    require(wrong is None, f"{argument}: expected names or patterns, got {wrong}{advice}")
    require(bool(words) or isinstance(given, tuple), f"{argument}: give at least one, or leave it out for all")
    return words
