"""What a report says of how a sweep differs from the protocol, of rows left out, and of how its settings were found."""

from dataclasses import replace

import pytest

from rankbench.core.config import validate
from rankbench.judge.printing import listed
from rankbench.reports.deviations import data_deviations, interval_notes, left_out, mixed_conditions, protocol_deviations
from rankbench.reports.report import sweep_table, write_report
from rankbench.reports.rows import ReportRow
from rankbench.schema.experiment import ExperimentSpec, NotRun


def test_rows_left_out_for_one_reason_are_one_sentence():
    reasons = {"SL, LightGCN": "left out by --arms", "Graph net": "a network", "SL, XSimGCL": "left out by --arms"}
    assert left_out([NotRun(name=name, why=why, published={}) for name, why in reasons.items()]) == [
        "not run: SL, LightGCN; SL, XSimGCL: left out by --arms", "not run: Graph net: a network",
    ]  # fmt: skip
    assert left_out([]) == []


def test_dropped_rows_are_counted(make_run):
    def deviations(dropped):
        counts = {"users": 5, "dropped_missing": dropped}
        return data_deviations([make_run("final", arm, 0.1, data={"counts": counts}) for arm in ("EASE", "iALS")])

    assert deviations(1200) == ("x: 1,200 rows of the raw files had no user, item, value or time, and were dropped",)
    assert deviations(0) == ()


def test_the_page_has_a_section_of_deviations_and_none_of_them_among_the_notes(make_run, make_sweep, tmp_path):
    data = {"differences": ["prepared items: 9, published 10 (-1)"], "recall": "open", "stand_in": "x for y"}
    searched = [make_run("search", "A", 0.1, params={"lam": lam}) for lam in (1, 2)]
    data["counts"] = searched[0].dataset.counts | {"cold_test_items": 3}
    finals = [make_run("final", "C", 0.2, params={"lam": 5}, data=data)]
    failed = [make_run("final", arm, 0.2, status="failed", error="?", metrics={}) for arm in "AB"]
    sweep = make_sweep([*searched, *failed, *finals], {"A": {}, "B": {}, "C": {}}, params={"lam": 1})
    table = sweep_table(sweep)
    assert table.deviations == (
        "x: prepared items: 9, published 10 (-1)",
        "x is a stand-in, so that published numbers, which belong to other data, are left out: x for y",
        "x: 3 test items do not occur in the fitted data; they are ranked with the others",
        "no setting was searched: the experiment file gives each",
        "seed 0, split of seed 0; one run per row, so there is no spread over seeds",
        "failed: A on x, B on x",
    )
    text = write_report(tmp_path, sweep)[0].read_text()
    section = text.split("## Deviations from the papers' protocol")[1].split("\n## ")[0]
    assert all(f"- {line}" in section for line in table.deviations) and "## Budget" in text
    assert "stand-in" not in text.split("## Notes")[1].split("\n## ")[0]


def test_intervals_that_tell_nothing_are_notes_of_the_table(make_run, make_sweep):
    def final(arm, **more):
        return make_run("final", arm, 0.1, data={"counts": {"items": 500}}, **({"users": {"measured": 9}} | more))

    finals = [final("EASE", half=0), final("iALS", half=0), final("SL"), final("EASE", dataset="y", users={"measured": 1})]
    flat = "x: all 9 users have the same ndcg@20, so an interval of no width is no sign of precision (EASE, iALS)"
    one = "y: only one user was measured, so no interval or test says anything about other users (EASE)"
    assert interval_notes(finals, ("ndcg@20",)) == [flat, one]
    assert interval_notes(finals[:3], ("recall@20",)) == []
    assert {flat, one} <= set(sweep_table(make_sweep(finals, {"EASE": {}, "iALS": {}, "SL": {}}, "xy")).notes)


def test_runs_of_several_versions_of_the_code_and_seconds_of_several_machines_are_said(make_run, make_sweep):
    def made(stage, arm, code, cpu="c"):
        about = {"code": code, "machine": {"cpu": cpu, "cores": 2, "memory_bytes": 1e9}, "packages": {"torch": "2"}}
        return make_run(stage, arm, 0.1, environment=about)

    alike = [made("search", "A", "1"), made("final", "A", "1"), made("final", "B", "1")]
    assert mixed_conditions(alike, alike[1:]) == []
    mixed = [made("search", "A", "1"), made("final", "A", "2"), made("final", "B", "2", "d")]
    code, seconds = mixed_conditions(mixed, mixed[1:])
    assert "the runs are of 2 versions of rankbench's code" in code and seconds.endswith("c, torch 2: A; d, torch 2: B")
    assert {code, seconds} <= {*sweep_table(make_sweep(mixed, {"A": {}, "B": {}})).notes}


def test_lists_that_ids_decide_are_named(make_run):
    finals = [make_run("final", arm, 0.1, users={"measured": 500, "tied": tied}) for arm, tied in (("kNN", 5), ("SL", 4))]
    said = "x: kNN: the lists of 5 of 500 users end between items with equal scores, and those with lower ids are in"
    assert [line for line in data_deviations(finals) if "equal scores" in line] == [said]


ARMS = [
    {"name": "A", "method": "sl", "params": {"epochs": 12, "tau": {"choice": [0.1, 0.2]}}},
    {"name": "B", "method": "bpr", "params": {"epochs": 200}, "protocol": {"n_negatives": 1}},
    {"name": "C", "method": "ease"},
]
PROTOCOL = {"params": {"optimizer": "adam", "epochs": 200, "n_negatives": 100, "tau": 0.2}, "trials": 20}
TRAINED = {"optimizer": "adam", "epochs": 7, "n_negatives": 100, "tau": 0.1}


def deviations(rows, arms=ARMS, protocol=PROTOCOL):
    """Deviations of rows, given as name → (number of settings tried, parameters)."""
    content = {"name": "x", "datasets": ["synthetic"], "arms": arms, "protocol": protocol}
    made = [
        replace(ReportRow("synthetic", name, "sl", params, {}, {}, 1, 0.0, 0), chosen_of=tried)
        for name, (tried, params) in rows.items()
    ]
    return protocol_deviations(validate(ExperimentSpec, content, "x.yaml"), made)


def test_a_run_as_in_the_paper_deviates_in_nothing_and_so_does_one_without_a_protocol():
    rows = {"A": (20, TRAINED), "B": (20, TRAINED | {"n_negatives": 1, "tau": 0.2}), "C": (20, {"lam": 3})}
    asked = [ARMS[0] | {"params": ARMS[0]["params"] | {"epochs": 200}}, *ARMS[1:]]
    assert deviations(rows, asked) == [] == deviations({"A": (1, TRAINED)}, protocol={})


def test_every_difference_is_named_with_both_values_and_the_arms():
    other = TRAINED | {"optimizer": "row-adam"}
    assert deviations({"A": (3, other), "B": (4, other), "C": (5, {"lam": 3})}) == [
        "all arms with this parameter: optimizer row-adam, where the paper has adam",
        "A: epochs 12, where the paper has 200",
        "B: n_negatives 100, where the paper has 1",
        "B: tau 0.1, where the paper has 0.2",
        "all arms: 3 to 5 settings tried, where the paper tries 20",
    ]


def test_what_the_paper_does_not_say_of_an_arm_is_no_difference():
    told = deviations({"A": (20, TRAINED)}, [ARMS[0] | {"protocol": {"epochs": None, "tau": None}}])
    assert told == []


def test_a_searched_value_differs_if_the_range_lacks_the_papers_or_nothing_was_searched():
    arms = [ARMS[0] | {"params": {"tau": range_}} for range_ in ({"choice": [0.1, 0.3]}, {"loguniform": [0.1, 0.3]})]
    row, told = TRAINED | {"epochs": 200}, ["A: tau 0.1, where the paper has 0.2"]
    assert [deviations({"A": (20, row)}, [arm]) for arm in arms] == [told, []]
    assert deviations({"A": (1, row)}, arms[1:])[:1] == told


def test_rows_are_told_apart_where_their_names_contain_commas():
    arms = [{"name": "A, MF", "method": "sl"}, {"name": "B, MF", "method": "bpr"}, ARMS[2]]
    told = deviations({"A, MF": (20, TRAINED), "B, MF": (20, TRAINED), "C": (20, {"lam": 3})}, arms)
    assert "all arms with this parameter: epochs 7, where the paper has 200" in told
    assert listed(["A, MF", "C"]) == "A, MF; C" and listed(["A", "C"]) == "A, C" and listed(["A, MF"]) == "A, MF"


@pytest.fixture
def conclusion(make_run, make_sweep):
    """conclusion(params, **changes of the sweep) → the sentences of a sweep of A and B."""

    def make(params, **more):
        runs = [make_run("final", arm, 0.3, dataset, params={"lam": 10.0}) for dataset in "xy" for arm in "AB"]
        return sweep_table(make_sweep(runs, {"A": {}, "B": {}}, "xy", params=params, **more)).conclusions.sentences

    return make


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({}, ["Every model: defaults, nothing searched."]),
        ({"lam": 10.0}, ["Every model: settings as given, nothing searched."]),
        ({"lam": {"grid": [1, 10]}}, []),
    ],
)
def test_what_was_not_searched_is_said(conclusion, params, sentence):
    assert [each for each in conclusion(params) if "nothing searched" in each] == sentence


def test_a_model_without_parameters_has_nothing_to_search(make_run, make_sweep):
    runs = [make_run("final", "A", 0.3), make_run("final", "B", 0.3, params={"lam": 10.0})]
    assert "B: defaults, nothing searched." in sweep_table(make_sweep(runs, {"A": {}, "B": {}})).conclusions.sentences


def test_a_value_at_the_end_of_its_range_is_said_with_the_range(conclusion):
    grid = {"lam": {"grid": [1, 1000]}}
    assert any(
        each.startswith("A: lam is at the end of its range (1 to 1000) on x and y; B: lam is at the end of its range")
        and each.endswith("search.extend=true goes on.")
        for each in conclusion(grid, chosen={"ends": {"lam": [1, 1000]}})
    )
    search = {"search": {"choose": {"metric": "ndcg@20", "on": "valid"}, "extend": True}}
    extended = " ".join(conclusion(grid, experiment=search, chosen={"ends": {"lam": [1, 1e6]}}))
    assert "(1 to 1e+06) on x and y." in extended and "extend=true" not in extended
