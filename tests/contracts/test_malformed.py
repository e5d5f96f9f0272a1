"""Malformed inputs of every kind: no traceback, no hang, nothing half-written, one line, and an exit code that is true."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest
from campaign import KINDS, campaign, memory_of, part
from malformed import COMMANDS

SAMPLE = 9  # cases of a kind
SLICE = 100  # cases of a test of the whole campaign
KEPT = "each one line and a true exit code, nothing half-written"


@pytest.mark.fault("F12")
def test_a_sample_of_malformed_inputs(tmp_path, figure):
    unharmed = [("unharmed", number) for number in range(len(COMMANDS))]  # which the commands take
    numbers = [number for kind in KINDS for number in part(kind, SAMPLE)]
    broken, results = campaign(unharmed + numbers, tmp_path)
    assert broken == []
    figure(f"{len(numbers)} malformed inputs: {KEPT}, at most {most(results)}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "start"), [(kind, start) for kind, (count, *_) in KINDS.items() for start in range(0, count, SLICE)]
)
@pytest.mark.fault("F12")
def test_all_malformed_inputs(kind, start, tmp_path, figure):
    numbers = part(kind)[start : start + SLICE]
    broken, results = campaign(numbers, tmp_path)
    assert broken == []
    figure(f"{len(numbers)} malformed {kind}: {KEPT}, at most {most(results)}")


def most(results):
    return f"{max(result.memory for result in results.values()) / 1e6:.0f} MB each"


def test_the_memory_of_a_case_is_its_peak():
    # A process of its own: in this one, what earlier tests left may be freed meanwhile, which the count then lacks.
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as fresh:
        assert 310_000_000 < fresh.submit(peak_of_an_array_of_320_mb).result() < 350_000_000


def peak_of_an_array_of_320_mb():
    from rankbench.experiment import run

    with memory_of() as taken:
        assert np.ones(40_000_000).sum() == 4e7  # freed at once
        run.reset_peak_memory()
    return max(taken)


def test_a_case_that_hangs_or_breaks_is_found(tmp_path, monkeypatch):
    """The campaign can fail: of a deadline that nothing meets, every case is told."""
    found, _ = campaign([("cards", 0), ("names", 1)], tmp_path, deadline=0.0)
    assert len(found) == 2
    assert all("no end within 0 s" in each for each in found)
