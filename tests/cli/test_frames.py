"""Ids from the command line and from files."""

import pandas as pd
import pytest

from rankbench.cli.frames import chosen_ids
from rankbench.core.errors import DataError


def test_an_id_that_is_given_as_a_word_and_as_a_number_is_one(tmp_path):
    pd.DataFrame({"user": [7, 8, 7]}).to_parquet(tmp_path / "wanted.parquet")
    assert chosen_ids(["8", "9"], tmp_path / "wanted.parquet", "user") == ["8", "9", "7"]


def test_a_missing_id_in_a_file_is_named_without_advice_about_cards(tmp_path):
    (tmp_path / "wanted.csv").write_text('user\n7\n""\n')
    with pytest.raises(DataError, match=r"wanted\.csv:3: user is None; .*, or a word$"):
        chosen_ids(None, tmp_path / "wanted.csv", "user")
