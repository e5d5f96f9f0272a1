"""Several processes prepare one dataset, and some of them are killed: the cache never holds half of it."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest
import yaml

from rankbench.data.prepare import load

CHILD = """
import sys
from dataclasses import replace
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


def leftovers(environment):
    return list((environment.data / "prepared").glob(".tmp-*"))


@pytest.mark.fault("F11")
@pytest.mark.parametrize("builders", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_processes_that_prepare_at_once_get_one_copy(environment, card, builders, figure):
    children = [child(environment, card) for _ in range(builders)]
    prints = {process.communicate(timeout=120)[0].strip() for process in children}
    assert prints == {load(str(card), environment).fingerprint}
    folders = [path for path in (environment.data / "prepared").iterdir() if path.is_dir()]
    assert len(folders) == 1
    assert not leftovers(environment)
    figure(f"{builders} builders at once: one whole copy, 0 left-overs")


def kill_and_check(environment, card, kills: int) -> int:
    """Kill a preparing process `kills` times at random moments, in an empty cache or beside what the last one left;
    returns how many died in the middle.
    """
    whole = load(str(card), environment).fingerprint
    moments, in_the_middle = random.Random(7), 0
    for _ in range(kills):
        for folder in (environment.data / "prepared").glob("busy-*"):
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()
        process = child(environment, card)
        time.sleep(moments.uniform(0, 0.4))
        os.kill(process.pid, signal.SIGKILL)
        process.wait(timeout=60)
        in_the_middle += bool(leftovers(environment))
        # What is there under its name is whole; what is not is made now, and the remains are swept away.
        assert load(str(card), environment).fingerprint == whole
        assert not leftovers(environment)
    return in_the_middle


def test_a_killed_preparation_leaves_nothing_half_done(environment, card):
    kill_and_check(environment, card, 2)


@pytest.mark.slow
@pytest.mark.fault("F11")
def test_fifty_killed_preparations_leave_nothing_half_done(environment, card, figure):
    in_the_middle = kill_and_check(environment, card, 50)
    assert in_the_middle >= 10
    figure(f"50 SIGKILLs, {in_the_middle} in the middle of a write: 0 half-written caches, 0 left-overs")
