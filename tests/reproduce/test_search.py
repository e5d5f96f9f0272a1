"""Searches of rows: on validation, on test, and with a bound of their time; each fit in this process."""

from dataclasses import replace

import pytest

from rankbench.data.prepare import prepare
from rankbench.experiment.estimate import Size
from rankbench.experiment.run import run
from rankbench.reproduce.agenda import agenda
from rankbench.reproduce.agreement import measurements
from rankbench.reproduce.catalogue import paper_tables
from rankbench.reproduce.evidence import Evidence
from rankbench.reproduce.ledger_records import StoredSearch
from rankbench.reproduce.options import ReproduceOptions
from rankbench.reproduce.required_fits import metrics_for, rows_of
from rankbench.reproduce.search import search


@pytest.fixture
def ease(home):
    """The row EASE of the toy paper, whose settings were chosen on test, with none stated."""
    file = home.home / "experiments" / "toy_table1.yaml"
    text = file.read_text().replace("recall: recall}", "recall: recall, chosen_on: test}")
    file.write_text(text.replace("    as_published: {synthetic: {lam: 3}}\n", ""))
    tables = paper_tables(home)
    return next(row for row in rows_of(tables) if row.arm.label == "EASE")


def searched(row, on, environment, bound=None, order=list, mean=None):
    """The search of a row, and the parts that its runs were measured on. `order`: of the units, as they end; `mean`: of every
    run, in place of the measured one.
    """
    measured = []

    def work(units, done, may_begin):
        for unit in filter(may_begin, order(units)):
            records = [outcome.record for outcome in run(unit.job, environment)]
            measured.extend(record.measured_on for record in records)
            if mean is not None:
                same = {name: replace(value, mean=mean) for name, value in records[0].metrics.items()}
                records = [replace(record, metrics=same) for record in records]
            done(unit, records, False)

    metrics = metrics_for(row.dataset, [row.table])
    return search(row, on, Size.of(prepare(row.card, environment)), metrics, 1, bound, work), measured


def waits(home, seconds=None):
    """Whether the search of EASE is still to be run, by a call that gives it at most some seconds."""
    tasks = agenda(ReproduceOptions(["toy/1"], search_budget=seconds and f"{seconds:.12f}"), home).tasks
    return any(task.stage == "search" and task.labels == "EASE" for task in tasks)


def test_a_setting_that_was_found_on_test_is_marked_and_is_not_the_chosen_one(ease, home, evidence):
    stages = [task.stage for task in agenda(ReproduceOptions(["toy/1"]), home).tasks if task.labels == "EASE"]
    assert stages == ["printed", "search", "search on test"]
    line, measured = searched(ease, "test", home)
    assert line.on == "test" and line.draws == 3 and set(measured) == {"test"}
    evidence.add(line)
    assert ease.setting("chosen", evidence) is None
    assert ease.setting("as published", evidence).flat["lam"] == line.chosen["lam"]
    stages = [task.stage for task in agenda(ReproduceOptions(["toy/1"]), home).tasks if task.labels == "EASE"]
    assert "search" in stages and "search on test" not in stages and not measurements(ease, evidence)


def test_on_validation_the_test_part_is_not_read(ease, home):
    line, measured = searched(ease, "valid", home)
    assert line.on == "valid" and line.bound is None and set(measured) == {"valid"}


def test_of_equal_settings_the_first_is_chosen_whichever_ended_first(ease, home):
    forward, _ = searched(ease, "valid", home, mean=0.5)
    backward, _ = searched(ease, "valid", home, mean=0.5, order=lambda units: list(units)[::-1])
    assert forward.chosen == backward.chosen


def test_a_search_that_its_time_ended_is_continued_with_more_time(ease, home, evidence):
    line, measured = searched(ease, "valid", home, bound=1e-9)
    assert (line.draws, line.bound, len(measured)) == (1, 1e-9, 1)
    evidence.add(line)
    assert not waits(home, 1e-9) and not waits(home, 1e-10)
    assert waits(home, 60.0) and waits(home)
    line, _ = searched(ease, "valid", home, bound=1e9)
    assert line.draws == 3 and line.bound is None
    evidence.add(line)
    assert not waits(home, 60.0) and not waits(home)


def test_a_scheduler_compares_a_setting_beyond_the_ranges_with_all_earlier_ones(ease, home):
    given = []
    asked = ease.table.spec.search.model_copy(update={"scheduler": "asha"})
    halved = replace(ease.table, spec=ease.table.spec.model_copy(update={"search": asked}))
    for row, wanted in ((ease, [3, 1]), (replace(ease, table=halved), [3, 4])):
        given.clear()
        line, _ = searched(row, "valid", home, order=lambda units: given.append(len(units)) or units)
        assert given[:2] == wanted and line.draws == 3


def test_a_search_with_fewer_draws_than_the_file_asks_for_waits(ease, home, evidence):
    line, _ = searched(ease, "valid", home)
    evidence.add(replace(line, draws=line.draws - 1))
    assert waits(home)
    evidence.add(line)
    assert not waits(home)


def test_draws_of_another_seed_are_another_search(ease, home, evidence):
    line, _ = searched(ease, "valid", home)
    evidence.add(line)
    asked = ease.table.spec.search.model_copy(update={"seed": 1})
    other = replace(ease, table=replace(ease.table, spec=ease.table.spec.model_copy(update={"search": asked})))
    assert other.search(evidence) is None
    evidence.add(again := replace(line, seed=1, chosen={"lam": 1}))
    assert other.search(evidence) == again and ease.search(evidence) == line


def test_a_dry_run_does_not_write_the_store(home):
    folder = home.home / "experiments" / "evidence"
    read = Evidence(folder, read_only=True)
    line, _ = searched(next(iter(rows_of(paper_tables(home)))), "valid", home)
    read.add(line)
    assert read.lines(StoredSearch, "synthetic") and not list(folder.iterdir())
