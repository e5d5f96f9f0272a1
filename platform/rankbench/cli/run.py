"""rankbench run: one setting, fitted on train + valid and measured on test."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankbench.cli import candidates
from rankbench.cli.arguments import (
    Address,
    Dataset,
    Device,
    Dtype,
    Memory,
    Method,
    Params,
    Plugin,
    Resume,
    RunName,
    Tags,
    Workers,
)
from rankbench.cli.console import Json, err, out, phase_progress, print_json, print_table
from rankbench.cli.plan_of_fit import DryRun, Nodes
from rankbench.core.data_notes import data_notes

if TYPE_CHECKING:
    from rankbench.tracking.record import Measured, RunRecord

PRINTED = (
    "dataset", "method", "params", "metrics", "users", "groups", "iterations", "seconds", "peak_memory_bytes", "seed", "dtype",
    "workers", "environment", "id",
)  # fmt: skip

EXAMPLES = """Examples:
  rankbench run movielens-1m ease lam=300
  rankbench run gowalla deql-l2 p=0.7 lam_prime=20 b=0.5 --json
  rankbench run synthetic edlae p=0.6 data.source.generator.users=20000
  rankbench run ./my-shop.yaml ease lam=100 --metrics recall,ndcg,auc --cutoffs 5,20
  rankbench run gowalla ials embedding_dim=128 iterations=20      after an interrupt, add --resume
  rankbench run amazon-beauty talos tau=0.1 n_negatives=1024 epochs=100
  rankbench run gowalla bpr model=lightgcn n_negatives=1 epochs=50
  rankbench run gowalla sl objective=catalogue --workers 4        gradient steps by four processes
  rankbench run netflix ials --address 10.0.0.5:6379              on a Ray cluster
  rankbench run amazon-book deql-l2 --memory 4GB --spill /scratch      a matrix larger than memory, by tiles
  rankbench run amazon-book deql-l2 --address 10.0.0.5:6379 --spill /shared      tiles on a cluster that shares /shared
  rankbench run amazon-book ease --dry-run --nodes 16x16x128GB@10       what 16 nodes at 10 Gbit/s would take
"""


def run(
    dataset: Dataset,
    method: Method,
    params: Params = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the method and of the bootstrap.")] = 0,
    dtype: Dtype = "float32",
    metrics: Annotated[
        str | None,
        typer.Option(help="Metrics, comma-separated, such as recall,ndcg@100,auc.", autocompletion=candidates.metrics),
    ] = None,
    cutoffs: Annotated[str | None, typer.Option(help="Lengths k of the lists, comma-separated.  [default: 10,20,50]")] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Number of threads, at most 4 per processor.  [default: one per processor]")
    ] = None,
    device: Device = "cpu",
    curve: Annotated[int, typer.Option(min=0, help="Record metrics of 2,000 users every CURVE iterations; 0: never.")] = 1,
    address: Address = None,
    workers: Workers = 1,
    resume: Resume = False,
    memory: Memory = None,
    fit_on: Annotated[
        str | None,
        typer.Option(
            "--fit-on",
            help="train or train+valid.  [default: as the protocol says, or train if the validation set ends the fit]",
        ),
    ] = None,
    spill: Annotated[
        Path | None, typer.Option(help="Folder for the tiles, shared by all hosts.  [default: in the results folder]")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Replace an earlier record of this run.")] = False,
    track: Annotated[bool, typer.Option("--track/--no-track", help="Send the record to MLflow.")] = True,
    tag: Tags = None,
    run_name: RunName = None,
    dry_run: DryRun = False,
    nodes: Nodes = None,
    json: Json = False,
    plugin: Plugin = None,
) -> None:
    """Fit METHOD on train + valid of DATASET and measure it on test.

    A method that stops early on valid, or a dataset whose validation users are held out, is fitted on train.
    """
    from rankbench.cli.options import Options, card_and_method, open_execution, require_effect
    from rankbench.cli.plan_of_fit import require_both, show_plan
    from rankbench.core.attempts import FolderAttempt, StoredAttempt
    from rankbench.core.environment import Environment
    from rankbench.core.errors import require
    from rankbench.core.files import require_writable
    from rankbench.core.threads import require_threads
    from rankbench.data.cards import load_card
    from rankbench.data.prepare import prepare
    from rankbench.evaluation.metrics import DEFAULT_CUTOFFS, DEFAULT_METRICS, metric_set, require_within
    from rankbench.experiment.divergence import divergence
    from rankbench.experiment.job import Job, configure
    from rankbench.experiment.run import run as run_job
    from rankbench.fitting.method import ClosedForm
    from rankbench.schema.shared_sweeps import claimed_run, store_run
    from rankbench.tracking.labels import Labels
    from rankbench.tracking.mlflow_sink import MlflowSink, tracking_uri
    from rankbench.tracking.record import find_record, keep_aside, read_record, record_content, write_record
    from rankbench.tracking.run_fields import run_name as name_of

    require_both(dry_run, nodes)
    environment = Environment.from_env()
    if threads is not None:
        require_threads(threads, "--threads")
    require(track or not (tag or run_name), "--no-track: no MLflow run is made; leave out --tag and --run-name")
    # A wrong address or tag is refused before the fit.
    uri, labels = (
        (tracking_uri(environment), Labels.from_env("rankbench run", tag or (), run_name)) if track else ("", Labels())
    )
    changes, values = card_and_method(params or [])
    chosen = configure(method, values)
    require(dtype in ("float32", "float64"), f"--dtype: expected float32 or float64, got {dtype}")
    require(fit_on in (None, "train", "train+valid"), f"--fit-on: expected train or train+valid, got {fit_on}")
    chosen.require_end(fit_on, "--fit-on train+valid")
    names = DEFAULT_METRICS if metrics is None else metrics.split(",")
    wanted = metric_set(names, _cutoffs(cutoffs) if cutoffs else DEFAULT_CUTOFFS)
    own_cutoffs = all("@" in name or name == "auc" for name in names)
    require(not (cutoffs and own_cutoffs), "--cutoffs: no effect, because each of --metrics has its own; leave one of them out")
    card = load_card(dataset, environment, changes)
    if nodes is not None:
        show_plan(card, chosen, dtype, nodes, json)
        return
    require_writable(environment.results / "runs")
    if environment.results_store:
        environment.results_store.require_writable()
    if spill is not None:
        require_writable(spill)
    if cutoffs or metrics is not None:
        n_items = prepare(card, environment).split.n_items
        require_within(wanted, n_items, card.name, "--cutoffs" if cutoffs else "--metrics")
    options = Options(address, resume, memory, spill, device, threads, workers)
    require_effect(chosen, options)
    job = Job(card, (chosen,), fit_on or chosen.part_to_fit(card), metrics=wanted, dtype=dtype, seed=seed, curve=curve)
    if isinstance(chosen.spec, ClosedForm) and address and spill is None:
        environment.require_folder_of_results("a closed form on a cluster", "give --spill with a folder that all nodes share")
    with claimed_run(job.run_id(chosen), environment) as attempt:
        if not fresh:
            # An unreadable record is refused before the fit, not after it.
            _require_readable(environment.results / "runs" / job.run_id(chosen))
        checkpoints = environment.results / "checkpoints" / job.run_id(chosen)
        with (
            open_execution(chosen.spec, options, checkpoints, spill or environment.results / "spill") as execution,
            phase_progress() as progress,
        ):
            (outcome,) = run_job(job, environment, execution, progress)
        record = outcome.record
        fence = attempt if isinstance(attempt, FolderAttempt) else None  # a store's local copy is of this host alone
        before = None if fresh else find_record(environment.results / "runs" / record.id)
        # A record of other data is no longer one of this run, although ids do not depend on the content of the user's files.
        moved = before is not None and before.finished and before.dataset.fingerprint != record.dataset.fingerprint
        aside = None
        if before and before.finished and not moved and before.code != record.code and before.metrics != record.metrics:
            aside = keep_aside(environment.results / "runs" / record.id, before)
        replace = fresh or moved or aside is not None
        folder = write_record(environment.results / "runs", record, outcome.per_user, replace=replace, fence=fence)
        # Compared by their durations, because two runs may start in the same second.
        earlier = read_record(folder)
        kept = earlier.seconds != record.seconds
        if isinstance(attempt, StoredAttempt) and not kept:
            store_run(folder, attempt)
            if aside:
                store_run(aside, attempt)
    if aside:
        err.print(f"the code has changed since an earlier run of this setting, whose record is kept as {aside.name}")
    if kept:
        what = "its seconds and memory" if earlier.metrics == record.metrics else "other metrics, though of the same code"
        err.print(f"an earlier finished record of this run was kept, with {what}; --fresh replaces it")
    if moved:
        err.print(f"the data of {card.name} have changed since an earlier run of this setting, whose record was replaced")
    if memory and record.peak_memory_bytes > options.memory_bytes:
        peak = record.peak_memory_bytes / 1e9
        err.print(f"warning: the fit needed {peak:.2f} GB at its peak, more than --memory {memory}")
    if doubt := record.interval_warning():
        err.print(f"warning: {doubt}")
    if problem := divergence(record.curve, record.params):
        err.print(f"warning: {problem}")
    if execution.checkpoints:
        execution.checkpoints.clear()
    if track:
        artifacts = environment.results / "mlartifacts"
        sink = MlflowSink(uri, "runs", artifacts, lambda line: err.print(f"warning: {line}"), labels=labels)
        with err.status("sending to MLflow") as line:
            sink.waiting = lambda left: line.update(f"sending to MLflow: {left} messages left")
            sink.open()
            # A name that the user gives is the whole name of a single run.
            sink.send(record, folder, "" if labels.name else name_of(record, values, dataset=True), chosen.used)
            sink.close()
    if json:
        content = record_content(record)
        shown = {name: content[name] for name in PRINTED}
        print_json(shown | {"kept_an_earlier_record": kept, "folder": str(folder)})
        return
    # Of the many training parameters, only the given ones are shown.
    shown = {name: value for name, value in record.params.items() if name in (*chosen.spec.own, *values)}
    _show(record, folder, shown)
    if environment.results_store:
        out.print(f"stored {environment.results_store}/runs/{record.id}")


def _require_readable(folder: Path) -> None:
    from rankbench.core.errors import DataError
    from rankbench.tracking.record import find_record

    try:
        find_record(folder)
    except DataError as error:
        raise DataError(f"{error}; --fresh replaces it") from None


def _cutoffs(text: str) -> tuple[int, ...]:
    from rankbench.core.errors import ConfigError

    try:
        cutoffs = tuple(sorted({int(word) for word in text.split(",")}))
    except ValueError:
        raise ConfigError(f"--cutoffs: expected whole numbers such as 10,20, got {text!r}") from None
    if cutoffs[0] < 1:
        raise ConfigError(f"--cutoffs: k must be at least 1, got {cutoffs[0]}")
    return cutoffs


def _show(record: RunRecord, folder: Path, shown: dict[str, Any]) -> None:
    from rankbench.tracking.record import about_cold_users

    counts = record.dataset.counts
    params = " ".join(f"{name}={value}" for name, value in shown.items() if value is not None)
    out.print(f"{record.method} {params} on {record.dataset.name}", style="bold")
    out.print(
        f"fitted on {record.fit_on}, measured on {record.measured_on}: {record.users['measured']:,} users, "
        f"{counts['items']:,} items ranked in full; {record.users['without_targets']:,} users without test items are left out, "
        f"{counts['cold_test_items']:,} test items are not in train"
    )
    cutoffs = sorted({name.split("@")[1] for name in record.metrics if "@" in name}, key=int)
    body = []
    for base in dict.fromkeys(name.split("@")[0] for name in record.metrics):
        values = [record.metrics.get(f"{base}@{k}") for k in cutoffs] or [None]
        values[0] = values[0] or record.metrics.get(base)  # a metric without cutoffs stands in the first column
        body.append([base, *map(_cell, values)])
    print_table(["metric", *[f"@{k} [95 %]" for k in cutoffs or [""]]], body)
    phases = "  ".join(f"{name} {value:.2f} s" for name, value in record.seconds.items())
    out.print(f"{phases}  peak {record.peak_memory_bytes / 1e9:.2f} GB")
    if record.curve and record.iterations is not None and record.iterations < record.curve[-1]["iteration"]:
        ended = f"the fit ended after iteration {record.curve[-1]['iteration']:.0f}"
        out.print(f"{ended}; the model of iteration {record.iterations} is the best on valid and was kept")
    if record.tiles:
        out.print(f"the item-item matrix did not fit into memory and was solved by tiles of {record.tiles:,} rows")
    for note in data_notes(counts):
        out.print(note)
    if sentence := about_cold_users([record]):
        out.print(sentence, style="yellow")
    for difference in record.dataset.differences:
        out.print(f"differs from the published counts: {difference}", style="yellow")
    if record.dataset.raw_gone:
        out.print(record.dataset.raw_gone, style="yellow")
    out.print(f"record {folder}")


def _cell(value: Measured | None) -> str:
    if value is None:
        return ""
    digits = 4 if abs(value.mean) < 10 else 1
    interval = "" if value.low is None else f" [{value.low:.{digits}f}, {value.high:.{digits}f}]"
    return f"{value.mean:.{digits}f}{interval}"
