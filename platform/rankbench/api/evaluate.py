"""Measure lists that another program made: in memory for Python, or as a record that the commands show beside others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from rankbench.api.dataset import card_of
from rankbench.api.display import fit_display
from rankbench.api.execution import only_card_changes
from rankbench.api.foreign_rows import put_into, require_new_name, sweep_for
from rankbench.api.record_run import RecordedRun, chosen_metrics, send, sink_of_runs, write
from rankbench.core.environment import Environment
from rankbench.core.errors import require
from rankbench.core.plain import whole_number
from rankbench.core.progress import Progress
from rankbench.core.public import public
from rankbench.core.threads import own_threads, pinned
from rankbench.data.cards import load_card
from rankbench.data.lists import lists_of
from rankbench.data.prepare import prepare
from rankbench.evaluation.metrics import DEFAULT_CUTOFFS, DEFAULT_METRICS, MetricSet, asked_in_python, require_within
from rankbench.evaluation.summary import Interval
from rankbench.experiment.evaluation import Evaluation
from rankbench.experiment.measure_lists import measure_lists
from rankbench.experiment.options import ListOptions
from rankbench.experiment.outcome import Outcome
from rankbench.leaderboard.results import Foreign, Leaderboard
from rankbench.schema.shared_sweeps import claimed_run
from rankbench.sweeps.views.phases import err, phase_progress
from rankbench.tracking.address import tracking_uri
from rankbench.tracking.labels import Labels
from rankbench.tracking.record import per_user_table


@public
def evaluate(
    dataset: Any,
    lists: Any,
    *,
    name: str | None = None,
    metrics: str | Sequence[str] = DEFAULT_METRICS,
    cutoffs: int | Sequence[int] = DEFAULT_CUTOFFS,
    on: Literal["test", "valid"] = "test",
    fit_on: Literal["train", "train+valid"] | None = None,
    allow_missing: bool = False,
    seed: int = 0,
    environment: Environment | None = None,
    progress: Progress | bool = True,
) -> Evaluation:
    """Measure lists of recommendations that another program made, by the split, metrics and intervals of our own methods.

    `dataset` is anything that `rb.dataset` takes or returns. `lists` is a pandas, Arrow or Polars table, or the path of a file
    (Parquet, CSV, TSV, or a run of TREC), with the columns user, item, and rank or score; ids are those of the user's data. If
    there are both, the rank orders a list; of items with equal scores, the one with the lower id goes first, as in our own
    rankings. Items of a user's history are left out before lists are cut. A measured user without a list counts as 0; with
    `allow_missing`, more than half of them may. `fit_on` says what the other program was fitted on: for test, by default what
    the protocol says. `name` is by default that of the file. What was done with users and items is in `notes` of the result.
    `progress` is that of `fit`, while the dataset is prepared.

    Raises DataError, with the file and row, for lists that cannot be used, and ConfigError for a metric such as auc that needs
    the scores of all items, and on valid for lists without any of its items, which were probably fitted on it.
    """
    environment = environment or Environment.from_env()
    card = card_of(dataset, environment)
    wanted, option = asked_in_python(metrics, cutoffs)
    with fit_display(progress) as (on_progress, _):
        data = prepare(card, environment, on_progress)
    if option:
        require_within(wanted, len(data.items), data.name, option)
    about: dict[str, Any] = {"on": on, "fit_on": fit_on, "seed": whole_number("seed", seed), "allow_missing": allow_missing}
    with pinned(own_threads()):
        record, columns, ids = measure_lists(lists_of(lists), data, wanted, name or _name_of(lists), **about)
    assert record.lists is not None
    return Evaluation(
        {name: Interval(each.mean, each.low, each.high) for name, each in record.metrics.items()},
        pd.DataFrame({"user": ids.to_pandas()} | columns),
        record.arm or "",
        data.fingerprint,
        on,
        record.users.get("without_history", 0) if record.dataset.cold_users == "drop" else 0,
        (*record.lists.sentences, *filter(None, [record.interval_warning()])),
        record.fit_on,
    )


def record_lists(options: ListOptions, environment: Environment, labels: Labels | None = None) -> RecordedRun:
    """Measure the lists that options name, keep the record, put it into the table of a sweep and into a leaderboard if they are
    named, and send it to MLflow with `labels`, if they are given.
    """
    shown = options.leaderboard is None or options.on == "test"
    require(shown, "--leaderboard: shows what is measured on test; leave out --on")
    card = load_card(options.dataset, environment, only_card_changes(options.params))
    metrics, option = chosen_metrics(options)
    if labels:
        tracking_uri(environment)  # what is wrong with it is said before the measurement
    environment.require_writable_runs()
    name = options.name or _name_of(options.lists)
    about: dict[str, Any] = {each: getattr(options, each) for each in ("on", "fit_on", "seed", "allow_missing", "seconds")}
    board = Leaderboard(options.leaderboard) if options.leaderboard else None
    with phase_progress() as progress:
        data, stored = prepare(card, environment, progress), None
    if option:
        require_within(metrics, len(data.items), data.name, option)
    if options.sweep is not None:
        stored, columns_of_sweep = sweep_for(options.sweep, data, options.on, environment)
        metrics = MetricSet(tuple(dict.fromkeys([*columns_of_sweep.names, *metrics.names])))
    with pinned(own_threads()):
        record, columns, ids = measure_lists(lists_of(options.lists), data, metrics, name, **about)
    line = Foreign.of(record) if board else None
    if stored is not None:
        require_new_name(stored, record)
    with claimed_run(record.id, environment) as attempt:
        outcome = Outcome(record, per_user_table(ids, columns))
        folder, *_ = write(outcome, attempt, True, environment)  # one of before is of the same lists, measured in the same way
    if stored is not None:
        put_into(stored, record, folder, environment)
    if board and line:
        board.add(line)
    if problem := record.interval_warning():
        err.print(f"warning: {problem}")
    if labels:
        send(sink_of_runs(environment, labels), record, folder, f"{card.name} {record.arm}", ())
        if stored is not None:
            err.print("note: MLflow shows the tests of the sweep without these lists until its command is run with --resume")
    return RecordedRun(record, folder, kept=False)


def _name_of(lists: Any) -> str:
    """The name of lists that have no other: that of their file."""
    return Path(lists).name.partition(".")[0] if isinstance(lists, str | Path) else "lists"
