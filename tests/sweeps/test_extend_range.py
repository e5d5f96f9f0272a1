"""A search goes on beyond a range where its best value is the last one."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from rankbench.cluster.machine import Machine
from rankbench.schema.experiment import ArmSpec, ExperimentSpec
from rankbench.schema.stored_sweep import read_sweep
from rankbench.sweeps.dry_run import dry_run
from rankbench.sweeps.options import SweepOptions
from rankbench.sweeps.request import SweepRequest
from rankbench.sweeps.search.extend_range import edges, ends_of, one_step_beyond, settings_beyond
from rankbench.sweeps.sweep import Listener, run_sweep

DATA = {"name": "synthetic", "source": {"generator": {"users": 200, "items": 80, "interactions_per_user": 12}}}


def arm(**space):
    return ArmSpec(method="ease", params={"lam": space})


def tried(*values):
    return [{"lam": value} for value in values]


@pytest.mark.parametrize(
    ("values", "best", "following"),
    [
        ([1, 10, 100], 100, 1000),  # even by the ratio
        ([0.1, 0.01, 0.001], 0.001, 0.0001),
        ([10, 20, 30], 30, 40),  # even by the difference
        ([0, 5, 10], 10, 20),
        ([0.05, 0.1, 0.15], 0.05, 0.025),  # the next value would be 0
    ],
)
def test_the_next_value_continues_the_range(values, best, following):
    one = arm(choice=values)
    assert [*edges(one, {"lam": best}, tried(*values))] == ["lam"]
    assert one_step_beyond(one, {"lam": best}, tried(*values)) == [{"lam": pytest.approx(following)}]


def test_the_upper_end_of_randint_is_not_drawn_so_that_the_value_below_it_is_the_edge():
    one = ArmSpec(method="ials", params={"iterations": {"randint": [4, 9]}})
    drawn = [{"iterations": value} for value in range(4, 9)]
    assert [edges(one, {"iterations": best}, drawn) for best in (4, 6, 8)] == [{"iterations": 3}, {}, {"iterations": 9}]
    assert one_step_beyond(one, {"iterations": 8}, drawn) == [{"iterations": 9}]
    wide = ArmSpec(method="ials", params={"embedding_dim": {"randint": [16, 513]}})
    drawn = [{"embedding_dim": value} for value in (30, 200, 509)]
    assert [edges(wide, each, drawn) for each in drawn] == [{"embedding_dim": 2}, {}, {"embedding_dim": 636}]


@pytest.mark.parametrize(
    ("values", "best", "following"), [([0.5, 0.7], 0.7, 0.9), ([0.7, 0.9], 0.9, 0.95), ([0.1, 0.9], 0.9, None)]
)
def test_near_a_bound_of_the_method_a_part_of_the_step_is_tried(values, best, following):
    margin = ArmSpec(method="edlae", params={"lam": 1, "p": {"choice": values}})
    found = one_step_beyond(margin, {"lam": 1, "p": best}, [{"lam": 1, "p": value} for value in values])
    assert found == ([] if following is None else [{"lam": 1, "p": pytest.approx(following)}])


@pytest.mark.parametrize(
    ("space", "best"),
    [
        ({"grid": [1, 10, 100]}, 10),  # inside
        ({"grid": [0, 10]}, 0),  # the method accepts nothing below it
        ({"loguniform": [1, 100]}, 60.0),  # not near the end
    ],
)
def test_what_is_no_edge(space, best):
    assert edges(arm(**space), {"lam": best}, tried(*space.get("grid", (2.0, 60.0)))) == {}


@pytest.mark.parametrize(
    ("space", "best", "bounds", "following"),
    [
        ({"loguniform": [1, 10_000]}, 9_000.0, (1, 10_000), 100_000),  # a quarter of its decades
        ({"loguniform": [1, 10_000]}, 1.2, (1, 10_000), 0.1),
        ({"uniform": [1, 5]}, 4.9, (1, 5), 6),
        ({"uniform": [1, 5]}, 4.0, None, None),
        ({"grid": [1, 10]}, 10, (1, 10), 100),
    ],
)
def test_a_sweep_takes_a_draw_near_the_end_for_the_end(space, best, bounds, following):
    spec = ExperimentSpec(name="q", datasets=["x"], arms=[arm(**space)])
    record = SimpleNamespace(arm="ease", label="ease", params={"lam": best}, dataset=SimpleNamespace(name="x"))
    others = [SimpleNamespace(arm="ease", params={"lam": value}, dataset=record.dataset) for value in (2.5, 0, None)]
    elsewhere = SimpleNamespace(arm="ease", params={"lam": 1e9}, dataset=SimpleNamespace(name="y"))
    search = [record, *(others if "loguniform" in space else []), elsewhere]
    found = ends_of(spec, record, search)
    assert bool(found) == (bounds is not None)
    assert [each.flat["lam"] for each in settings_beyond(spec, record, search)] == ([following] if following else [])
    if found and "loguniform" not in space:  # a default of 0 is no end of a logarithmic range
        assert found == {"lam": bounds}


def test_a_sweep_goes_beyond_its_range_and_says_where_it_ended(environment, at_once):
    arms = [arm(grid=[0.01, 0.1]), ArmSpec(method="popularity")]
    search = {"extend": True, "choose": {"metric": "ndcg@10"}}
    spec = ExperimentSpec(name="q", datasets=[DATA], arms=arms, search=search)
    stages, warned = [], []
    listener = Listener(stage=lambda progress: stages.append((progress.stage, progress.of)), warn=warned.append)
    request = SweepRequest(spec, "here", environment, SweepOptions(fresh=True))
    folder, failed = run_sweep(request, listener)
    stored = read_sweep(folder)
    tried = sorted(
        record.params["lam"] for record in stored.records.values() if record.arm == "ease" and record.stage == "search"
    )
    (row,) = [row for row in stored.chosen.rows if row.arm == "ease"]
    assert not failed and stages[0] == ("search", 3) and stages[-2] == ("final", 2)
    assert stages[1:-2] == [("extend", 1)] * 3 and tried == [0.01, 0.1, 1, 10, 100]
    assert row.seeded is False and row.ends == {"lam": (0.01, 100)} and stored.records[row.final[0]].params["lam"] == 100
    assert not warned
    # Nothing is left, the final run of what was found beyond the range included.
    assert dry_run(request.plan(), environment, [Machine(1, 4 << 30)], folder, fresh=True).stages == ()


def test_a_step_that_no_machine_can_run_is_left_out_and_named(environment, at_once, monkeypatch):
    small = SimpleNamespace(cpus=1, machines=(Machine(1, 10**8),))
    monkeypatch.setattr("rankbench.cluster.session.session", lambda *_, **__: nullcontext(small))
    search = {"extend": True, "choose": {"metric": "ndcg@10"}}
    spec = ExperimentSpec(name="q", datasets=[DATA], arms=[arm(grid=[0.01, 0.1])], search=search)
    warned = []
    folder, failed = run_sweep(SweepRequest(spec, "here", environment, SweepOptions(fresh=True)), Listener(warn=warned.append))
    needs = "which needs 1 CPU and 1.0 GB"
    assert warned == [f"search.extend: synthetic: ease: no machine can run the step beyond the range, {needs}"]
    (row,) = read_sweep(folder).chosen.rows
    assert not failed and row.ends == {"lam": (0.01, 0.1)}
