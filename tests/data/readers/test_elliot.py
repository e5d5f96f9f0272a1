"""Splits as Elliot's `save_on_disk` writes them: 0/test.tsv, 0/0/train.tsv, 0/0/val.tsv."""

from dataclasses import replace

import pytest

from rankbench.core.errors import DataError, DownloadError
from rankbench.data.cards import load_card
from rankbench.data.describe import raw_data
from rankbench.data.prepare import load
from rankbench.data.readers import elliot

FLAT = {"train": "train.tsv", "valid": "val.tsv", "test": "test.tsv"}


@pytest.mark.parametrize(
    ("names", "parts"),
    [
        (["train.tsv", "val.tsv", "test.tsv"], FLAT),
        (["train.tsv", "test.tsv", "README.md"], {"train": "train.tsv", "test": "test.tsv"}),
        (["0/train.tsv", "0/test.tsv"], {"train": "0/train.tsv", "test": "0/test.tsv"}),
        (["0/test.tsv", "0/0/train.tsv"], {"train": "0/0/train.tsv", "test": "0/test.tsv"}),
        (["test.tsv", "0/train.tsv", "0/val.tsv"], {"train": "0/train.tsv", "valid": "0/val.tsv", "test": "test.tsv"}),
    ],
)  # fmt: skip
def test_a_single_fold_is_found(names, parts):
    assert elliot.find(names, "x") == parts


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ["0/train.tsv", "0/test.tsv", "1/train.tsv", "1/test.tsv"],
            r"^x: 2 folds: 0, 1; name the files of one in source\.files",
        ),
        (["0/test.tsv", "0/0/train.tsv", "0/1/train.tsv"], r"^x: 2 folds: 0/0, 0/1"),
        (["train.tsv", "val.tsv"], r"^x: no train\.tsv with its test\.tsv"),
        (["0/0/train.tsv", "0/0/val.tsv", "test.tsv"], r"^x: no train\.tsv with its test\.tsv"),
        ([], r"^x: no train\.tsv"),
    ],
)
def test_other_folders_are_refused(names, message):
    with pytest.raises(DataError, match=message):
        elliot.find(names, "x")


def test_a_nested_folder_is_one_published_split(write, environment, tmp_path):
    pairs = [(user, item) for user in range(9) for item in range(9) if (user + item) % 4]
    fold = tmp_path / "cards" / "split" / "0"
    (fold / "0").mkdir(parents=True)
    for path, chosen in (("test.tsv", pairs[::5]), ("0/val.tsv", pairs[1::5]), ("0/train.tsv", pairs[2::5])):
        (fold / path).write_text("".join(f"{user}\t{item}\t1.0\t9\n" for user, item in chosen))
    card = {"source": {"folder": "split"}, "read": {"format": "elliot"}, "split": {"protocol": "published"}}
    data = load(write(card), environment)
    assert (data.counts["train"], data.counts["valid"], data.counts["test"]) == tuple(len(pairs[n::5]) for n in (2, 1, 0))


def test_the_list_says_whether_the_folder_is_there(write, environment, tmp_path):
    card = load_card(write({"source": {"folder": "split"}, "read": {"format": "elliot"}}), environment)
    environment = replace(environment, mirror=tmp_path / "mirror")
    (tmp_path / "mirror" / "toy" / "other").mkdir(parents=True)  # a mirror replaces the internet, not a folder of the card
    assert raw_data(card, environment) == "no such folder"
    (tmp_path / "cards" / "split").mkdir()
    assert raw_data(card, environment) == "local folder"


def test_a_folder_that_is_gone(write, environment):
    with pytest.raises(DownloadError, match=r"split: no such folder \(dataset toy\)"):
        load(write({"source": {"folder": "split"}, "read": {"format": "elliot"}}), environment)


def test_a_format_of_single_files_reads_no_folder(write, environment):
    with pytest.raises(DataError, match=r"the format delimited reads files; name them in the card: source\.file"):
        load(write({"source": {"folder": "."}}), environment)
