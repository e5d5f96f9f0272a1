"""rankbench run: one setting, fitted on train + valid and measured on test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankbench.cli.arguments import Plugin, RunName, Tags
from rankbench.cli.console import Json, out, print_json, print_table
from rankbench.core.data_notes import data_notes
from rankbench.core.environment import Environment
from rankbench.core.errors import require
from rankbench.core.threads import require_threads
from rankbench.experiment.options import RunOptions
from rankbench.judge.printing import estimate
from rankbench.tracking.labels import Labels

if TYPE_CHECKING:
    from rankbench.api.record_run import RecordedRun
    from rankbench.tracking.record import RunRecord

PRINTED = (
    "dataset", "method", "params", "metrics", "users", "groups", "iterations", "seconds", "joules", "peak_memory_bytes", "seed",
    "dtype", "workers", "environment", "id",
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


def run(*, options: RunOptions, tag: Tags = None, run_name: RunName = None, json: Json = False, plugin: Plugin = None) -> None:
    """Fit METHOD on train + valid of DATASET and measure it on test.

    A method that stops early on valid, or a dataset whose validation users are held out, is fitted on train.
    """
    from rankbench.api.record_run import plan_run, record_run
    from rankbench.cli.plan_of_fit import require_both, show_plan
    from rankbench.tracking.record import record_content

    require_both(options)
    require(not options.dry_run or not (tag or run_name), "--dry-run: no MLflow run is made; leave out --tag and --run-name")
    environment = Environment.from_env()
    if options.threads is not None:
        require_threads(options.threads, "--threads")
    labels = Labels.if_tracked(options.track, "rankbench run", tag, run_name)
    planned = plan_run(options, environment)
    if options.nodes is not None:
        show_plan(planned.card, planned.config, options.dtype, options.nodes, json)
        return
    made = record_run(options, planned, environment, labels)
    if json:
        content = record_content(made.record)
        shown = {name: content[name] for name in PRINTED if name in content}
        print_json(shown | {"kept_an_earlier_record": made.kept, "folder": str(made.folder)})
        return
    # Of the many training parameters, only the given ones are shown.
    _show(made, {*planned.config.spec.own, *planned.given} & {*planned.config.used})
    if environment.results_store:
        out.print(f"stored {environment.results_store}/runs/{made.record.id}")


def _show(made: RecordedRun, names: set[str]) -> None:
    record = made.record
    params = " ".join(f"{name}={value}" for name, value in record.params.items() if name in names and value is not None)
    out.print(f"{record.method} {params} on {record.dataset.name}", style="bold")
    show_record(record)
    if record.curve and record.iterations is not None and record.iterations < record.curve[-1]["iteration"]:
        ended = f"the fit ended after iteration {record.curve[-1]['iteration']:.0f}"
        out.print(f"{ended}; the model of iteration {record.iterations} is the best on valid and was kept")
    if record.tiles:
        out.print(f"the item-item matrix did not fit into memory and was solved by tiles of {record.tiles:,} rows")
    show_data(record)
    out.print(f"record {made.folder}")


def show_record(record: RunRecord) -> None:
    """Print the numbers of measured users and items, and the metrics."""
    counts, users, part = record.dataset.counts, record.users, record.measured_on
    cold = f", {counts['cold_test_items']:,} test items do not occur in the fitted data" if part == "test" else ""
    out.print(
        f"fitted on {record.fit_on}, measured on {part}: {users['measured']:,} users, {counts['items']:,} items ranked in "
        f"full; {users['without_targets']:,} users without {part} items are left out{cold}"
    )
    cutoffs = sorted({name.split("@")[1] for name in record.metrics if "@" in name}, key=int)
    body = []
    for base in dict.fromkeys(name.split("@")[0] for name in record.metrics):
        values = [record.metrics.get(f"{base}@{k}") for k in cutoffs] or [None]
        values[0] = values[0] or record.metrics.get(base)  # a metric without cutoffs stands in the first column
        body.append([base, *(estimate(each.mean, each.low, each.high) if each else "" for each in values)])
    print_table(["metric", *[f"@{k} [95 %]" for k in cutoffs or [""]]], body)
    phases = "  ".join(f"{name} {value:.2f} s" for name, value in record.seconds.items())
    peak = f"  peak {record.peak_memory_bytes / 1e9:.2f} GB" if record.peak_memory_bytes else ""
    energy = "" if record.joules is None else f"  energy of the fit {record.joules:,.0f} J"
    out.print(f"{phases}{peak}{energy}")


def show_data(record: RunRecord) -> None:
    """Print what a reader of the numbers should know about the data."""
    from rankbench.tracking.record import about_cold_users

    for note in data_notes(record.dataset.counts):
        out.print(note)
    if sentence := about_cold_users([record]):
        out.print(sentence, style="yellow")
    if record.tie_warning:
        out.print(record.tie_warning, style="yellow")
    for difference in record.dataset.differences:
        out.print(f"differs from the counts of the card: {difference}", style="yellow")
    if record.dataset.raw_gone:
        out.print(record.dataset.raw_gone, style="yellow")
