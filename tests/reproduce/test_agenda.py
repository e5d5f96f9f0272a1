"""What is wanted, in which order, and how cells are judged; without a cluster."""

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest

from rankbench.core.errors import ConfigError
from rankbench.judge.agreement import Agreement, order_agreement
from rankbench.ledger.claims import Claims
from rankbench.reproduce.agenda import agenda, reproduce
from rankbench.reproduce.agreement import agreements, measurements
from rankbench.reproduce.catalogue import paper_tables, selected_names
from rankbench.reproduce.counts import counts, off_cells
from rankbench.reproduce.engine import BudgetedRun, claims_folder, run_alone, run_within_budget
from rankbench.reproduce.evidence import Evidence
from rankbench.reproduce.ledger_records import StoredFit, StoredStudy
from rankbench.reproduce.options import ReproduceOptions
from rankbench.reproduce.required_fits import metrics_for, required_fits, rows_of
from rankbench.reproduce.results import as_json, study_columns, table_columns
from rankbench.reproduce.schedule import tasks
from rankbench.reproduce.simulations import SIMULATIONS, simulate, study_tables
from rankbench.tracking.mlflow_sink import MlflowSink
from rankbench.tracking.record import write_record
from rankbench.tracking.spool import Spool, SweepEnd

from .stored import fitted, stored

CLUSTER = SimpleNamespace(cpus=1, gpus=0, local=True)


def measure(fit, evidence, environment, tables):
    """Run a wanted fit in this process and add it to the evidence."""
    outcome, line = fitted(fit, environment, tables)
    evidence.add(line)
    return outcome


def test_words_name_papers_and_tables():
    names = ["toy/1", "toy/2", "talos/3.1"]
    assert selected_names([], names) == set(names)
    assert selected_names(["TOY"], names) == {"toy/1", "toy/2"}
    assert selected_names(["toy/2", "talos/3.1"], names) == {"toy/2", "talos/3.1"}
    with pytest.raises(ConfigError, match=r"talos/3\.2: no paper or table.*did you mean talos/3\.1"):
        selected_names(["talos/3.2"], names)


def test_printed_optima_come_first_and_one_fit_serves_several_tables(home):
    plan = agenda(ReproduceOptions(["toy"]), home)
    assert [task.stage for task in plan.tasks] == ["printed", "printed", "as published", "search", "search"]
    ease = next(task for task in plan.tasks if task.labels == "EASE" and task.stage == "printed")
    assert (ease.tables, ease.n_cells) == ("toy/1, toy/2", 3)
    assert {task.labels for task in plan.tasks if task.stage == "search"} == {"EASE", "EDLAE"}


def test_a_dry_run_prepares_and_writes_nothing(home, tmp_path):
    def files():
        return {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}

    before = files()
    made_up = agenda(ReproduceOptions(["toy"]), home, read_only=True).tasks
    assert files() == before
    prepared = agenda(ReproduceOptions(["toy"]), home).tasks
    before = files()
    known = agenda(ReproduceOptions(["toy"]), home, read_only=True).tasks
    assert files() == before
    assert {task.key for task in made_up} == {task.key for task in prepared} == {task.key for task in known}
    assert [task.seconds for task in known] == pytest.approx([task.seconds for task in prepared], rel=0.5)
    assert all(task.seconds > 0 for task in made_up)


def test_rows_of_one_label_and_table_have_a_search_per_metric(home):
    """A table whose columns are cutoffs has a file for each, which choose by other metrics: one search is not the other."""
    (home.home / "experiments" / "toy_table1_recall.yaml").write_text(
        """\
name: toy-table1-recall
published: {paper: Toy, table: 1, recall: recall}
base: toy_table1.yaml
arms: [{name: EDLAE, published: {synthetic: {recall@50: 0.3}}}]
search: {choose: {metric: recall@50}}
cutoffs: [20, 50]
"""
    )
    searches = agenda(ReproduceOptions(["toy/1"], stages=["search"], rows=["EDLAE"]), home).tasks
    assert [task.searched[0].table.spec.search.choose.metric for task in searches] == ["ndcg@20", "recall@50"]
    assert len({task.key for task in searches}) == 2


def test_a_search_of_rows_of_several_tables_is_found_by_the_label_of_each_and_has_the_most_draws(home):
    (home.home / "experiments" / "toy_table0.yaml").write_text(
        """\
name: toy-table0
published: {paper: Toy, table: 0, recall: recall}
base: toy_table1.yaml
arms: [{name: My EDLAE, like: EDLAE, published: {synthetic: {recall@20: 0.3}}}]
search: {trials: 2, choose: {metric: ndcg@20}}
"""
    )
    (task,) = agenda(ReproduceOptions(["toy"], stages=["search"], rows=["My EDLAE"]), home).tasks
    assert (task.labels, task.tables, task.n_cells) == ("EDLAE, My EDLAE", "toy/1, toy/0", 2)
    assert [row.table.spec.search.trials for row in task.searched] == [3, 2]


def test_fits_share_a_gpu_where_the_method_can_use_one(home):
    tasks = agenda(ReproduceOptions(["toy"], stages=["printed"], device="cuda", gpus=0.25), home).tasks
    assert {task.labels: task.unit.gpus for task in tasks} == {"EASE": 0.25, "Popularity": 0}
    assert agenda(ReproduceOptions(["toy"], device="cuda"), home).on_gpu and not agenda(ReproduceOptions(["toy"]), home).on_gpu
    assert all(task.unit.gpus == 0 for task in agenda(ReproduceOptions(["toy"], stages=["printed"], device="cpu"), home).tasks)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"alone": True, "device": "cuda"}, "--alone measures seconds of processors; leave out --device cuda"),
        ({"alone": True, "address": "auto"}, "--alone measures this machine; leave out --address"),
        ({"search_budget": "0s"}, "--search-budget 0s leaves a search no time; give it more"),
    ],
)
def test_options_that_cannot_work_are_refused(home, given, message):
    with pytest.raises(ConfigError, match=message):
        agenda(ReproduceOptions(["toy"], **given), home)


def test_stages_and_rows_narrow_the_tasks(home):
    assert [task.stage for task in agenda(ReproduceOptions(["toy"], stages=["search", "as published"]), home).tasks] == [
        "as published", "search", "search"
    ]  # fmt: skip
    named = agenda(ReproduceOptions(["toy"], rows=["EDLAE", "Popularity"]), home)
    assert {task.labels for task in named.tasks} == {"EDLAE", "Popularity"}
    plan = agenda(ReproduceOptions(["toy"], stages=["search"], rows=["EDLAE"]), home)
    assert [task.labels for task in plan.tasks] == ["EDLAE"]
    assert {row.arm.label for row in plan.named_rows} == {"EDLAE"} < {row.arm.label for row in plan.rows}
    assert replace(plan, options=ReproduceOptions(["toy"])).named_rows == plan.rows
    with pytest.raises(ConfigError, match="--stages: no stage is called 'seedz'; did you mean seeds"):
        agenda(ReproduceOptions(["toy"], stages=["seedz"]), home)
    with pytest.raises(ConfigError, match="--rows: no selected table has a row 'EDLEA'; did you mean EDLAE"):
        agenda(ReproduceOptions(["toy"], rows=["EDLEA"]), home)


def test_what_another_command_has_measured_since_is_not_fitted_again(home, monkeypatch):
    """It was planned before, and the claim on it is free again."""
    plan = agenda(ReproduceOptions(["toy"], stages=["printed"]), home)
    fits = [fit for task in plan.tasks for fit in task.fits]
    ran = []
    monkeypatch.setattr("rankbench.reproduce.engine._fit", lambda batch, *rest: ran.extend(task.labels for task in batch))
    measure(next(fit for fit in fits if fit.config.method == "ease"), Evidence(plan.evidence.folder), home, paper_tables(home))
    assert run_within_budget(lambda: plan.tasks, BudgetedRun(plan.evidence, home, CLUSTER))
    assert ran == ["Popularity"]


def test_the_tests_at_the_end_are_of_what_other_commands_have_measured_too(home, monkeypatch):
    place, tested = "rankbench.reproduce.agenda.", []
    plan = agenda(ReproduceOptions(["toy"]), home)

    def other_command(tasks_left, budgeted):
        fit = next(fit for task in plan.tasks for fit in task.fits)
        Evidence(plan.evidence.folder).add(stored(fit.rows[0], fit.config, {"recall@20": (0.2, 0.1, 0.3)}))
        return True

    monkeypatch.setattr(f"{place}MlflowSink", MagicMock())
    monkeypatch.setattr(f"{place}session", lambda *about, **more: nullcontext(CLUSTER))
    monkeypatch.setattr(f"{place}run_within_budget", other_command)
    for name in ("check_claims", "check_neighbours"):
        monkeypatch.setattr(
            f"{place}{name}", lambda tables, datasets, evidence, home: tested.append([*evidence.all(StoredFit)])
        )
    assert reproduce(plan, home).complete and [len(fits) for fits in tested] == [1, 1]


def test_a_call_that_is_aborted_is_not_shown_as_finished(home, monkeypatch):
    def interrupted(tasks_left, budgeted):
        raise KeyboardInterrupt

    place, plan = "rankbench.reproduce.agenda.", agenda(ReproduceOptions(["toy"]), home)
    monkeypatch.setattr(MlflowSink, "open", lambda sink: False)  # messages stay in the spool
    monkeypatch.setattr(f"{place}session", lambda *about, **more: nullcontext(CLUSTER))
    monkeypatch.setattr(f"{place}run_within_budget", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reproduce(plan, home)
    spool = Spool(home.results / "spool")
    (end,) = (message for message in map(spool.read, spool.waiting()) if isinstance(message, SweepEnd))
    assert end.interrupted and not end.ok


def test_what_another_command_runs_is_left_to_it(home, monkeypatch):
    plan = agenda(ReproduceOptions(["toy"], stages=["printed"]), home)
    ran = []
    monkeypatch.setattr("rankbench.reproduce.engine._fit", lambda batch, *rest: ran.extend(task.labels for task in batch))
    with Claims(claims_folder(home)) as claims:
        assert all(claims.take(*task.claims) for task in plan.tasks if task.labels == "EASE")
        assert not run_within_budget(lambda: plan.tasks, BudgetedRun(plan.evidence, home, CLUSTER))
    assert ran == ["Popularity"]


def test_a_measured_fit_is_not_wanted_again(home, evidence):
    tables = paper_tables(home)
    rows = list(rows_of(tables))
    fits = [fit for fit in required_fits(rows, evidence) if fit.config.method == "ease"]
    assert {fit.origin: fit.config.flat["lam"] for fit in fits} == {"printed": 10, "as published": 3}
    for fit in fits:
        measure(fit, evidence, home, tables)
    metrics = {"synthetic": metrics_for("synthetic", tables)}
    left = tasks(rows, [], Evidence(evidence.folder), home, metrics, 2)
    assert [task.stage for task in left] == ["printed", "search", "search"]
    assert [task.labels for task in left] == ["Popularity", "EDLAE", "EASE"]  # the search of a row without a number comes first
    found = [each for each in measurements(rows[0], evidence)]
    assert [each.origin for each in found] == ["printed", "as published"]
    assert {cell.metric for cell in found[0].cells} == {"recall@20", "ndcg@20"}


def test_a_further_seed_is_expected_to_take_as_long_as_the_first(home, evidence, toy):
    """The estimate of a sweep does not know when validation ends a fit."""
    tables = toy("arms: [{name: iALS, method: ials, params: {iterations: 2}, published: {synthetic: {recall@20: 0.3}}}]")
    before = agenda(ReproduceOptions(["toy/2"]), home).tasks
    assert before[0].seconds == before[1].seconds > 0
    measure(before[0].fits[0], evidence, home, tables)
    (stored,) = evidence.lines(StoredFit, "synthetic")
    evidence.add(replace(stored, seconds={"fit": 1234.0}, started_at=f"{stored.started_at} later"))
    left = agenda(ReproduceOptions(["toy/2"]), home).tasks
    assert [(task.stage, task.fits[0].seed, task.seconds) for task in left] == [("seeds", 1, 1234.0), ("seeds", 2, 1234.0)]


def test_a_published_metric_without_a_cutoff_is_measured(home, evidence, toy):
    tables = toy("arms: [{name: Popularity, method: popularity, published: {synthetic: {auc: 0.7}}}]")
    (row,) = rows_of(tables)
    (fit,) = required_fits([row], evidence)
    measure(fit, evidence, home, tables)
    (standing,) = measurements(row, evidence)
    assert [(cell.metric, cell.published) for cell in standing.cells] == [("auc", 0.7)] and 0.5 < standing.cells[0].mean < 1


def test_what_another_machine_measured_is_fitted_again_if_that_stage_is_named(home, evidence):
    tables = paper_tables(home)
    fits = [fit for fit in required_fits(rows_of(tables), evidence) if fit.config.method == "ease"]
    elsewhere, here = (measure(fit, evidence, home, tables) for fit in fits)
    write_record(home.results / "runs", here.record, here.per_user)
    assert all(task.stage != "again" for task in agenda(ReproduceOptions(["toy"]), home).tasks)
    (task,) = agenda(ReproduceOptions(["toy"], stages=["again"]), home).tasks
    assert task.stage == "again" and [fit.origin for fit in task.fits] == ["printed"]
    write_record(home.results / "runs", elsewhere.record, elsewhere.per_user)
    assert not agenda(ReproduceOptions(["toy"], stages=["again"]), home).tasks


def test_a_run_of_another_command_is_taken_over(home, evidence):
    tables = paper_tables(home)
    (fit,) = [fit for fit in required_fits(rows_of(tables), evidence) if fit.config.method == "popularity"]
    outcome, _ = fitted(fit, home, tables)
    # Nobody knows the code of the first, and the method does not have the parameter of the second any more.
    for number, (revision, params, adopted) in enumerate((("abc+changes", {}, 0), ("abc", {"gone": 1}, 0), ("abc", {}, 1))):
        about = {"id": f"run-{number}", "environment": {"revision": revision}, "params": outcome.record.params | params}
        record = replace(outcome.record, **about)
        write_record(home.results / "runs", record, outcome.per_user)
        plan = agenda(ReproduceOptions(["toy"]), home, read_only=not adopted)
        assert plan.adopted == adopted
    assert all(task.labels != "Popularity" for task in plan.tasks)


def test_cells_are_counted_with_those_that_cannot_be_measured(home, evidence):
    tables = paper_tables(home)
    before = counts(tables, {"toy/1", "toy/2"}, evidence, home)
    assert (before["toy/1"].published, before["toy/1"].data_here, before["toy/1"].measured) == (5, 5, 0)
    for fit in required_fits(rows_of(tables), evidence):
        measure(fit, evidence, home, tables)
    after = counts(tables, {"toy/1", "toy/2"}, evidence, home)
    assert (after["toy/1"].measured, after["toy/1"].on_test) == (3, 2)  # EDLAE waits for its search
    assert after["toy/2"].measured == 1 and after["all"].measured == 4


@pytest.mark.parametrize(
    ("mean", "low", "high", "state"),
    [
        (0.25, 0.19, 0.26, "within the interval"),
        (0.2019, 0.201, 0.203, "within 1 %"),
        (0.205, 0.204, 0.206, "within 3 %"),
        (0.207, 0.206, 0.208, "off"),
        (0.2005, None, None, "within 1 %"),
    ],
)
def test_a_cell_is_judged_by_its_interval_and_its_distance(mean, low, high, state):
    assert Agreement("recall@20", 0.2, mean, low, high).state == state


def test_a_published_zero_has_no_relative_difference(home, toy):
    (row,) = rows_of(toy("arms: [{name: Popularity, method: popularity, published: {synthetic: {recall@20: 0}}}]"))
    evidence = Evidence(home.results / "evidence")
    evidence.add(stored(row, row.setting("printed", evidence), {"recall@20": (0.1, 0.0, 0.2)}))
    (shown,) = as_json([row], [], evidence)["rows"]
    assert [(cell["relative"], cell["state"]) for cell in shown["cells"]] == [(None, "within the interval")]
    assert "inf" not in " ".join(table_columns([row], evidence)[1][0])


def test_equal_means_have_no_order():
    found = order_agreement("recall@20", [Agreement("recall@20", published, 0.2, None, None) for published in (0.1, 0.2, 0.3)])
    assert (found.tau, found.low, found.high) == (0, 0, 0)


@pytest.mark.parametrize("published", [(0.5, 0.3, 0.1), (0.1, 0.3, 0.5), (0.3, 0.5, 0.1)])
def test_the_order_of_rows_is_compared(measured, published):
    """With loops: the pairs of rows that the paper orders as the measured means do, minus the others, as a share of all."""
    table, evidence = measured
    rows = [replace(row, arm=row.arm.model_copy(update={"published": {"synthetic": {"recall@20": value}}}))
            for row, value in zip(rows_of([table]), published, strict=True)]  # fmt: skip
    means = [measurements(row, evidence)[0].cells[0].mean for row in rows]
    signs = [np.sign(published[i] - published[j]) * np.sign(means[i] - means[j]) for i in range(3) for j in range(i)]
    (found,) = agreements(rows, evidence)
    assert (found.metric, found.rows, found.tau) == ("recall@20", 3, pytest.approx(sum(signs) / 3))
    assert agreements(rows[:2], evidence) == [] and agreements(rows, Evidence(evidence.folder / "empty")) == []


def test_fits_on_two_splits_of_a_dataset_share_no_trial(home, evidence):
    tables = paper_tables(home)
    row = next(row for row in rows_of(tables) if row.arm.method == "ease")
    card = row.card.model_copy(update={"split": row.card.split.model_copy(update={"seed": 7})})
    other = replace(row, card=card)
    assert card.name == row.card.name and other.card_key != row.card_key
    metrics = {card.name: metrics_for(card.name, tables)}
    found = [task for task in tasks([row, other], [], evidence, home, metrics, 2) if task.fits]
    assert {fit.card_key for task in found for fit in task.fits} == {row.card_key, other.card_key}
    assert all(fit.card_key == task.unit.job.card.content_key()[:12] for task in found for fit in task.fits)


@pytest.fixture
def simulations(monkeypatch):
    """simulations(**changed) → a table that a quick study measures on built-in data, the only one that a study measures."""
    params = {"datasets": "synthetic", "list_lengths": "50", "trials": 20}
    inconsistency = next(each for each in SIMULATIONS if each.study == "metric-inconsistency")
    toy = replace(
        inconsistency, table="toy/3", datasets=("synthetic",), params=lambda dataset: params,
        published=lambda dataset: {("auc", "precision@20"): 30.0},
    )  # fmt: skip
    monkeypatch.setattr("rankbench.studies.metric_inconsistency.DATASETS", {"synthetic": "Beauty"})

    def only(**changed):
        found = replace(toy, **changed)
        for place in ("agenda", "simulations"):
            monkeypatch.setattr(f"rankbench.reproduce.{place}.SIMULATIONS", (found,))
        return found

    return only


def test_a_study_of_seconds_is_left_to_a_call_that_has_the_machine_and_runs_there_once(home, simulations):
    study = simulations(alone=True)
    plan = agenda(ReproduceOptions(["toy/3"], alone=True), home)
    assert not plan.tasks and [(each.simulation, each.dataset) for each in plan.studies] == [(study, "synthetic")]
    for studied in (1, 0):
        budgeted = BudgetedRun(plan.evidence, home, CLUSTER)
        assert run_alone((), plan.studies, budgeted) and budgeted.outcome.studied == studied
        (line,) = plan.evidence.lines(StoredStudy, "synthetic")
    plan.evidence._lines[StoredStudy, "synthetic"] = [replace(line, card="0" * 12)]  # the data have changed since
    assert run_alone((), plan.studies, budgeted) and budgeted.outcome.studied == 1


def test_a_study_is_wanted_until_it_was_run(home, evidence, simulations):
    simulations()
    (task,) = agenda(ReproduceOptions(["toy/3"]), home).tasks
    assert (task.stage, task.dataset, task.n_cells) == ("study", "synthetic", 1)
    (study,) = study_tables({"toy/3"}, home)
    assert not study.cells(evidence)
    simulate(study, evidence, home)
    assert not agenda(ReproduceOptions(["toy/3"]), home).tasks
    ((row, cell),) = study.cells(Evidence(evidence.folder))
    assert row == "auc" and 0 <= cell.mean <= 100 and study_columns(study, evidence)[1][0][2] == f"{cell.mean:.4g}"
    assert counts([], {"toy/3"}, evidence, home)["toy/3"].measured == 1


def test_what_a_study_measured_on_other_data_is_shown_nowhere(home, evidence, simulations):
    simulations()
    (study,) = study_tables({"toy/3"}, home)
    other = Evidence(home.results / "other")
    other.add(replace(simulate(study, evidence, home), card="0" * 12))  # as before the card was changed
    assert study_columns(study, other)[1][0][2] == "not measured yet" and as_json([], [study], other)["studies"] == []
    assert counts([], {"toy/3"}, other, home)["toy/3"].measured == 0 and off_cells([], {"toy/3"}, other, home) == []
    assert [task.stage for task in tasks([], [study], other, home, {}, 2)] == ["study"]
    assert not tasks([], [study], evidence, home, {}, 2)
