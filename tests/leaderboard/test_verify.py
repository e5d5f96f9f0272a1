"""Entries of a store that are measured again: what comes back to the digit, what is close, what differs, and wrong names."""

import itertools
import json
from dataclasses import replace

import pytest

from rankbench.cli import _main
from rankbench.core.environment import Environment
from rankbench.data.cards import load_card
from rankbench.data.prepare import prepare
from rankbench.experiment.estimate import Size
from rankbench.leaderboard.agenda import rules_of
from rankbench.leaderboard.contest import Entry
from rankbench.leaderboard.entrants import entrants
from rankbench.leaderboard.entry import Attempt
from rankbench.leaderboard.results import Leaderboard, Result
from rankbench.leaderboard.verify import again

RULES = rules_of("ndcg@20", 1)


@pytest.fixture
def environment(home):
    return Environment.from_env()


@pytest.fixture
def store(environment, monkeypatch):
    """A store with entries of a closed form, of alternating least squares and of gradient steps."""
    reads = itertools.count()
    monkeypatch.setattr("rankbench.leaderboard.entry.processor_seconds", lambda n_threads: next(reads) / 8)
    results, card = Leaderboard(environment.results / "store"), load_card("synthetic", environment)
    for name in ("ease", "ials", "sl"):
        dataset = prepare(card, environment)
        each = Entry(entrants(RULES.metric)[name], card, Size.of(dataset), 1.0, results, RULES, dataset.fingerprint)
        attempt = Attempt(each.unit.job, environment)
        attempt.load()
        attempt.warm_up()
        list(attempt.search())
        results.add(each.result(attempt.test().record))
    return results


@pytest.fixture
def verify(store, capsys):
    def command(*words, code=0):
        assert _main(["leaderboard", "verify", *words, "--store", str(store.folder), "--json"]) == code
        output, errors = capsys.readouterr()
        return errors if code == 2 else json.loads(output)

    return command


def test_all_digits_come_back_and_a_value_that_was_changed_is_found(store, verify, environment):
    found = verify("--draw", "3")
    assert found["counts"] == {"equal": 3} and {each["entry"] for each in found["entries"]} == {
        "synthetic/ease/1s", "synthetic/ials/1s", "synthetic/sl/1s",
    }  # fmt: skip
    assert all(each["n_metrics"] > 10 and not each["elsewhere"] for each in found["entries"])
    assert verify("--draw", "1", "--seed", "5") == verify("--draw", "1", "--seed", "5")
    (entry,) = [each for each in store.lines(Result, "synthetic") if each.entrant == "ials"]
    mean, low, high = entry.metrics["recall@50"]
    store.add(replace(entry, metrics=entry.metrics | {"recall@50": (mean + 1e-6, low, high)}))
    found = verify("synthetic/ials", "synthetic/ease/1s", code=1)
    assert found["counts"] == {"differs": 1, "equal": 1}
    (differs,) = [each for each in found["entries"] if each["verdict"] == "differs"]
    assert differs["difference"] == 0 and differs["largest_difference"] == pytest.approx(1e-6 / mean, rel=1e-3)
    (ease,) = [each for each in store.lines(Result, "synthetic") if each.entrant == "ease"]
    store.add(replace(ease, metrics=ease.metrics | {"map@20": (0.9, None, None)}))  # which the leaderboard does not measure
    assert verify("synthetic/ease", code=1)["entries"][0]["n_metrics"] == len(ease.metrics) + 1
    # Of another machine, only the metric that chose has to be close, and it may not be far either.
    value, low, high = entry.metrics["ndcg@20"]
    for share, verdict in ((0.004, "close"), (0.006, "differs")):
        other = replace(entry, cpu="another", metrics=entry.metrics | {"ndcg@20": (value / (1 + share), low, high)})
        verified = again(other, environment)
        assert verified.verdict == verdict and verified.elsewhere[0].startswith("processor another, here ")


def test_wrong_names_and_other_data(store, verify, monkeypatch):
    assert "name entries as DATASET/METHOD, or draw some with --draw 20" in verify(code=2)
    assert "synthetic: write DATASET/METHOD" in verify("synthetic", code=2)
    assert "synthetic/bpr: " in verify("synthetic/bpr", code=2)
    assert "has no such entry" in verify("synthetic/ials/30s", code=2)
    (entry,) = [each for each in store.lines(Result, "synthetic") if each.entrant == "ease"]
    store.add(replace(entry, card="0" * 64, started_at="2020"))  # of the data before
    assert [each["verdict"] for each in verify("synthetic/ease")["entries"]] == ["equal"]
    monkeypatch.setattr("rankbench.leaderboard.verify.run", lambda job, *_: pytest.fail(f"{job.title} was fitted"))
    store.add(replace(entry, dataset="movielens-100k", card="0" * 64))
    assert "the card of movielens-100k is another one" in verify("synthetic/ials", "movielens-100k/ease", code=2)
    store.add(replace(entry, card="0" * 64, started_at="2999"))
    store.add(replace(entry, status="failed", metrics={}, reason="no memory", card="1" * 64))
    assert "synthetic/ease/1s: the card of synthetic is another one" in verify("synthetic/ease", code=2)
