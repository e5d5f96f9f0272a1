"""The queue of planned units: their order, and how much work it is to find the next one among thousands."""

import random
from dataclasses import replace
from types import SimpleNamespace

import pytest

from rankbench.cluster.machine import Machine, can_run_together
from rankbench.core.environment import Environment
from rankbench.data.cards import load_card
from rankbench.experiment.job import Job, configure
from rankbench.schema.experiment import SearchSpec
from rankbench.sweeps.search.stage import Search
from rankbench.sweeps.store import SweepStore
from rankbench.sweeps.trials import dispatch as dispatching
from rankbench.sweeps.trials import queue as queueing
from rankbench.sweeps.trials.dispatch import Dispatch
from rankbench.sweeps.trials.group import Group
from rankbench.sweeps.trials.queue import Lineup, Queue
from rankbench.sweeps.units import Unit

GB = 10**9


@pytest.fixture
def unit():
    card = load_card("synthetic", Environment.from_env())
    return lambda arm="a": Unit(Job(card, (configure("bpr", {"embedding_dim": 8}, arm=arm),), stage="search"), 1, GB, 1.0)


@pytest.fixture
def group(tmp_path):
    def build(units, machines, scheduler="none", in_order=False):
        return Group(units, [], Search(SweepStore(tmp_path), SearchSpec(scheduler=scheduler)), Dispatch(machines), in_order)

    return build


@pytest.mark.parametrize("in_order", [False, True])
def test_a_round_places_each_needs_once_however_many_units_wait(unit, group, monkeypatch, in_order):
    """3,000 draws of epochs and embedding_dim, of which hardly two cost the same, on 20 nodes of 16 processors."""
    rng, one, placed = random.Random(0), unit(), []
    draws = [(rng.randrange(5, 200), rng.randrange(8, 257)) for _ in range(3000)]
    units = [replace(one, memory_bytes=300_000_000 + 4_000_000 * dim, cost=0.01 * epochs * dim) for epochs, dim in draws]
    assert len({(each.needs, each.cost) for each in units}) > 2800
    built = group(units, [Machine(16, 16 * GB)] * 20, in_order=in_order)
    n_needs = len({built.needs(each) for each in units})
    assert n_needs == 5

    def place(*arguments):
        placed.append(arguments)
        return can_run_together(*arguments)

    monkeypatch.setattr(dispatching, "can_run_together", place)
    monkeypatch.setattr(queueing, "time", SimpleNamespace(monotonic=lambda: 0.0))
    queue, running, most = Queue(built, lambda *_: None), [], 0
    for n in range(400):
        placed.clear()
        config = queue.suggest(f"trial-{n}")
        most = max(most, len(placed))
        if config is not None:
            running.append(f"trial-{n}")
            continue
        placed.clear()
        assert queue.suggest("poll") is None and not placed  # nothing has changed
        queue.on_trial_complete(running.pop(rng.randrange(len(running))))
    assert len(running) > 200
    # Beside the running trials, the head once now and once or a few times later, and the others once.
    assert most <= 2 * n_needs


def test_of_an_arm_whose_trials_are_compared_only_the_first_unit_may_start(unit, group):
    costs = [("a", 1.0), ("b", 2.0), ("a", 9.0), ("b", 1.0), ("c", 1.0)]
    lineup = Lineup(group([replace(unit(arm), cost=cost) for arm, cost in costs], [Machine(8, 8 * GB)], scheduler="asha"))
    shown = []
    while candidates := lineup.candidates():
        shown.append([each.position for each in candidates])
        lineup.take(0)
    assert shown == [[1, 0, 4], [0, 3, 4], [2, 3, 4], [3, 4], [4]]


def test_a_wide_unit_whose_nodes_are_gone_takes_fewer_and_its_place_among_the_others(unit, group):
    units = [replace(unit(), cpus=3, nodes=2), replace(unit(), cpus=4)]
    built = group(units, [Machine(4, 8 * GB)] * 2)
    lineup = Lineup(built)
    assert [(each.position, each.request.needs.nodes) for each in lineup.candidates()] == [(0, 2), (1, 1)]
    built.dispatch.machines = built.dispatch.machines[:1]
    assert [(each.position, each.request.needs.nodes) for each in lineup.candidates()] == [(1, 1), (0, 1)]
