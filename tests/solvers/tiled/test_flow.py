"""The inverse by a flow of tasks: to the bit what one process makes, whatever is lost on the way."""

import weakref
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from small_systems import SHIFT, some_data

from rankbench.core.errors import ClusterError, NumericalError, StorageError
from rankbench.fitting.flow import Flow, Lost
from rankbench.fitting.method import Shift
from rankbench.solvers.tiled.flow import LOSSES
from rankbench.solvers.tiled.inverse import tiled_inverse

PLENTY = 10**9


class Handle:
    """An array that a task will have made."""

    array: np.ndarray


class Here:
    """A pool in this process that finishes its tasks late and in any order, and may lose everything at any call.

    What was in flight at a loss still runs, as on a cluster, at any later time and for nobody.
    """

    def __init__(self, slots=(1, 1), room: int = PLENTY, loses: Callable[[], bool] = lambda: False, seed: int = 0):
        self.slots, self.threads, self.room, self._loses = slots, 1, room, loses
        self._rng = np.random.default_rng(seed)
        self._tasks: list[Callable] = []
        self._stale: list[Callable] = []
        self.ran: list[tuple[int, Callable, int]] = []  # node, function and number of arrays
        self._alive: weakref.WeakSet[Handle] = weakref.WeakSet()
        self.most = 0

    def put(self, value):
        return value

    def start(self, node, n_arrays, computes, function, *arguments):
        self._fail()
        made = [Handle() for _ in range(n_arrays)]
        self._alive.update(made)
        self.most = max(self.most, len(self._alive))

        def task():
            self.ran.append((node, function, sum(isinstance(each, Handle) for each in arguments)))
            found = function(*(each.array if isinstance(each, Handle) else each for each in arguments))
            for handle, array in zip(made, found, strict=True):
                array.flags.writeable = False  # as in an object store
                handle.array = array

        self._tasks.append(task)
        return task, made

    def finished(self, wait):
        self._fail()
        assert self._tasks or not wait, "nothing can go on"
        while self._stale and self._rng.random() < 0.03:
            with suppress(AttributeError, StorageError):  # of an array that no task made, or of a panel that began again
                self._stale.pop(self._rng.integers(len(self._stale)))()
        done = []
        while self._tasks and (wait or self._rng.random() < 0.5):
            task = self._tasks.pop(self._rng.integers(len(self._tasks)))
            task()
            done.append(task)
            wait = False
        return done

    def clear(self):
        self._stale += self._tasks
        self._tasks = []

    def _fail(self):
        if self._loses():
            raise Lost("a host died")


def whole(C):
    return C.columns(0, C.n)


@settings(max_examples=20)
@example(n=10, tile=3, kept=0, nodes=2, seed=3)  # a tile that is written late meets another in its slot
@given(
    n=st.integers(1, 40),
    tile=st.integers(3, 20),
    kept=st.integers(0, 12),
    nodes=st.integers(1, 4),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_flow_that_loses_its_arrays_gives_the_bits_of_one_process(tmp_path_factory, unflushed, n, tile, kept, nodes, seed):
    X, rng = some_data(2 * n + 3, n, seed=seed), np.random.default_rng(seed)
    alone = tiled_inverse(X, SHIFT, tmp_path_factory.mktemp("alone"), PLENTY, np.float64, tile=tile)
    left = [True] * (LOSSES - 1)
    room, lost = 2 * kept * 8 * min(n, tile) ** 2, lambda: rng.random() < 0.01 and bool(left) and left.pop()
    flow = Flow(Here((1,) * nodes, room, lost, seed))
    found = tiled_inverse(X, SHIFT, tmp_path_factory.mktemp("flow"), PLENTY, np.float64, tile=tile, flow=flow)
    assert_array_equal(whole(found), whole(alone))


def test_it_holds_two_panels_and_what_it_was_told_to_keep(tmp_path, unflushed):
    n_blocks, kept = 10, 6
    here = Here(room=2 * kept * 8 * 4**2)
    tiled_inverse(some_data(90, 40, seed=1), SHIFT, tmp_path, PLENTY, np.float64, tile=4, flow=Flow(here))
    # Of two panels, the panel that is being written, and what a panel reads: never the whole triangle.
    assert here.most < n_blocks * (n_blocks + 1) // 2 + n_blocks
    everything = Here()
    tiled_inverse(some_data(90, 40, seed=1), SHIFT, tmp_path, PLENTY, np.float64, tile=4, flow=Flow(everything))
    # The whole triangle, and twice what changes, until the task that changes it has ended.
    assert 0 <= everything.most - n_blocks * (n_blocks + 1) // 2 <= 2 * n_blocks


def test_a_cluster_that_loses_every_panel_is_given_up_and_resume_goes_on_elsewhere(tmp_path, unflushed):
    X = some_data(90, 40, seed=1)
    finished = []
    with pytest.raises(ClusterError, match=r"tiles were lost 5 times in one panel \(a host died\); --resume continues"):
        tiled_inverse(
            X, SHIFT, tmp_path, PLENTY, np.float64, tile=8, flow=Flow(Here(loses=lambda: len(finished) >= 3)),
            progress=lambda now, total: finished.append(now),
        )  # fmt: skip
    done = []
    found = tiled_inverse(
        X, SHIFT, tmp_path, PLENTY, np.float64, resume=True, flow=Flow(Here()), progress=lambda now, total: done.append(now)
    )
    assert len(done) == 3 * 5 - len(finished)
    alone = tiled_inverse(X, SHIFT, tmp_path / "alone", PLENTY, np.float64, tile=8)
    assert_array_equal(whole(found), whole(alone))
    reasons = set()
    for flow in (None, Flow(Here())):
        with pytest.raises(NumericalError) as refused:
            tiled_inverse(X, Shift(0.0, -40.0), tmp_path / "refused", PLENTY, np.float64, tile=8, flow=flow)
        reasons.add(str(refused.value))
    assert len(reasons) == 1
