"""Cards: the product's own all validate, and a mistake in one is named by file, key and nearest right word."""

import re
from dataclasses import replace

import pytest

from rankbench.core.errors import ConfigError
from rankbench.data.cards import card_names, load_card

SOURCE = {"file": "raw.csv"}


def of_url(url: str) -> dict:
    return {"source": {"files": {"all": {"url": url}}}}


@pytest.mark.parametrize(
    ("card", "message"),
    [
        ({"source": SOURCE, "splt": {}}, "splt: unknown key; did you mean split?"),
        ({"source": {"mirror": {"foldr": "x"}, **SOURCE}}, "source.mirror.foldr: unknown key; did you mean folder?"),
        ({"source": SOURCE, "prepare": [{"kcore": 5}]}, "prepare.0.kcore: unknown key; did you mean k_core?"),
        ({"source": SOURCE, "expect": {"raw": {"train": 1}}}, "expect.raw.train: unknown key"),
        # `source` is missing because it is misspelt; the misspelling is what to mend.
        ({"sorce": SOURCE}, "sorce: unknown key; did you mean source?"),
        ({"source": SOURCE, "path": "/"}, "path: unknown key"),
        ({"source": SOURCE, "split": {"protocol": "random-per-usr"}}, "did you mean random-per-user?"),
        ({"source": SOURCE, "read": {"format": "parket"}}, "unknown 'parket'; did you mean parquet?"),
        *(
            (of_url(url), "only https:// is downloaded")
            for url in ("http://a.org/x", "file:///etc/x", "x", "https\n://a.org/x")
        ),
        # The cache keeps the file under its name; `..` would lead out of it.
        *((of_url(f"https://a.org/{end}"), "must end in a file name") for end in ("", "..", ".")),
        (of_url("https://alice:secret@a.org/x.csv"), "an address with a user name or password"),
        (of_url("http://secret@a.org/x.csv"), "an address with a user name or password"),
        ({"source": SOURCE, "name": "../toy"}, "name"),
        ({"source": SOURCE, "split": {"test": 1.0}}, "split.test"),
        ({"source": SOURCE, "split": {"seed": -1}}, "split.seed"),
        ({"source": {"file": "raw.csv", "generator": {}}}, "give one of files, file, folder, generator"),
        ({"source": {}}, "give one of files, file, folder, generator"),
        ({"source": {"files": {"all": {}}}}, "give either url or file"),
        ({"source": {"files": {"all": {"file": "a", "sha256": "abc"}}}}, "source.files.all.sha256"),
        ({"source": {"files": {"whole": {"file": "a"}}}}, "source.files.whole"),
        ({"source": {"mirror": {"folder": "../other"}, **SOURCE}}, "must lie inside the mirror"),
        ({"source": {"mirror": {"folder": "a/../../b"}, **SOURCE}}, "must lie inside the mirror"),
        ({"source": {"mirror": {"folder": "/etc"}, **SOURCE}}, "must lie inside the mirror"),
        ({"source": SOURCE, "prepare": [{"k_core": 5, "min_value": 4}]}, "one step per line"),
        ({"source": SOURCE, "prepare": [{}]}, "one step per line"),
        ({"source": SOURCE, "prepare": [{"min_value": None}]}, "one step per line"),
        ({"source": SOURCE, "prepare": [{"drop_missing": True, "k_core": 2}]}, "one step per line"),
        ({"source": SOURCE, "prepare": [{"k_core": 2}, "drop_missing"]}, "drop_missing must be the first step"),
        ({"source": SOURCE, "prepare": ["drop_mising"]}, "unknown step 'drop_mising'; did you mean drop_missing?"),
        ({"source": SOURCE, "prepare": ["k_core"]}, "the step k_core needs a value"),
        ({"source": SOURCE, "prepare": [{"drop_missing": False}]}, "prepare"),
        ({"source": SOURCE, "prepare": [{"min_value": float("nan")}]}, "finite"),
        ({"source": SOURCE, "prepare": [{"duplicates": "any"}]}, "'first', 'last' or 'max'"),
        ({"source": SOURCE, "read": {"separator": ""}}, "read.separator"),
        ({"source": SOURCE, "read": {"separator": "\n"}}, "read.separator"),
        ({"source": {"generator": {"users": 0}}}, "source.generator.users"),
        ({"source": {"generator": {"interactions_per_user": float("inf")}}}, "source.generator.interactions_per_user"),
    ],
)
def test_a_wrong_value_is_named_with_file_and_place(card, message, write, environment):
    path = write(card)
    with pytest.raises(ConfigError) as error:
        load_card(path, environment)
    assert str(error.value).startswith(f"{path}: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value) and "secret" not in str(error.value)


def test_the_query_of_an_address_is_not_part_of_the_file_name(write, environment):
    card = load_card(write({"source": {"files": {"all": {"url": "https://a.org/x.csv?key=secret"}}}}), environment)
    assert card.source.parts()["all"].filename == "x.csv"


def test_two_urls_may_not_end_in_the_same_file_name(write, environment):
    """The second part would be read from the first one's place in the cache."""
    parts = {"train": {"url": "https://a.org/train/data.txt"}, "test": {"url": "https://a.org/test/data.txt"}}
    with pytest.raises(ConfigError, match=r"two URLs end in data\.txt"):
        load_card(write({"source": {"files": parts}}), environment)
    one_archive = {part: {"url": "https://a.org/data.zip", "member": f"{part}.txt"} for part in ("train", "test")}
    assert set(
        load_card(write({"source": {"files": one_archive}, "split": {"protocol": "published"}}), environment).source.parts()
    ) == {"train", "test"}


def test_an_unknown_dataset_gets_the_nearest_name(environment):
    with pytest.raises(ConfigError, match=r"unknown dataset 'gowala'; did you mean gowalla\?"):
        load_card("gowala", environment)
    with pytest.raises(ConfigError, match=r"no/such\.yaml: no such dataset card"):
        load_card("no/such.yaml", environment)


def test_a_file_of_interactions_in_the_place_of_a_card_is_to_be_imported(tmp_path, environment, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my clicks.csv").write_text("user,item\n1,2\n", encoding="utf-8")
    (tmp_path / "clicks").mkdir()
    for given in ("'my clicks.csv'", "'./my clicks.csv'", "clicks", "./clicks", "missing.csv", "no/such.csv"):
        with pytest.raises(ConfigError, match=re.escape(f"`rankbench data import {given}` writes a card")) as refused:
            load_card(given.strip("'"), environment)
        assert "\n" not in str(refused.value)
    for given in ("clickz", "no/such.yaml"):
        with pytest.raises(ConfigError) as refused:
            load_card(given, environment)
        assert "import" not in str(refused.value)


def test_a_card_of_ones_own_wins_over_the_products(tmp_path, environment):
    folder = tmp_path / "home" / "datasets"
    folder.mkdir(parents=True)
    (folder / "gowalla.yaml").write_text("name: gowalla\ntitle: mine\nsource: {file: raw.csv}\n")
    mine = replace(environment, home=tmp_path / "home")
    assert load_card("gowalla", mine).title == "mine"
    assert load_card("gowalla", mine).folder == folder
    assert load_card("gowalla", environment).title != "mine"
    assert set(card_names(mine)) == set(card_names(environment))


def test_a_card_that_is_called_otherwise_than_its_file_is_refused_by_name(tmp_path, environment):
    # Its results would stand under a name that no command knows.
    folder = tmp_path / "home" / "datasets"
    folder.mkdir(parents=True)
    (folder / "my-shop.yaml").write_text("name: shop\nsource: {file: x.csv}\n")
    mine = replace(environment, home=tmp_path / "home")
    with pytest.raises(ConfigError, match=r"my-shop\.yaml: name: shop: .* named after its file, my-shop"):
        load_card("my-shop", mine)
    assert load_card(str(folder / "my-shop.yaml"), mine).name == "shop"


def test_changes_reach_into_the_card_and_are_checked_like_it(write, environment):
    path = write({"source": SOURCE, "split": {"seed": 1, "test": 0.3}})
    card = load_card(path, environment, {"split.seed": 7})
    assert (card.split.seed, card.split.test) == (7, 0.3)
    with pytest.raises(ConfigError, match=r"split\.sede: unknown key; did you mean seed\?"):
        load_card(path, environment, {"split.sede": 7})


def test_a_part_of_a_split_keeps_the_rest_and_another_protocol_has_its_defaults(write, environment):
    path = write({"source": SOURCE, "split": {"protocol": "random-per-user", "test": 0.3, "valid": 0.2}})

    def shares(**changes):
        split = load_card(path, environment, changes).split
        return split.test, split.valid, split.seed

    assert shares(split={"seed": 3}) == shares(**{"split.seed": 3}) == (0.3, 0.2, 3)
    temporal = {"split.protocol": "temporal"}  # so is a mapping in an experiment's entry
    assert shares(split={"protocol": "temporal"}) == shares(**temporal) == (0.2, 0.1, 0)
    assert shares(**temporal | {"split.test": 0.4}) == (0.4, 0.1, 0)


def test_keys_stay_those_of_stored_results_when_protocols_get_further_fields(environment):
    keys = {name: load_card(name, environment).content_key()[:12] for name in ("movielens-1m-temporal", "movielens-1m")}
    assert keys == {"movielens-1m-temporal": "182fb31c2c60", "movielens-1m": "cad80038498f"}


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"title": "another"}, True),
        ({"expect.raw.users": 3}, True),
        ({"source.licence": "none"}, True),
        ({"split.cold_users": "drop"}, True),
        ({"split.cold_users": "keep"}, False),
        ({"split.seed": 1}, False),
        ({"split.valid": 0.3}, False),
        ({"prepare": [{"k_core": 2}]}, False),
        ({"read.user": "u"}, False),
        ({"source": {"generator": {"seed": 1}}}, False),
    ],
)
def test_the_content_key_follows_what_shapes_the_data_and_nothing_else(changes, same, write, environment):
    path = write({"source": SOURCE})
    assert (load_card(path, environment).content_key() == load_card(path, environment, changes).content_key()) is same
