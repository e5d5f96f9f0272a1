"""A sweep as a folder of report.md, report.html, tables and plots: records in, files out."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from rankbench.core.files import atomic_file
from rankbench.evaluation.compare import Comparison
from rankbench.reports.budget import spent
from rankbench.reports.deviations import changes, data_deviations, left_out, run_deviations, stand_ins
from rankbench.reports.effects import effects_plot
from rankbench.reports.html import html
from rankbench.reports.markdown import markdown
from rankbench.reports.pareto import pareto_plot
from rankbench.reports.plots import convergence_plot, differences_plot, final_plot
from rankbench.reports.sweep_page import sweep_page
from rankbench.reports.tables import Table, missing_row, render, row_of, setting_text, tie_note
from rankbench.reports.targets import time_to_target
from rankbench.tracking.record import RunRecord


def sweep_table(
    about: dict[str, Any], chosen: dict[str, Any] | None, records: dict[str, RunRecord], compared: dict[str, Any]
) -> Table:
    """The final rows of a sweep, and those of its experiment that were not run. `about` is its sweep.json, `chosen` its
    chosen.json (None of one that is not finished), `compared` its comparisons.json, whose metrics are the columns.
    """
    experiment = about["experiment"]
    arms = {(arm["name"] or arm["method"]): arm for arm in experiment["arms"]}
    wanted = tuple(compared["metrics"])
    differences = tuple(Comparison(**pair) for pair in compared["comparisons"])
    first = next((name for name in wanted if any(pair.metric == name for pair in differences)), None)
    entries = {(entry["dataset"], entry["arm"]): entry["final"] for entry in (chosen or {"rows": []})["rows"]}
    # An entry may be the path of a card; records know a dataset by the name of its card.
    cards = about.get("cards") or experiment.get("datasets", ())
    datasets = [each if isinstance(each, str) else each["name"] for each in cards]
    datasets = sorted({*datasets, *(dataset for dataset, _ in entries)})
    not_available = about.get("not_available", {})
    finals = [record for record in records.values() if record.stage == "final" and record.finished]
    rows, notes, runs = [], list(about["notes"]), {}
    for dataset in datasets:
        data = next((record.dataset for record in finals if record.dataset["name"] == dataset), {})
        is_open = "open" in (data.get("recall"), (experiment["published"] or {}).get("recall"))
        for arm, spec in arms.items():
            said = _beside(spec["published"].get(dataset, {}), is_open)
            mine = [records[name] for name in entries.get((dataset, arm), ()) if name in records]
            finished = [record for record in mine if record.finished]
            reasons = [record.error for record in mine if not record.finished]
            if (dataset, arm) in entries and not mine:
                reasons.append("no record")
            notes += [f"{arm} on {dataset}: the final run failed: {error}" for error in dict.fromkeys(reasons)]
            tried = [r for r in records.values() if r.stage == "search" and (r.dataset["name"], r.arm) == (dataset, arm)]
            searched = sum(not record.failed for record in tried)
            if not finished:
                nothing_to_choose = chosen is not None and tried and not any(record.finished for record in tried)
                why = "failed" if reasons or nothing_to_choose else "not run"
                if why == "not run" and dataset in not_available:
                    why = f"not available: {not_available[dataset]['brief']}"
                rows.append(missing_row(dataset, arm, spec["method"], said, why))
                continue
            pooled = {each["metric"]: each for each in compared["models"] if (each["dataset"], each["model"]) == (dataset, arm)}
            tied = any(
                (pair.dataset, pair.model, pair.metric) == (dataset, arm, first) and not pair.distinguishable
                for pair in differences
            )
            stated = {*spec["params"], *chain(*spec["chosen"].values())}
            rows.append(row_of(finished, wanted, said, searched, pooled, tied, stated))
            if len(finished) > 1:
                seeds, splits = (", ".join(map(str, values)) for values in (rows[-1].seeds, rows[-1].split_seeds))
                runs.setdefault(f"{len(finished)} runs, seed {seeds}, split seed {splits}", []).append(f"{arm} on {dataset}")
        rows += [
            missing_row(dataset, row["name"], "", _beside(row["published"][dataset], is_open), "not run")
            for row in experiment.get("not_run", ())
            if dataset in row["published"]
        ]
    notes += [f"mean ± standard deviation of {text}: {', '.join(members)}" for text, members in runs.items()]
    if any(row.tied for row in rows):
        notes.append(tie_note(first))
    # They stand in a section of their own, and among the notes where there are no sections.
    lost = [f"{name} is not available: {why['reason']}" for name, why in not_available.items()]
    deviations = [*lost, *data_deviations(finals), *left_out(experiment.get("not_run", ())), *changes(about)]
    notes += deviations
    notes += [f"failed: {r.arm} {r.params}: {r.error}" for r in records.values() if r.failed]
    notes += _stopped(records)
    place = {arm: position for position, arm in enumerate(arms)}
    followed = [name for name in wanted if any(name in point for record in finals for point in record.curve)]
    table = Table(
        experiment["question"] or experiment["name"],
        wanted,
        tuple(rows),
        tuple(notes),
        differences,
        (*deviations, *run_deviations(experiment, rows, finals)) if records else tuple(deviations),
        stand_ins(finals),
        tuple(sorted(spent(records.values()), key=lambda each: (each.dataset, place.get(each.arm, len(place))))),
        time_to_target(finals, followed[-1], list(arms)) if followed else (),
        not_available,
    )
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
        files.append(_write(folder / name, render(table, format) + "\n"))
    pictures = _pictures(folder, about, table, list(records.values()))
    page = sweep_page(about, chosen, table, records, pictures)
    texts = [_write(folder / "report.md", markdown(page)), _write(folder / "report.html", html(page))]
    return [*texts, *files, *pictures]


def _stopped(records: dict[str, RunRecord]) -> list[str]:
    """How many settings their search ended early."""
    searched = [record for record in records.values() if record.stage == "search"]
    early = sum(record.status == "stopped" for record in searched)
    return [f"{early} of {len(searched)} searched settings were stopped before their end"] if early else []


def _beside(said: dict[str, float], is_open: bool) -> dict[str, float]:
    """Published numbers by column: where it is open which recall they mean, one stands beside both."""
    return {name.replace("recall@", "recall_capped@"): number for name, number in said.items()} | said if is_open else said


def _write(path: Path, text: str) -> Path:
    with atomic_file(path) as scratch:
        scratch.write_text(text, encoding="utf-8")
    return path


def _pictures(folder: Path, about: dict[str, Any], table: Table, records: list[RunRecord]) -> list[Path]:
    pictures = []
    arms = [arm["name"] or arm["method"] for arm in about["experiment"]["arms"]]
    finals = [record for record in records if record.stage == "final"]
    searched = [record for record in records if record.stage == "search"]
    if shown := [metric for metric in table.metrics if any(metric in row.cells for row in table.rows)]:
        pictures.append(final_plot(table, shown[-1], folder / "final.png"))
    if table.differences:
        pictures.append(differences_plot(table.differences, folder / "differences.png"))
    if shown:
        pictures.append(convergence_plot(finals, shown[-1], folder / "convergence.png", arms))
        pictures.append(pareto_plot(table, shown[-1], folder / "pareto.png"))
    metric = about["experiment"]["search"]["choose"]["metric"]
    pictures.append(effects_plot(searched, metric, folder / "search.png", arms))
    return [picture for picture in pictures if picture]
