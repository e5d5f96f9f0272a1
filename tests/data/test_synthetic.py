"""The generator: the same spec gives the same rows, no pair twice, and taste that a model can find."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankbench.core.errors import StorageError
from rankbench.data import synthetic
from rankbench.data.cards import Generator
from rankbench.data.prepare import load
from rankbench.data.synthetic import generate

specs = st.builds(
    Generator,
    users=st.integers(2, 60),
    items=st.integers(2, 60),
    interactions_per_user=st.floats(0.1, 100),
    tastes=st.integers(1, 20),
    taste_strength=st.floats(0, 1000),
    popularity_exponent=st.floats(0, 20),
    activity_exponent=st.floats(1.1, 100),
    seed=st.integers(0, 2**32),
)


def test_what_does_not_fit_into_memory_is_refused_before_it_is_drawn():
    with pytest.raises(StorageError, match=r"users and 2,000 items needs \d+\.\d GB of memory"):
        generate(Generator(users=50_000_000, items=2000, tastes=4096))


def test_the_memory_that_is_asked_for_is_what_it_takes():
    spec = Generator(users=6000, items=4000, interactions_per_user=400)
    tracemalloc.start()
    generate(spec)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0.5 < peak / synthetic._memory(spec) < 1.2


def dense(spec: Generator) -> np.ndarray:
    table = generate(spec)
    X = np.zeros((spec.users, spec.items))
    np.add.at(X, (table["user"].to_numpy(), table["item"].to_numpy()), 1)
    return X


@given(spec=specs)
@settings(max_examples=60)
def test_every_spec_that_validates_gives_pairs_without_repetition(spec):
    X = dense(spec)
    most = max(spec.items // 2, 1)
    assert X.max() == 1
    assert min(5, most) <= X.sum(axis=1).min() <= X.sum(axis=1).max() <= most


@given(spec=specs)
@settings(max_examples=20)
def test_the_same_spec_gives_the_same_rows(spec):
    assert generate(spec).equals(generate(spec))


def test_work_in_blocks_changes_no_property(monkeypatch):
    spec = Generator(users=300, items=50)
    whole = dense(spec)
    monkeypatch.setattr(synthetic, "_BLOCK_CELLS", 50 * 7)
    blocks = dense(spec)
    assert blocks.max() == 1
    np.testing.assert_array_equal(blocks.sum(axis=1), whole.sum(axis=1))  # activity is drawn before the blocks
    assert np.corrcoef(blocks.sum(axis=0), whole.sum(axis=0))[0, 1] > 0.9  # and so is popularity


def test_the_mean_activity_is_the_one_asked_for():
    X = dense(Generator(users=5000, items=1000, interactions_per_user=30, activity_exponent=6))
    assert X.sum() / len(X) == pytest.approx(30, rel=0.1)


def test_popularity_falls_as_its_power_law_says():
    """Without taste and with few draws of many items, counts are close to proportional to rank^-exponent."""
    X = dense(
        Generator(
            users=20_000, items=1000, interactions_per_user=6, taste_strength=0, popularity_exponent=0.5, activity_exponent=50
        )
    )
    counts = np.sort(X.sum(axis=0))[::-1]
    ranks = np.arange(10, 500)  # past the few items that most users have, before the noise of the tail
    slope = np.polyfit(np.log(1 + ranks), np.log(counts[ranks]), 1)[0]
    assert slope == pytest.approx(-0.5, abs=0.05)


def test_an_item_id_says_nothing_of_popularity():
    """Else ties that go to the lower id would favour popular items. The standard deviation of r is 1000^-1/2 = 0.03."""
    counts = dense(Generator(users=2000, items=1000)).sum(axis=0)
    ranks = np.argsort(np.argsort(counts))
    assert abs(np.corrcoef(np.arange(1000), ranks)[0, 1]) < 0.15


def hits_beyond_popularity(spec: Generator) -> float:
    """Held-out hits in the top 10 of item-to-item ridge regression, over those of popularity."""
    X, rng = dense(spec), np.random.default_rng(0)
    held_out = X * (rng.random(X.shape) < 0.2)
    train = X - held_out
    P = np.linalg.inv(train.T @ train + 500 * np.eye(spec.items))
    B = -P / np.diag(P)
    np.fill_diagonal(B, 0)
    popularity = np.tile(train.sum(axis=0), (len(X), 1))
    hits = []
    for scores in (train @ B, popularity):
        top = np.argsort(-np.where(train > 0, -np.inf, scores), axis=1)[:, :10]
        hits.append(np.take_along_axis(held_out, top, axis=1).sum())
    return hits[0] / hits[1]


def test_taste_is_real():
    """A model finds nothing beyond popularity where no taste is planted, and more the stronger it is."""
    world = {"users": 1500, "items": 300, "tastes": 12}
    none, some, strong = (hits_beyond_popularity(Generator(**world, taste_strength=strength)) for strength in (0, 2, 4))
    assert none < 1.0 < 1.05 < some
    assert strong > 2.0


def test_the_generator_is_a_dataset_without_files(write, environment):
    spec = {"users": 100, "items": 50, "seed": 3}
    data = load(write({"source": {"generator": spec}}), environment)
    X = dense(Generator(**spec))
    found = np.zeros((100, 50))
    total = data.split.train + data.split.valid_target + data.split.test_target
    found[np.ix_(data.users.to_numpy(), data.items.to_numpy())] = total.toarray()
    np.testing.assert_array_equal(found, X)
    assert data.sources == ()
    assert not (environment.data / "raw").exists()
