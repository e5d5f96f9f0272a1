"""`run` and `fit` with --dry-run --nodes: a prediction on stdout and nothing else, or one line and exit code 2."""

import json

import pytest

from rankbench.cli import _main

pytestmark = pytest.mark.usefixtures("home")

NODES = ["--dry-run", "--nodes", "4x16x128GB@10"]
SIZE = ["data.source.generator.users=600", "data.source.generator.items=3000"]


@pytest.mark.parametrize("command", ["run", "fit"])
def test_a_plan_names_nodes_hours_bytes_and_memory_and_writes_nothing(command, home, capsys):
    assert _main([command, "synthetic", "ease", "lam=20", *SIZE, *NODES]) == 0
    text = " ".join(capsys.readouterr().out.split())
    named = "2,815 items, 4 nodes of 16 cores and 128 GB, 10 Gbit/s"
    for words in (named, "hours", "over the wire:", "memory per node:", "measured ones", "so expect"):
        assert words in text
    assert not (home / "results").exists() and not (home / "model").exists()


def test_a_plan_as_an_object(capsys):
    assert _main(["run", "synthetic", "ease", *SIZE, *NODES, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["n"] == 2815 and found["seconds"] > found["arithmetic"] > 0 and 0 < found["efficiency"] < 1
    assert found["sent"] > 0 and found["held"] > 0 and found["tasks"] > 0 and "%" in found["error"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ease", "--dry-run"], "--dry-run: name the nodes too, such as --nodes 16x16x128GB@10"),
        (["ease", "--nodes", "4x16x128GB@10"], "--nodes: only describes nodes for --dry-run; --address joins a cluster"),
        (["ease", *NODES, "--seed", "3"], "--seed: no effect on what --dry-run predicts; leave it out"),
        (["ease", *NODES, "--resume"], "--resume: no effect on what --dry-run predicts; leave it out"),
        (["ease", "--dry-run", "--nodes", "four"], "--nodes: expected NODESxCORESxMEMORY@GIGABITS such as 16x16x128GB@10"),
        (["ials", *NODES], "--nodes: only closed forms are planned on nodes, and ials is none"),
        (
            ["ease", "--dry-run", "--nodes", "2x1x20MB@10"],
            "--nodes: 2,815 items on 2 nodes of 0.02 GB cannot work: the tiles take",
        ),
    ],
)
@pytest.mark.parametrize("command", ["run", "fit"])
def test_what_cannot_be_planned_is_one_line(command, words, message, home, capsys):
    assert _main([command, "synthetic", *words, *SIZE]) == 2
    error = capsys.readouterr().err
    assert message in error and error.strip().count("\n") == 0
    assert not (home / "results").exists() and not (home / "model").exists()
