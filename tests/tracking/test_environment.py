"""Provenance: the peak is of this phase, and the revision is the checkout's."""

import mmap
import subprocess
from pathlib import Path

import numpy as np
import pytest

from rankbench.core.environment import Environment
from rankbench.data.cards import load_card
from rankbench.experiment.job import Job, configure
from rankbench.experiment.run import run
from rankbench.tracking import environment
from rankbench.tracking.environment import describe_environment, peak_memory, reset_peak_memory

ROOT = Path(__file__).parents[2]


def test_peak_memory_sees_an_allocation_and_forgets_it_after_a_reset():
    reset_peak_memory()
    before = peak_memory()
    # Not an array: one may land in memory that an earlier test freed and the allocator kept.
    with mmap.mmap(-1, 320 << 20) as block:
        for start in range(0, len(block), 4096):
            block[start] = 1
        during = peak_memory()
    assert during - before > 300e6
    reset_peak_memory()
    assert peak_memory() < during - 200e6


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this is no checkout")
def test_a_record_names_the_revision_that_ran_whatever_is_committed_during_the_fit(monkeypatch):
    head = ["before"]
    monkeypatch.setattr(environment, "_git", lambda root, *words: head[0] if words[0] == "rev-parse" else "")
    environment.code_revision.cache_clear()
    settings, phases = Environment.from_env(), []

    def commit(phase, done, total):
        phases.append(phase)
        head[0] = "after"

    (outcome,) = run(Job(load_card("synthetic", settings), (configure("ials", {"iterations": 2}),)), settings, progress=commit)
    environment.code_revision.cache_clear()
    assert "fit" in phases and outcome.record.environment["revision"] == "before"


def test_results_are_no_changes_of_the_code(tmp_path):
    def git(*words):
        given = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-C", str(tmp_path)]
        return subprocess.run(["git", *given, *words], capture_output=True, text=True, check=True).stdout.strip()

    code, *results = files = [tmp_path / name for name in ("platform/a.py", *(f"{name}/a" for name in environment.RESULTS))]
    for file in files:
        file.parent.mkdir(parents=True)
        file.write_text("before")
    assert environment.revision_of(tmp_path) is None
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message", "all")
    for file in results:
        file.write_text("after")
    assert environment.revision_of(tmp_path) == git("rev-parse", "HEAD")
    code.write_text("after")
    assert environment.revision_of(tmp_path) == git("rev-parse", "HEAD") + "+changes"
    code.write_text("before")
    (tmp_path / "platform/rankbench/losses").mkdir(parents=True)
    (tmp_path / "platform/rankbench/losses/mine.py").touch()  # registers a loss, and no commit has it
    assert environment.revision_of(tmp_path) == git("rev-parse", "HEAD") + "+changes"


def test_versions_and_machine_are_stated():
    about = describe_environment()
    assert about["packages"]["numpy"] == np.__version__
    assert about["machine"]["cores"] >= 1 and about["machine"]["memory_bytes"] > 1e8
    assert about["blas"]
