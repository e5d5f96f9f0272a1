"""rankbench compare: paired tests between finished runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankbench.cli import candidates
from rankbench.cli.arguments import Plugin
from rankbench.cli.console import Json, out, print_json, print_table
from rankbench.core.display import setting_text
from rankbench.core.environment import Environment
from rankbench.core.errors import ConfigError, require
from rankbench.core.registry import nearest
from rankbench.judge.printing import counted, interval, number

if TYPE_CHECKING:
    from rankbench.judge.compare import Comparisons
    from rankbench.tracking.record import RunRecord

EXAMPLES = """Examples:
  rankbench compare run-movielens-1m-ease-1f run-movielens-1m-edlae-77
  rankbench compare results/runs/run-a results/runs/run-b results/runs/run-c --metric recall@20
  rankbench compare run-a run-b run-c --baseline run-a --json
"""


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN RUN...", help="Folder, id, or start of the id of a record.", autocompletion=candidates.runs
        ),
    ],
    metric: Annotated[
        str, typer.Option(help="Per-user metric to compare; every run must have it.", autocompletion=candidates.metrics)
    ] = "ndcg@20",
    baseline: Annotated[
        str | None, typer.Option(help="One of the runs; all others are also compared with it.", autocompletion=candidates.runs)
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap.")] = 0,
    json: Json = False,
    plugin: Plugin = None,
) -> None:
    """Compare runs on the same data by paired tests. Each run is compared with the best one, with Holm's correction."""
    from rankbench.judge.compare import compare as compare_values
    from rankbench.judge.compare import other_names, sample_of
    from rankbench.tracking.record import read_per_user, read_record

    require(len(runs) >= 2, f"compare needs at least two runs, got {len(runs)}")
    environment = Environment.from_env()
    folders = [find_run(name, environment) for name in runs]
    records = [read_record(folder) for folder in folders]
    ids = [record.id for record in records]
    repeated = sorted({name for name in ids if ids.count(name) > 1})
    require(not repeated, f"{', '.join(repeated)}: given more than once; give each run once")
    _require_same_data(records)
    labels = _labels(records)
    reference = None
    if baseline is not None:
        wanted = read_record(find_run(baseline, environment)).id
        require(wanted in ids, f"--baseline: {wanted} is not one of the compared runs")
        reference = labels[ids.index(wanted)]
    samples = {}
    for label, folder in zip(labels, folders, strict=True):
        samples[label] = sample_of(read_per_user(folder), metric, folder.name)
    dataset = records[0].dataset.name
    problem = other_names(samples)
    require(not problem, problem)
    comparison = compare_values(samples, dataset=dataset, metric=metric, baseline=reference, seed=seed)
    if json:
        rows = [
            {"id": record.id, "model": label, "fit_on": record.fit_on} | asdict(comparison.means[label])
            for record, label in zip(records, labels, strict=True)
        ]
        pairs = [pair.facts() for pair in comparison.pairs]
        print_json({"dataset": dataset, "metric": metric, "best": comparison.best, "models": rows, "comparisons": pairs})
        return
    _show(comparison, records)


def _show(comparison: Comparisons, records: Sequence[RunRecord]) -> None:
    from rankbench.reports.tables import difference_columns

    first = comparison.pairs[0]
    out.print(f"{first.metric} on {records[0].measured_on} of {first.dataset}, {first.users:,} users", style="bold")
    if len({record.fit_on for record in records}) > 1:
        out.print("the runs were fitted on different parts of the data: a difference can come from that alone", style="yellow")
    if first.left_out:
        out.print(f"{first.left_out:,} users that only some of the runs have are left out, also of the means", style="yellow")
    body = [[label, number(m.mean), interval(m.low, m.high)] for label, m in comparison.means.items()]
    print_table(["model", first.metric, "95 % interval"], body)
    out.print()
    header, lines = difference_columns(comparison.pairs)
    print_table([name.removesuffix(" (Holm)") for name in header], lines)
    out.print(f"  both p-values are corrected for {counted(first.tests, 'pair')} by Holm's method", style="dim")


def find_run(name: str, environment: Environment) -> Path:
    """Folder of the record `name`: a path, an id, or the start of an id among all runs of the results.

    If the results are in a store, this is its local copy. Raises ConfigError if there is no such record, or if several ids
    start with `name`.
    """
    from rankbench.schema.shared_sweeps import copy_records_from

    if (Path(name) / "record.json").is_file():
        return Path(name)
    if environment.results_store:
        copy_records_from(name, environment)
    # A repeated sweep has the same runs under the same ids, of which the newest is taken.
    paths = sorted(environment.record_files(), key=lambda path: path.stat().st_mtime)
    folders = {path.parent.name: path.parent for path in paths}
    if name in folders:
        return folders[name]
    matching = sorted(each for each in folders if each.startswith(name))
    # A record of earlier code lies beside the newer one, under a longer name.
    matching = [each for each in matching if not any(each.startswith(f"{other}.") for other in matching)]
    if not matching:
        raise ConfigError(f"unknown run {name!r} in {environment.results}{nearest(name, folders)}")
    require(len(matching) == 1, f"{name!r} matches {len(matching)} runs: {', '.join(matching[:4])}; give more of the id")
    return folders[matching[0]]


def _require_same_data(records: Sequence[RunRecord]) -> None:
    """Raise ConfigError unless all runs are finished and were measured on the same part of the same data."""
    first = records[0]
    for record in records:
        require(record.finished, f"{record.id} {'failed' if record.failed else 'was stopped'}: {record.error}")
        expected, fingerprint = first.dataset.fingerprint, record.dataset.fingerprint
        require(
            fingerprint == expected,
            f"{record.id} has data of fingerprint {fingerprint}, {first.id} of {expected}; "
            "only runs on the same data can be compared",
        )
        require(
            record.measured_on == first.measured_on,
            f"{record.id} was measured on {record.measured_on}, {first.id} on {first.measured_on}",
        )


def _labels(records: Sequence[RunRecord]) -> list[str]:
    """Method and parameters of each run, and whatever else tells it from the others: the part it was fitted on, its id.

    Parameters that have their defaults in all runs of a method are left out.
    """
    parts = {record.fit_on for record in records}
    names = []
    for record in records:
        others = [each.params for each in records if each.method == record.method]
        defaults = _defaults(record)
        shown = {
            name: value
            for name, value in record.params.items()
            if value is not None and any(params.get(name) != defaults.get(name) for params in others)
        }
        words = [record.label, setting_text(shown), f"(fitted on {record.fit_on})" if len(parts) > 1 else ""]
        names.append(" ".join(filter(None, words)))
    return [name if names.count(name) == 1 else f"{name} ({record.id})" for name, record in zip(names, records, strict=True)]


def _defaults(record: RunRecord) -> dict[str, Any]:
    """Defaults of a run's method and encoder; empty if the method is unknown here or its parameters are others by now."""
    from rankbench.experiment.job import configure

    try:
        defaults = configure(record.method, {}).flat
        if "model" not in defaults:
            return defaults
        return configure(record.method, {"model": record.params.get("model")}).flat | {"model": defaults["model"]}
    except ConfigError:
        return {}
