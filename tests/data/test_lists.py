"""Lists of another program: equal from whatever form they come in, and refused with the row that is wrong."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp

from rankbench.core.errors import ConfigError, DataError
from rankbench.data.lists import lists_of

FRAME = pd.DataFrame({"user": ["u1", "u1", "u02", "ü"], "item": [7, 3, 7, 5], "rank": [1, 2, 1, 1]})


def content(lists):
    return [
        *zip(map(str, lists.user.to_pylist()), map(str, lists.item.to_pylist()), lists.order.tolist(), strict=True)
    ], lists.by


def test_scores_that_contradict_the_ranks_are_said(tmp_path, caplog):
    frame = FRAME.assign(score=[0.1, 0.9, 5.0, 6.0])
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_parquet(tmp_path / "b.parquet")
    run = [f"{u} Q0 {i} {r} {s} x\n" for u, i, r, s in frame.itertuples(index=False)]
    (tmp_path / "c.run").write_text("".join(run), encoding="utf-8")
    for each in (frame, pa.table(frame), *sorted(tmp_path.iterdir())):
        caplog.clear()
        assert content(lists_of(each)) == content(lists_of(FRAME))
        assert "in 1 of 3 lists, a score is higher than the one above it; their ranks order them" in caplog.text
    caplog.clear()
    for agreeing in ([0.9, 0.9, 5.0, 6.0], [np.nan, 0.9, 5.0, 6.0], ["-", "x", "-", "-"], [[1], [2], [3], [4]]):
        assert content(lists_of(frame.assign(score=agreeing))) == content(lists_of(FRAME)) and not caplog.text
        frame.assign(score=agreeing).to_parquet(tmp_path / "b.parquet")
        assert content(lists_of(tmp_path / "b.parquet")) == content(lists_of(FRAME)) and not caplog.text
    twice = pd.concat([FRAME, frame[["score"]], frame[["score"]]], axis=1)
    assert content(lists_of(twice)) == content(lists_of(FRAME)) and not caplog.text


def test_lists_are_the_same_from_every_form(tmp_path):
    scored = FRAME.rename(columns={"user": "userId", "item": "movie_id"}).assign(score=[9.0, 1.0, 2.0, 3.0])
    FRAME.to_csv(tmp_path / "a.csv", index=False)
    scored.to_csv(tmp_path / "b.tsv", index=False, sep="\t")
    scored.to_parquet(tmp_path / "c.parquet")
    for name, separator in (("d.run", " "), ("e.trec", "\t")):
        rows = [[u, "Q0", str(i), str(r), "0.5", "tag"] for u, i, r in FRAME.itertuples(index=False)]
        (tmp_path / name).write_text("".join(separator.join(row) + "\n" for row in rows), encoding="utf-8")
    frames = [FRAME, scored, pa.table(FRAME), FRAME.astype({"user": "category"}), FRAME.astype({"item": str, "rank": float})]
    expected = content(lists_of(FRAME))
    assert expected == ([("u1", "7", 1.0), ("u1", "3", 2.0), ("u02", "7", 1.0), ("ü", "5", 1.0)], "rank")
    assert all(content(lists_of(each)) == expected for each in [*frames, *sorted(tmp_path.iterdir())])
    assert lists_of(FRAME).sha256 == lists_of(FRAME.copy()).sha256 != lists_of(FRAME[:3]).sha256
    by_score = lists_of(scored.drop(columns="rank"))
    assert by_score.by == "score" and by_score.order.tolist() == [-9.0, -1.0, -2.0, -3.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("user,item,rank\nu,1,1\n\nu,2,2\nu,1,3\n", r"bad\.csv:5: the list of user 'u' has the item '1' a second time"),
        ("user,item,rank\nu,1,1\nv,1,1\nu,2,1\n", r"bad\.csv:4: the list of user 'u' has the rank 1 a second time"),
        ("user,item,score\nu,1,0.5\nu,2,nan\n", r"bad\.csv:3: score is nan; every row needs a finite value$"),
        ("user,item,score\nu,1,0.5\nu,2,inf\n", r"bad\.csv:3: score is inf; every row needs a finite value$"),
        ("user,item,rank\nu,1,first\n", r"bad\.csv:2: expected the rank to be a number, found 'first'"),
        ("user,item,rank\nu,,1\n", r"bad\.csv:2: item is None; every row needs an id"),
        ("user,item,rank\nu,1\n", r"bad\.csv:2: .*[Ee]xpected 3 columns, got 2"),
        ("user,item,place_in_list\nu,1,1\n", r"no column score; lists have the columns user, item, and rank or score"),
        ("u,1,1\nu,2,2\n", r"no column user; lists have .*, named in the first line of a text; columns: u, 1, 1"),
        ("u Q0 1 1 0.5 x\nu Q0 1 2 0.4 x\n", r"bad\.csv:2: the list of user 'u' has the item '1' a second time"),
        ("u Q0 1 1 0.5 x\nu Q0 2\n", r"bad\.csv:2: .*[Ee]xpected 6 columns, got 3"),
        ("user,item,rank\n", r"bad\.csv: no lists"),
        ("", r"bad\.csv: no lists"),
    ],
)
def test_a_row_that_cannot_be_used_is_named(text, message, tmp_path):
    (tmp_path / "bad.csv").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        lists_of(tmp_path / "bad.csv")


def test_rows_of_tables_are_named_by_their_position(tmp_path):
    again = pd.concat([FRAME, FRAME[:1]])
    again.to_parquet(tmp_path / "bad.parquet")
    for given, message in [
        (again, r"lists: row 4 from 0: the list of user 'u1' has the item 7 a second time"),
        (tmp_path / "bad.parquet", r"bad\.parquet: row 5: the list of user 'u1' has the item 7 a second time"),
        (FRAME.assign(rank=[1.0, np.nan, 1, 1]), r"lists: row 1 from 0: rank is nan; every row needs a finite value$"),
        (FRAME.assign(user=["u", None, "v", "w"]), r"lists: row 1 from 0: user is None; every row needs an id"),
        (FRAME.assign(item=[[1], [2], [3], [4]]), r"lists: the column 'item' is list"),
        (FRAME.assign(item=[1.5, 2, 3, 4]), r"lists: the column 'item': ids are whole numbers below 2\^63 or text"),
        (FRAME.assign(user=[b"\xff"] * 4), r"lists: Invalid UTF8"),
        (FRAME.assign(user=pd.Series(["\ud800"] * 4, dtype=object)), r"lists: .* surrogates not allowed"),
        (FRAME.drop(columns="item"), r"lists: no column item; .* columns: user, rank"),
        (FRAME[:0], r"lists: no lists"),
        (tmp_path / "none.csv", r"none\.csv: no such file"),
    ]:
        with pytest.raises(DataError, match=message):
            lists_of(given)


@pytest.mark.parametrize("given", [{1: 2}, {"user": [1], "item": 2}, [1], None, sp.eye_array(2), pd.Series([1]), pa.array([1])])
def test_what_is_no_table_is_refused(given):
    with pytest.raises(ConfigError, match=r"^lists: expected the path of a file, or a pandas, Arrow or Polars table, got "):
        lists_of(given)
