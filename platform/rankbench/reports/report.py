"""Write the report of a sweep: report.md, report.html, tables and plots, all made from its records."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from pathlib import Path

from rankbench.core.files import write_text
from rankbench.reports.budget import spent
from rankbench.reports.deviations import changes, data_deviations, interval_notes, left_out, run_deviations, stand_ins
from rankbench.reports.effects import effects_plot
from rankbench.reports.html import html
from rankbench.reports.markdown import markdown
from rankbench.reports.pareto import pareto_plot
from rankbench.reports.plots import convergence_plot, differences_plot, final_plot
from rankbench.reports.sweep_page import sweep_page
from rankbench.reports.tables import Row, Table, missing_row, render, row_of, setting_text, tie_note
from rankbench.reports.targets import time_to_target
from rankbench.schema.stored_sweep import ChosenFile, ComparisonsFile, SweepFile
from rankbench.tracking.record import RunRecord


def sweep_table(about: SweepFile, chosen: ChosenFile | None, records: dict[str, RunRecord], compared: ComparisonsFile) -> Table:
    """Return the table of a sweep's final runs, with the rows of its experiment that were not run. `about` is its sweep.json,
    `chosen` its chosen.json (None until it has finished), `compared` its comparisons.json, whose metrics are the columns.
    """
    experiment, wanted, differences = about.experiment, compared.metrics, compared.comparisons
    arms = {arm.label: arm for arm in experiment.arms}
    first = next((name for name in wanted if any(pair.metric == name for pair in differences)), None)
    entries = {(row.dataset, row.arm): row.final for row in (chosen.rows if chosen else ())}
    datasets = sorted({*about.dataset_names, *(dataset for dataset, _ in entries)})
    not_available = about.not_available
    finals = [record for record in records.values() if record.stage == "final" and record.finished]
    rows, notes = list[Row](), list(about.notes)
    runs: dict[str, list[str]] = {}
    for dataset in datasets:
        recall = next((record.dataset.recall for record in finals if record.dataset.name == dataset), "")
        is_open = "open" in (recall, experiment.published and experiment.published.recall)
        for arm, spec in arms.items():
            published = _beside(spec.published.get(dataset, {}), is_open)
            own_records = [records[name] for name in entries.get((dataset, arm), ()) if name in records]
            finished = [record for record in own_records if record.finished]
            reasons = [record.error for record in own_records if not record.finished]
            if (dataset, arm) in entries and not own_records:
                reasons.append("no record")
            notes += [f"{arm} on {dataset}: the final run failed: {error}" for error in dict.fromkeys(reasons)]
            tried = [r for r in records.values() if r.stage == "search" and (r.dataset.name, r.arm) == (dataset, arm)]
            searched = sum(not record.failed for record in tried)
            if not finished:
                nothing_to_choose = chosen is not None and tried and not any(record.finished for record in tried)
                why = "failed" if reasons or nothing_to_choose else "not run"
                if why == "not run" and dataset in not_available:
                    why = not_available[dataset].state
                rows.append(missing_row(dataset, arm, spec.method, published, why))
                continue
            pooled = {each.metric: each for each in compared.models if (each.dataset, each.model) == (dataset, arm)}
            tied = any(
                (pair.dataset, pair.model, pair.metric) == (dataset, arm, first) and not pair.distinguishable
                for pair in differences
            )
            stated = {*spec.params, *chain(*spec.chosen.values())}
            rows.append(row_of(finished, wanted, published, searched, pooled, tied, stated))
            if len(finished) > 1:
                seeds, splits = (", ".join(map(str, values)) for values in (rows[-1].seeds, rows[-1].split_seeds))
                runs.setdefault(f"{len(finished)} runs, seed {seeds}, split seed {splits}", []).append(f"{arm} on {dataset}")
        rows += [
            missing_row(dataset, row.name, "", _beside(row.published[dataset], is_open), "not run")
            for row in experiment.not_run
            if dataset in row.published
        ]
    notes += [f"mean ± standard deviation of {text}: {', '.join(members)}" for text, members in runs.items()]
    if first and any(row.tied for row in rows):
        notes.append(tie_note(first))
    notes += interval_notes(finals, wanted)
    # The page has a section for deviations; a plain table shows them among the notes.
    unavailable = [f"{name} is not available: {why.reason}" for name, why in not_available.items()]
    deviations = [*unavailable, *data_deviations(finals), *left_out(experiment.not_run), *changes(about.changes)]
    notes += deviations
    notes += [f"failed: {r.arm} {r.params}: {r.error}" for r in records.values() if r.failed]
    notes += _stopped(records)
    order = {arm: position for position, arm in enumerate(arms)}
    followed = [name for name in wanted if any(name in point for record in finals for point in record.curve)]
    table = Table(
        experiment.question or experiment.name,
        wanted,
        tuple(rows),
        tuple(notes),
        differences,
        (*deviations, *run_deviations(experiment, rows, finals)) if records else tuple(deviations),
        stand_ins(finals),
        tuple(sorted(spent(records.values()), key=lambda each: (each.dataset, order.get(each.arm, len(order))))),
        time_to_target(finals, followed[-1], list(arms)) if followed else (),
        not_available,
    )
    if table.common:
        table = replace(table, notes=(f"in every row with these parameters: {setting_text(table.common)}", *table.notes))
    return table


def write_report(
    folder: Path,
    about: SweepFile,
    chosen: ChosenFile | None,
    records: dict[str, RunRecord],
    compared: ComparisonsFile,
) -> list[Path]:
    """Write the files of the report into `folder`. Returns their paths, report.md first."""
    table = sweep_table(about, chosen, records, compared)
    formats = {"table.csv": "csv", "table.json": "json", "table.tex": "latex"}
    files = [write_text(folder / name, render(table, format) + "\n") for name, format in formats.items()]
    pictures = _pictures(folder, about, table, list(records.values()))
    page = sweep_page(about, chosen, table, records, pictures)
    texts = [write_text(folder / "report.md", markdown(page)), write_text(folder / "report.html", html(page))]
    return [*texts, *files, *pictures]


def _stopped(records: dict[str, RunRecord]) -> list[str]:
    """Return a note on how many settings the search stopped early, if any."""
    searched = [record for record in records.values() if record.stage == "search"]
    early = sum(record.status == "stopped" for record in searched)
    return [f"{early} of {len(searched)} searched settings were stopped before their end"] if early else []


def _beside(published: dict[str, float], is_open: bool) -> dict[str, float]:
    """Return metric → published number; if the kind of recall is open, the number appears under both."""
    capped = {name.replace("recall@", "recall_capped@"): number for name, number in published.items()}
    return capped | published if is_open else published


def _pictures(folder: Path, about: SweepFile, table: Table, records: list[RunRecord]) -> list[Path]:
    pictures: list[Path | None] = []
    arms = [arm.label for arm in about.experiment.arms]
    finals = [record for record in records if record.stage == "final"]
    searched = [record for record in records if record.stage == "search"]
    if shown := [metric for metric in table.metrics if any(metric in row.cells for row in table.rows)]:
        pictures.append(final_plot(table, shown[-1], folder / "final.png"))
    if table.differences:
        pictures.append(differences_plot(table.differences, folder / "differences.png"))
    if shown:
        pictures.append(convergence_plot(finals, shown[-1], folder / "convergence.png", arms))
        pictures.append(pareto_plot(table, shown[-1], folder / "pareto.png"))
    metric = about.experiment.search.choose.metric
    pictures.append(effects_plot(searched, metric, folder / "search.png", arms))
    return [picture for picture in pictures if picture]
