"""What a fit does to the threads of the libraries below it."""

import os
import subprocess
import sys

import numba
import pytest
import torch
from threadpoolctl import threadpool_info

from rankbench.core.threads import pinned
from rankbench.data.cards import load_card
from rankbench.experiment.execution import Execution
from rankbench.experiment.job import Job, configure
from rankbench.experiment.run import run


def pools() -> dict[str, int]:
    return {pool["filepath"]: pool["num_threads"] for pool in threadpool_info()}


@pytest.mark.parametrize("method, values", [("bpr", {"epochs": 1, "patience": 0}), ("ease", {}), ("ials", {"iterations": 1})])
def test_the_libraries_use_one_thread_during_a_fit(method, values, environment):
    """Threads that several fits on one machine would wait for."""
    card = load_card("synthetic", environment, {"source.generator": {"users": 60, "items": 40, "interactions_per_user": 8}})
    job = Job(card, (configure(method, values),), card.final_fit)
    seen = []

    def progress(phase, done, total):
        if phase == "fit":
            seen.append((torch.get_num_threads(), set(pools().values()), numba.get_num_threads()))

    run(job, environment, Execution(2), progress)
    assert seen
    assert set(map(str, seen)) == {str((1, {1}, 2))}


def test_the_numbers_of_threads_are_restored():
    before = torch.get_num_threads(), numba.get_num_threads(), pools()
    with pytest.raises(KeyError), pinned(2):
        raise KeyError
    assert (torch.get_num_threads(), numba.get_num_threads(), pools()) == before


@pytest.mark.parametrize("given, expected", [(None, "passive"), ("active", "active")])
def test_idle_openmp_threads_sleep_unless_the_user_says_otherwise(given, expected):
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    environment |= {"OMP_WAIT_POLICY": given} if given else {}
    code = "import rankbench, os, sys; print(os.environ['OMP_WAIT_POLICY'], 'torch' in sys.modules or 'numba' in sys.modules)"
    output = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True).stdout
    assert output.split() == [expected, "False"]
