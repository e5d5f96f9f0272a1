"""Write the report of a sweep: report.md, report.html, tables and plots, all made from its records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from rankbench.core.environment import Environment
from rankbench.core.files import write_text
from rankbench.core.markdown import without_tags
from rankbench.reports.budget import spent
from rankbench.reports.conclusions import conclude, deciding_metric
from rankbench.reports.deviations import changes, data_deviations, interval_notes, left_out, run_deviations, stand_ins
from rankbench.reports.effects import effects_plot
from rankbench.reports.formats import render
from rankbench.reports.html import html
from rankbench.reports.markdown import markdown
from rankbench.reports.page import Chart, Page, Picture
from rankbench.reports.pareto import pareto_plot
from rankbench.reports.plots import convergence_plot, differences_plot, final_plot
from rankbench.reports.repeat import row_command, sweep_command
from rankbench.reports.sweep_page import CAPTIONS, sweep_page
from rankbench.reports.tables import Row, Table, missing_row, pairs_note, row_of, setting_text
from rankbench.reports.targets import time_to_target
from rankbench.reports.tuning import MANY, at_the_end, ends_sentence, untuned
from rankbench.schema.stored_sweep import ChosenFile, ComparisonsFile, StoredSweep, SweepFile
from rankbench.tracking.address import tracking_uri
from rankbench.tracking.links import RunLinks, run_links
from rankbench.tracking.record import RunRecord


def sweep_table(
    about: SweepFile,
    chosen: ChosenFile | None,
    records: dict[str, RunRecord],
    compared: ComparisonsFile,
    links: RunLinks = RunLinks(),
) -> Table:
    """Return the table of a sweep's final runs, with the rows of its experiment that were not run. `about` is its sweep.json,
    `chosen` its chosen.json (None until it has finished), `compared` its comparisons.json, whose metrics are the columns, and
    `links` the pages of its runs in MLflow.
    """
    experiment, wanted, differences = about.experiment, compared.metrics, compared.comparisons
    arms = {arm.label: arm for arm in experiment.arms}
    deciding = deciding_metric(differences, experiment.search.choose.metric)
    entries = {(row.dataset, row.arm): row.final for row in (chosen.rows if chosen else ())}
    seeded = {row.arm: row.seeded for row in (chosen.rows if chosen else ())}
    searches = {(row.dataset, row.arm): row.search for row in (chosen.rows if chosen else ())}
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
            stated = {*spec.params, *chain(*spec.chosen.values())}
            command = row_command(about, finished[0], records.get(searches[dataset, arm] or ""), wanted)
            rows.append(row_of(finished, wanted, published, searched, pooled, stated, command, seeded.get(arm)))
            if len(finished) > 1:
                seeds, splits = (", ".join(map(str, values)) for values in (rows[-1].seeds, rows[-1].split_seeds))
                runs.setdefault(f"{len(finished)} runs, seed {seeds}, split seed {splits}", []).append(f"{arm} on {dataset}")
        rows += [
            missing_row(dataset, row.name, "", _beside(row.published[dataset], is_open), "not run")
            for row in experiment.not_run
            if dataset in row.published
        ]
    notes += [f"mean ± standard deviation of {text}: {', '.join(members)}" for text, members in runs.items()]
    if compared.neighbours:
        notes.append(pairs_note(compared.neighbours))
    notes += interval_notes(finals, wanted)
    # The page has a section for deviations; a plain table shows them among the notes.
    unavailable = [f"{name} is not available: {why.reason}" for name, why in not_available.items()]
    deviations = [
        *unavailable,
        *data_deviations(finals, deciding),
        *left_out(experiment.not_run),
        *changes(about.changes),
    ]
    notes += deviations
    notes += [f"failed: {r.arm} {r.params}: {r.error}" for r in records.values() if r.failed]
    notes += _stopped(records)
    ends = at_the_end(chosen)
    notes += ends[MANY:]
    tuning = [*untuned(experiment, chosen, rows), *ends_sentence(ends, experiment.search.extend)]
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
        conclude(
            rows, differences, experiment.search.choose.metric, stand_ins(finals), chosen is not None or not records, tuning
        ),
        sweep_command(about),
        links,
        compared.neighbours,
    )
    common = [f"in every row with these parameters: {setting_text(table.common)}"] if table.common else []
    return replace(table, notes=(*common, *table.legend, *table.notes))


def links_of(stored: StoredSweep, environment: Environment) -> RunLinks:
    """Return the pages of the final runs in MLflow, as far as the tracking store has them."""
    runs = [name for row in (stored.chosen.rows if stored.chosen else ()) for name in row.final]
    return run_links(tracking_uri(environment), environment.results / "mlartifacts", stored.about.id, runs)


def write_report(
    folder: Path,
    about: SweepFile,
    chosen: ChosenFile | None,
    records: dict[str, RunRecord],
    compared: ComparisonsFile,
    links: RunLinks = RunLinks(),
) -> list[Path]:
    """Write the files of the report into `folder`. Returns their paths, report.md first."""
    table = sweep_table(about, chosen, records, compared, links)
    formats = {"table.csv": "csv", "table.json": "json", "table.tex": "latex"}
    files = [write_text(folder / name, render(table, format).rstrip("\n") + "\n") for name, format in formats.items()]
    drawn = draw(folder, about, table, list(records.values()))
    return [*write_pages(folder, about, chosen, table, records, drawn), *files, *drawn]


def write_pages(
    folder: Path,
    about: SweepFile,
    chosen: ChosenFile | None,
    table: Table,
    records: dict[str, RunRecord],
    drawn: Sequence[Path],
) -> list[Path]:
    """Write report.md and report.html, with the plots in the files `drawn`. Returns their paths."""
    page = report_page(about, chosen, table, records, drawn)
    return [write_text(folder / "report.md", markdown(page)), write_text(folder / "report.html", html(page))]


def note(question: str, table: Table) -> str:
    """Return what MLflow shows of a sweep, in Markdown: its question, the conclusions and the table."""
    return "\n".join([*map(without_tags, [question, "", *table.conclusions.sentences]), "", render(table, "md")])


def report_page(
    about: SweepFile, chosen: ChosenFile | None, table: Table, records: dict[str, RunRecord], drawn: Sequence[Path] = ()
) -> Page:
    """Return the page of a sweep with its interactive charts and, for paper and Markdown, the plots in the files `drawn`."""
    files = {path.stem: path for path in drawn}
    charts = _charts(about, table, list(records.values()))
    pictures = [
        Picture(files.get(name), caption, tuple(charts.get(name, ())))
        for name, caption in CAPTIONS.items()
        if name in files or charts.get(name)
    ]
    return sweep_page(about, chosen, table, records, pictures)


def _stopped(records: dict[str, RunRecord]) -> list[str]:
    """Return a note on how many settings the search stopped early, if any."""
    searched = [record for record in records.values() if record.stage == "search"]
    early = sum(record.stopped for record in searched)
    return [f"{early} of {len(searched)} searched settings were stopped before their end"] if early else []


def _beside(published: dict[str, float], is_open: bool) -> dict[str, float]:
    """Return metric → published number; if the kind of recall is open, the number appears under both."""
    capped = {name.replace("recall@", "recall_capped@"): number for name, number in published.items()}
    return capped | published if is_open else published


def draw(folder: Path, about: SweepFile, table: Table, records: Sequence[RunRecord]) -> list[Path]:
    """Draw the plots of a report into `folder`. Returns their paths."""
    plots: list[Path | None] = []
    arms = [arm.label for arm in about.experiment.arms]
    finals, searched = _stages(records)
    shown = _shown(table)
    if shown:
        plots.append(final_plot(table, shown, folder / "final.png"))
    if table.differences:
        plots.append(differences_plot(table.differences, folder / "differences.png", arms))
    if shown:
        plots.append(convergence_plot(finals, shown, folder / "convergence.png", arms))
        plots.append(pareto_plot(table, shown, folder / "pareto.png"))
    plots.append(effects_plot(searched, about.experiment.search.choose.metric, folder / "search.png", arms))
    return [plot for plot in plots if plot]


def _charts(about: SweepFile, table: Table, records: Sequence[RunRecord]) -> dict[str, list[Chart]]:
    """Return the interactive charts by the name of the plot that each group of them replaces on a screen."""
    shown = _shown(table)
    if not shown:
        return {}
    from rankbench.reports import interactive  # imports Bokeh

    finals, searched = _stages(records)
    return {
        "final": interactive.final_charts(table, shown),
        "differences": interactive.difference_charts(table),
        "convergence": interactive.convergence_charts(table, finals, shown),
        "pareto": interactive.pareto_charts(table, shown),
        "search": interactive.effect_charts(table, searched, about.experiment.search.choose.metric),
    }


def _stages(records: Sequence[RunRecord]) -> tuple[list[RunRecord], list[RunRecord]]:
    """Return the records of the final runs and of the search."""
    return [record for record in records if record.stage == "final"], [record for record in records if record.stage == "search"]


def _shown(table: Table) -> str | None:
    """Return the last measured metric of the table, which the figures show; None if nothing was measured."""
    measured = [metric for metric in table.metrics if any(metric in row.cells for row in table.rows)]
    return measured[-1] if measured else None
