"""What every dataset card of the product keeps; a new file in datasets/ is held to it by existing."""

from pathlib import Path

import numpy as np
import pytest

from rankbench.config import read_yaml
from rankbench.data.cards import load_card
from rankbench.data.prepare import prepare
from rankbench.data.protocols.spec import protocols
from rankbench.data.readers import FORMATS
from rankbench.errors import ConfigError

CARDS = sorted((Path(__file__).parents[2] / "datasets").glob("*.yaml"))
EVERY_CARD = pytest.mark.parametrize("path", CARDS, ids=lambda path: path.stem)


def test_the_contract_found_the_cards():
    assert {"movielens-100k", "movielens-1m", "gowalla", "yelp2018", "amazon-book", "synthetic"} <= {p.stem for p in CARDS}


@EVERY_CARD
def test_a_card_is_valid_and_named_as_its_file(path, settings):
    card = load_card(str(path), settings)
    assert card.name == path.stem
    assert card.title
    assert card.split.protocol in protocols().names()
    assert card.read.format in FORMATS


@EVERY_CARD
def test_a_card_can_be_loaded_by_its_name(path, settings):
    assert load_card(path.stem, settings) == load_card(str(path), settings)


@EVERY_CARD
def test_the_mirror_folder_stays_inside_the_mirror(path, settings, tmp_path):
    folder = (tmp_path / load_card(str(path), settings).mirror_folder).resolve()
    assert folder.parent == tmp_path.resolve()


@pytest.mark.parametrize("folder", ["../elsewhere", "/elsewhere", "a/../../b"])
def test_a_mirror_folder_outside_the_mirror_is_refused(folder, settings):
    with pytest.raises(ConfigError, match="must lie inside the mirror"):
        load_card("movielens-1m", settings, {"source.mirror.folder": folder})


@EVERY_CARD
def test_an_unknown_key_is_refused(path, settings):
    key = f"{next(key for key in read_yaml(path) if key != 'name')}x"
    with pytest.raises(ConfigError, match=rf"{path.name}: {key}: unknown key; did you mean {key[:-1]}\?"):
        load_card(str(path), settings, {key: 1})


def check_parts(split):
    cells = [np.repeat(np.arange(split.n_users), np.diff(m.indptr)) * split.n_items + m.indices for m in parts_of(split)]
    together = np.concatenate(cells)
    assert len(np.unique(together)) == len(together), "an interaction lies in two parts"
    assert all(len(part) for part in cells)


def parts_of(split):
    return split.train, split.valid_target, split.test_target


def test_a_generated_dataset_has_disjoint_parts(settings):
    check_parts(prepare(load_card("synthetic", settings), settings).split)


@pytest.mark.mirror
@EVERY_CARD
def test_a_card_of_the_mirror_is_prepared_and_has_disjoint_parts(path, mirror_settings):
    card = load_card(str(path), mirror_settings)
    if card.source.generator or not (mirror_settings.mirror / card.mirror_folder).is_dir():
        pytest.skip(f"the mirror has no {card.mirror_folder}")
    check_parts(prepare(card, mirror_settings).split)
