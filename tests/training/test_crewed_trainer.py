"""A fit by several workers that are lost again and again ends, instead of going on from vectors that are not its own."""

import numpy as np
import pytest
from fits import interactions, params

from rankbench.core.errors import ClusterError
from rankbench.fitting.flow import Lost
from rankbench.losses.spec import registered
from rankbench.training.crewed_trainer import TRIES, CrewedTrainer, Member
from rankbench.training.schedule import Schedule


class Alone:
    """A crew of one worker in this process, which is lost before the calls at the given positions, or whose answers are lost
    after those of `silent`.
    """

    def __init__(self, lost, silent=()):
        self.lost, self.silent, self.calls = lost, silent, 0

    def start(self, member, *arguments):
        self.arguments = arguments
        self.member = None
        return self

    def call(self, method, *arguments):
        self.calls += 1
        if self.calls in self.lost:
            self.member = None
            raise Lost("a worker was lost")
        self.member = self.member or Local(*self.arguments)
        answer = getattr(self.member, method)(*arguments)
        if self.calls in self.silent:
            raise Lost("the answer did not come")
        return answer


class Local(Member):
    """A worker without others to send anything to."""

    def __init__(self, X, given, loss, seed, dtype, device):
        self.arguments = X, given, registered().get(loss), seed, np.dtype(dtype).type, device
        self.begin()

    def ready(self):
        pass


def means(lost, silent=()):
    loss, given = registered().get("bpr"), params("bpr")
    crew = Alone(lost, silent)
    run = CrewedTrainer(crew, interactions(), given, loss, 0, float, "cpu")
    return [run.scheduled_epoch(number, Schedule("constant", 0.1, 3)) for number in (1, 2, 3)]


def test_a_worker_that_is_lost_few_times_changes_nothing():
    whole = means(set())
    assert means({3}) == whole == means(set(range(4, 3 + TRIES)))
    assert means(set(), {3}) == whole == means({4}, {5, 6})


def test_one_that_is_lost_too_often_ends_the_fit():
    with pytest.raises(ClusterError, match=f"workers were lost {TRIES} times in one epoch .*--resume continues"):
        means(set(range(4, 4 + TRIES)))
