"""Write the report of a sweep: report.md, report.html, tables and plots, all made from its records."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from pathlib import Path

from rankbench.core.display import setting_text
from rankbench.core.environment import Environment
from rankbench.core.files import write_text
from rankbench.core.markdown import without_tags
from rankbench.evaluation.metrics import better_if_larger
from rankbench.judge.printing import MANY
from rankbench.reports.budget import spent
from rankbench.reports.conclusions import at_the_end, conclude, deciding_metric, ends_sentence, untuned
from rankbench.reports.deviations import data_deviations, interval_notes, left_out, mixed_conditions, run_deviations, stand_ins
from rankbench.reports.figure import Figure, styles
from rankbench.reports.figures import convergence_figure, differences_figure, final_figure, pareto_figure, search_figure
from rankbench.reports.page import Page
from rankbench.reports.repeat import row_command
from rankbench.reports.rows import ReportRow, missing_row, row_of
from rankbench.reports.site import Site
from rankbench.reports.sweep_page import sweep_page
from rankbench.reports.tables import Table, pairs_note, render
from rankbench.reports.targets import time_to_target
from rankbench.schema.stored_sweep import ComparisonsFile, StoredSweep
from rankbench.tracking.address import artifacts_folder, tracking_uri
from rankbench.tracking.links import RunLinks, run_links


def sweep_table(stored: StoredSweep, links: RunLinks = RunLinks()) -> Table:
    """Return the table of a sweep's final runs, with the rows of its experiment that were not run. The metrics of its
    comparisons are the columns. `links`: the pages of its runs in MLflow.
    """
    about, records, finals, compared = stored.about, stored.records, stored.finals, stored.compared
    assert compared is not None
    experiment, wanted, differences = about.experiment, compared.metrics, compared.comparisons
    rows, notes_of_rows = _rows(stored, compared)
    notes = [*about.notes, *notes_of_rows]
    if compared.neighbours:
        notes.append(pairs_note(compared.neighbours))
    notes += interval_notes(finals, wanted)
    notes += mixed_conditions(records.values(), finals)
    # The page has a section for deviations; a plain table shows them among the notes.
    deviations = [f"{name} is not available: {why.reason}" for name, why in about.not_available.items()]
    deviations += data_deviations(finals, deciding_metric(differences, experiment.search.choose.metric))
    deviations += left_out(experiment.not_run)
    if about.changes:
        deviations.append(f"changed from the experiment file: {' '.join(about.changes)}")
    notes += deviations
    notes += [f"failed: {r.arm} {r.params}: {r.error}" for r in records.values() if r.failed]
    settings = [record for record in records.values() if record.stage == "search"]
    if early := sum(record.stopped for record in settings):
        notes.append(f"{early} of {len(settings)} searched settings were stopped before their end")
    ends = at_the_end(stored.rows)
    notes += ends[MANY:]
    tuning = [*untuned(experiment, stored.rows, rows), *ends_sentence(ends, experiment.search.extend)]
    order = {arm: position for position, arm in enumerate(dict.fromkeys(arm.label for arm in experiment.arms))}
    followed = [name for name in wanted if any(name in point for record in finals for point in record.curve)]
    ended = stored.finished or not records
    table = Table(
        title=experiment.question or experiment.name,
        metrics=wanted,
        rows=tuple(rows),
        notes=tuple(notes),
        differences=differences,
        deviations=(*deviations, *run_deviations(experiment, rows, finals)) if records else tuple(deviations),
        budget=tuple(sorted(spent(records.values()), key=lambda each: (each.dataset, order.get(each.arm, len(order))))),
        targets=time_to_target(finals, followed[-1], list(order)) if followed else (),
        not_available=about.not_available,
        conclusions=conclude(rows, differences, experiment.search.choose.metric, stand_ins(finals), ended, tuning),
        command=about.command or "",
        links=links,
        neighbours=compared.neighbours,
    )
    common = [f"in every row with these parameters: {setting_text(table.common)}"] if table.common else []
    return replace(table, notes=(*common, *table.legend, *table.notes))


def _rows(stored: StoredSweep, compared: ComparisonsFile) -> tuple[list[ReportRow], list[str]]:
    """Return the rows of the table by dataset, and notes on them: those of the experiment, of foreign lists, and not run."""
    about, records, experiment, metrics = stored.about, stored.records, stored.about.experiment, compared.metrics
    arms, entries = {arm.label: arm for arm in experiment.arms}, {(row.dataset, row.arm): row for row in stored.rows}
    rows, notes = list[ReportRow](), list[str]()
    runs: dict[str, list[str]] = {}
    others = stand_ins(record for record in records.values() if record.finished)
    for dataset in sorted({*about.dataset_names, *(dataset for dataset, _ in entries)}):
        recall = next((record.dataset.recall for record in stored.finals if record.dataset.name == dataset), "")
        is_open = "open" in (recall, experiment.published and experiment.published.recall)
        for arm, spec in arms.items():
            published = {} if dataset in others else _beside(spec.published.get(dataset, {}), is_open)
            entry = entries.get((dataset, arm))
            own_records = [records[name] for name in (entry.final if entry else ()) if name in records]
            finished = [record for record in own_records if record.finished]
            reasons = [record.error for record in own_records if not record.finished]
            if entry and not own_records:
                reasons.append("no record")
            notes += [f"{arm} on {dataset}: the final run failed: {error}" for error in dict.fromkeys(reasons)]
            tried = [r for r in records.values() if r.stage == "search" and (r.dataset.name, r.arm) == (dataset, arm)]
            searched = sum(not record.failed for record in tried)
            if not finished or not entry:
                nothing_to_choose = stored.chosen is not None and tried and not any(record.finished for record in tried)
                why = "failed" if reasons or nothing_to_choose else "not run"
                if why == "not run" and dataset in about.not_available:
                    why = about.not_available[dataset].state
                rows.append(missing_row(dataset, arm, spec.method, published, why))
                continue
            pooled = {each.metric: each for each in compared.models if (each.dataset, each.model) == (dataset, arm)}
            stated = {*spec.params, *chain(*spec.chosen.values())}
            command = row_command(about, finished[0], records.get(entry.search or ""), metrics)
            rows.append(row_of(finished, metrics, published, searched, pooled, stated, command, entry.seeded))
            if len(finished) > 1:
                seeds, splits = (", ".join(map(str, values)) for values in (rows[-1].seeds, rows[-1].split_seeds))
                runs.setdefault(f"{len(finished)} runs, seed {seeds}, split seed {splits}", []).append(f"{arm} on {dataset}")
        for record in (each for each in stored.foreign if each.dataset.name == dataset):
            rows.append(row_of([record], metrics, {}, 0, {}))
            sentences = record.lists.sentences if record.lists else ()
            notes += [f"{record.arm} on {dataset}: {sentence}" for sentence in sentences]
        rows += [
            missing_row(dataset, row.name, "", _beside(row.published[dataset], is_open), "not run")
            for row in experiment.not_run
            if dataset in row.published and dataset not in others
        ]
    notes += [f"mean ± standard deviation of {text}: {', '.join(members)}" for text, members in runs.items()]
    return rows, notes


def links_of(stored: StoredSweep, environment: Environment) -> RunLinks:
    """Return the pages of the final runs in MLflow, as far as the tracking store has them."""
    runs = [name for row in stored.rows for name in row.final]
    return run_links(tracking_uri(environment), artifacts_folder(environment), stored.about.id, runs)


def write_report(folder: Path, stored: StoredSweep, links: RunLinks = RunLinks()) -> list[Path]:
    """Write the files of the report into `folder`. Returns their paths, report.md first."""
    table = sweep_table(stored, links)
    site = Site(folder, ("md", "html"))
    site.write("report", report_page(stored, table))
    formats = {"table.csv": "csv", "table.json": "json", "table.tex": "latex"}
    return [
        *site.files,
        *(write_text(folder / name, render(table, each).rstrip("\n") + "\n") for name, each in formats.items()),
    ]


def write_pages(folder: Path, stored: StoredSweep, table: Table) -> list[Path]:
    """Write report.md and report.html again, beside the pictures of an earlier report. Returns their paths."""
    site = Site(folder, ("md", "html"))
    site.write("report", report_page(stored, table), pictures=False)
    return site.files


def note(question: str, table: Table) -> str:
    """Return what MLflow shows of a sweep, in Markdown: its question, the conclusions and the table."""
    return "\n".join([*map(without_tags, [question, "", *table.conclusions.sentences]), "", render(table, "md")])


def report_page(stored: StoredSweep, table: Table) -> Page:
    """Return the page of a sweep with its figures."""
    return sweep_page(stored, table, _figures(stored, table))


def _beside(published: dict[str, float], is_open: bool) -> dict[str, float]:
    """Return metric → published number; if the kind of recall is open, the number appears under both."""
    capped = {name.replace("recall@", "recall_capped@"): number for name, number in published.items()}
    return capped | published if is_open else published


def _figures(stored: StoredSweep, table: Table) -> list[Figure]:
    experiment, records = stored.about.experiment, stored.records.values()
    arms = styles(arm.label for arm in experiment.arms)
    finals, searched = stored.finals, [record for record in records if record.stage == "search"]
    made = [differences_figure(table.differences, arms), search_figure(searched, experiment.search.choose.metric, arms)]
    if shown := _shown(table):
        made[:1] = [final_figure(table, shown), made[0], convergence_figure(finals, shown, arms), pareto_figure(table, shown)]
    return [figure for figure in made if figure]


def _shown(table: Table) -> str | None:
    """Return the metric that the figures show: the last measured one of the table of which more is better, or else the last;
    None if nothing was measured.
    """
    measured = [metric for metric in table.metrics if any(metric in row.cells for row in table.rows)]
    return next(reversed([*filter(better_if_larger, measured)] or measured), None)
