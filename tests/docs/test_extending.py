"""The iterative method of the page on extending, as a file of its own: it runs, resumes, stops early, and is swept."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rankbench.core.config import validate
from rankbench.schema.experiment import ExperimentSpec

from .pages import blocks

ROOT = Path(__file__).parents[2]
SWEEP = """
name: first
datasets: [{name: synthetic, source: {generator: {users: 100, items: 60, interactions_per_user: 10}}}]
arms: [{method: pure-svd, params: {iterations: 4, patience: 2, embedding_dim: {grid: [4, 8]}}}]
search: {choose: {metric: ndcg@10}}
cutoffs: [10]
"""


@pytest.fixture(scope="module")
def rankbench(tmp_path_factory):
    """rankbench(*words) → what the command prints as JSON, by a package with the file of the page added."""
    folder = tmp_path_factory.mktemp("extended")
    shutil.copytree(ROOT / "platform" / "rankbench", folder / "code" / "rankbench")
    shutil.copytree(ROOT / "datasets", folder / "datasets")
    (page,) = [each.text for each in blocks(ROOT / "docs" / "extending.md", "python") if "class PureSVD" in each.text]
    (folder / "code" / "rankbench" / "solvers" / "factorisation" / "pure_svd.py").write_text(page, encoding="utf-8")
    (folder / "first.yaml").write_text(SWEEP)
    environment = {"PYTHONPATH": str(folder / "code"), "RANKBENCH_OFFLINE": "1"}
    environment |= {"RANKBENCH_DATA": str(folder / "data"), "RANKBENCH_RESULTS": str(folder / "results")}

    def rankbench(*words: str) -> dict:
        command = [sys.executable, "-m", "rankbench", *words, "--json"]
        done = subprocess.run(
            command, env=os.environ | environment, cwd=folder, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return rankbench


def test_it_runs_and_stops_early(rankbench):
    small = ("data.source.generator.users=100", "data.source.generator.items=60", "--no-track")
    whole = rankbench("run", "synthetic", "pure-svd", "iterations=20", *small)
    early = rankbench("run", "synthetic", "pure-svd", "iterations=20", "patience=1", *small)
    assert whole["iterations"] == 20 > early["iterations"] and whole["metrics"] != early["metrics"]


def test_the_experiment_of_the_page_is_complete():
    (text,) = [each.text for each in blocks(ROOT / "docs" / "extending.md", "yaml") if "pure-svd" in each.text]
    spec = validate(ExperimentSpec, yaml.safe_load(text), "first.yaml")
    assert [arm.method for arm in spec.arms] == ["pure-svd"]


def test_a_sweep_of_it_is_planned(rankbench):
    (row,) = rankbench("sweep", "first.yaml", "--dry-run")["rows"]
    assert row["state"] == "planned" and row["model"] == "pure-svd"
