"""The pages of a leaderboard: complete, linked, harmless, and with commands that repeat their numbers."""

import csv
import html
import re
import shlex
import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from rankbench.core.config import scalar
from rankbench.experiment.job import configure
from rankbench.leaderboard.board import Board
from rankbench.leaderboard.collection import Collection
from rankbench.leaderboard.results import Leaderboard, Result
from rankbench.leaderboard.site import command, ties, write_site, write_summary

from .entries import entry

RNG = np.random.default_rng(5)
COLLECTION = Collection.model_validate({"datasets": {"ml": {"domain": "films", "split": "random", "source": "films"}}}).datasets
QUALITY = {"sl": 0.5, "bpr": 0.3, "copy": 0.3, "random": 0.1}


def filled(folder):
    """A store of four methods on five datasets at two budgets, in which `copy` is `bpr` for every user."""
    results = Leaderboard(folder)
    for dataset in ("ml", "lastfm", "wiki", "beauty", "games"):
        noise = RNG.random(300)
        for allowed, seconds in (("12s", 12.0), ("10s", 10.0)):
            for entrant, quality in QUALITY.items():
                lost = entrant == "random" and dataset == "ml"
                quality = 0.05 if (entrant, dataset) == ("sl", "wiki") else quality
                values = quality * noise + 0.01 * len(entrant) * (quality != 0.3)
                result = entry(
                    dataset, entrant, allowed=allowed, budget=seconds, status="over budget" if lost else "finished",
                    reason="</td><script>alert(1)</script>" if lost else "",
                    method="bpr" if entrant == "copy" else entrant, params={"tau": 0.1, "surrogate": "tanh"},
                    metrics={} if lost else {"ndcg@20": (float(values.mean()), 0.1, 0.2), "recall@20": (0.4, None, None)},
                    traits={"density": 1 / len(dataset)}, seconds={"all": 9.0, "fit": 2.0, "search": 5.0},
                    valid=quality, curve=((1.0, quality / 2), (6.0, quality)),
                )  # fmt: skip
                users = pa.array([str(user) for user in range(300)])
                results.add(result, None if lost else pa.table({"user": users, "ndcg@20": values.astype(np.float32)}))
    return results


def boards_of(results):
    return [Board(tuple(e for e in results.all(Result) if e.allowed == name), name, "ndcg@20") for name in ("12s", "10s")]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("leaderboard")
    results = filled(folder / "store")
    paths = write_site(folder / "site", boards_of(results), results, {"sl": ["gradient", "softmax"]}, COLLECTION)
    return {path.name: path for path in paths}


def test_the_standings_alone_are_one_page_with_its_pictures(tmp_path):
    page, *pictures = write_summary(tmp_path / "standings.md", boards_of(filled(tmp_path / "store")), {})
    text = page.read_text()
    assert text.startswith("# Leaderboard\n\n**4 methods on 5 datasets, 12s each") and "| sl " in text
    assert len(pictures) == 3 and all(f"]({path.name})" in text and path.is_file() for path in pictures)
    # There are no other pages, and a reason from outside, which is one of the entries, is not shown.
    assert not re.findall(r"(?<!!)\[[^]]*\]\(", text) and "script" not in text


def test_every_link_leads_to_a_page(site):
    assert {"index.html", "budget-10s.html", "dataset-lastfm.html", "method-copy.html", "entries.csv"} <= set(site)
    for name, path in site.items():
        for target in re.findall(r'href="([^"#]+)"', path.read_text() if name.endswith("html") else ""):
            assert html.unescape(target) in site, (name, target)


def test_a_dataset_has_a_page_for_each_larger_budget(tmp_path):
    results = filled(tmp_path / "store")
    paths = write_site(tmp_path / "site", boards_of(results)[::-1], results, {}, COLLECTION)
    texts = {path.name: path.read_text() for path in paths}
    for name in ("dataset-lastfm.html", "budget-12s.html", "method-sl.html"):
        assert 'href="dataset-lastfm-12s.html"' in texts[name], name
    large = texts["dataset-lastfm-12s.html"]
    assert 'href="dataset-lastfm.html"' in large and "Leaderboard: lastfm, 12s" in large


def test_the_index_says_what_the_board_says(site):
    text = site["index.html"].read_text()
    assert "4 methods on 5 datasets, 12s each" in text and "<figure>" not in text
    assert 'id="explorer"' in text and '"families":["gradient","softmax"]' in text
    assert 'id="explorer"' not in (other := site["budget-10s.html"].read_text()) and other.count("<figure>") == 3
    # Nothing is loaded from elsewhere, and no text becomes markup.
    assert "<script>alert" not in text and not re.search(r'(src|href)="(https?:)?//', text)


def test_equal_methods_are_not_told_apart_on_a_dataset(site):
    rows = re.findall(r"<tr>\s*<th scope=\"row\">.*?</tr>", site["dataset-lastfm.html"].read_text(), re.DOTALL)
    verdicts = {name: row for row in rows for name in QUALITY if f">{name}<" in row and "0.1000" in row}
    assert list(verdicts) == ["sl", "bpr", "copy", "random"]
    assert ["worse" in verdicts[name] for name in QUALITY] == [False, True, True, True]
    assert "over budget" in site["dataset-ml.html"].read_text()
    # bpr and its copy are both second, or first on wiki.
    places = {name: {*re.findall(r"(\d) of [34]", site[f"method-{name}.html"].read_text())} for name in ("bpr", "copy")}
    assert places == {"bpr": {"1", "2"}, "copy": {"1", "2"}}


def test_verdicts_travel_with_the_store_and_those_of_other_entries_do_not_count(tmp_path):
    def tied(ranked):
        return ties(ranked, "ndcg@20", Leaderboard(tmp_path))

    filled(tmp_path)
    bpr, copy, random, sl = (each for each in Leaderboard(tmp_path).lines(Result, "lastfm") if each.allowed == "10s")
    ranked = [sl, bpr, copy, random]
    found = tied(ranked)
    assert found.best == "sl" and found.equal == () and set(found.worse) == {"bpr", "copy", "random"}
    assert tied([bpr, copy]).equal == ("copy",)
    found = tied(ranked)
    shutil.rmtree(tmp_path / "users")
    assert tied(ranked) == found and found.verdict("copy") == "worse" and found.verdict("sl") == ""
    assert tied([replace(sl, started_at="2027-01-01T00:00:00+00:00"), bpr, copy, random]) is None


def test_the_data_are_complete(site):
    rows = [*csv.DictReader(site["entries.csv"].open())]
    assert len(rows) == 40 and {row["budget"] for row in rows} == {"12s", "10s"}
    assert sum(row["ndcg@20"] == "" for row in rows) == 2


def test_a_command_gives_the_parameters_back():
    params = {"tau": 0.1 + 0.2, "include_positive": False, "epochs": 7, "model": "lightgcn", "n_layers": 2}
    for method, values in (("sl", params | {"learning_rate": 1e-05}), ("edlae", {"lam": 1e-05, "p": 0.3})):
        words = shlex.split(command(entry("ml", method, method=method, params=values)))
        assert words[:6] == ["rankbench", "run", "ml", method, "--fit-on", "train"]
        read = {name: scalar(value) for name, _, value in (word.partition("=") for word in words[6:])}
        assert configure(method, read) == configure(method, values)
    fixed = {"iterations": 8, "patience": 0, "eval_every": 0, "stop_metric": "ndcg@20"}  # as a race states its settings
    assert command(entry("ml", "ials", method="ials", params=fixed)).endswith("--fit-on train iterations=8 patience=0")
    last = shlex.split(command(entry("ml", "sl", method="sl", params={"text": "1e5"})))[-1]
    assert scalar(last.partition("=")[2]) == "1e5"  # and not a number


def test_curves_are_shares_of_the_best_that_any_method_found_and_a_dataset_shows_its_methods(site):
    method, dataset = (site[f"{name}.html"].read_text() for name in ("method-bpr", "dataset-wiki"))
    tips = re.findall(r"<title>(\w+)\s+6 s: ([0-9.]+)", method)
    # bpr has 0.3; sl has 0.5 everywhere but on wiki, where bpr and its copy are the best.
    assert dict(tips) == {
        name: "1.0000" if name == "wiki" else "0.6000" for name in ("beauty", "games", "lastfm", "ml", "wiki")
    }
    assert dict(re.findall(r"<title>(\w+)\s+6 s: ([0-9.]+)", dataset))["sl"] == "0.0500"
