"""A finished sweep as a folder of report.md, table.csv, table.json and plots: records in, files out."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from tabulate import tabulate

from rankbench.evaluation.compare import Comparison
from rankbench.files import atomic_file
from rankbench.reports.plots import convergence_plot, differences_plot, final_plot, search_plot
from rankbench.reports.tables import Table, difference_columns, render, row_of, setting_text, tie_note
from rankbench.tracking.record import RunRecord

DIFFERENCES = """\
Each model less the best one of its dataset. The unit is the user: {users} users, the same for every model{left_out}. The
interval is the percentile interval of the paired bootstrap ({resamples} resamples of users, the same for every model). The
bootstrap p is twice the smaller share of resamples on one side of 0, counting one more on each, so that it is never 0.
Wilcoxon's signed-rank p ranks users without a difference and then leaves them out. Which model is best is read from the same
data, so both p are corrected by Holm for every pair of models; the interval is that of the pair alone. A difference counts
where both corrected p are below 0.05. Rank-biserial: of the ranked differences, the share in favour less the share against.
d_z: mean difference / its standard deviation over users."""

SEVERAL = """\
Several runs a model: a user's value on one split is the mean over the seeds of the method, and over splits the mean over
those on which the user is measured, so that a user counts once. ± is the standard deviation of the runs' means. Settings
were chosen once, on the card's own split; interactions that were validation there may be test on another split."""


def sweep_table(
    about: dict[str, Any], chosen: dict[str, Any] | None, records: dict[str, RunRecord], compared: dict[str, Any]
) -> Table:
    """The final rows of a sweep. `about` is its sweep.json, `chosen` its chosen.json, `compared` its comparisons.json, whose
    metrics are the columns.
    """
    experiment = about["experiment"]
    published = {(arm["name"] or arm["method"]): arm["published"] for arm in experiment["arms"]}
    stated = {(arm["name"] or arm["method"]): {*arm["params"], *chain(*arm["chosen"].values())} for arm in experiment["arms"]}
    wanted = tuple(compared["metrics"])
    differences = tuple(Comparison(**pair) for pair in compared["comparisons"])
    first = next((name for name in wanted if any(pair.metric == name for pair in differences)), None)
    rows, notes, runs = [], list(about["notes"]), {}
    for entry in chosen["rows"] if chosen else []:
        dataset, arm = entry["dataset"], entry["arm"]
        finals = [records[name] for name in entry["final"] if name in records]
        failed = [record.error for record in finals if not record.finished] or ["no record"] * (not finals)
        notes += [f"{arm} on {dataset}: the final run failed: {error}" for error in dict.fromkeys(failed)]
        finished = [record for record in finals if record.finished]
        if not finished:
            continue
        searched = sum(
            r.stage == "search" and r.arm == arm and r.dataset["name"] == dataset and r.finished for r in records.values()
        )
        pooled = {each["metric"]: each for each in compared["models"] if (each["dataset"], each["model"]) == (dataset, arm)}
        tied = any(
            (pair.dataset, pair.model, pair.metric) == (dataset, arm, first) and not pair.distinguishable
            for pair in differences
        )
        said = published.get(arm, {}).get(dataset, {})
        if "open" in (finished[0].dataset["recall"], (experiment["published"] or {}).get("recall")):
            said = {name.replace("recall@", "recall_capped@"): number for name, number in said.items()} | said
        rows.append(row_of(finished, wanted, said, searched, pooled, tied, stated[arm]))
        if len(finished) > 1:
            seeds, splits = (", ".join(map(str, values)) for values in (rows[-1].seeds, rows[-1].split_seeds))
            runs.setdefault(f"{len(finished)} runs, seed {seeds}, split seed {splits}", []).append(f"{arm} on {dataset}")
    notes += [f"mean ± standard deviation of {text}: {', '.join(members)}" for text, members in runs.items()]
    if any(row.tied for row in rows):
        notes.append(tie_note(first))
    finals = [record for record in records.values() if record.stage == "final" and record.finished]
    for name in dict.fromkeys(record.dataset["name"] for record in finals):
        data = next(record.dataset for record in finals if record.dataset["name"] == name)
        notes += [f"{name}: {line}" for line in data["differences"]]
        if data.get("stand_in"):
            notes.append(f"{name} is a stand-in: {data['stand_in']}")
        if data["recall"] == "open":
            notes.append(f"{name}: its papers do not say which recall they mean, so the published one stands beside both")
    notes += [f"failed: {r.arm} {r.params}: {r.error}" for r in records.values() if not r.finished]
    order = {(arm["name"] or arm["method"]): i for i, arm in enumerate(experiment["arms"])}
    rows.sort(key=lambda row: (row.dataset, order.get(row.arm, 0)))
    table = Table(experiment["question"] or experiment["name"], wanted, tuple(rows), tuple(notes), differences)
    if table.common:
        table = replace(table, notes=(f"in every row that has it: {setting_text(table.common)}", *table.notes))
    return table


def write_report(
    folder: Path,
    about: dict[str, Any],
    chosen: dict[str, Any] | None,
    records: dict[str, RunRecord],
    compared: dict[str, Any],
) -> list[Path]:
    """Write the report's files into `folder`; returns them, report.md first."""
    table = sweep_table(about, chosen, records, compared)
    files = []
    for name, format in (("table.csv", "csv"), ("table.json", "json"), ("table.tex", "latex")):
        with atomic_file(folder / name) as scratch:
            scratch.write_text(render(table, format) + "\n", encoding="utf-8")
        files.append(folder / name)
    pictures = []
    shown = [metric for metric in table.metrics if any(metric in row.cells for row in table.rows)]
    if shown:
        pictures.append(final_plot(table, shown[-1], folder / "final.png"))
    if table.differences:
        pictures.append(differences_plot(table.differences, folder / "differences.png"))
    finals = [record for record in records.values() if record.stage == "final"]
    arms = [arm["name"] or arm["method"] for arm in about["experiment"]["arms"]]
    if shown and (picture := convergence_plot(finals, shown[-1], folder / "convergence.png", arms)):
        pictures.append(picture)
    searched = [record for record in records.values() if record.stage == "search"]
    if picture := search_plot(searched, about["experiment"]["search"]["choose"]["metric"], folder / "search.png"):
        pictures.append(picture)
    with atomic_file(folder / "report.md") as scratch:
        scratch.write_text(_markdown(about, table, records, pictures), encoding="utf-8")
    return [folder / "report.md", *files, *pictures]


def _markdown(about: dict[str, Any], table: Table, records: dict[str, RunRecord], pictures: list[Path]) -> str:
    experiment = about["experiment"]
    lines = [f"# {experiment['name']}", ""]
    if experiment["question"]:
        lines += [experiment["question"], ""]
    if experiment["published"]:
        published = experiment["published"]
        meant = published.get("recall", "open")
        recall = "it does not say which recall it means" if meant == "open" else f"its recall is `{meant}`"
        where = f"figure {published['figure']}" if published.get("figure") else f"table {published['table']}"
        lines += [f"Published: {published['paper']}, {where}; {recall}.", ""]
    choose = experiment["search"]["choose"]
    lines += [render(table, "md"), ""]
    finals = [record for record in records.values() if record.stage == "final" and record.finished]
    chosen = f"Settings were chosen by {choose['metric']} on validation; each chosen one was then"
    if not about["fits"]:
        chosen = "No search: each setting is one that the experiment file gives,"
    fitted = " or ".join(dict.fromkeys(record.fit_on.replace("+", " + ") for record in finals)) or "train + valid"
    several = any(len(row.seeds) * len(row.split_seeds) > 1 for row in table.rows)
    once = "for each seed and split" if several else "for it"
    lines += [
        f"{chosen} fitted on {fitted}, and test was read once, {once}. Intervals: percentile bootstrap over users. "
        "`fit s ÷n`: one fit that n settings share.",
        "",
    ]
    lines += [f"{SEVERAL}\n"] if several else []
    lines += [f"![{path.stem}]({path.name})\n" for path in pictures]
    lines += _differences(table)
    if table.notes:
        lines += ["## Notes", "", *[f"- {note}" for note in table.notes], ""]
    lines += ["## How it was measured", ""]
    for name in dict.fromkeys(row.dataset for row in table.rows):
        splits = {r.dataset["split_seed"]: r.dataset for r in finals if r.dataset["name"] == name}
        for seed, data in sorted(splits.items()):
            counts = data["counts"]
            lines.append(
                f"- data: {name}, fingerprint `{data['fingerprint']}`, protocol {data['protocol']} (seed {seed}): "
                f"{counts['users']:,} users, {counts['items']:,} items, {counts['train']:,} train, {counts['valid']:,} valid, "
                f"{counts['test']:,} test; {counts['users_without_test_items']:,} users without test items, left out; "
                f"{counts['cold_test_items']:,} test items never seen before"
            )
        lines.append(f"- recall means `{data['recall']}` in the published tables of {name}")
    if finals:
        final = finals[0]
        machine, packages = final.environment["machine"], final.environment["packages"]
        versions = ", ".join(f"{name} {number}" for name, number in packages.items() if number)
        lines += [
            f"- machine: {machine['cpu']}, {machine['cores']} cores, {machine['memory_bytes'] / 1e9:.0f} GB; "
            f"{final.threads} threads a fit; {final.dtype}; {', '.join(final.environment['blas'])}",
            f"- revision: `{final.environment['revision']}`; Python {final.environment['python']}, {versions}",
        ]
    runs = sum(r.stage == "search" for r in records.values())
    lines += [
        f"- {runs} searched settings in {about['fits']} fits, {sum(r.stage == 'final' for r in records.values())} final runs",
        "",
    ]
    lines += ["```json", json.dumps({"sweep": about["id"], "started_at": about["started_at"]}), "```", ""]
    return "\n".join(lines)


def _differences(table: Table) -> list[str]:
    """The section that says which models differ, a table a dataset and metric."""
    if not table.differences:
        return []
    counts = {pair.dataset: f"{pair.users:,}" for pair in table.differences}
    left_out = max(pair.left_out for pair in table.differences)
    rule = DIFFERENCES.format(
        users=" and ".join(dict.fromkeys(counts.values())),
        left_out=f"; {left_out:,} that only some models have are left out" if left_out else "",
        resamples=" and ".join(dict.fromkeys(f"{pair.resamples:,}" for pair in table.differences)),
    )
    lines = ["## Differences", "", rule, ""]
    for dataset, metric in dict.fromkeys((pair.dataset, pair.metric) for pair in table.differences):
        pairs = [pair for pair in table.differences if (pair.dataset, pair.metric) == (dataset, metric)]
        header, body = difference_columns(pairs)
        lines += [f"### {dataset}, {metric}", "", tabulate(body, header, tablefmt="github", disable_numparse=True), ""]
    return lines
