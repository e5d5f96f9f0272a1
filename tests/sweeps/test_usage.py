"""The share of the processors' time that trials held, on machines that come and go."""

import pytest

from rankbench.cluster.machine import Machine
from rankbench.sweeps.usage import Usage


def test_the_share_counts_from_the_first_start_to_the_last_end():
    now = [0.0]
    usage = Usage(lambda: now[0])
    assert usage.share is None
    usage.offer([Machine(2, 1)])
    now[0] = 100.0  # nothing is offered before the first trial
    usage.start("a", 2)
    now[0] = 110.0
    usage.end("a")
    assert usage.share == pytest.approx(1.0)
    usage.start("b", 1)
    now[0] = 120.0
    usage.offer([Machine(2, 1), Machine(2, 1)])
    now[0] = 130.0
    usage.end("b")
    now[0] = 999.0
    usage.end("never started")
    # 20 and 20 processor-seconds of 20, 20 and 40.
    assert usage.share == pytest.approx(0.5)
