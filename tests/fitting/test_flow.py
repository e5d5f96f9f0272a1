"""The order and the combination of changes, on a pool that finishes a task when the test says so."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbench.fitting.flow import COMBINED, QUEUE, Flow, change, threads_per_task, use


class Pool:
    """Tasks wait in `tasks` until `finish`; an array is a list, of which the only element is made by a task."""

    room = 10**9
    threads = 1

    def __init__(self, *slots):
        self.slots, self.tasks, self.ran = slots, [], []

    def start(self, node, n_arrays, computes, function, *arguments):
        made = [[] for _ in range(n_arrays)]
        task = (node, function, arguments, made)
        self.tasks.append(task)
        return id(task), made

    def finished(self, wait):
        if not wait:
            return []
        node, function, arguments, made = task = self.tasks.pop(0)
        self.ran.append((node, function, arguments))
        steps = len(arguments[0]) if function is change else 0
        known = arguments[:1] if steps else ()
        found = function(*known, *(each[0] if type(each) is list else each for each in arguments[len(known) :]))
        for handle, array in zip(made, found, strict=True):
            handle.append(array)
        return [id(task)]

    def clear(self):
        self.tasks = []


class Times:
    """array := factor · array + 1, which depends on the order."""

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, array, *others):
        array *= self.factor
        array += 1 + sum(other[0] for other in others)


def start():
    return [np.ones(1)]


def value(flow, name):
    seen = []
    flow.wait([flow.use(name, lambda array: seen.append(float(array[0])))])
    return seen[0]


def test_changes_that_are_ready_are_tasks_of_at_most_so_many_and_keep_their_order():
    pool = Pool(1)
    flow, expected = Flow(pool), 1.0
    flow.make(["a"], start)
    for number in range(2 * COMBINED + 1):
        factor = (-1, 2, 3)[number % 3]
        flow.change("a", Times(factor), [])
        expected = factor * expected + 1
    assert value(flow, "a") == expected
    assert [len(arguments[0]) if function is change else 0 for _, function, arguments in pool.ran] == [
        0, COMBINED, COMBINED, 1, 0
    ]  # fmt: skip


def test_a_reader_sees_what_earlier_calls_left_whatever_comes_later():
    flow = Flow(Pool(1, 1))
    flow.make(["a"], start, node=0)
    flow.make(["b"], start, node=1)
    flow.change("a", Times(2), [])  # a = 3
    flow.change("b", Times(1), ["a"])  # b = 1 + 1 + 3
    flow.change("a", Times(10), ["b"])  # a = 30 + 1 + 5
    assert value(flow, "b") == 5
    assert value(flow, "a") == 36


def test_an_array_is_changed_on_its_own_node():
    pool = Pool(1, 1, 1)
    flow = Flow(pool)
    for node in range(3):
        flow.make([node], start, node=node)
    for node in range(3):
        flow.change(node, Times(1), [(node + 1) % 3])
        flow.wait([flow.use(node, Times(1))])
    assert [node for node, function, _ in pool.ran if function in (change, use)] == [0, 0, 1, 1, 2, 2]


def test_a_node_is_handed_no_more_than_its_slots_and_what_comes_next():
    pool = Pool(2)
    flow = Flow(pool)
    for name in range(50):
        flow.make([name], start)
    flow.done([])
    assert len(pool.tasks) == QUEUE * 2


def test_an_error_of_a_function_is_raised_where_somebody_waits():
    flow = Flow(Pool(1))
    flow.make(["a"], start)
    flow.change("a", Times("x"), [])
    with pytest.raises(TypeError):
        value(flow, "a")


@given(cpus=st.integers(1, 200))
def test_a_task_has_four_threads_on_large_nodes(cpus):
    assert threads_per_task(cpus) == (1 if cpus < 8 else 4)
