"""Foreign lists in a leaderboard: shown beside the ranks with a mark, and part of no rank and no test."""

import json
from dataclasses import replace

import rankbench.api as rb
from rankbench.cli import _main
from rankbench.core.environment import Environment
from rankbench.leaderboard.results import Foreign, Leaderboard

from .entries import entry


def test_foreign_lists_stand_beside_the_ranks_of_the_same_data(home, capsys):
    environment = Environment.from_env()
    data = rb.dataset("synthetic", environment=environment)
    model = rb.fit(data, "popularity", environment=environment, progress=False)
    model.recommend(model.users.to_pylist(), k=50).to_parquet(home / "theirs.parquet")
    store = Leaderboard(home / "store")
    for name, value in (("ease", 0.2), ("bpr", 0.1)):
        store.add(replace(entry("synthetic", name, value), fingerprint=data.fingerprint))
    words = ["leaderboard", "show", "--store", "store", "--json"]
    assert _main(words) == 0
    before = json.loads(capsys.readouterr().out)

    evaluate = ["evaluate", "synthetic", "theirs.parquet", "--no-track", "--leaderboard", "store"]
    assert _main([*evaluate, "--seconds", "7"]) == 0
    assert _main([*evaluate, "--on", "valid"]) == 2 and "leave out --on" in capsys.readouterr().err
    (line,) = Leaderboard(home / "store").lines(Foreign, "synthetic")
    assert (line.name, line.seconds, line.fit_on) == ("theirs (foreign lists)", 7.0, "train+valid")
    assert _main(words) == 0
    after = json.loads(capsys.readouterr().out)
    assert {**after, "foreign": []} == before and after["foreign"][0]["metrics"]["ndcg@20"][0] == line.metrics["ndcg@20"][0]
    assert _main(words[:-1]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"Not ranked, because they have no budget: {line.name} on synthetic, fitted on train+valid, ndcg@20 0." in said

    Leaderboard(home / "store").add(replace(line, name="old (foreign lists)", fingerprint="other data"))
    assert _main(["leaderboard", "page", "--store", "store", "--out", "site"]) == 0
    page = (home / "site" / "dataset-synthetic.html").read_text(encoding="utf-8")
    assert line.name in page and "Foreign lists" in page and "old (foreign" not in page
