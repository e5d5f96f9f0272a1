"""rankbench evaluate: lists that another program made, measured as our own methods are."""

from __future__ import annotations

import shlex

from rankbench.cli.arguments import Plugin, RunName, Tags
from rankbench.cli.console import Json, out, print_json
from rankbench.core.environment import Environment
from rankbench.experiment.options import ListOptions
from rankbench.tracking.labels import Labels

EXAMPLES = """Examples:
  rankbench evaluate movielens-1m als.parquet --name implicit-als
  rankbench evaluate movielens-1m my.run --metrics recall,ndcg --cutoffs 10,20      a run of TREC
  rankbench evaluate gowalla mine.csv --on valid
  rankbench evaluate gowalla mine.csv --sweep softmax-family-mf      also a row in the table of this sweep
"""


def evaluate(
    *, options: ListOptions, tag: Tags = None, run_name: RunName = None, json: Json = False, plugin: Plugin = None
) -> None:
    """Measure LISTS of another program on DATASET: same split, metrics, intervals and tests, kept as a record.

    rankbench data export DATASET --split writes what that program is fitted on.
    """
    from rankbench.api.evaluate import record_lists
    from rankbench.cli.run import PRINTED, show_data, show_record
    from rankbench.tracking.record import record_content

    environment = Environment.from_env()
    labels = Labels.if_tracked(options.track, "rankbench evaluate", tag, run_name)
    made = record_lists(options, environment, labels)
    if json:
        content = record_content(made.record)
        print_json({name: content[name] for name in (*PRINTED, "lists") if name in content} | {"folder": str(made.folder)})
        return
    out.print(f"{made.record.arm} on {made.record.dataset.name}", style="bold")
    show_record(made.record)
    assert made.record.lists is not None
    for sentence in made.record.lists.sentences:
        out.print(sentence)
    show_data(made.record)
    out.print(f"record {made.folder}")
    if options.sweep is not None:
        out.print(f"table  rankbench report {shlex.quote(str(options.sweep))}")
