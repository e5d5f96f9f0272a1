"""The inverse by a flow of tasks: to the bit what one process makes, whatever is lost on the way."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from small_systems import SHIFT, some_data

from rankbench.core.errors import ClusterError, NumericalError
from rankbench.fitting.executors import Lost
from rankbench.fitting.method import Shift
from rankbench.solvers.tiled.flow import LOSSES
from rankbench.solvers.tiled.inverse import tiled_inverse

PLENTY = 10**9


class Here:
    """A flow in this process that does its work late, when somebody must know, and may lose everything at any call."""

    def __init__(self, workers: int = 2, room: int = PLENTY, loses: Callable[[], bool] = lambda: False):
        self.workers, self.room, self._loses = workers, room, loses
        self._tasks: list[Callable] = []
        self._values: dict[object, int] = {}
        self._made: list[np.ndarray | None] = []
        self.most = 0

    def put(self, value):
        return value

    def make(self, names, function, *arguments):
        self._fail()
        places = [self._place(name) for name in names]

        def task():
            for place, array in zip(places, function(*arguments), strict=True):
                self._made[place] = array

        self._tasks.append(task)

    def change(self, name, function, reads):
        self._fail()
        others, before = [self._values[other] for other in reads], self._values[name]
        after = self._place(name)

        def task():
            array = self._made[before].copy(order="K")
            for other in others:  # as in an object store
                self._made[other].flags.writeable = False
            function(array, *(self._made[other] for other in others))
            self._made[after] = array

        self._tasks.append(task)

    def use(self, name, function, *arguments):
        self._fail()
        place = self._values[name]
        self._tasks.append(lambda: function(self._made[place], *arguments))
        return len(self._tasks)

    def wait(self, tickets):
        self._fail()
        assert tickets
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task()
        self.most = max(self.most, len(self._values))

    def forget(self, names):
        for name in names:
            del self._values[name]

    def clear(self):
        self._tasks, self._values, self._made = [], {}, []

    def _place(self, name):
        self._made.append(None)
        self._values[name] = len(self._made) - 1
        return self._values[name]

    def _fail(self):
        if self._loses():
            raise Lost("a host died")


def whole(C):
    return C.columns(0, C.n)


@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 40), tile=st.integers(3, 20), kept=st.integers(0, 12), seed=st.integers(0, 2**32 - 1))
def test_a_flow_that_loses_its_arrays_gives_the_bits_of_one_process(tmp_path_factory, unflushed, n, tile, kept, seed):
    X, rng = some_data(2 * n + 3, n, seed=seed), np.random.default_rng(seed)
    alone = tiled_inverse(X, SHIFT, tmp_path_factory.mktemp("alone"), PLENTY, np.float64, tile=tile)
    left = [True] * (LOSSES - 1)
    flow = Here(room=2 * kept * 8 * min(n, tile) ** 2, loses=lambda: rng.random() < 0.02 and bool(left) and left.pop())
    found = tiled_inverse(X, SHIFT, tmp_path_factory.mktemp("flow"), PLENTY, np.float64, tile=tile, flow=flow)
    assert_array_equal(whole(found), whole(alone))


def test_it_holds_two_panels_and_what_it_was_told_to_keep(tmp_path, unflushed):
    n_blocks, kept = 10, 6
    flow = Here(room=2 * kept * 8 * 4**2)
    tiled_inverse(some_data(90, 40, seed=1), SHIFT, tmp_path, PLENTY, np.float64, tile=4, flow=flow)
    # Of a panel, the panel that is being written, and what a panel reads: never the whole triangle.
    assert flow.most < n_blocks * (n_blocks + 1) // 2 + n_blocks
    everything = Here()
    tiled_inverse(some_data(90, 40, seed=1), SHIFT, tmp_path, PLENTY, np.float64, tile=4, flow=everything)
    assert everything.most == n_blocks * (n_blocks + 1) // 2


def test_a_cluster_that_loses_every_panel_is_given_up_and_resume_goes_on_elsewhere(tmp_path, unflushed):
    X = some_data(90, 40, seed=1)
    calls = iter(range(10**6))
    with pytest.raises(ClusterError, match=r"tiles were lost 5 times in one panel \(a host died\); --resume continues"):
        tiled_inverse(X, SHIFT, tmp_path, PLENTY, np.float64, tile=8, flow=Here(loses=lambda: next(calls) > 60))
    done = []
    found = tiled_inverse(
        X, SHIFT, tmp_path, PLENTY, np.float64, tile=8, resume=True, flow=Here(), progress=lambda now, total: done.append(now)
    )
    assert len(done) < 3 * 5
    alone = tiled_inverse(X, SHIFT, tmp_path / "alone", PLENTY, np.float64, tile=8)
    assert_array_equal(whole(found), whole(alone))


def test_a_matrix_that_is_not_positive_definite_is_told_with_its_row(tmp_path, unflushed):
    with pytest.raises(NumericalError) as alone:
        tiled_inverse(some_data(90, 40, seed=1), Shift(0.0, -40.0), tmp_path, PLENTY, np.float64, tile=8)
    with pytest.raises(NumericalError) as on_flow:
        tiled_inverse(some_data(90, 40, seed=1), Shift(0.0, -40.0), tmp_path, PLENTY, np.float64, tile=8, flow=Here())
    assert str(on_flow.value) == str(alone.value)
