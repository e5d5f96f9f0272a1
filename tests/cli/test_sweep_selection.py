"""Sweeps over selections of datasets and methods, from files and without one: plans, prices, questions, and what is left."""

import json
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rankbench.cli import _main

CARD = """
name: {name}
source: {{generator: {{users: {users}, items: 40, interactions_per_user: 8}}}}
split: {{protocol: {protocol}{more}}}
"""


@pytest.fixture(autouse=True)
def home(home, monkeypatch):
    """A catalogue of small generated datasets, one with held-out users and one that is only in a mirror."""
    cards = home / "home" / "datasets"
    cards.mkdir(parents=True)
    for name, users, protocol, more in (
        ("toy-a", 60, "random-per-user", ""),
        ("toy-b", 70, "random-per-user", ""),
        ("toy-held-out", 80, "held-out-users", ", valid: 20, test: 20"),
    ):
        text = CARD.format(name=name, users=users, protocol=protocol, more=more)
        (cards / f"{name}.yaml").write_text(text, encoding="utf-8")
    (cards / "toy-far.yaml").write_text(
        "{name: toy-far, source: {files: {all: {url: 'https://example.org/far.csv'}}}}", encoding="utf-8"
    )
    monkeypatch.setenv("RANKBENCH_HOME", str(home / "home"))
    return home


def planned(capsys, *words):
    assert _main(["sweep", *words, "--dry-run", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_sweep_without_a_file(capsys):
    words = ["--datasets", "toy-*,!*-held-out", "--methods", "family:baseline", "--methods", "ease", "lam={grid: [1, 5]}"]
    plan = planned(capsys, *words, "final.seeds=[0, 1]")
    rows = {(row["dataset"], row["model"]): row for row in plan["rows"]}
    assert {key[0] for key in rows} == {"toy-a", "toy-b", "toy-far"}
    assert {key[1] for key in rows} == {"popularity", "random", "itemknn", "ease"}
    assert rows["toy-a", "ease"]["settings"] == 2 and rows["toy-a", "random"]["settings"] == 1
    assert plan["not_available"]["toy-far"]["brief"] == "offline"
    assert plan["stages"][1]["fits"] == 2 * (2 + 1 + 1 + 1)  # random once for each of two seeds


def test_a_dataset_that_is_not_available_does_not_stop_the_others(capsys):
    assert _main(["sweep", "--datasets", "toy-*", "--methods", "popularity", "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "toy-far       not available: offline" in text and "far.csv is not in the cache" in text
    assert _main(["sweep", "--datasets", "toy-far", "--methods", "popularity", "--dry-run"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_where_nothing_is_chosen_nothing_is_fitted_twice(capsys):
    def stages(*words):
        found = planned(capsys, "--datasets", "toy-a,toy-held-out", "--methods", "bpr,ease", "epochs=1", *words)
        return [stage["name"] for stage in found["stages"]], found["notes"]

    for given in (["--search", "none"], ["--chosen"], ["--chosen", "--search", "none"]):
        assert stages(*given, "patience=0")[0] == ["final"]
    names, notes = stages("--search", "none", "patience=0")
    assert names == ["final"] and "toy-held-out: without bpr: only methods with fold-in score held-out users" in notes
    for words in (["--search", "none", "patience=1"], ["--search", "none", "patience=0", "lam={grid: [1, 5]}"]):
        assert stages(*words)[0] == ["search", "final"]  # when a fit ends, or a parameter, is chosen on validation
    Path("q.yaml").write_text("{name: q, datasets: [toy-a], arms: [{method: ease}]}", encoding="utf-8")
    assert [stage["name"] for stage in planned(capsys, "q.yaml")["stages"]] == ["search", "final"]


def test_methods_that_cannot_score_held_out_users_are_left_out_of_the_plan(capsys):
    plan = planned(capsys, "--datasets", "toy-a,toy-held-out", "--methods", "bpr,ease", "epochs=1")
    assert [(row["dataset"], row["model"]) for row in plan["rows"]] == [
        ("toy-a", "bpr"),
        ("toy-a", "ease"),
        ("toy-held-out", "ease"),
    ]
    assert "toy-held-out: without bpr: only methods with fold-in score held-out users" in plan["notes"]
    for more in ([], ["--search", "none", "patience=0"]):
        assert _main(["sweep", "--datasets", "toy-held-out", "--methods", "bpr", *more, "--dry-run"]) == 2
        assert "its methods score only users they were fitted on" in capsys.readouterr().err


def test_options_select_from_a_file(home, capsys):
    text = "{name: q, datasets: [toy-a, toy-b], arms: [{method: ease, params: {lam: {grid: [1, 2]}}}, {method: popularity}]}"
    Path("q.yaml").write_text(text, encoding="utf-8")
    plan = planned(capsys, "q.yaml", "--datasets", "*-b", "--methods", "family:linear", "--metric", "recall@10")
    assert [(row["dataset"], row["model"], row["settings"]) for row in plan["rows"]] == [("toy-b", "ease", 2)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give an experiment file, or --datasets and --methods"),
        (["--datasets", "toy-a"], "give an experiment file, or --datasets and --methods"),
        (["--datasets", "toy-a", "--methods", "ease", "trials=3"], "this parameter; did you mean search.trials?"),
        (["--datasets", "toy-a", "--methods", "ease", "serach.trials=3"], "this parameter; did you mean search?"),
        (["demo", "trials=3"], "demo.yaml: trials: unknown key; did you mean search.trials?"),
        (["demo", "seeds=3"], "demo.yaml: seeds: unknown key; did you mean final.seeds?"),
        (["demo", "lam=3"], "demo.yaml: lam: unknown key; known: arms, "),
        (["demo", "--chosen", "--search", "registry"], "--search: --chosen skips the search; leave one of them out"),
        (["demo", "--chosen", "--extend"], "--extend: --chosen skips the search; leave one of them out"),
        (["demo", "--metric", "mrr@5", "search.choose.metric=mrr@9"], "--metric: search.choose.metric is given, too; leave"),
        (["demo", "--all-pairs", "final.pairs=best"], "--all-pairs: final.pairs is given, too; leave one of them out"),
        (["--datasets", "toy-a", "--methods", "ease", "--search", "none", "--extend"], "--extend: no parameter has a range"),
        (["own.yaml", "--search", "none"], "--search none: ease has `ranges: registry` of its own, which counts; leave one of"),
        (["demo", "--register", "bst"], "--register: expected 'best' or 'all', got 'bst'"),
        (["lam=3", "--datasets", "toy-a"], "give an experiment file, or --datasets and --methods"),
        (["demo", "--datasets", ""], "--datasets: expected names separated by commas, such as a,b, got ''"),
        (["--datasets", "toy-a", "--methods", "ease,,ials"], "--methods: expected names separated by commas"),
        (["--datasets", "toy-a", "--methods", "ease", "--search", ""], "search.ranges: expected 'none' or 'registry'"),
        (["--datasets", "toy-a", "--methods", "ease", "--metric", ""], "search.choose.metric: write it with a cutoff"),
        (["--datasets", "toy-a", "--methods", "ease", "--search", "none", "cutoffs=[500]"], "cutoffs: 500 is more than the"),
    ],
)
def test_a_wrong_selection_is_one_line(words, message, capsys):
    Path("own.yaml").write_text("{name: q, datasets: toy-a, arms: [{method: ease, ranges: registry}]}", encoding="utf-8")
    assert _main(["sweep", *words, "--dry-run"]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_grace_beyond_the_epochs_is_said(capsys):
    words = ["--datasets", "toy-a", "--methods", "bpr,ials", "patience=3", "epochs=4"]
    words += ["search.scheduler=asha", "search.grace=6"]
    notes = planned(capsys, *words, "learning_rate={loguniform: [0.001, 0.1]}")["notes"]
    (line,) = [note for note in notes if "grace" in note]
    assert line == (
        "warning: search.grace: 6 is no smaller than the number of iterations of bpr (4); asha stops none of their trials"
    )


def interact(words, answer, until, limit=300):
    """Run the command on a terminal, type `answer` once it asks, and return its output and exit code."""
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "rankbench", *words]
    process = subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, start_new_session=True)
    os.close(follower)
    output, answered, end = b"", False, time.monotonic() + limit
    while time.monotonic() < end:
        if select.select([leader], [], [], 0.2)[0]:
            try:
                output += os.read(leader, 4096)
            except OSError:
                break
        if not answered and until in output:
            os.write(leader, answer)
            answered = True
        if process.poll() is not None and not select.select([leader], [], [], 0.2)[0]:
            break
    process.kill() if process.poll() is None else None
    code = process.wait()
    os.close(leader)
    return output.decode(), code


def test_a_high_price_is_confirmed_on_a_terminal(home):
    words = ["sweep", "--datasets", "toy-a", "--methods", "bpr", "epochs=10000", "patience=0", "n_negatives=4096"]
    words += ["search.trials=50", "learning_rate={loguniform: [0.001, 0.1]}"]
    output, code = interact(words, b"n\n", b"start? [Y/n]")
    assert "1 dataset, 1 model, 50 fits of the search stage and 1 fits of the final stage: about" in output.replace("\r\n", "")
    assert "not started" in output and code == 2
    assert not (home / "results" / "sweeps").exists() or not any((home / "results" / "sweeps").iterdir())
