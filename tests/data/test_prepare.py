"""Preparation steps against loops; the cache, the counts, and what does and does not change the fingerprint."""

import json
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import packed
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbench.core.errors import DataError
from rankbench.data import prepare as room
from rankbench.data.cards import Step, load_card
from rankbench.data.interactions import NO_TIME, PARTS, Encoder, Interactions, positions_of
from rankbench.data.prepare import Dataset, load, prepare
from rankbench.data.protocols.spec import protocols
from rankbench.data.splits import split
from rankbench.data.steps import apply

Row = tuple[int, int, float, int]  # user, item, value, time

rows_of_few = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 5), st.sampled_from([1.0, 2.0, 3.0]), st.integers(0, 3)),
    min_size=1,
    max_size=40,
)


def interactions(rows: list[Row], with_time: bool = True) -> Interactions:
    user, item, value, time = zip(*rows, strict=True)
    columns = {"user": user, "item": item, "value": value} | ({"time": time} if with_time else {})
    encoder = Encoder("test")
    encoder.add(pa.table(columns), PARTS.index("all"))
    return encoder.finish()


def rows_left(data: Interactions) -> list[Row]:
    """Raw ids, in the order that the data are in."""
    users, items = data.users.to_pylist(), data.items.to_pylist()
    time = np.zeros(len(data), int) if data.time is None else data.time
    columns = zip(data.user, data.item, data.value, time, strict=True)
    return [(users[u], items[i], float(v), int(t)) for u, i, v, t in columns]


def applied(rows: list[Row], with_time: bool = True, **step) -> list[Row]:
    """The rows that a step keeps; none where the step says that it left none."""
    try:
        return rows_left(apply(Step(**step), interactions(rows, with_time)))
    except DataError as error:
        assert "leaves no interaction" in str(error)
        return []


def at_least(rows: list[Row], per_user: int, per_item: int) -> list[Row]:
    users, items = Counter(row[0] for row in rows), Counter(row[1] for row in rows)
    return [row for row in rows if users[row[0]] >= per_user and items[row[1]] >= per_item]


@given(rows=rows_of_few, least=st.sampled_from([0.5, 2.0, 2.5, 3.0]))
def test_min_value_keeps_what_is_at_least_that(rows, least):
    assert applied(rows, min_value=least) == [row for row in rows if row[2] >= least]


@given(rows=rows_of_few, n=st.integers(1, 5))
def test_one_sided_minima_look_once(rows, n):
    assert applied(rows, min_items_per_user=n) == at_least(rows, n, 1)
    assert applied(rows, min_users_per_item=n) == at_least(rows, 1, n)


@given(rows=rows_of_few, k=st.integers(1, 4))
def test_k_core_is_the_fixed_point_of_both_minima(rows, k):
    core = rows
    while (smaller := at_least(core, k, k)) != core:
        core = smaller
    assert applied(rows, k_core=k) == core


def deduplicated(rows: list[Row], keep: str, with_time: bool) -> list[Row]:
    """Pair by pair: the first or last in time (of equal times, the larger value; without times, in file order), or the first of
    the largest value.
    """
    chosen: dict[tuple[int, int], int] = {}
    for position, row in enumerate(rows):
        pair = row[:2]
        if pair not in chosen:
            chosen[pair] = position
            continue
        old = rows[chosen[pair]]
        larger, is_first = row[2] > old[2], with_time and row[3] < old[3]
        first = is_first or (with_time and row[3] == old[3] and larger)
        last = not with_time or row[3] > old[3] or (row[3] == old[3] and row[2] >= old[2])
        if {"first": first, "last": last, "max": larger or (row[2] == old[2] and is_first)}[keep]:
            chosen[pair] = position
    return [rows[position] for position in sorted(chosen.values())]


@given(rows=rows_of_few, keep=st.sampled_from(["first", "last", "max"]), with_time=st.booleans())
def test_one_of_a_repeated_pair_is_kept(rows, keep, with_time):
    if not with_time:
        rows = [(*row[:3], 0) for row in rows]
    assert applied(rows, with_time, duplicates=keep) == deduplicated(rows, keep, with_time)


@given(rows=rows_of_few, keep=st.sampled_from(["first", "last", "max"]), data=st.data())
def test_which_one_of_a_repeated_pair_is_kept_does_not_depend_on_the_order_of_rows_with_times(rows, keep, data):
    other = data.draw(st.permutations(rows))
    assert sorted(applied(rows, duplicates=keep)) == sorted(applied(other, duplicates=keep))


def test_a_repeated_pair_counts_at_its_known_times_and_one_without_them_has_none():
    """A pair without a time must not become the latest of all, which a temporal split would take for test."""
    rows = [(1, 1, 1.0, NO_TIME), (1, 1, 1.0, 5), (1, 1, 1.0, 8), (2, 2, 1.0, NO_TIME), (2, 3, 1.0, 4)]
    for keep, time in {"first": 5, "last": 8}.items():
        data = apply(Step(duplicates=keep), interactions(rows))
        assert data.time.tolist() == [time, NO_TIME, 4]
        assert data.span.tolist() == [[5, 8], [NO_TIME, NO_TIME], [4, 4]]
        with pytest.raises(DataError, match="1 interactions have no time"):
            split(data.sorted(), protocols().get("temporal").spec(protocol="temporal"))


def test_steps_run_in_the_cards_order(write, environment):
    """User 1 has three items, one of them rated low: minimum before threshold keeps her, after it does not."""
    many = "".join(f"{u},{i},5\n" for u in range(2, 8) for i in range(6))
    path = write(
        {"source": {"file": "r.csv"}, "read": {"value": "stars"}}, {"r.csv": f"user,item,stars\n1,0,5\n1,1,5\n1,2,1\n{many}"}
    )
    minimum, threshold = {"min_items_per_user": 3}, {"min_value": 4}
    assert 1 in load(path, environment, {"prepare": [minimum, threshold]}).users.to_pylist()
    assert 1 not in load(path, environment, {"prepare": [threshold, minimum]}).users.to_pylist()


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([{"k_core": 1}, {"k_core": 99}], r"toy: prepare\.1: k_core: 99 leaves no interaction"),
        ([{"min_value": 4}], r"toy: prepare\.0: min_value needs a value column"),
        ([{"duplicates": "max"}], r"toy: prepare\.0: duplicates needs a value column"),
    ],
)
def test_a_step_that_cannot_be_done_is_named_and_leaves_nothing(steps, message, write, environment):
    path = write({"source": {"file": "raw.csv"}, "prepare": steps}, {"raw.csv": RAW})
    with pytest.raises(DataError, match=message):
        load(path, environment)
    assert list((environment.data / "prepared").glob("[!.]*")) == []


PAIRS = sorted({(int(u), int(i)) for u, i in np.random.default_rng(1).integers(0, 15, (120, 2))})


def csv(pairs) -> str:
    return "user,item\n" + "".join(f"{user},{item}\n" for user, item in pairs)


RAW = csv(PAIRS)
CARD = {"source": {"file": "raw.csv"}, "split": {"test": 0.3, "valid": 0.2}}


def raw_pairs(data: Dataset, *matrices: str) -> set[tuple]:
    users, items = data.users.to_pylist(), data.items.to_pylist()
    total = sum(getattr(data.split, name) for name in matrices)
    return {(users[u], items[i]) for u, i in zip(*total.nonzero(), strict=True)}


ALL = ("train", "valid_target", "test_target")


def test_the_matrices_hold_the_files_pairs(write, environment):
    data = load(write(CARD, {"raw.csv": RAW}), environment)
    assert raw_pairs(data, *ALL) == set(PAIRS)
    assert data.raw_counts == {
        "users": len({u for u, _ in PAIRS}),
        "items": len({i for _, i in PAIRS}),
        "interactions": len(PAIRS),
    }


def test_ids_that_are_whole_numbers_sort_as_numbers(write, environment):
    pairs = [(10 * u, f"i{i}") for u in range(1, 12) for i in range(1, 12)]
    data = load(write(CARD, {"raw.csv": csv(pairs)}), environment)
    assert data.users.to_pylist() == [10 * u for u in range(1, 12)]
    assert data.items.to_pylist() == sorted(f"i{i}" for i in range(1, 12))


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_fractions_of_a_second_order_interactions(form, write, environment):
    """The last item of each user is later than the others by microseconds, and is in the first row of the user."""
    rows = pd.DataFrame([(user, item) for user in range(30) for item in (9, 1, 2, 3)], columns=["user", "item"])
    rows["time"] = pd.Timestamp("2024-05-01 10:00:00") + pd.to_timedelta(rows["item"], unit="us")
    rows.loc[rows["user"] < 15, "time"] = rows["time"].dt.floor("s") + pd.to_timedelta(rows["item"], unit="s")
    raw = packed.parquet(**{name: pa.array(rows[name]) for name in rows}) if form == "parquet" else rows.to_csv(index=False)
    card = {"source": {"file": "raw"}, "read": {"format": "delimited", "time": "time"}, "split": {"protocol": "leave-one-out"}}
    card["read"]["format"] = form.replace("csv", "delimited")
    data = load(write(card, {"raw": raw}), environment)
    assert raw_pairs(data, "test_target") == {(user, 9) for user in range(30)}
    assert data.counts["tied_test_users"] == 0
    assert data.time_span == (1714557600, 1714557609)


def test_batches_of_whole_seconds_and_finer_times_have_one_unit():
    encoder = Encoder("test")
    for time in (pa.array([7, None]), pa.array([7_500_000, None], pa.timestamp("us")), pa.array([8, 9])):
        encoder.add(pa.table({"user": [1, 2], "item": [1, 2], "time": time}), PARTS.index("all"))
    data = encoder.finish()
    assert data.per_second == 10**6
    assert data.time.tolist() == [7_000_000, NO_TIME, 7_500_000, NO_TIME, 8_000_000, 9_000_000]


@pytest.mark.parametrize(
    ("more", "n", "example"),
    [
        ([], 0, ""),
        (["i1 ", " i1", "i1\u3000"], 3, "' i1' and 'i1'"),
        (["caf\u00e9", "cafe\u0301", "i2 "], 2, r"'cafe\u0301' and 'caf\xe9'"),
        (["7", "007", "7.0", "70", "0"], 2, "'007' and '7'"),
        ([" x y", "x  y", "I1", "i01"], 0, ""),  # a blank within an id, and a capital, are not nothing
    ],
)
def test_ids_that_differ_only_by_blanks_or_unicode_form_are_said(more, n, example, write, environment, caplog):
    rows = [(user, f"i{item}") for user in range(9) for item in range(5)] + [(0, item) for item in more]
    data = load(write(CARD, {"raw.csv": csv(rows)}), environment)
    assert data.counts.get("alike_item_ids", 0) == n and "alike_user_ids" not in data.counts
    assert data.counts["items"] == 5 + len(more)
    said = f"toy: {n} item ids equal another one but for blanks, zeros of a number or Unicode form, such as "
    assert [each.startswith(said) for each in caplog.messages] == [True] * bool(n)
    assert example in caplog.text


def test_the_order_of_the_rows_changes_nothing(write, environment):
    rng = np.random.default_rng(2)
    prints = {
        load(write(CARD, {"raw.csv": csv([PAIRS[n] for n in rng.permutation(len(PAIRS))])}), environment).fingerprint
        for _ in range(4)
    }
    assert len(prints) == 1


@pytest.mark.parametrize("rename", [lambda n: 7 * n + 50, lambda n: f"name {n:04d}"], ids=["numbers", "words"])
def test_renaming_the_raw_ids_changes_nothing(rename, write, environment):
    """Names in the same order as before: only the vocabularies change."""
    before = load(write(CARD, {"raw.csv": RAW}), environment)
    after = load(write(CARD, {"raw.csv": csv([(rename(u), rename(i)) for u, i in PAIRS])}), environment)
    assert after.fingerprint == before.fingerprint
    assert after.users.to_pylist() == [rename(u) for u in before.users.to_pylist()]


def test_renaming_in_another_order_permutes_the_published_parts(write, environment):
    """Names that sort otherwise move rows and columns, and nothing else."""
    rng = np.random.default_rng(3)
    new_user, new_item = rng.permutation(15), rng.permutation(15)
    label = rng.permutation(np.arange(len(PAIRS)) % 3)
    parts = {name: [pair for pair, at in zip(PAIRS, label, strict=True) if at == n] for n, name in enumerate(PARTS[:3])}
    card = {"source": {"files": {name: {"file": f"{name}.csv"} for name in parts}}, "split": {"protocol": "published"}}
    data = load(
        write(card, {f"{name}.csv": csv([(new_user[u], new_item[i]) for u, i in pairs]) for name, pairs in parts.items()}),
        environment,
    )
    for matrix, part in zip(ALL, PARTS, strict=False):
        assert raw_pairs(data, matrix) == {(new_user[u], new_item[i]) for u, i in parts[part]}


def test_other_candidates_are_another_fingerprint(environment):
    changes = {"split.protocol": "link-prediction", "source.generator.users": 40, "source.generator.items": 40}
    cards = [load_card("synthetic", environment, changes | more) for more in ({}, {"split.self_candidate": True})]
    without, candidate = (prepare(card, environment) for card in cards)
    assert without.split.excluded is not None and candidate.split.excluded is None
    assert without.fingerprint != candidate.fingerprint


def test_how_users_without_a_history_are_measured_is_part_of_the_fingerprint_where_there_are_such_users(write, environment):
    found = {}
    for new in (False, True):
        # User 9 is known only from the time of test on, if at all.
        late = [(9 if new else 1, item, 9) for item in range(4, 6)]
        rows = [(user, item, item) for user in range(8) for item in range(4)] + late
        columns = {name: name for name in ("user", "item", "time")}
        card = CARD | {"read": columns, "split": {"protocol": "temporal", "test": 0.05, "valid": 0.3}}
        path = write(card, {"raw.csv": "\n".join(["user,item,time", *(f"{u},{i},{t}" for u, i, t in rows)]) + "\n"})
        data = [load(path, environment, {"split.cold_users": mode}) for mode in ("drop", "keep", "popularity")]
        found[new] = len({each.fingerprint for each in data})
        assert [each.counts.get("cold_test_users") for each in data] == [1 if new else None] * 3
    assert found == {False: 1, True: 3}


def test_a_cache_hit_is_not_built_again(write, environment, monkeypatch):
    path = write(CARD, {"raw.csv": RAW})
    made = load(path, environment)
    monkeypatch.setattr(room, "build", lambda *arguments: pytest.fail("built again"))
    found = load(path, environment)
    assert found.fingerprint == made.fingerprint
    for name in ALL:
        assert (getattr(found.split, name) != getattr(made.split, name)).nnz == 0
    assert (found.counts, found.users, found.items) == (made.counts, made.users, made.items)


@pytest.mark.parametrize(
    ("changes", "folders"),
    [
        ({"title": "another", "expect.prepared.users": 1}, 1),
        ({"split.seed": 1}, 2),
        ({"prepare": [{"min_items_per_user": 2}]}, 2),
        ({"read.time": "item"}, 2),
    ],
)
def test_the_cache_is_addressed_by_what_shapes_the_data(changes, folders, write, environment):
    path = write(CARD, {"raw.csv": RAW})
    load(path, environment)
    load(path, environment, changes)
    assert len(list((environment.data / "prepared").glob("[!.]*"))) == folders


def test_a_changed_raw_file_gets_its_own_folder(write, environment):
    before = load(write(CARD, {"raw.csv": RAW}), environment)
    after = load(write(CARD, {"raw.csv": RAW + "99,0\n99,1\n"}), environment)
    assert after.counts["interactions"] == before.counts["interactions"] + 2
    assert len(list((environment.data / "prepared").glob("[!.]*"))) == 2


def test_another_member_of_the_same_archive_is_another_dataset(write, environment, tmp_path):
    archive = tmp_path / "raw.zip"
    with zipfile.ZipFile(archive, "w") as members:
        members.writestr("a.csv", RAW)
        members.writestr("b.csv", RAW + "99,0\n99,1\n")
    source = {"files": {"all": {"file": "raw.zip", "member": "a.csv"}}}
    path = write({**CARD, "source": source}, {"raw.zip": archive.read_bytes()})
    assert 99 not in load(path, environment).users.to_pylist()
    assert 99 in load(path, environment, {"source.files.all.member": "b.csv"}).users.to_pylist()


@pytest.mark.parametrize("damaged", ["manifest.json", "train.indices.npy", "users.parquet"])
@pytest.mark.parametrize("how", ["cut", "gone"])
def test_a_damaged_cache_names_its_folder(damaged, how, write, environment):
    path = write(CARD, {"raw.csv": RAW})
    load(path, environment)
    (folder,) = (environment.data / "prepared").glob("[!.]*")
    if how == "cut":
        (folder / damaged).write_bytes((folder / damaged).read_bytes()[:20])
    else:
        (folder / damaged).unlink()
    with pytest.raises(DataError, match=rf"{folder.name}: damaged .*delete the folder"):
        load(path, environment)


def test_counts_are_those_of_a_loop(write, environment):
    """Published parts with cold items, users without test items, and users without train items."""
    rng = np.random.default_rng(4)
    pairs = sorted({(int(u), int(i)) for u, i in rng.integers(0, 40, (150, 2))})
    label = rng.choice(3, len(pairs), p=[0.5, 0.1, 0.4])
    train, valid, test = ([pair for pair, at in zip(pairs, label, strict=True) if at == n] for n in range(3))
    card = {"source": {"files": {name: {"file": f"{name}.csv"} for name in PARTS[:3]}}, "split": {"protocol": "published"}}
    files = {f"{name}.csv": csv(part) for name, part in zip(PARTS, (train, valid, test), strict=False)}
    fit_users, fit_items = {u for u, _ in train + valid}, {i for _, i in train + valid}
    all_users, test_users = {u for u, _ in pairs}, {u for u, _ in test}
    cold = {i for _, i in pairs} - fit_items
    assert cold and all_users - test_users and test_users - fit_users
    assert load(write(card, files), environment).counts == {
        "users": len(all_users),
        "items": len({i for _, i in pairs}),
        "interactions": len(pairs),
        "train": len(train),
        "valid": len(valid),
        "test": len(test),
        "users_with_test_items": len(test_users),
        "users_without_test_items": len(all_users - test_users),
        "cold_test_users": len(test_users - fit_users),
        "users_without_train_items": len(all_users - fit_users),
        "cold_items": len(cold),
        "cold_test_items": len({i for _, i in test} & cold),
        "cold_test_interactions": sum(i in cold for _, i in test),
    }


def test_differences_from_published_counts_are_sentences(write, environment):
    users, items = len({u for u, _ in PAIRS}), len({i for _, i in PAIRS})
    path = write(CARD, {"raw.csv": RAW})
    data = load(path, environment)
    right = {"expect.raw.users": users, "expect.raw.interactions": len(PAIRS), "expect.prepared.items": items}
    # A published train part includes what is set aside for validation here.
    right["expect.prepared.train"] = data.counts["train"] + data.counts["valid"]
    assert load(path, environment, right).differences == ()
    wrong = {"expect.raw.users": users + 2000, "expect.prepared.items": items - 1, "expect.prepared.test": data.counts["test"]}
    assert load(path, environment, wrong).differences == (
        f"raw users: {users}, published {users + 2000:,} (-2,000)",
        f"prepared items: {items}, published {items - 1} (+1)",
    )


def test_the_manifest_names_every_source(write, environment):
    path = write(CARD, {"raw.csv": RAW})
    (source,) = load(path, environment).sources
    assert (source["part"], source["file"], source["origin"], len(source["sha256"])) == ("all", "raw.csv", "file", 64)
    (folder,) = (environment.data / "prepared").glob("[!.]*")
    assert str(Path(path).parent) not in json.dumps(json.loads((folder / "manifest.json").read_text()))


@pytest.mark.parametrize(
    ("train", "test"), [("user,item\n1,2\nx,3\n", "user,item\n1,3\n"), ("user,item\nx,2\ny,3\n", "user,item\n1,5\n")]
)
def test_parts_may_differ_in_how_their_ids_look(train, test, write, environment):
    card = {
        "source": {"files": {"train": {"file": "a.csv"}, "test": {"file": "b.csv"}}},
        "split": {"protocol": "published", "valid": 0.5},
    }
    with pytest.raises(DataError, match="the valid part is empty"):
        load(write(card, {"a.csv": train, "b.csv": test}), environment)


@pytest.mark.mirror
@pytest.mark.parametrize(
    ("dataset", "raw", "prepared", "differences"),
    [
        ("gowalla", None, (29858, 40981, 1027370), ()),
        ("movielens-1m", (6040, 3706, 1000209), None, ()),
        ("movielens-100k", (943, 1682, 100000), None, ()),
        ("amazon-beauty", None, (15603, 8692, 139554), ("prepared items: 8,692, published 8,693 (-1)",)),
    ],
)
def test_the_mirrors_datasets_have_their_published_counts(dataset, raw, prepared, differences, mirror_environment):
    data = load(dataset, mirror_environment)
    for expected, counts in ((raw, data.raw_counts), (prepared, data.counts)):
        assert expected is None or expected == (counts["users"], counts["items"], counts["interactions"])
    assert data.differences == differences
    assert data.split.train.shape == (data.counts["users"], data.counts["items"])
    assert sum(getattr(data.split, name).nnz for name in ALL) == data.counts["interactions"]


@pytest.mark.parametrize(("kind", "large"), [(np.float16, -1), (np.float32, -1), (np.float64, 1)])
def test_an_id_as_a_float_is_found_if_it_stands_for_one_whole_number(kind, large):
    with np.errstate(over="ignore"):
        ids = np.array([7, 7.5, np.nan, 2**24]).astype(kind)
    assert positions_of(pa.array(ids), pa.array([7, 2**24, 2**24 + 1])).tolist() == [0, -1, -1, large]
