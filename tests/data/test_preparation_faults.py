"""Several processes prepare one dataset at once: the cache holds it once. `faults/test_writers.py` kills such processes."""

import subprocess
import sys

import pytest
import yaml

from rankbench.data.prepare import load

CHILD = """
import sys
from pathlib import Path
import rankbench.data.prepare as prepare
from rankbench.core.environment import Environment
data, card = sys.argv[1:]
environment = Environment(Path(data), None, True, Path(data) / "results", None, None)
print("ready", flush=True)
print(prepare.load(card, environment).fingerprint, flush=True)
"""
CARD = {
    "name": "busy",
    "source": {"generator": {"users": 3000, "items": 400, "interactions_per_user": 30}},
    "prepare": [{"k_core": 2}],
}


def child(environment, card) -> subprocess.Popen:
    """A process that says `ready` when its imports are done, then prepares the dataset and prints its fingerprint."""
    command = [sys.executable, "-c", CHILD, str(environment.data), str(card)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.fixture
def card(tmp_path):
    path = tmp_path / "busy.yaml"
    path.write_text(yaml.safe_dump(CARD), encoding="utf-8")
    return path


@pytest.mark.fault("F11")
@pytest.mark.parametrize("builders", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_processes_that_prepare_at_once_get_one_copy(environment, card, builders, figure):
    children = [child(environment, card) for _ in range(builders)]
    prints = {process.communicate(timeout=120)[0].strip() for process in children}
    assert prints == {load(str(card), environment).fingerprint}
    folders = [path for path in (environment.data / "prepared").iterdir() if path.is_dir()]
    assert len(folders) == 1
    assert not [*(environment.data / "prepared").glob(".tmp-*")]
    figure(f"{builders} builders at once: one whole copy, 0 left-overs")
