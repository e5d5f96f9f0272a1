"""Malformed inputs of every kind: no traceback, no hang, nothing half-written, one line, and an exit code that is true."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from campaign import campaign, memory_of
from malformed import COMMANDS, KINDS, case

WHOLE = 1000
SAMPLE = 60
KEPT = "each one line and a true exit code, nothing half-written"


def test_the_commands_succeed_where_nothing_is_harmed(tmp_path):
    assert campaign([-1 - number for number in range(len(COMMANDS))], tmp_path)[0] == []


@pytest.mark.fault("F12")
def test_a_sample_of_malformed_inputs(tmp_path, figure):
    # Every kind is met: a case's kind is its number modulo their count.
    numbers = range(0, WHOLE, WHOLE // SAMPLE + 1)
    assert {number % len(KINDS) for number in numbers} == set(range(len(KINDS)))
    broken, memory = campaign(list(numbers), tmp_path)
    assert broken == []
    figure(f"{len(numbers)} malformed inputs: {KEPT}, at most {max(memory.values()) / 1e6:.0f} MB each")


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
@pytest.mark.fault("F12")
def test_a_thousand_malformed_inputs(part, tmp_path, figure):
    broken, memory = campaign(list(range(part * WHOLE // 10, (part + 1) * WHOLE // 10)), tmp_path)
    assert broken == []
    figure(f"100 malformed inputs: {KEPT}, at most {max(memory.values()) / 1e6:.0f} MB each")


def test_a_case_is_the_same_everywhere():
    assert str(case(17)) == str(case(17))
    assert case(20).files["toy.yaml"] == case(20).files["toy.yaml"]


def test_the_memory_of_a_case_is_its_peak():
    from rankbench.experiment import run

    with memory_of() as taken:
        assert np.ones(40_000_000).sum() == 4e7  # 320 MB, which are freed at once
        run.reset_peak_memory()
    # What earlier tests have left may be freed meanwhile, some 20 MB.
    assert 290_000_000 < max(taken) < 350_000_000


def test_a_case_that_hangs_or_breaks_is_found(tmp_path, monkeypatch):
    """The campaign can fail: of a deadline that nothing meets, every case is told."""
    found, _ = campaign([0, 1], tmp_path, deadline=0.0)
    assert len(found) == 2
    assert all("no end within 0 s" in each for each in found)
