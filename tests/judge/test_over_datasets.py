"""Intervals over datasets, comparisons that were fixed beforehand and agreement of two orders, against scipy and loops."""

import itertools
from datetime import date

import numpy as np
import pandas as pd
import pytest
import scikit_posthocs
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose
from scipy import stats

from rankbench.core.errors import ConfigError
from rankbench.judge.declared import read_declared
from rankbench.judge.over_datasets import paired, rank_agreement, spread, trait_tests
from rankbench.judge.ranking import against_first

from .test_ranking import VALUES, of

TABLES = arrays(float, st.tuples(st.integers(2, 6), st.integers(2, 5)), elements=st.sampled_from([0.1, 0.2, 0.4, np.nan]))


def test_a_small_board_by_hand():
    """Three datasets, of which the last two are of one source."""
    board = of(np.array([[0.2, 0.1], [0.1, 0.4], [0.3, 0.3]]), ["a", "b", "b"])
    assert board.weights.tolist() == [1, 0.5, 0.5]
    assert board.mean_ranks.tolist() == [(1 + (2 + 1.5) / 2) / 2, (2 + (1 + 1.5) / 2) / 2]
    assert board.wins.tolist() == [[0, 1], [0.5, 0]] and board.copeland().tolist() == [1, -1]
    assert board.profiles([1.0])[:, 0].tolist() == [0.75, 0.5]
    first, second = spread(board).values()
    assert (first.share.mean, second.share.mean) == ((1 + (0.25 + 1) / 2) / 2, (0.5 + 1) / 2)
    assert (first.first.mean, second.first.mean) == ((1 + 0.25) / 2, 0.375)
    # Of two sources, both draws are the first in a quarter of the resamples, and both the second in another quarter.
    assert (first.mean_rank.low, first.mean_rank.high) == (1, 1.75)
    assert first.leads == pytest.approx(0.75, abs=0.04) and first.leads + second.leads == pytest.approx(1)


@settings(max_examples=40)
@given(TABLES, st.data())
def test_copies_of_a_dataset_change_nothing_if_they_are_of_its_source(values, data):
    values = np.nan_to_num(values, nan=0.05) if np.isnan(values).all(axis=1).any() else values
    times = data.draw(st.lists(st.integers(1, 3), min_size=len(values), max_size=len(values)))
    sources = [f"s{i}" for i in np.repeat(np.arange(len(values)), times)]
    once, copied = of(values), of(np.repeat(values, times, axis=0), sources)
    for name in ("mean_ranks", "wins"):
        assert_allclose(getattr(copied, name), getattr(once, name), atol=1e-9)
    assert_allclose(copied.profiles([1.0, 2.0]), once.profiles([1.0, 2.0]), atol=1e-9)
    assert copied.friedman() == pytest.approx(once.friedman()) and copied.order == once.order
    for name, expected in spread(once).items():
        found = spread(copied)[name]
        assert found.leads == pytest.approx(expected.leads, abs=1e-6)
        for a, b in zip(found[:3], expected[:3], strict=True):
            assert (a.mean, a.low, a.high) == pytest.approx((b.mean, b.low, b.high))
    pairs = [*itertools.combinations(once.methods, 2)]
    assert [each.p_holm for each in paired(copied, pairs)] == pytest.approx([each.p_holm for each in paired(once, pairs)])
    assert rank_agreement(copied, copied).mean == pytest.approx(rank_agreement(once, once).mean)
    assert against_first(copied, 0.01) == against_first(once, 0.01)


def test_intervals_are_those_of_scipy_and_hold_the_mean():
    found = spread(of(VALUES))
    ranks = stats.rankdata(-VALUES, axis=1)
    for j, each in enumerate(found.values()):
        peer = stats.bootstrap((ranks[:, j],), np.mean, method="percentile", n_resamples=9999, rng=0).confidence_interval
        assert (each.mean_rank.low, each.mean_rank.high) == pytest.approx((peer.low, peer.high), abs=0.12)
        for interval in each[:3]:
            assert interval.low <= interval.mean <= interval.high
    assert sum(each.first.mean for each in found.values()) == pytest.approx(1) == sum(each.leads for each in found.values())


def test_one_source_has_no_interval():
    found = spread(of(VALUES[:2], ["a", "a"]))["m4"]
    assert found.mean_rank.low is None and found.leads is None and found.share.mean > 0


def test_pairs_are_those_of_scipy_and_corrected_for_all_that_were_fixed():
    shares = VALUES / VALUES.max(axis=1, keepdims=True)
    pairs = [("m4", "m0"), ("m1", "m0"), ("m0", "not measured"), ("m2", "m3")]
    found = paired(of(VALUES), pairs)
    assert [(each.method, each.against) for each in found] == [pair for pair in pairs if "not measured" not in pair]
    p = [stats.wilcoxon(shares[:, int(a[1])] - shares[:, int(b[1])]).pvalue for a, b in (pairs[0], pairs[1], pairs[3])]
    assert [each.p for each in found] == pytest.approx(p)
    assert min(each.p_holm for each in found) == pytest.approx(4 * min(p))
    frame = pd.DataFrame(shares, columns=list("01234")).melt(var_name="method", value_name="value")
    peer = scikit_posthocs.posthoc_wilcoxon(frame, "value", "method", p_adjust="holm", zero_method="pratt")
    every_pair = paired(of(VALUES), [*itertools.combinations(of(VALUES).methods, 2)])
    assert [each.p_holm for each in every_pair] == pytest.approx([peer[e.method[1]][e.against[1]] for e in every_pair])
    back = paired(of(VALUES), [(b, a) for a, b in pairs])
    assert [(-b.difference, b.worse, b.better, b.p) for b in back] == [(f.difference, f.better, f.worse, f.p) for f in found]
    assert paired(of(np.ones((7, 2))), [("m0", "m1")])[0].p_holm == 1.0 and paired(of(VALUES), []) == []


def test_the_agreement_of_two_boards_is_that_of_scipy_for_each_resample():
    rng = np.random.default_rng(1)
    other = VALUES + 0.3 * rng.random(VALUES.shape)
    found = rank_agreement(of(VALUES), of(other))
    ranks = [stats.rankdata(-each, axis=1) for each in (VALUES, other)]
    assert found.mean == pytest.approx(stats.kendalltau(*(each.mean(axis=0) for each in ranks)).statistic)
    draws = rng.integers(0, 9, (2000, 9))
    taus = [stats.kendalltau(*(each[rows].mean(axis=0).round(9) for each in ranks)).statistic for rows in draws]
    assert (found.low, found.high) == pytest.approx(np.nanpercentile(taus, [2.5, 97.5]), abs=0.11)
    same = rank_agreement(of(VALUES), of(VALUES))
    assert (same.mean, same.low, same.high) == pytest.approx((1, 1, 1))
    assert rank_agreement(of(VALUES), of(VALUES[:, :1])) is None


def test_a_trait_that_decides_is_found_and_noise_is_not():
    rng = np.random.default_rng(0)
    size = np.geomspace(1, 1000, 20)
    values = np.stack([0.2 + 0.05 * np.log(size) / 7, np.full(20, 0.2), np.full(20, 0.22)], axis=1)
    values += 0.002 * rng.random(values.shape)
    traits = {f"d{i}": {"users": size[i], "noise": i % 2, "same": 1.0} for i in range(20)}
    groups = {"large": ["m0", "not measured"], "other": ["m1", "m2"]}
    tests = {each.trait: each for each in trait_tests(of(values), traits, groups, [("large", "other")])}
    assert set(tests) == {"users", "noise"}
    shares = values / values.max(axis=1, keepdims=True)
    peer = stats.spearmanr(shares[:, 0] - shares[:, 1:].mean(axis=1), size)
    assert tests["users"].rho == pytest.approx(peer.statistic) and tests["users"].p < 1e-4
    assert tests["users"].p_holm == pytest.approx(3 * tests["users"].p) and tests["noise"].p_holm > 0.05
    assert trait_tests(of(values[:6]), traits, groups, [("large", "other")]) == []


def test_the_p_value_of_a_trait_is_that_of_all_orders():
    """With seven sources, even of a perfect order: Student's t would say 0."""
    size = np.arange(1.0, 8)
    values = np.stack([0.2 + size / 100, np.full(7, 0.3)], axis=1)
    traits, groups = {f"d{i}": {"users": size[i]} for i in range(7)}, {"a": ["m0"], "b": ["m1"]}
    (test,) = trait_tests(of(values), traits, groups, [("a", "b")])
    assert test.rho == pytest.approx(1) and test.p == pytest.approx(2 / 5040)
    size[[0, 3]] = size[[3, 0]]
    traits = {f"d{i}": {"users": size[i]} for i in range(7)}
    (test,) = trait_tests(of(values), traits, groups, [("a", "b")])
    rhos = [stats.spearmanr(order, size).statistic for order in itertools.permutations(range(7))]
    assert test.p == pytest.approx(np.mean(np.abs(rhos) >= abs(test.rho) - 1e-12))


GOOD = "fixed: 2026-11-28\npairs: [[a, b]]\ngroups: {x: [a], y: [b]}\ntraits: [[x, y]]\n"


def test_fixed_comparisons_are_read(tmp_path):
    (path := tmp_path / "comparisons.yaml").write_text(GOOD, encoding="utf-8")
    found = read_declared(path)
    assert (found.fixed, found.pairs, found.traits) == (date(2026, 11, 28), (("a", "b"),), (("x", "y"),))


@pytest.mark.parametrize(("old", "new", "message"), [
    ("[[a, b]]", "[[a, b], [b, a]]", r"pairs: \[b, a\] is there twice"),
    ("[[a, b]]", "[[a, a]]", r"pairs: \[a, a\] compares a with itself"),
    ("[[a, b]]", "[[a, b, c]]", "pairs"),
    ("[[x, y]]", "[[x, z]]", "traits: unknown group 'z'"),
    ("fixed: 2026-11-28", "fixed: soon", "fixed"),
    ("fixed: 2026-11-28\n", "", "fixed"),
    ("pairs:", "pair:", "did you mean pairs"),
])  # fmt: skip
def test_what_is_wrong_in_fixed_comparisons_is_named(tmp_path, old, new, message):
    (path := tmp_path / "comparisons.yaml").write_text(GOOD.replace(old, new), encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"comparisons.yaml.*{message}"):
        read_declared(path)
