"""ThreadMap: every index once with its own answer, bounded in flight, what the function raises, and no sooner than asked."""

import threading
from operator import add

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbench.core.errors import NumericalError
from rankbench.fitting.executors import ThreadMap

WORKERS = st.integers(1, 4)


class Fetched(list):
    """Counts the blocks taken from it."""

    fetched = 0

    def __getitem__(self, index):
        self.fetched += 1
        return super().__getitem__(index)

    def __iter__(self):
        for index in range(len(self)):
            yield self[index]


@given(workers=WORKERS, blocks=st.lists(st.integers(), max_size=30), shared=st.integers())
def test_every_index_comes_once_with_its_own_answer(workers, blocks, shared):
    where = ThreadMap(workers)
    answers = list(where.map(add, [where.put(block) for block in blocks], where.put(shared)))
    assert sorted(answers) == [(index, block + shared) for index, block in enumerate(blocks)]


@given(workers=WORKERS, n_blocks=st.integers(0, 40))
def test_no_more_is_in_flight_than_twice_the_workers(workers, n_blocks):
    blocks, answered = Fetched(range(n_blocks)), 0
    for _ in ThreadMap(workers).map(abs, blocks):
        answered += 1
        assert blocks.fetched <= answered - 1 + 2 * workers
    assert answered == n_blocks


@given(workers=WORKERS, n_blocks=st.integers(1, 12), data=st.data())
def test_what_the_function_raises_is_raised(workers, n_blocks, data):
    bad = data.draw(st.integers(0, n_blocks - 1))

    def function(block):
        if block == bad:
            raise NumericalError(f"block {block}")
        return block

    with pytest.raises(NumericalError, match=f"^block {bad}$"):
        list(ThreadMap(workers).map(function, range(n_blocks)))


def test_as_many_blocks_as_workers_are_worked_on_together():
    together = threading.Barrier(3, timeout=60)
    answers = list(ThreadMap(3).map(lambda block: together.wait() >= 0, range(9)))
    assert sorted(answers) == [(index, True) for index in range(9)]


def test_a_generator_closed_half_way_starts_no_more():
    blocks = Fetched(range(100))
    answers = ThreadMap(2).map(abs, blocks)
    next(answers)
    answers.close()
    assert blocks.fetched <= 5
