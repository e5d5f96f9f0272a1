"""What a report says of rows left out and of a command that changed the file: a sentence for each, and none for none."""

from rankbench.reports.deviations import changes, left_out
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
