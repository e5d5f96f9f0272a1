"""What a leaderboard may be asked for, on the command line and in Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rankbench.core.options import Options, cluster_address, comma_separated, lines_to_skip, option

STORE = (
    "Folder of the results. Default: leaderboard/ beside the experiment files, or in the results folder, where those of your "
    "own datasets and methods always go."
)


@dataclass(frozen=True)
class Selection(Options):
    """Which methods and datasets."""

    methods: str | Sequence[str] = option(
        (), "Methods and encoders, patterns or family:NAME, comma-separated; !NAME leaves out. Default: all.",
        parse=comma_separated, complete="selected_methods",
    )  # fmt: skip
    datasets: str | Sequence[str] = option(
        (), "Datasets or patterns, comma-separated; !NAME leaves out. Default: the collection; to show, all.",
        parse=comma_separated, complete="selected_datasets",
    )  # fmt: skip


@dataclass(frozen=True)
class LeaderboardOptions(Selection):
    """What is run."""

    budget: str = option("30s", "Time per method and dataset, such as 30s or 5m. 10s, 30s, 100s, ... before it are shown, too.")
    best: int | None = option(
        None,
        "Of each of these times, only so many methods, those with the best mean ranks on validation, go on to the next one. "
        "Default: all.",
        min=1,
    )
    metric: str = option("ndcg@20", "Metric that chooses on the validation set.", complete="metrics")
    threads: int = option(1, "Threads of each fit.", min=1)
    address: str | None = cluster_address()
    store: Path | None = option(None, STORE)


@dataclass(frozen=True)
class BoardOptions(Selection):
    """What is shown of a store."""

    threads: int | None = option(None, "Show entries with this number of threads. Default: that of most.", min=1)
    store: Path | None = option(None, STORE)
    skip_bad: bool = lines_to_skip()


@dataclass(frozen=True)
class ShowOptions(BoardOptions):
    """Which of the boards of a store, and which test beside it."""

    budget: str | None = option(None, "Which budget, if the store has several. Default: the one with most entries.")
    metric: str | None = option(
        None, "Metric to rank by; entries that were chosen by it, if any were. Default: that of most.", complete="metrics"
    )
    rope: float | None = option(
        None, "Add the Bayesian signed-rank test against the first method. Differences up to this share of the best value mean "
        "nothing in practice, such as 0.01.",
    )  # fmt: skip


@dataclass(frozen=True)
class VerifyOptions(Options):
    """Which entries are measured again."""

    entries: list[str] | None = option(
        None, "DATASET/METHOD, or DATASET/METHOD/BUDGET such as lastfm/ials/30s.", argument=True, metavar="[entry]..."
    )
    draw: int | None = option(None, "So many entries, drawn at random from those that are selected, or from all.", min=1)
    seed: int = option(0, "Seed of the draw.")
    store: Path | None = option(None, STORE)
    skip_bad: bool = lines_to_skip()
