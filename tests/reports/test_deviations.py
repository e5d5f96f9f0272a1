"""What a report says of rows left out and of a command that changed the file: a sentence for each, and none for none."""

from stored import typed

from rankbench.reports.deviations import changes, data_deviations, interval_notes, left_out
from rankbench.reports.report import sweep_table
from rankbench.schema.experiment import NotRun


def test_rows_left_out_for_one_reason_are_one_sentence():
    rows = [
        NotRun(name="SL, LightGCN", why="left out by --arms", published={}),
        NotRun(name="Graph net", why="a network of its own", published={}),
        NotRun(name="SL, XSimGCL", why="left out by --arms", published={}),
    ]
    assert left_out(rows) == [
        "not run: SL, LightGCN; SL, XSimGCL: left out by --arms",
        "not run: Graph net: a network of its own",
    ]
    assert left_out([]) == []


def test_what_a_command_changed_is_said():
    assert changes(("search.trials=2", "--arms '*, MF'")) == [
        "changed from the experiment file: search.trials=2 --arms '*, MF'"
    ]
    assert changes(()) == []


def test_dropped_rows_are_counted(make_run):
    counts = {"users": 5, "dropped_missing": 1200}
    finals = [make_run("final", "EASE", 0.1, data={"counts": counts}), make_run("final", "iALS", 0.2, data={"counts": counts})]
    assert data_deviations(finals) == ("x: 1,200 rows of the raw files had no user, item, value or time, and were dropped",)
    assert data_deviations([make_run("final", "EASE", 0.1, data={"counts": {"dropped_missing": 0}})]) == ()


def test_intervals_that_tell_nothing_are_notes_of_the_table(make_run, make_sweep):
    large = {"counts": {"items": 500}}
    finals = [
        make_run("final", "EASE", 0.1, half=0, users={"measured": 9}, data=large),
        make_run("final", "iALS", 0.2, half=0, users={"measured": 9}, data=large),
        make_run("final", "SL", 0.3, users={"measured": 9}, data=large),
        make_run("final", "EASE", 0.1, dataset="y", users={"measured": 1}),
    ]
    flat = "x: all 9 users have the same ndcg@20, so an interval of no width is no sign of precision (EASE, iALS)"
    one = "y: only one user was measured, so no interval or test says anything about other users (EASE)"
    assert interval_notes(finals, ("ndcg@20",)) == [flat, one]
    assert interval_notes(finals[:3], ("recall@20",)) == []
    table = sweep_table(*typed(*make_sweep(finals, {"EASE": {}, "iALS": {}, "SL": {}}, datasets=("x", "y"))))
    assert {flat, one} <= set(table.notes)
