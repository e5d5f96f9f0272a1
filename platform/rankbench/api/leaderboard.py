"""A leaderboard of methods and datasets at equal budgets of time."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from rankbench.core.environment import Environment
from rankbench.core.options import takes_options
from rankbench.core.plain import whole_number
from rankbench.core.public import public
from rankbench.leaderboard.agenda import Stores, agenda, compete
from rankbench.leaderboard.board import Board
from rankbench.leaderboard.collection import sources
from rankbench.leaderboard.options import LeaderboardOptions
from rankbench.leaderboard.stored import boards

log = logging.getLogger(__name__)


@public
@takes_options
def leaderboard(options: LeaderboardOptions, *, environment: Environment | None = None) -> Board:
    """Give every method the same time on every dataset, and return their standings.

    `methods` and `datasets` are names or patterns, all without words. `budget` is a time such as 30s or 2m; all methods first
    get 10 s, then 30 s and so on, and with `best` only so many of each time go on to the next. `metric` chooses on the
    validation set. Each fit has `threads` threads. Entries that are in the folder `store` are not run again; by default, the
    store is leaderboard/ in the results folder or, in a checkout of this project and for its own methods and datasets, the one
    in experiments/ that its pages are made from. `address` is that of a Ray cluster, by default this machine.

    Datasets that are not available are left out, with a warning. Nothing is sent to MLflow.

    Raises ConfigError for unknown names and values out of range, DownloadError if no dataset is available, ClusterError if the
    cluster cannot be joined, and StorageError if the store cannot be written.
    """
    environment = environment or Environment.from_env()
    options = replace(
        options,
        methods=_words(options.methods),
        datasets=_words(options.datasets),
        best=None if options.best is None else whole_number("best", options.best, 1),
        threads=whole_number("threads", options.threads, 1),
    )
    stores = Stores(environment, options.store)
    plan = agenda(options, environment, stores)
    for reason in plan.not_available.values():
        log.warning("not available: %s", reason)
    compete(plan, environment, options.address)
    lines = [each for each in stores.all() if each.dataset in plan.datasets and each.entrant in plan.entrants]
    everything = replace(options, methods=(), datasets=())  # of these lines
    return boards(everything, stores.public, sources(environment), options.budget, options.metric, lines)[0]


def _words(given: str | Sequence[str]) -> list[str]:
    return [given] if isinstance(given, str) else [*given]
