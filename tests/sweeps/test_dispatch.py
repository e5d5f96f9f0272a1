"""Trials of unequal needs side by side: nothing delays the head of the queue, and nothing idles in front of it."""

from collections import Counter

import hypothesis.strategies as st
from hypothesis import given, settings

from rankbench.cluster.machine import Machine, Needs, can_run_together, capacity
from rankbench.sweeps.trials.dispatch import Dispatch, Request

GB = 10**9
NODE = Machine(4, 8 * GB)
SMALL, WIDE = Needs(1, GB), Needs(4, GB, nodes=3)


def test_a_wide_trial_needs_its_processors_on_as_many_nodes():
    assert capacity(WIDE, [NODE] * 2) == 0
    assert capacity(WIDE, [NODE] * 4) == 1
    assert capacity(WIDE, [NODE] * 6) == 2
    assert can_run_together([WIDE, *[SMALL] * 4], [NODE] * 4)
    assert not can_run_together([WIDE, *[SMALL] * 5], [NODE] * 4)
    # The trial itself takes its memory beside the blocks of one node.
    assert capacity(Needs(4, 7 * GB, nodes=2), [NODE] * 2) == 0


def test_a_trial_that_fits_beside_a_waiting_wide_one_and_ends_before_it_starts_goes_first():
    dispatch = Dispatch([NODE] * 3)
    dispatch.start("a", Request(SMALL, 100.0), now=0.0)
    long, short = Request(SMALL, 200.0), Request(SMALL, 90.0)
    assert dispatch.choose([Request(WIDE, 50.0), long], now=0.0) is None
    assert dispatch.choose([Request(WIDE, 50.0), long, short], now=0.0) == 2
    dispatch.start("b", short, now=0.0)
    dispatch.end("a")
    dispatch.end("b")
    assert dispatch.choose([Request(WIDE, 50.0), long], now=1.0) == 0


def test_a_trial_on_processors_that_the_wide_one_leaves_free_may_take_any_time():
    dispatch = Dispatch([NODE] * 4)
    dispatch.start("first", Request(WIDE, 100.0), now=0.0)
    assert dispatch.choose([Request(WIDE, 50.0), Request(SMALL, 1e6)], now=0.0) == 1


def test_no_more_trials_than_the_limit():
    dispatch = Dispatch([NODE], limit=1)
    dispatch.start("a", Request(SMALL, 1.0), now=0.0)
    assert dispatch.choose([Request(SMALL, 1.0)], now=0.0) is None


def test_a_node_that_joins_is_used_and_a_trial_larger_than_the_rest_of_a_cluster_is_left_to_ray():
    dispatch = Dispatch([Machine(1, 2 * GB)])
    dispatch.start("a", Request(SMALL, 1.0), now=0.0)
    assert dispatch.choose([Request(SMALL, 1.0)], now=0.0) is None
    dispatch.machines = [Machine(1, 2 * GB)] * 2
    assert dispatch.choose([Request(SMALL, 1.0)], now=0.0) == 0
    assert Dispatch([Machine(1, 2 * GB)]).choose([Request(WIDE, 1.0)], now=0.0) == 0


def test_a_trial_that_no_living_node_can_take_holds_no_other_back():
    small = Machine(1, 2 * GB)
    dispatch, large = Dispatch([small]), Request(Needs(1, 8 * GB), 1.0)
    assert dispatch.choose([large, Request(SMALL, 1.0)], now=0.0) == 1 and dispatch.unable == large.needs
    dispatch.start("a", Request(SMALL, 1.0), now=0.0)
    assert dispatch.choose([large], now=0.0) is None
    dispatch.end("a")
    assert dispatch.choose([large], now=2.0) == 0  # Ray waits for a machine, and says so
    dispatch.start("large", large, now=2.0)
    assert dispatch.choose([Request(SMALL, 1.0)], now=2.0) == 0


def test_a_trial_that_runs_longer_than_estimated_no_longer_holds_the_others_back():
    dispatch = Dispatch([NODE] * 4)
    for name, cpus, seconds in (("a", 4, 10.0), ("b", 2, 20.0), ("c", 4, 30.0)):
        dispatch.start(name, Request(Needs(cpus, GB), seconds), now=0.0)
    queue = [Request(WIDE, 50.0), Request(SMALL, 100.0)]
    assert dispatch.choose(queue, now=5.0) is None  # the wide one may start at 20 on the nodes of a and b, and a free one
    assert dispatch.choose(queue, now=25.0) is None  # a and b may end at any moment, c at 30
    assert dispatch.choose(queue, now=31.0) == 1  # any of the three may end first, so the wide one leaves a node free


def placed_one_by_one(tasks, machines):
    """The definition: the largest bundle first, each on the first node that has room."""
    free = [{"CPU": float(each.cpus), "memory": float(each.memory_bytes), "GPU": float(each.gpus)} for each in machines]
    bundles = [bundle for needs in tasks for bundle in needs.bundles]
    for bundle in sorted(bundles, key=lambda each: [each.get(name, 0.0) for name in ("GPU", "CPU", "memory")], reverse=True):
        place = next((each for each in free if all(each[name] + 1e-9 >= n for name, n in bundle.items())), None)
        if place is None:
            return False
        for name, n in bundle.items():
            place[name] -= n
    return True


kinds = st.builds(Needs, st.integers(0, 4), st.sampled_from([0, GB // 3, GB, 2 * GB]), st.sampled_from([0, 0, 0.1, 0.25, 1]))
wide_kinds = st.builds(Needs, st.integers(1, 4), st.just(GB), nodes=st.integers(2, 3))
nodes = st.lists(st.builds(Machine, st.integers(1, 8), st.sampled_from([GB, 4 * GB, 9 * GB]), st.integers(0, 2)), max_size=5)


@given(st.lists(st.tuples(kinds | wide_kinds, st.integers(1, 12)), max_size=5), nodes)
def test_equal_tasks_are_placed_at_once_as_one_by_one(tasks, machines):
    tasks = [needs for needs, n in tasks for _ in range(n)]
    assert can_run_together(tasks, machines) == can_run_together(Counter(tasks), machines) == placed_one_by_one(tasks, machines)


trials = st.lists(st.tuples(st.sampled_from([SMALL, Needs(2, 3 * GB), WIDE]), st.integers(1, 20)), min_size=1, max_size=25)


@settings(deadline=None, max_examples=60)
@given(trials)
def test_every_trial_runs_within_the_machines_and_the_head_is_never_overtaken_to_its_cost(pairs):
    """A clock that ticks to the next end: with exact estimates a head never starts later than predicted when it became head."""
    machines, dispatch = [NODE] * 4, Dispatch([NODE] * 4)
    queue = sorted((Request(needs, float(seconds)) for needs, seconds in pairs), key=lambda each: each.needs.all_cpus)[::-1]
    now, running, promised = 0.0, {}, {}
    while queue or running:
        while (position := dispatch.choose(queue, now)) is not None:
            trial = queue.pop(position)
            if position == 0:
                assert now <= promised.pop("head", now)
            name = f"{len(queue)}-{now}"
            dispatch.start(name, trial, now)
            running[name] = trial, now + trial.seconds
            assert can_run_together([each.needs for each, _ in running.values()], machines)
        if queue:
            ends = [dispatch._running[name] for name in running]
            promised.setdefault("head", dispatch._start_of(queue[0].needs, ends, now))
        now = min(end for _, end in running.values())
        for name in [name for name, (_, end) in running.items() if end == now]:
            dispatch.end(name)
            del running[name]
