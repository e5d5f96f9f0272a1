"""What every dataset card of the product keeps; a new file in datasets/ is held to it by existing."""

import re
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from rankbench.core.config import read_yaml
from rankbench.data.cards import load_card
from rankbench.data.prepare import prepare
from rankbench.data.protocols.spec import protocols
from rankbench.data.readers import readers

CARDS = sorted((Path(__file__).parents[2] / "datasets").glob("*.yaml"))

# Where prepared data are known not to have the published counts; the comments of these cards say why.
EXPLAINED = {
    "amazon-beauty": ("prepared items: 8,692, published 8,693 (-1)",),
    "amazon-book-kgat": ("prepared interactions: 846,434, published 847,733 (-1,299)",),
    "gowalla-strong-standin": (
        "prepared users: 29,283, published 29,243 (+40)",
        "prepared items: 13,701, published 13,681 (+20)",
        "prepared interactions: 669,193, published 677,956 (-8,763)",
    ),
}
# Interactions; larger sets are prepared in the slow run.
QUICK = 300_000


def size(path):
    """Interactions as the card expects them, 0 where it does not say."""
    expect = read_yaml(path).get("expect", {})
    return max((expect.get(stage) or {}).get("interactions", 0) for stage in ("raw", "prepared"))


BY_SIZE = pytest.mark.parametrize(
    "path", [pytest.param(p, id=p.stem, marks=pytest.mark.slow if size(p) > QUICK else ()) for p in CARDS]
)


def test_the_contract_found_the_cards():
    names = {path.stem for path in CARDS}
    first = {"movielens-100k", "movielens-1m", "gowalla", "yelp2018", "amazon-book", "synthetic"}
    papers = {
        *("movielens-10m", "steam", "amazon-electronics-rg2"),  # RG2, RGx
        *("amazon-games-2018", "amazon-beauty-2018", "gowalla-strong", "movielens-20m", "netflix", "msd"),  # DEQL
        *("gowalla-talos", "amazon-beauty", "amazon-games-talos", "amazon-electronics-talos"),  # Talos
    }
    assert first | papers <= names


@pytest.mark.parametrize("path", CARDS, ids=lambda path: path.stem)
def test_a_card_is_valid_and_says_where_its_data_come_from_and_on_what_terms(path, environment):
    card, by_name = (load_card(name, environment) for name in (str(path), path.stem))
    assert by_name.model_dump() == card.model_dump() and by_name.path == card.path
    assert card.name == path.stem and card.title
    assert card.split.protocol in protocols().names() and card.read.format in readers()
    assert {"split", "recall"} <= set(read_yaml(path)), "what a number means is written down, not left to a default"
    source = card.source
    assert source.generator or (source.home.startswith("https://") and source.licence)
    for remote in [*source.files.values(), *source.companions.values()]:
        if "githubusercontent.com" in remote.url:  # a file that cannot change unseen: of a commit, or with a checksum
            assert re.search(r"/[0-9a-f]{40}/", remote.url) or remote.md5 or remote.sha256
    assert "mirror" not in source.model_fields_set or set(source.mirror.sha256) == set(source.part_names)


def test_no_two_cards_have_one_title_or_are_one_dataset(environment):
    """One source, prepared and split alike, has one name: a second one would be compared with itself."""
    alike = defaultdict(list)
    for path in CARDS:
        card = load_card(str(path), environment)
        alike[card.title].append(card.name)
        shaping = f"{card.prepare} {card.split}"
        alike["mirror", card.mirror_folder, shaping].append(card.name)
        if card.source.files:
            files = {(part, remote.url, remote.member) for part, remote in card.source.files.items()}
            alike["files", frozenset(files), shaping].append(card.name)
    assert [names for names in alike.values() if len(names) > 1] == []


def check_parts(split):
    parts = split.train, split.valid_target, split.test_target, split.valid_history, split.test_history
    cells = [np.repeat(np.arange(split.n_users), np.diff(m.indptr)) * split.n_items + m.indices for m in parts]
    together = np.concatenate(cells)
    assert len(np.unique(together)) == len(together), "an interaction lies in two parts"
    assert all(len(part) for part in cells[:3])


def test_a_generated_dataset_has_disjoint_parts(environment):
    check_parts(prepare(load_card("synthetic", environment), environment).split)


def prepared(card, environment):
    if card.source.generator or not (environment.mirror / card.mirror_folder).is_dir():
        pytest.skip(f"the mirror has no {card.mirror_folder}")
    return prepare(card, environment)


@pytest.mark.mirror
@BY_SIZE
def test_a_card_of_the_mirror_has_disjoint_parts_and_the_counts_it_expects(path, mirror_environment):
    dataset = prepared(load_card(str(path), mirror_environment), mirror_environment)
    check_parts(dataset.split)
    assert dataset.differences == EXPLAINED.get(path.stem, ())


def test_the_three_gowallas_expect_different_items(environment):
    items = {
        name: load_card(name, environment).expect.prepared.items for name in ("gowalla", "gowalla-talos", "gowalla-strong")
    }
    assert items == {"gowalla": 40_981, "gowalla-talos": 40_988, "gowalla-strong": 13_681}


@pytest.mark.mirror
def test_the_three_gowallas_are_never_mixed(mirror_environment):
    """`gowalla-strong` is not to be had; its stand-in is made from the files of `gowalla`."""
    cards = [load_card(name, mirror_environment) for name in ("gowalla", "gowalla-talos", "gowalla-strong-standin")]
    datasets = [prepared(card, mirror_environment) for card in cards]
    assert len({dataset.fingerprint for dataset in datasets}) == 3
    assert [len(dataset.items) for dataset in datasets] == [40_981, 40_988, 13_701]
