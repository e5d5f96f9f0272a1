"""A finished sweep as a folder of report.md, table.csv, table.json and plots: records in, files out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rankbench.files import atomic_file
from rankbench.reports.plots import final_plot, search_plot
from rankbench.reports.tables import Table, render, row_of
from rankbench.tracking.record import RunRecord


def sweep_table(about: dict[str, Any], chosen: dict[str, Any] | None, records: dict[str, RunRecord], metrics=()) -> Table:
    """The final rows of a sweep. `about` is its sweep.json, `chosen` its chosen.json; `metrics` the columns, by default
    those that the paper reports, or else recall and ndcg at the cutoff the search used.
    """
    experiment = about["experiment"]
    published = {(arm["name"] or arm["method"]): arm["published"] for arm in experiment["arms"]}
    wanted = tuple(metrics) or default_metrics(experiment)
    rows, notes = [], list(about["notes"])
    for entry in chosen["rows"] if chosen else []:
        record = records.get(entry["final"] or "")
        if record is None or not record.finished:
            notes.append(
                f"{entry['arm']} on {entry['dataset']}: the final run failed: {record.error if record else 'no record'}"
            )
            continue
        searched = sum(
            r.stage == "search" and r.arm == record.arm and r.dataset["name"] == entry["dataset"] and r.finished
            for r in records.values()
        )
        rows.append(row_of(record, wanted, published.get(record.arm, {}).get(entry["dataset"], {}), searched))
    finals = [record for record in records.values() if record.stage == "final" and record.finished]
    for name in dict.fromkeys(record.dataset["name"] for record in finals):
        differences = next(record.dataset["differences"] for record in finals if record.dataset["name"] == name)
        notes += [f"{name}: {line}" for line in differences]
    notes += [f"failed: {r.arm} {r.params}: {r.error}" for r in records.values() if not r.finished]
    order = {(arm["name"] or arm["method"]): i for i, arm in enumerate(experiment["arms"])}
    rows.sort(key=lambda row: (row.dataset, order.get(row.arm, 0)))
    return Table(experiment["question"] or experiment["name"], wanted, tuple(rows), tuple(notes))


def default_metrics(experiment: dict[str, Any]) -> tuple[str, ...]:
    """What the experiment's papers report, else recall and the metric of the search, at its cutoff."""
    reported = [name for arm in experiment["arms"] for by_metric in arm["published"].values() for name in by_metric]
    metric = experiment["search"]["choose"]["metric"]
    return tuple(dict.fromkeys(reported or [f"recall@{metric.partition('@')[2]}", metric]))


def write_report(
    folder: Path, about: dict[str, Any], chosen: dict[str, Any] | None, records: dict[str, RunRecord], metrics=()
) -> list[Path]:
    """Write the report's files into `folder`; returns them, report.md first."""
    table = sweep_table(about, chosen, records, metrics)
    files = []
    for name, format in (("table.csv", "csv"), ("table.json", "json"), ("table.tex", "latex")):
        with atomic_file(folder / name) as scratch:
            scratch.write_text(render(table, format) + "\n", encoding="utf-8")
        files.append(folder / name)
    pictures = []
    shown = [metric for metric in table.metrics if any(metric in row.cells for row in table.rows)]
    if shown:
        pictures.append(final_plot(table, shown[-1], folder / "final.png"))
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
        lines += [f"Published: {experiment['published']['paper']}, table {experiment['published']['table']}.", ""]
    choose = experiment["search"]["choose"]
    lines += [render(table, "md"), ""]
    chosen = f"Settings were chosen by {choose['metric']} on validation; each chosen one was then"
    if not about["fits"]:
        chosen = "No search: each setting is one that the experiment file gives,"
    lines += [
        f"{chosen} fitted on train + valid, and test was read once, for it. Intervals: percentile bootstrap over users. "
        "`fit s ÷n`: one fit that n settings share.",
        "",
    ]
    lines += [f"![{path.stem}]({path.name})\n" for path in pictures]
    if table.notes:
        lines += ["## Notes", "", *[f"- {note}" for note in table.notes], ""]
    lines += ["## How it was measured", ""]
    final = next((r for r in records.values() if r.stage == "final" and r.finished), None)
    for name in dict.fromkeys(row.dataset for row in table.rows):
        record = next(r for r in records.values() if r.finished and r.dataset["name"] == name and r.stage == "final")
        data, counts = record.dataset, record.dataset["counts"]
        lines.append(
            f"- data: {name}, fingerprint `{data['fingerprint']}`, protocol {data['protocol']} (seed {data['split_seed']}): "
            f"{counts['users']:,} users, {counts['items']:,} items, {counts['train']:,} train, {counts['valid']:,} valid, "
            f"{counts['test']:,} test; {counts['users_without_test_items']:,} users without test items, left out; "
            f"{counts['cold_test_items']:,} test items never seen before"
        )
        lines.append(f"- recall means `{data['recall']}` in the published tables of {name}")
    if final:
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
