"""A fitted model: what it recommends and finds similar, against dense scores sorted by hand; kept and read back."""

import json
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from model_folders import change_array, edit
from numpy.testing import assert_allclose

import rankbench.api as rb
from rankbench.cli.frames import read_columns, write_frame
from rankbench.core.environment import Environment
from rankbench.core.errors import ConfigError, DataError, StorageError
from rankbench.core.memory import Spill
from rankbench.experiment.execution import Execution
from rankbench.experiment.fitted_model import load

METHODS = {
    "ease": ("ease", {"lam": 20}),
    "deql-l2": ("deql-l2", {"p": 0.4, "lam_prime": 30}),
    "deql-l2 by tiles": ("deql-l2", {"p": 0.4, "lam_prime": 30}),
    "edlae-low-rank": ("edlae-low-rank", {"embedding_dim": 4, "iterations": 3}),
    "slim": ("slim", {}),
}


class NothingFits(Spill):
    """As if the machine had 30 MB."""

    def fits(self, n_items, itemsize, interactions):
        return False

    def left(self):
        return 30_000_000


@pytest.fixture(scope="module")
def card(tmp_path_factory):
    """Raw ids are words for users and shifted numbers for items."""
    rng = np.random.default_rng(5)
    rows = [f"u{user},{3 * item + 100}" for user in range(40) for item in rng.permutation(25)[: 8 + user % 5]]
    folder = tmp_path_factory.mktemp("card")
    (folder / "raw.csv").write_text("user,item\n" + "\n".join(rows), encoding="utf-8")
    (folder / "shop.yaml").write_text(yaml.safe_dump({"name": "shop", "source": {"file": "raw.csv"}}), encoding="utf-8")
    return str(folder / "shop.yaml")


@pytest.fixture(params=METHODS)
def model(request, card, environment, tmp_path):
    method, params = METHODS[request.param]
    spill = NothingFits(tmp_path / "spill", 0) if request.param.endswith("tiles") else None
    return rb.fit(card, method, environment=environment, dtype="float64", execution=Execution(spill=spill), **params)


def test_a_saved_matrix_outlives_the_file_it_came_from(card, environment, tmp_path):
    execution = Execution(spill=NothingFits(tmp_path / "spill", 0))
    model = rb.fit(card, "ease", environment=environment, execution=execution)
    expected, evaluated = model.recommend(["u1"], 7), model.evaluate(environment=environment, metrics=["ndcg@5", "auc"])
    model.save(tmp_path / "kept")
    shutil.rmtree(tmp_path / "spill")
    again = load(tmp_path / "kept")
    pd.testing.assert_frame_equal(again.recommend(["u1"], 7), expected)
    assert again.evaluate(environment=environment, metrics=["ndcg@5", "auc"]).metrics == evaluated.metrics
    state = tmp_path / "kept" / "tiles" / "panel.json"
    kept = json.loads(state.read_text(encoding="utf-8"))
    damaged = [kept | {"slots": [99] * len(kept["slots"])}, kept | {"problem": kept["problem"] | {"dtype": "object"}}, {}]
    damaged += [None, [], kept | {"slots": None}, kept | {"problem": None}, kept | {"tile": "x"}, kept | {"finished": None}]
    for each in damaged:
        state.write_text(json.dumps(each), encoding="utf-8")
        with pytest.raises(DataError, match="not a saved model"):
            load(tmp_path / "kept")
    shutil.rmtree(state.parent)
    with pytest.raises(DataError, match="not a saved model"):
        load(tmp_path / "kept")


def test_a_model_says_that_valid_chose_its_iteration_only_where_it_did(card, environment):
    small = {"embedding_dim": 2, "iterations": 3, "environment": environment, "progress": False}
    whole, ended = (rb.fit(card, "ials", patience=patience, **small) for patience in (0, 1))
    assert whole.iterations is None and whole.facts["fitted on"] == "train and valid of shop, seed 0"
    assert f"valid chose iteration {ended.iterations}" in repr(ended) and ended.iterations >= 1


class Pair:
    """A crew of two."""

    workers = 2

    def start(self, member, *arguments):
        raise AssertionError("nothing is fitted")


@pytest.mark.parametrize(
    ("execution", "message"),
    [
        (Execution(device="cuda"), "execution: ials runs only on CPUs; leave out device=cuda"),
        (Execution(crew=Pair()), "workers=2: ials is fitted by one worker only, because it is not trained by gradient steps"),
    ],
)
def test_what_a_fit_would_not_use_is_refused(card, environment, execution, message):
    with pytest.raises(ConfigError, match=message):
        rb.fit(card, "ials", environment=environment, execution=execution)


def test_a_model_is_not_saved_with_the_matrix_of_another(card, environment, tmp_path):
    execution = Execution(spill=NothingFits(tmp_path / "spill", 0))
    one = rb.fit(card, "ease", environment=environment, execution=execution, lam=10)
    expected = one.recommend(["u1"], 5)
    other = rb.fit(card, "ease", environment=environment, execution=execution, lam=1000)
    pd.testing.assert_frame_equal(one.recommend(["u1"], 5), expected)
    with pytest.raises(StorageError, match="replaced by another matrix"):
        one.save(tmp_path / "kept")
    other.save(tmp_path / "other")
    assert not (tmp_path / "kept").exists()


def by_hand(model, history, k, filter_seen=True):
    """Item ids and scores of the k best for one dense history row."""
    scores = history @ model.recommender.dense_weights()
    if filter_seen:
        scores = np.where(history > 0, -np.inf, scores)
    best = np.lexsort((np.arange(len(scores)), -scores))[:k]
    return [model.items[int(j)].as_py() for j in best], scores[best]


@pytest.mark.parametrize("filter_seen", [True, False])
def test_known_users_get_the_best_of_what_is_left(model, filter_seen):
    wanted = ["u7", "u39", "u0"]
    frame = model.recommend(wanted, k=6, filter_seen=filter_seen)
    assert list(frame.columns) == ["user", "rank", "item", "score"]
    for user in wanted:
        mine = frame[frame.user == user]
        row = model.users.to_pylist().index(user)
        items, scores = by_hand(model, model.history[[row]].toarray()[0], 6, filter_seen)
        assert mine["item"].tolist() == items and mine["rank"].tolist() == [1, 2, 3, 4, 5, 6]
        assert_allclose(mine["score"], scores, atol=1e-9)


def test_new_users_are_scored_by_what_they_met(model):
    met = {"ann": [100, 106, 172], "bob": [103, 999], "eve": [7]}
    frame = model.recommend_new(pd.DataFrame([(u, i) for u, items in met.items() for i in items], columns=["user", "item"]), 5)
    assert set(frame["user"]) == {"ann", "bob"}  # of eve the model knows nothing
    for user in ("ann", "bob"):
        history = np.isin(model.items.to_numpy(), met[user]).astype(float)
        items, scores = by_hand(model, history, 5)
        assert frame[frame.user == user]["item"].tolist() == items
        assert_allclose(frame[frame.user == user]["score"], scores, atol=1e-9)
    # The history of a known user gives what this user gets.
    items = model.items.to_numpy()[model.history[[model.users.to_pylist().index("u3")]].indices]
    new = model.recommend_new(pd.DataFrame({"user": ["x"] * len(items), "item": items}), 5)
    assert new["item"].tolist() == model.recommend(["u3"], 5)["item"].tolist()


def test_similar_items_are_those_of_a_history_of_one(model):
    frame = model.similar([103, 121], 4)
    assert list(frame.columns) == ["item", "rank", "similar", "score"]
    for item in (103, 121):
        expected, scores = by_hand(model, (model.items.to_numpy() == item).astype(float), 4)
        assert frame[frame["item"] == item]["similar"].tolist() == expected == model.similar(str(item), 4)["similar"].tolist()
        assert_allclose(frame[frame["item"] == item]["score"], scores, atol=1e-9)
    assert not (frame["item"] == frame["similar"]).any()


def test_nothing_is_listed_of_which_nothing_was_learned(tmp_path, environment):
    rows = [
        f"u{user},{item}" for user in range(40) for item in (range(10) if user % 2 else range(10, 20)) if item % 10 != user % 9
    ]
    (tmp_path / "raw.csv").write_text("user,item\n" + "\n".join([*rows, "u0,99", "u1,99"]), encoding="utf-8")
    (tmp_path / "shop.yaml").write_text(yaml.safe_dump({"name": "shop", "source": {"file": "raw.csv"}}), encoding="utf-8")
    model = rb.fit(str(tmp_path / "shop.yaml"), "itemknn", environment=environment, neighbours=20)
    for found in (model.recommend(["u4"], 21), model.similar([0], 21)):
        assert 0 < len(found) < 15 and (found["score"] > 0).all()
    cold = model.items.to_pylist().index(99)
    model.history.data[model.history.indices == cold] = 0
    model.history.eliminate_zeros()
    with pytest.raises(ConfigError, match="item 99 has no interactions in the data of the fit; leave it out"):
        model.similar([0, 99], 2)


def test_one_number_for_each_item_does_not_say_which_are_alike(environment):
    with pytest.raises(ConfigError, match="popularity has one number for each item"):
        rb.fit("synthetic", "popularity", environment=environment).similar(3)


def test_saved_and_loaded_it_is_the_same(model, tmp_path):
    again = load(model.save(tmp_path / "kept"))
    pd.testing.assert_frame_equal(model.recommend(["u1", "u2"], 7), again.recommend(["u1", "u2"], 7))
    with pytest.raises(ConfigError, match="already exists"):
        model.save(tmp_path / "kept")
    for name in ("\ud800", "\0"):
        with pytest.raises(ConfigError, match="no folder can have this name"):
            model.save(tmp_path / name)
    assert not list(tmp_path.glob(".tmp-*"))


def bytes_changed(content):
    content = bytearray(content)
    content[-5] ^= 1
    return bytes(content)


def written(name, content):
    """A file with other bytes."""

    def damage(folder):
        path = folder / name
        path.write_bytes(content(path.read_bytes()) if callable(content) else content)

    return damage


DAMAGE = [
    lambda folder: (folder / "model.json").unlink(),
    written("arrays.safetensors", b"\x80\x04pickle"),
    written("arrays.safetensors", bytes_changed),
    *(written("model.json", content) for content in (b"{", b"null", b"[" * 100_000, b"\xff\xfe{}")),
    *(
        partial(edit, **changes)
        for changes in [
            {"method": "eval"}, {"method": None}, {"format": 99}, {"form": "pickle"}, {"form": "low-rank"},
            {"form": ["linear"]},
            {"users": ["u1"]}, {"users": None}, {"users": ["u1", None]}, {"users": [["u1"]] * 40}, {"users": ["u1"] * 40},
            {"items": [2**70, *range(24)]}, {"items": [1.5] * 25}, {"items": [True, *range(24)]}, {"items": [[]] * 60_000},
            {"params": None}, {"params": {"lam": [[]]}}, {"dataset": "shop"}, {"seed": "x"}, {"fit_on": "test"},
            {"dataset": {"card": 1, "changes": {}, "name": "shop", "fingerprint": "x"}}, {"sha256": "0" * 64}, {"sha256": None},
        ]
    ),
    *(
        partial(change_array, name=name, change=change)
        for name, change in [
            ("model.extra", lambda _: np.zeros(3, np.float32)),
            ("model.C", lambda C: C[:, :-1]), ("model.C", lambda C: C.astype(np.float16)), ("model.alpha", lambda a: a[:-1]),
            ("history.indices", lambda indices: indices + 1), ("history.indices", lambda indices: indices[:-1]),
            ("history.indices", lambda indices: indices[:, None]), ("history.indptr", lambda indptr: indptr[::-1]),
            ("history.indptr", lambda indptr: indptr[:, None]), ("history.indptr", lambda indptr: np.append(indptr, 9)),
        ]
    ),
]  # fmt: skip


@pytest.fixture(scope="module")
def kept(card, tmp_path_factory):
    """The folder of a saved model."""
    folder = tmp_path_factory.mktemp("saved")
    environment = Environment(folder / "data", None, True, folder / "results", None, None)
    return rb.fit(card, "ease", environment=environment).save(folder / "kept")


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.fault("F14")
def test_a_damaged_folder_is_refused_by_name(kept, tmp_path, damage, figure):
    folder = Path(shutil.copytree(kept, tmp_path / "kept"))
    damage(folder)
    with pytest.raises((DataError, ConfigError), match=r"kept|unknown method") as error:
        load(folder)
    assert "\n" not in str(error.value) and len(str(error.value)) < 600
    figure("a model folder with pickle or damage: refused by name")


@pytest.mark.fault("F14")
def test_arrays_are_refused_by_their_header_before_anything_is_read(kept, tmp_path, figure):
    folder = Path(shutil.copytree(kept, tmp_path / "kept"))
    arrays = folder / "arrays.safetensors"
    for kind, shape, n_bytes, size, says in [
        ("F8_E4M3", [25, 25], 625, None, "numbers of the type F8_E4M3, expected F32 or F64"),
        ("I64", [25, 25], 5000, None, "numbers of the type I64"),
        ("F32", [25, 10**10], 10**12, None, r"its arrays take 1,000\.0 GB of memory"),
        ("F32", [25, 2**60], 100, None, "not the arrays of a model"),
        ("F32", [25, 25], 2500, 10**12, "not the arrays of a model"),
    ]:
        header = json.dumps({"model.C": {"dtype": kind, "shape": shape, "data_offsets": [0, n_bytes]}}).encode()
        with arrays.open("wb") as file:
            file.write(len(header).to_bytes(8, "little") + header)
            file.truncate(size or 8 + len(header) + n_bytes)  # a hole, which takes no space on the disk
        with pytest.raises(DataError, match=f"arrays\\.safetensors: .*{says}") as error:
            load(folder)
        assert "\n" not in str(error.value)
    arrays.write_bytes((80_000_000).to_bytes(8, "little") + b"{}")
    with pytest.raises(DataError, match="its header has more than 64 kB"):
        load(folder)
    folder = Path(shutil.copytree(kept, tmp_path / "long"))
    with (folder / "model.json").open("r+b") as file:
        file.truncate(10**12)  # more ids than the arrays have
    with pytest.raises(DataError, match=r"model\.json: not a saved model \(it may have 10,1\d\d values"):
        load(folder)
    figure("arrays of 1 TB, in float8 or with an impossible header: refused by the header")


def test_ids_with_commas_and_brackets_are_ids(environment, tmp_path):
    names = [f'[{number}], "{{\\' for number in range(60)]
    frame = pd.DataFrame([(user, number) for user in names for number in range(7)], columns=["user", "item"])
    model = rb.fit(frame, "popularity", environment=environment)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rankbench.core.config.MOST_VALUES", 50)
        assert load(model.save(tmp_path / "kept")).users.equals(model.users)


def test_an_autoencoder_folds_in_is_saved_and_finds_similar_items(card, environment, tmp_path):
    small = {"hidden_dim": 8, "latent_dim": 4, "epochs": 5}
    model = rb.fit(card, "multivae", environment=environment, dtype="float64", **small)
    row = model.users.to_pylist().index("u3")
    items = model.items.to_numpy()[model.history[[row]].indices]
    new = model.recommend_new(pd.DataFrame({"user": ["x"] * len(items), "item": items}), 5)
    known = model.recommend(["u3"], 5)
    assert new["item"].tolist() == known["item"].tolist()
    assert_allclose(new["score"], known["score"], rtol=1e-12)
    alone = model.recommend_new(pd.DataFrame({"user": ["x"], "item": [103]}), 4)
    assert model.similar(103, 4)["similar"].tolist() == alone["item"].tolist()
    folder = model.save(tmp_path / "kept")
    again = load(folder)
    pd.testing.assert_frame_equal(model.recommend(["u1", "u2"], 7), again.recommend(["u1", "u2"], 7))
    assert again.evaluate(environment=environment).metrics == model.evaluate(environment=environment).metrics
    for name, change in [("V", lambda V: V[:, :-1]), ("Q1", lambda Q1: Q1[:, :-1]), ("q2", lambda q2: q2[:-1])]:
        shutil.copytree(folder, tmp_path / "damaged", dirs_exist_ok=True)
        change_array(tmp_path / "damaged", f"model.{name}", change)
        with pytest.raises(DataError, match="damaged"):
            load(tmp_path / "damaged")


def test_users_of_whom_nothing_is_known_are_counted_and_answered_as_asked(card, environment):
    model, said = rb.fit(card, "ease", environment=environment), []
    known = model.recommend(["u2", "u1"], 3)
    skipped = model.recommend(["u2", "new", "u1"], 3, unknown="skip", warn=said.append)
    pd.testing.assert_frame_equal(skipped, known)
    popular = model.recommend(["u2", "new", "u1"], 3, unknown="popularity", warn=said.append)
    assert popular["user"].tolist() == ["u2"] * 3 + ["new"] * 3 + ["u1"] * 3
    counts = pd.Series(model.items.to_numpy()[model.history.indices]).value_counts()
    best = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:3]
    assert list(popular[popular.user == "new"][["item", "score"]].itertuples(index=False, name=None)) == best
    assert said == [
        f"unknown user id 'new' (1 such of 3 users); they get {what}" for what in ("no items", "the most popular items")
    ]
    with pytest.raises(ConfigError, match=r"unknown user id 'new' \(1 such of 3 users\); unknown: skip leaves them out"):
        model.recommend(["u2", "new", "u1"], 3)
    with pytest.raises(ConfigError, match="unknown: expected skip, popularity or error, got 'x'"):
        model.recommend(["u2"], unknown="x")
    # A user of the data whose interactions all lie in test has an id, and nothing to score from.
    row = model.users.to_pylist().index("u1")
    model.history.data[model.history.indptr[row] : model.history.indptr[row + 1]] = 0
    model.history.eliminate_zeros()
    assert model.recommend(["u1", "u2"], 3, unknown="skip", warn=said.append)["user"].tolist() == ["u2"] * 3
    assert said[-1] == "user 'u1' has no known interactions (1 such of 2 users); they get no items"
    assert model.first_known_user == next(user for user in model.users.to_pylist() if user != "u1")


def test_items_of_a_history_that_are_not_known_are_counted(card, environment):
    model, said = rb.fit(card, "ease", environment=environment), []
    met = pd.DataFrame({"user": ["ann", "ann", "eve"], "item": [100, 7, 8]})
    popular = model.recommend_new(met, 2, unknown="popularity", warn=said.append)
    assert popular["user"].tolist() == ["ann"] * 2 + ["eve"] * 2
    assert popular[:2].equals(model.recommend_new(met[:1], 2)) and popular["score"][2] >= popular["score"][3] >= 1
    assert said[0] == "2 of 3 interactions are with items that the model does not know, such as 7, and are left out"
    assert "unknown user id 'eve'" in said[1]
    with pytest.raises(ConfigError, match="unknown user id 'eve'"):
        model.recommend_new(met, 2, unknown="error")
    # A column of categories keeps those of the rows that were left out.
    kept = met.astype({"user": "category"})[:1]
    pd.testing.assert_frame_equal(model.recommend_new(kept, 2, unknown="error"), popular[:2])


def test_an_id_is_never_rounded(environment):
    model = rb.fit("synthetic", "popularity", changes={"source.generator.users": 60}, environment=environment)
    assert model.recommend([1.0], 2).equals(model.recommend([1], 2))
    for wrong in (1.5, float("nan"), float("inf"), 2.0**53, -1.0):
        with pytest.raises(ConfigError, match="unknown user id"):
            model.recommend([wrong])
    mixed = model.recommend([1.0, 1.5], 1, unknown="popularity", warn=str)
    assert mixed["user"].tolist() == ["1", "1.5"]
    for kind in (np.int32, np.float64):
        asked = model.recommend(np.array([1, 999], kind), 1, unknown="popularity", warn=str)
        assert asked["user"].tolist() == [1, 999]


def test_what_cannot_be_answered_is_said(card, environment):
    model = rb.fit(card, "ease", environment=environment)
    assert [*model.evaluate(metrics="ndcg@7", environment=environment).metrics] == ["ndcg@7"]
    assert [*model.evaluate(metrics="recall", cutoffs=3, environment=environment).metrics] == ["recall@3"]
    for call, message in [
        (lambda: model.recommend(["u1", "u400"]), r"unknown user id 'u400'"),
        (lambda: model.recommend(["u1"], k=26), "k = 26 is more than the 25 items"),
        (lambda: model.evaluate(cutoffs=[5, 26], environment=environment), "cutoffs: 26 is more than the 25 items"),
    ]:
        with pytest.raises(ConfigError, match=message):
            call()


def test_ids_that_a_spreadsheet_would_run_are_quoted_in_csv_and_read_back(tmp_path):
    ids = ["@mia", "=1+1", "-", "+49", "'n sync", "'=quoted", "plain", "it's"]
    write_frame(pd.DataFrame({"user": ids, "rank": range(len(ids))}), tmp_path / "out.csv")
    written = (tmp_path / "out.csv").read_text(encoding="utf-8")
    assert "\n'@mia,0\n'=1+1,1\n'-,2\n'+49,3\n''n sync,4\n''=quoted,5\nplain,6\nit's,7\n" in written
    assert read_columns(tmp_path / "out.csv", ("user",)) == {"user": ids}
    write_frame(pd.DataFrame({"user": ids}), tmp_path / "out.parquet")
    assert read_columns(tmp_path / "out.parquet", ("user",)) == {"user": ids}


def test_changes_of_the_card_are_kept_with_the_model(card, environment, tmp_path):
    changed = rb.fit(card, "ease", environment=environment, changes={"split.seed": 7}).save(tmp_path / "kept")
    model = load(changed)
    assert model.dataset["fingerprint"] != rb.fit(card, "ease", environment=environment).dataset["fingerprint"]
    assert model.evaluate(environment=environment).dataset == model.dataset["fingerprint"]


def test_the_same_interactions_with_other_ids_are_not_the_data_of_the_fit(environment):
    rng = np.random.default_rng(3)
    pairs = pd.DataFrame({"user": rng.integers(0, 30, 500), "item": rng.integers(0, 20, 500)}).drop_duplicates()
    from_0, from_1 = (rb.dataset(pairs.assign(user=pairs.user + n), environment=environment) for n in (0, 1))
    assert from_0.fingerprint == from_1.fingerprint
    model = rb.fit(from_0, "ease", environment=environment)
    assert model.evaluate(from_0, environment=environment).per_user["user"].min() == 0
    with pytest.raises(ConfigError, match="has other ids of users or items than the data that the model was fitted on"):
        model.evaluate(from_1, environment=environment)


def test_a_fit_on_all_is_of_every_interaction_and_cannot_be_measured(card, environment, tmp_path):
    model = rb.fit(card, "ease", environment=environment, dtype="float64", lam=20, fit_on="all")
    raw = pd.read_csv(card.replace("shop.yaml", "raw.csv"))
    X = pd.crosstab(raw.user, raw.item).loc[model.users.to_pylist(), model.items.to_pylist()].to_numpy(float)
    P = np.linalg.inv(X.T @ X + 20 * np.eye(X.shape[1]))
    W = np.eye(len(P)) - P / np.diag(P)
    assert_allclose(model.recommender.dense_weights(), W, atol=1e-10)
    again = load(model.save(tmp_path / "kept"))
    for part in ("valid", "test"):
        with pytest.raises(ConfigError, match=f"fitted on train, valid and test cannot be measured on {part}"):
            again.evaluate(on=part, environment=environment)
    with pytest.raises(ConfigError, match="fit_on=all: talos: no validation set is left"):
        rb.fit(card, "talos", environment=environment, fit_on="all", patience=2)


def test_the_command_line_takes_ids_and_gives_files(card, environment, tmp_path, capsys, monkeypatch):
    from rankbench.cli import _main

    monkeypatch.setenv("RANKBENCH_DATA", str(environment.data))
    kept, users, out = tmp_path / "kept", tmp_path / "users.csv", tmp_path / "out.parquet"
    users.write_text("user\nu1\nu5\n", encoding="utf-8")
    only_names, strange = tmp_path / "only_names.csv", tmp_path / "strange.csv"
    only_names.write_text("user,item\n", encoding="utf-8")
    strange.write_text("user,item\nnew,99999\nann,103\n", encoding="utf-8")
    assert _main(["fit", card, "ease", "lam=20", "--out", str(kept)]) == 0
    assert _main(["recommend", str(kept), "--users", str(users), "-k", "3", "--out", str(out)]) == 0
    pd.testing.assert_frame_equal(pd.read_parquet(out), load(kept).recommend(["u1", "u5"], 3))
    assert _main(["similar", str(kept), "--item", "103", "-k", "2", "--json"]) == 0
    capsys.readouterr()
    assert _main(["recommend", str(kept), "--history", str(strange), "--json"]) == 0
    said = capsys.readouterr()
    assert {row["user"] for row in json.loads(said.out)} == {"ann"}
    assert "warning: 1 of 2 interactions are with items" in said.err and "unknown user id 'new'" in said.err
    assert _main(["recommend", str(kept), "--user", "nobody", "--unknown", "popularity", "-k", "2", "--json"]) == 0
    assert [row["rank"] for row in json.loads(capsys.readouterr().out)] == [1, 2]
    for words, message in {
        ("recommend", str(kept), "--user", "nobody"): "unknown user id 'nobody'",
        ("recommend", str(kept), "--user", "u1", "--unknown", "x"): "--unknown: expected skip, popularity, error, got x",
        ("recommend", str(kept)): "give at least one user",
        ("recommend", str(kept), "--all", "--out", "x.xlsx"): "ends in .csv or .parquet",
        ("fit", card, "ease", "--out", str(kept)): "already exists",
        ("recommend", str(kept), "--users", str(only_names)): "only_names.csv: no rows",
    }.items():
        assert _main(list(words)) == 2
        captured = capsys.readouterr()
        assert message in captured.err and captured.err.count("\n") == 1
