"""Lists of another program: the loop of export, fit elsewhere and evaluate closes, and what becomes of users and items."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import rankbench.api as rb
from rankbench.cli import _main
from rankbench.core.errors import ConfigError, DataError
from rankbench.data.export import export
from rankbench.tracking.record import read_per_user, read_record
from rankbench.tracking.run_fields import record_tags

METRICS = ["recall", "ndcg", "mrr", "coverage", "popularity"]
NUMBERS = {"integers": str, "leading zeros": "{:04d}".format, "unicode": "é{} 中".format}


def interactions(ids):
    """Rows in time order with ids of a kind; a few late users have no past."""
    rng, name = np.random.default_rng(3), NUMBERS[ids]
    pairs = [(user, item) for user in range(70) for item in rng.choice(40, 12, replace=False, p=np.arange(1, 41) / 820)]
    frame = pd.DataFrame([(name(u), name(i)) for u, i in pairs], columns=["user", "item"])
    if ids == "integers":
        frame = frame.astype("int64")
    late = np.array([user >= 66 for user, _ in pairs])
    return frame.assign(time=np.where(late, 10**9 + 5000, 0) + rng.integers(10**8, 10**8 + 900, len(frame)))


def known_elsewhere(folder, ids, read):
    """What the other program reads of the export: histories by user, the users to rank items for, all items; in raw ids."""
    tables = {path.stem: read(path) for path in folder.glob("*.*") if path.suffix in (".parquet", ".csv")}
    parts = ["train", "valid"] if "test_history" not in tables else ["test_history"]
    known = {}
    for part in parts:
        for user, item in tables[part].itertuples(index=False):
            known.setdefault(user, set()).add(item)
    return known, sorted(set(tables["test"].iloc[:, 0])), tables


@pytest.mark.parametrize(
    ("split", "method", "ids", "format"),
    [
        ({"protocol": "random-per-user"}, "ials", "integers", "csv"),
        ({"protocol": "leave-one-out"}, "ials", "leading zeros", "csv"),
        ({"protocol": "temporal"}, "ials", "unicode", "parquet"),
        ({"protocol": "temporal", "cold_users": "popularity"}, "ials", "integers", "lenskit"),
        ({"protocol": "held-out-users", "valid": 10, "test": 15}, "ease", "leading zeros", "parquet"),
    ],
)
def test_vectors_ranked_elsewhere_have_the_values_of_our_own_evaluation(
    split, method, ids, format, environment, tmp_path, monkeypatch
):
    data = rb.dataset(interactions(ids), time="time", split=split, name="shop", environment=environment)
    model = rb.fit(data, method, dtype="float64", environment=environment, progress=False)
    own = model.evaluate(metrics=METRICS, cutoffs=[5, 20], environment=environment)
    monkeypatch.setattr("rankbench.data.export.AT_ONCE", 50)  # several blocks, as of large data
    export(data, tmp_path / "shop", format, True, ["shop"])

    # The other program: plain NumPy, and nothing but the files and vectors by raw id.
    read = pd.read_parquet if format != "csv" else lambda path: pd.read_csv(path, dtype=None if ids == "integers" else str)
    known, users, _ = known_elsewhere(tmp_path / "shop", ids, read)
    items = model.items.to_pylist()
    at = {item: position for position, item in enumerate(items)}
    row = {user: position for position, user in enumerate(model.users.to_pylist())}
    rows = []
    for user in users:
        history = [at[item] for item in known.get(user, ())]
        if method == "ease":
            scores = model.recommender.dense_weights()[history].sum(axis=0)
        else:
            scores = model.recommender.V @ model.recommender.U[row[user]]
        scores[history] = -np.inf
        order = np.lexsort((np.arange(len(items)), -scores))[:20]
        rows += [(user, items[item], rank) for rank, item in enumerate(order, start=1) if scores[item] > -np.inf]
    lists = pd.DataFrame(rows, columns=["user", "item", "rank"])
    lists.sample(frac=1, random_state=0).to_csv(tmp_path / "lists.csv", index=False)

    for given in (lists, tmp_path / "lists.csv"):
        theirs = rb.evaluate(data, given, metrics=METRICS, cutoffs=[5, 20], environment=environment)
        pd.testing.assert_frame_equal(theirs.per_user, own.per_user, check_exact=True)
        assert theirs.metrics == own.metrics and theirs.left_out == own.left_out
        said = " ".join(theirs.notes)
        assert ("ranked by popularity instead of the list" in said) == ("cold_users" in split)
        assert "cold_users" not in split or "without being measured" not in said
    assert rb.compare({"ours": own, "theirs": theirs}, "ndcg@20")["verdict"].tolist() == ["identical for every user"]


PARTS = {
    "train": [("a", "x1"), ("a", "x2"), ("b", "x1"), ("c", "x3"), ("d", "x4"), ("e", "x6")],
    "valid": [("e", "x5")],
    "test": [("a", "x3"), ("b", "x2"), ("c", "x1"), ("d", "x1")],
}


@pytest.fixture
def shop(environment):
    return rb.dataset(
        {part: pd.DataFrame(rows, columns=["user", "item"]) for part, rows in PARTS.items()},
        name="shop", environment=environment,
    )  # fmt: skip


def listed(*rows, column="rank"):
    return pd.DataFrame(rows, columns=["user", "item", column])


def test_seen_items_go_before_the_cut_and_users_without_a_list_count_as_zero(shop, environment):
    rows = [
        ("a", "x1", 1), ("a", "x3", 2), ("a", "x4", 3),  # x1 is in train, so that x3 is first
        ("b", "x3", 1), ("b", "x2", 2),
        ("e", "x1", 1), ("unknown", "x1", 1),  # neither is measured
    ]  # fmt: skip
    found = rb.evaluate(shop, listed(*rows), metrics="mrr", cutoffs=2, environment=environment)
    assert dict(found.per_user.itertuples(index=False)) == {"a": 1.0, "b": 0.5, "c": 0.0, "d": 0.0}
    assert found.notes == (
        "2 users have no list, and each counts as 0",
        "left out before lists are cut, because the user's history has them: 1 item",
        "2 users have a list without being measured",
    )
    assert "has them: 1 item" in repr(found) and "lists (foreign lists)" in repr(found)
    short = rb.evaluate(shop, listed(*rows), metrics="mrr", cutoffs=3, environment=environment)
    assert "2 users have fewer than 3 items" in short.notes


def test_scores_order_a_list_where_there_is_no_rank_and_the_lower_id_goes_first_in_a_tie(shop, environment):
    scores = listed(("a", "x4", 0.5), ("a", "x3", 0.5), ("b", "x2", -1.0), ("b", "x3", -2.0), column="score")
    found = rb.evaluate(shop, scores, metrics="mrr", cutoffs=2, environment=environment)
    assert dict(found.per_user.itertuples(index=False)) == {"a": 1.0, "b": 1.0, "c": 0.0, "d": 0.0}
    assert "1 user has equal scores, where the lower item id goes first" in found.notes
    both = rb.evaluate(shop, scores.assign(rank=[1, 2, 2, 1]), metrics="mrr", cutoffs=2, environment=environment)
    assert dict(both.per_user.itertuples(index=False)) == {"a": 0.5, "b": 0.5, "c": 0.0, "d": 0.0}


def test_what_cannot_be_measured_is_refused(shop, environment, tmp_path):
    good = listed(("a", "x3", 1), ("b", "x2", 1))
    (tmp_path / "one.csv").write_text("user,item,rank\na,x3,1\n\na,nothing,2\n", encoding="utf-8")
    for lists, about, message in [
        (listed(("a", "x3", 1)), {}, r"only 1 of the 4 measured users have a list; allow_missing=True counts the others as 0"),
        (listed(("e", "x3", 1)), {}, r"none of the 4 measured users has a list"),
        (good, {"metrics": ["auc", "ndcg"]}, r"^metrics: auc needs the scores of all items"),
        (good, {"metrics": "ndcg@2"}, r"^cutoffs: no effect, because no metric uses them"),
        (good, {"metrics": ["ndcg@7", "mrr"]}, r"^metrics: 7 is more than the 6 items of shop"),
        (good, {"cutoffs": [2, 7]}, r"^cutoffs: 7 is more than the 6 items of shop"),
        (good, {"cutoffs": (10, 20, 50)}, r"^the default of cutoffs: 50 is more than the 6 items of shop"),
        (good, {"on": "valid", "fit_on": "train+valid"}, r"^fit_on: what was fitted on train\+valid cannot be measured"),
        (good, {"on": "train"}, r"on: expected test or valid, got 'train'"),
        (listed(("e", "x1", 1)), {"on": "valid"}, r"^lists: no list has an item of valid, as if these were fitted on it"),
        (listed(("a", "x3", 1), ("a", "x9", 2)), {}, r"lists: row 1 from 0: item 'x9' is not among the items of shop"),
        (tmp_path / "one.csv", {}, r"one\.csv:4: item 'nothing' is not among the items of shop"),
    ]:
        with pytest.raises((ConfigError, DataError), match=message):
            rb.evaluate(shop, lists, **({"metrics": "ndcg", "cutoffs": 2} | about), environment=environment)
    allowed = rb.evaluate(shop, good[:1], metrics="hit", cutoffs=2, allow_missing=True, environment=environment)
    assert allowed.metrics["hit@2"].mean == 0.25
    found = rb.evaluate(shop, listed(("e", "x5", 1)), metrics="hit", cutoffs=2, on="valid", environment=environment)
    assert found.metrics["hit@2"].mean == 1.0


def test_lists_without_a_name_have_that_of_their_file(shop, environment, tmp_path):
    listed(("a", "x3", 1), ("b", "x2", 1)).to_csv(tmp_path / "mine.v2.csv", index=False)
    found = rb.evaluate(shop, tmp_path / "mine.v2.csv", metrics="hit", cutoffs=2, environment=environment)
    assert found.method == "mine (foreign lists)"


def test_the_preparation_of_data_shows_its_progress(environment, tmp_path):
    pairs = [(user, item) for user in range(8) for item in range(9) if (user + item) % 3]
    (tmp_path / "raw.csv").write_text("user,item\n" + "".join(f"{user},{item}\n" for user, item in pairs), encoding="utf-8")
    (tmp_path / "toy.yaml").write_text("{name: toy, source: {file: raw.csv}}", encoding="utf-8")
    lists = pd.DataFrame([(user, item, item) for user in range(8) for item in range(9)], columns=["user", "item", "rank"])
    about = {"metrics": "hit@2", "environment": environment, "progress": lambda *how_far: said.append(how_far)}
    said = []
    rb.evaluate(str(tmp_path / "toy.yaml"), lists, **about)
    assert said == [("read", len(pairs), None)]


def test_ids_of_one_kind_are_not_those_of_another(environment):
    parts = {part: pd.DataFrame(rows, columns=["user", "item"]) for part, rows in PARTS.items()}
    for zeros, good, wrong in ((True, "03", 3), (False, 3, "03")):
        name = (lambda each: f"0{each[1]}") if zeros else (lambda each: int(each[1]))
        data = rb.dataset({part: t.assign(item=t["item"].map(name)) for part, t in parts.items()}, environment=environment)
        about = {"metrics": "hit", "cutoffs": 1, "allow_missing": True, "environment": environment}
        assert rb.evaluate(data, listed(("a", good, 1)), **about).metrics["hit@1"].mean == 0.25
        assert rb.evaluate(data, pa.table(listed(("a", str(good), 1))), **about).metrics["hit@1"].mean == 0.25
        with pytest.raises(DataError, match=f"item {wrong!r} is not among the items"):
            rb.evaluate(data, listed(("a", wrong, 1)), **about)


def test_the_command_keeps_a_record_that_compare_finds(home, capsys):
    data = ["synthetic", "data.source.generator.users=80", "data.source.generator.items=60"]
    assert _main(["run", *data[:1], "ease", *data[1:], "--no-track"]) == 0
    assert _main(["data", "export", *data, "--split", "--format", "csv", "--out", "out", "--json"]) == 0
    about = json.loads((home / "out" / "split.json").read_text(encoding="utf-8"))
    assert about["evaluate"] == f"rankbench evaluate synthetic LISTS {data[1]} {data[2]}"
    assert _main(["data", "export", *data, "--split", "--out", "out"]) == 2
    assert "out: already exists; choose another folder" in capsys.readouterr().err
    test, train = (pd.read_csv(home / "out" / f"{part}.csv") for part in ("test", "train"))
    popular = train["item"].value_counts().index[:50]
    frame = pd.DataFrame(
        [(u, i, r) for u in test["user"].unique() for r, i in enumerate(popular)], columns=["user", "item", "rank"]
    )
    frame.to_parquet(home / "mine.parquet")
    words = ["evaluate", data[0], "mine.parquet", *data[1:], "--seconds", "2.5", "--no-track"]
    assert _main(words) == 0
    said = capsys.readouterr().out
    assert "mine (foreign lists) on synthetic" in said and "the user's history has them: " in said
    (folder,) = (home / "results" / "runs").glob("*-lists-*")
    record = read_record(folder)
    assert (record.method, record.lists.file, record.lists.rows) == ("lists", "mine.parquet", len(frame))
    assert record.seconds["fit"] == 2.5 and record.lists.told_seconds and len(read_per_user(folder)) == record.users["measured"]
    assert record_tags(record, folder)["rankbench.lists"] == f"mine.parquet, sha256 {record.lists.sha256}"
    assert _main([*words, "--json"]) == 0 and json.loads(capsys.readouterr().out)["lists"]["sha256"] == record.lists.sha256
    (own,) = (home / "results" / "runs").glob("*-ease-*")
    assert _main(["compare", own.name, folder.name]) == 0
    assert "mine (foreign lists)" in capsys.readouterr().out
    assert _main([*words, "--on", "valid"]) == 0
    said = capsys.readouterr().out
    assert "measured on valid" in said and "users without valid items are left out" in said and "test items" not in said
    for more, problem in ((["lam=3"], "lam: only data.PATH=VALUE"), (["--on", "train"], "--on: expected test or valid")):
        assert _main([*words, *more]) == 2 and problem in capsys.readouterr().err
