"""SIGKILL at drawn moments of each long command: nothing finished is lost, every later command works, nothing is left over.

The default run takes a sample of each; the whole campaign is marked slow.
"""

import json
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from commands import Death, Home

from rankbench.experiment.fitted_model import load

TINY = ("data.source.generator.users=80", "data.source.generator.items=60", "data.source.generator.interactions_per_user=10")
IALS = ("synthetic", "ials", "embedding_dim=8", "iterations=4", *TINY)
SWEEP = """
name: killed
datasets:
  - {name: synthetic, source: {generator: {users: 80, items: 60, interactions_per_user: 10}}}
arms:
  - {method: popularity}
  - {method: ease, params: {lam: {grid: [3, 30]}}}
  - {method: ials, params: {embedding_dim: 8, iterations: 3, lam: {grid: [0.003, 0.01]}}}
search: {choose: {metric: ndcg@10, on: valid}}
final: {fit_on: train}
cutoffs: [10]
resources: {cpus: 1, concurrent: 1}
"""
NODES = Path(__file__).parents[1] / "cluster" / "nodes.py"


def kills(sample: int) -> pytest.MarkDecorator:
    whole = pytest.param(20, marks=[pytest.mark.slow, pytest.mark.timeout(3600)], id="20")
    return pytest.mark.parametrize("times", [pytest.param(sample, id=f"{sample}"), whole] if sample else [whole])


def kill_runs(home: Home, words: tuple[str, ...], times: int, seed: int) -> None:
    """Kill `times` commands `run` of one setting, with and without an earlier record, --resume and --fresh."""
    standing = home.run("run", "synthetic", "ease", "lam=3", *TINY, "--no-track", "--json")
    calm = home.run("run", *words, "--json")
    assert (standing.code, calm.code) == (0, 0), standing.err + calm.err
    target, rng = Path(calm.json["folder"]) / "record.json", random.Random(seed)
    number = killed = 0
    while killed < times:  # others end before their death
        number += 1
        assert number <= 5 * times, f"only {killed} of the first {5 * times} commands were killed"
        if rng.random() < 0.5 and target.exists():
            shutil.rmtree(target.parent)
        before, more = home.records(), rng.choice([(), ("--resume",), ("--fresh",)])
        killed += home.run("run", *words, *more, death=Death.drawn(rng, calm.touches)).killed
        after = home.records()
        assert before.keys() <= after.keys(), (number, more)
        assert all(after[path] == content for path, content in before.items() if path != target or not more), (number, more)
        again = home.run("run", *words, *rng.choice([(), ("--resume",)]), "--json")
        assert again.code == 0, (number, again.err)
        assert again.json["metrics"] == calm.json["metrics"], number
        home.require_no_processes()
    home.age()
    assert home.run("run", *words).code == 0
    assert not home.leftovers()


@kills(sample=1)
@pytest.mark.fault("F4")
def test_runs(times, tmp_path, figure):
    kill_runs(Home(tmp_path / "home"), (*IALS, "--no-track"), times, seed=1)
    figure(f"run, SIGKILL at {times} drawn moments: every record whole, --resume and a new run give the same metrics")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_runs_that_MLflow_hears_of(tmp_path):
    home = Home(tmp_path / "home")
    kill_runs(home, IALS, 5, seed=2)
    assert home.run("tracking", "sync").code == 0
    assert not [*(home.results / "spool").glob("*.json")]


@kills(sample=0)
@pytest.mark.fault("F4")
def test_runs_on_a_cluster(times, tmp_path, figure):
    nodes = subprocess.Popen(
        [sys.executable, str(NODES), "--nodes", "2"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        about = json.loads(nodes.stdout.readline())
        home = Home(tmp_path / "home", about["environment"])
        kill_runs(home, (*IALS, "--no-track", "--address", about["address"]), times, seed=3)
    finally:
        nodes.stdin.close()
        nodes.wait(60)
    figure(f"run --address, SIGKILL at {times} drawn moments: the same metrics")


@kills(sample=0)
@pytest.mark.fault("F4")
def test_runs_by_tiles(times, tmp_path, figure):
    """A closed form that does not fit into --memory, killed and resumed: the numbers of a run that nobody killed."""
    home = Home(tmp_path / "home")
    sizes = tuple(f"data.source.generator.{size}" for size in ("users=1000", "items=4000", "interactions_per_user=60"))
    words = ("synthetic", "ease", "lam=30", *sizes, "--no-track")
    # The least that it would do with is said in the refusal; the matrix takes 97 MB.
    refused = home.run("run", *words, "--memory", "1MB")
    least = int(re.search(r"allow (\d+) MB", refused.err)[1])
    words += ("--memory", f"{least + 40}MB")
    tiled = home.run("run", *words, "--fresh", "--json")
    assert json.loads((Path(tiled.json["folder"]) / "record.json").read_text())["tiles"], tiled.err
    shutil.rmtree(tiled.json["folder"])
    kill_runs(home, words, times, seed=7)
    figure(f"run by tiles, SIGKILL at {times} drawn moments: the same metrics, no tile left")


@kills(sample=1)
@pytest.mark.fault("F4")
def test_fits_of_a_model_folder(times, tmp_path, figure):
    home, rng, number, killed = Home(tmp_path / "home"), random.Random(4), 0, 0
    calm = home.run("fit", *IALS, "--out", "calm")
    assert calm.code == 0, calm.err
    expected = load(home.folder / "calm").recommender
    while killed < times:  # others end before their death
        number += 1
        assert number <= 5 * times, f"only {killed} of the first {5 * times} commands were killed"
        out = home.folder / f"model-{number}"
        killed += home.run("fit", *IALS, "--out", out.name, death=Death.drawn(rng, calm.touches)).killed
        again = home.run("fit", *IALS, "--out", out.name, *rng.choice([(), ("--resume",)]))
        assert again.code == (2 if "already exists" in again.err else 0), (number, again.err)
        model = load(out).recommender
        np.testing.assert_array_equal(model.U, expected.U)
        np.testing.assert_array_equal(model.V, expected.V)
    home.age()
    assert home.run("fit", *IALS, "--out", "last").code == 0
    assert not home.leftovers()
    home.require_no_processes()
    figure(f"fit --out, SIGKILL at {times} drawn moments: factors of the same bits")


@kills(sample=2)
@pytest.mark.fault("F11")
def test_preparations_of_a_dataset(times, tmp_path, figure):
    home, rng, number, killed = Home(tmp_path / "home"), random.Random(5), 0, 0
    pairs = random.Random(0).sample([(user, item) for user in range(60) for item in range(40)], k=1000)
    (home.folder / "raw.csv").write_text("user,item\n" + "".join(f"u{user},{item}\n" for user, item in pairs))
    (home.folder / "shop.yaml").write_text(
        yaml.safe_dump({"name": "shop", "source": {"file": "raw.csv"}, "prepare": [{"k_core": 2}]})
    )
    words = ("data", "describe", "./shop.yaml", "--json")
    calm = home.run(*words)
    assert calm.code == 0, calm.err
    while killed < times:  # others end before their death
        number += 1
        assert number <= 5 * times, f"only {killed} of the first {5 * times} commands were killed"
        if rng.random() < 0.8:
            shutil.rmtree(home.data)
        killed += home.run(*words, death=Death.drawn(rng, calm.touches)).killed
        again = home.run(*words)
        assert (again.code, again.out) == (0, calm.out), (number, again.err)
        assert not [*(home.data / "prepared").glob(".tmp-*")], number
    home.age()
    (home.folder / "raw.csv").write_text("user,item\n" + "".join(f"u{user},{item}\n" for user, item in pairs[::-1]))
    assert home.run(*words).code == 0
    assert not home.leftovers()
    home.require_no_processes()
    figure(f"data describe, SIGKILL at {times} drawn moments: the same rows, 0 left-overs")


# In parts, because each sweep starts a cluster, twice.
PARTS = [pytest.param(5, seed, marks=[pytest.mark.slow, pytest.mark.timeout(3600)], id=f"5-{seed}") for seed in range(4)]


@pytest.mark.parametrize(("times", "seed"), [pytest.param(1, 6, id="1"), *PARTS])
@pytest.mark.fault("F7")
def test_sweeps(times, seed, tmp_path, figure):
    """The driver dies; its cluster goes with it, and the sweep goes on from what was finished."""

    def home_of(name: str) -> Home:
        home = Home(tmp_path / name)
        (home.folder / "killed.yaml").write_text(SWEEP)
        return home

    def table(home: Home) -> dict:
        # A driver that died before sweep.json was there has begun no sweep, and the next one takes a folder of its own.
        (path,) = home.results.glob("sweeps/*/report/table.json")
        rows = json.loads(path.read_text())["rows"]
        return {row["model"]: (row["params"], row["metrics"]) for row in rows}

    rng, number, killed, touches, expected = random.Random(seed), 0, 0, 60, None
    if times > 1:  # the sample saves the time of a sweep that nobody kills
        calm = home_of("calm")
        ended = calm.run("sweep", "killed.yaml")
        assert ended.code == 0, ended.err
        touches, expected = ended.touches, table(calm)
    while killed < times:  # others end before their death
        number += 1
        assert number <= 5 * times, f"only {killed} of the first {5 * times} commands were killed"
        home = home_of(f"killed-{number}")
        killed += home.run("sweep", "killed.yaml", death=Death.drawn(rng, touches)).killed
        home.require_no_processes()
        before = home.records()
        home.age()
        begun = any(home.results.glob("sweeps/*/sweep.json"))
        again = home.run("sweep", "killed.yaml", *["--resume"] * begun)
        assert again.code == 0, (number, again.err)
        after = home.records()
        assert {path: after.get(path) for path in before} == before, number
        assert expected is None or table(home) == expected, number
        assert len(table(home)) == 3 and not home.leftovers(), number
        home.require_no_processes()
    figure(f"sweep, SIGKILL at {times} drawn moments: no finished record changed or lost, no process left")
