"""Ids from the command line and from files."""

import pandas as pd

from rankbench.cli.frames import chosen_ids


def test_an_id_that_is_given_as_a_word_and_as_a_number_is_one(tmp_path):
    pd.DataFrame({"user": [7, 8, 7]}).to_parquet(tmp_path / "wanted.parquet")
    assert chosen_ids(["8", "9"], tmp_path / "wanted.parquet", "user") == ["8", "9", "7"]
