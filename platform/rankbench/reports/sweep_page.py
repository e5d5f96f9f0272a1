"""The page of a sweep: conclusion, table, figures, differences, time to target, deviations, notes, budget, the commands that
repeat it, and how it was measured.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence

from rankbench.judge.printing import duration
from rankbench.reports.budget import budget_columns, seconds_between
from rankbench.reports.figure import Figure
from rankbench.reports.page import Addresses, Best, Block, Code, Grid, Items, Legend, Page, Second, Section, Text
from rankbench.reports.rows import ReportRow
from rankbench.reports.tables import Table, columns, difference_columns, pairs_note
from rankbench.reports.targets import target_columns
from rankbench.schema.experiment import Published
from rankbench.schema.stored_sweep import StoredSweep, SweepFile
from rankbench.tracking.record import RunRecord

DIFFERENCES = """\
Differences of each model from the best one of its dataset. The unit is the user: {users} users, the same for every
model{left_out}. The interval is the percentile interval of the paired bootstrap ({resamples} resamples of users, the same for
every model). The bootstrap p-value is twice the smaller share of resamples on one side of 0, with one added to each side, so
that it is never 0. Wilcoxon's signed-rank test ranks users without a difference and then leaves them out. Since the best model
is found on the same data, both p-values are corrected by Holm's method for all pairs of models; the interval is not corrected.
A difference counts if both corrected p-values are below 0.05 and both tests have the same direction. Rank-biserial: share of
the ranked differences in favour minus the share against. d_z: mean difference / its standard deviation over users."""

SEVERAL = """\
Models have several runs: the value of a user is the mean over the seeds of the method on each split, and then the mean over
the splits on which the user is measured, so that every user counts once. ± is the standard deviation of the runs' means.
Settings were chosen once, on the card's own split; its validation interactions may be test interactions of another split."""

TARGETS = """\
Training needed until the {metric} of a model reaches that share of the best final value of any model on the same dataset, both
on the users that the curves follow. The seconds do not include evaluation. The median of several runs is shown. Models without
a curve, such as those solved in one step, have no row."""

BUDGET = """\
A fit that n settings share counts 1/n for each of them, and so do its seconds. The seconds of fits that ran at the same time
are added up."""

NOTHING = "Nothing was measured on test: the table shows published numbers only."
UNFINISHED = "The sweep is not finished: continue it with `rankbench sweep ... --resume`."

REPEAT = """\
{sweep}fits and measures one row again{seeds}. They need the code{revision},
with the packages that are listed below; results on another machine may differ in the last digits."""

LOCAL = "The links to MLflow open while `{needs}` runs."


def sweep_page(stored: StoredSweep, table: Table, figures: Sequence[Figure]) -> Page:
    """Return the report as text, tables and figures, to be rendered as Markdown or HTML."""
    about, records, finals = stored.about, stored.records, stored.finals
    experiment = about.experiment
    lead = [experiment.question] if experiment.question else []
    if published := experiment.published:
        unknown = "it does not say which recall it means"
        recall = unknown if published.recall == "open" else f"its recall is `{published.recall}`"
        lead.append(f"Published: {published.paper}, {table_or_figure(published)}; {recall}.")
    several = any(len(row.seeds) * len(row.split_seeds) > 1 for row in table.rows)
    quiet = frozenset(position for position, row in enumerate(table.rows) if row.missing)
    top: list[Block] = [_results(table, quiet)]
    top += [Text(UNFINISHED)] if records and not stored.finished else []
    top.append(Text(_how_chosen(about, finals, several) if finals else NOTHING))
    top += [Text(SEVERAL)] if several else []
    top += [Text(LOCAL.format(needs=table.links.needs))] if table.links.needs and table.links.runs else []
    sections = [Section("Results", tuple(top))]
    if figures:
        shown = {row.arm for row in table.rows if row.cells}
        legend = Legend({arm: style for arm, style in table.styles.items() if arm in shown})
        sections.append(Section("Figures", (legend, *figures)))
    sections += [*_differences(table), *_targets(table)]
    if table.deviations:
        sections.append(Section("Deviations from the papers' protocol", (Items(table.deviations),)))
    if notes := tuple(note for note in table.notes if note not in table.deviations):
        sections.append(Section("Notes", (Items(notes),)))
    if table.budget:
        header, body = budget_columns(table.budget)
        grid = Grid(header, body, total=len(table.budget) > 1, sticky=2 if header[0] == "dataset" else 1)
        sections.append(Section("Budget", (Text(BUDGET), grid)))
    if commands := _commands(table):
        sections.append(Section("Repeat it", (Text(_how_to_repeat(table, finals)), Code(commands, "sh"))))
    if records:
        stamp = json.dumps({"sweep": about.id, "started_at": about.started_at})
        sections.append(Section("How it was measured", (Items(tuple(_measured(stored, table, finals))), Code(stamp))))
    conclusion = table.conclusions.sentences if records else ()
    return Page(experiment.name, tuple(lead), tuple(sections), _facts(stored, table), conclusion)


def _results(table: Table, quiet: frozenset[int]) -> Grid:
    """Return the table, with links to the runs in MLflow if there are any."""
    header, body = columns(table, best=Best, second=Second)
    if table.links.runs:
        header = [*header, "MLflow"]
        body = [[*line, _links(row, table)] for line, row in zip(body, table.rows, strict=True)]
    return Grid(header, body, quiet=quiet, sticky=2 if header[0] == "dataset" else 1)


def _links(row: ReportRow, table: Table) -> Addresses:
    """Return the links to the runs of a row: one, or one per run by its number."""
    pages = [table.links.runs[run] for run in row.runs if run in table.links.runs]
    names = ["run"] if len(row.runs) == 1 else [f"run {number}" for number in range(1, len(pages) + 1)]
    return Addresses(tuple(zip(names, pages, strict=False)))


def _commands(table: Table) -> str:
    """Return the commands of the sweep and of each row, as lines of a shell script."""
    several = len({row.dataset for row in table.rows}) > 1
    rows = [row for row in table.rows if row.command]
    lines = [table.command] if table.command else []
    lines += [line for row in rows for line in ("", f"# {_comment(row, several)}", row.command)]
    return "\n".join(lines)


def _comment(row: ReportRow, several: bool) -> str:
    name = f"{row.arm} on {row.dataset}" if several else row.arm
    runs = "".join(f", {what} {', '.join(map(str, seeds))}"
                   for what, seeds in (("seeds", row.seeds), ("split seeds", row.split_seeds)) if len(seeds) > 1)  # fmt: skip
    return " ".join(f"{name}{runs}".split())


def _how_to_repeat(table: Table, finals: Sequence[RunRecord]) -> str:
    revisions = list(dict.fromkeys(str(revision) for run in finals if (revision := run.environment.get("revision"))))
    several = any(len(row.seeds) > 1 or len(row.split_seeds) > 1 for row in table.rows)
    return REPEAT.format(
        sweep="The first command repeats the sweep, each of the others " if table.command else "Each command ",
        seeds=", with its first seed: `--seed` and `data.split.seed=` give the others" if several else "",
        revision=f" of revision {' and '.join(f'`{revision}`' for revision in revisions)}" if revisions else "",
    )


def table_or_figure(published: Published) -> str:
    """Return the table or figure of the paper, such as `table 2`."""
    return f"figure {published.figure}" if published.figure is not None else f"table {published.table}"


def _facts(stored: StoredSweep, table: Table) -> tuple[tuple[str, str], ...]:
    """Return the names and values that are shown first."""
    measured = sum(not row.missing for row in table.rows)
    facts = [("datasets", ", ".join(dict.fromkeys(row.dataset for row in table.rows)))]
    facts.append(("rows measured", f"{measured} of {len(table.rows)}"))
    if table.budget:
        fits = sum(each.search_fits + each.final_fits for each in table.budget)
        facts.append(("settings searched", f"{sum(each.settings for each in table.budget):,}"))
        facts.append(("fits", f"{fits:,.0f}"))
        facts.append(("time of fits", duration(sum(each.seconds for each in table.budget))))
    finished = stored.chosen.finished_at if stored.chosen else ""
    if (whole := seconds_between(stored.about.started_at, finished)) is not None:
        facts.append(("from start to end", duration(whole)))
    if finished:
        facts.append(("finished", finished[:10]))
    return tuple(facts)


def _how_chosen(about: SweepFile, finals: list[RunRecord], several: bool) -> str:
    chosen = f"Settings were chosen by {about.experiment.search.choose.metric} on validation. Each chosen setting was"
    if not about.fits:
        chosen = "There was no search. Each setting of the experiment file was"
    fitted = " or ".join(dict.fromkeys(record.fit_on.replace("+", " + ") for record in finals))
    once = " for each seed and split" if several else ""
    return (
        f"{chosen} fitted on {fitted} and measured once on test{once}. Intervals: percentile bootstrap over users. "
        "`fit s ÷n`: one fit that n settings share. Bold: the best of a dataset; underlined: the second best."
    )


def _differences(table: Table) -> list[Section]:
    """Return the section on which models differ, with one table per dataset and metric."""
    if not table.differences:
        return []
    left_out = max(pair.left_out for pair in table.differences)
    rule = DIFFERENCES.format(
        users=" and ".join(dict.fromkeys(f"{pair.users:,}" for pair in table.differences)),
        left_out=f"; {left_out:,} users that only some models have are left out" if left_out else "",
        resamples=" and ".join(dict.fromkeys(f"{pair.resamples:,}" for pair in table.differences)),
    )
    grids = []
    for dataset, metric in dict.fromkeys((pair.dataset, pair.metric) for pair in table.differences):
        pairs = [pair for pair in table.differences if (pair.dataset, pair.metric) == (dataset, metric)]
        grids.append(Grid(*difference_columns(pairs), caption=f"{dataset}, {metric}", sticky=2))
        if beside := [pair for pair in table.neighbours if (pair.dataset, pair.metric) == (dataset, metric)]:
            caption = f"{dataset}, {metric}: each model and the next better one"
            grids.append(Grid(*difference_columns(beside), caption=caption, sticky=2))
    tested = [Text(f"Not all pairs were {pairs_note(table.neighbours)}.")] if table.neighbours else []
    return [Section("Differences", (Text(rule), *tested, *grids))]


def _targets(table: Table) -> list[Section]:
    """Return the section on how long each model trains to come close to the best, with one table per dataset."""
    if not table.targets:
        return []
    grids = [
        Grid(*target_columns([each for each in table.targets if each.dataset == dataset]), caption=dataset)
        for dataset in dict.fromkeys(each.dataset for each in table.targets)
    ]
    return [Section("Time to target", (Text(TARGETS.format(metric=table.targets[0].metric)), *grids))]


def _measured(stored: StoredSweep, table: Table, finals: list[RunRecord]) -> Iterable[str]:
    """Yield one line each about data, machine and versions."""
    for name in dict.fromkeys(row.dataset for row in table.rows):
        splits = {r.dataset.split_seed: r.dataset for r in finals if r.dataset.name == name}
        for seed, data in sorted(splits.items()):
            counts = data.counts
            yield (
                f"data: {name}, fingerprint `{data.fingerprint}`, protocol {data.protocol} (seed {seed}): "
                f"{counts['users']:,} users, {counts['items']:,} items, {counts['train']:,} train, {counts['valid']:,} valid, "
                f"{counts['test']:,} test; {counts['users_without_test_items']:,} users without test items, left out; "
                f"{counts['cold_test_items']:,} test items that do not occur in the fitted data"
            )
        if splits:
            yield f"recall means `{data.recall}` in the published tables of {name}"
    machines = Counter(line for record in finals for line in _machine(record))
    yield from (line if n == len(finals) else f"{line} ({n} of {len(finals)} final runs)" for line, n in machines.items())
    stages = Counter(record.stage for record in stored.records.values())
    yield f"{stages['search']} searched settings in {stored.about.fits} fits, {stages['final']} final runs"


def _machine(record: RunRecord) -> Iterable[str]:
    """Yield lines about machine, revision and versions, as far as the record states them."""
    stated = record.environment
    parts = [f"{record.threads} threads per fit", record.dtype, ", ".join(stated.get("blas", []))]
    if machine := stated.get("machine"):
        parts.insert(0, f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_bytes'] / 1e9:.0f} GB")
    yield f"machine: {'; '.join(part for part in parts if part)}"
    versions = ", ".join(f"{name} {number}" for name, number in stated.get("packages", {}).items() if number)
    if stated.get("revision"):
        yield f"revision: `{stated['revision']}`; Python {stated.get('python', '')}, {versions}"
