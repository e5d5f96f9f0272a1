"""Paired comparisons, against SciPy, loops, closed testing and what is known under the null."""

import itertools
from dataclasses import asdict, replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import stats

from rankbench.core.errors import ConfigError, DataError
from rankbench.core.rng import stream
from rankbench.evaluation.beyond import Ratio
from rankbench.evaluation.metrics import PerUser
from rankbench.evaluation.summary import bootstrap_means, percentile_bounds, summarise
from rankbench.evaluation.user_tables import UserValues, metrics_of, values_of
from rankbench.judge.compare import FEW, LEVEL, Effort, OtherGroups, compare, holm, user_means
from rankbench.judge.printing import p_text
from rankbench.tracking.record import per_user_table


def users(m):
    return np.arange(m)


def ndcg_like(rng, m):
    """Per-user values as ranking metrics have them: many zeros, few levels, skewed."""
    return np.where(rng.random(m) < 0.5, 0.0, np.round(rng.beta(1.5, 4, m) * 20) / 20).astype(np.float32)


def samples(m=300, n=3, seed=0):
    rng = np.random.default_rng(seed)
    base = ndcg_like(rng, m)
    # Each model changes a third of the users, so that many have no difference.
    columns = [np.where(rng.random(m) < 1 / 3, ndcg_like(rng, m), base) for _ in range(n)]
    return {name: (users(m), column) for name, column in zip("abcdef", columns, strict=False)}


def test_holm_by_hand():
    # Smallest times four, then 0.02 · 3, then 0.03 · 2 = 0.06, which may not fall below 0.06, then 0.04 · 1 likewise.
    assert_allclose(holm([0.03, 0.01, 0.04, 0.02]), [0.06, 0.04, 0.06, 0.06])
    assert_allclose(holm([0.5, 0.001, 0.9]), [1.0, 0.003, 1.0])
    assert holm([]) == []


def closed_testing(p):
    """The definition: a hypothesis falls when every intersection with it does, each tested by Bonferroni."""
    sets = [s for size in range(1, len(p) + 1) for s in itertools.combinations(range(len(p)), size)]
    return [max(min(1.0, len(s) * min(p[j] for j in s)) for s in sets if i in s) for i in range(len(p))]


@given(st.lists(st.floats(0, 1) | st.sampled_from([0.01, 0.02, 0.5]), min_size=1, max_size=6))
def test_holm_is_closed_testing_by_bonferroni(p):
    assert_allclose(holm(p), closed_testing(p), rtol=1e-12)


def test_every_number_of_a_pair_by_its_definition():
    given = samples()
    found = compare(given, metric="ndcg@20", seed=3)
    means = {name: values.astype(float).mean() for name, (_, values) in given.items()}
    assert found.best == max(means, key=means.get)
    assert [(c.model, c.against) for c in found.pairs] == [(name, found.best) for name in given if name != found.best]
    for c in found.pairs:
        d = [float(x) - float(y) for x, y in zip(given[c.model][1], given[c.against][1], strict=True)]
        assert (c.users, c.left_out, c.tests, c.metric) == (300, 0, 3, "ndcg@20")
        assert c.difference == pytest.approx(sum(d) / len(d), abs=1e-12)
        assert c.relative_percent == pytest.approx(100 * (means[c.model] / means[c.against] - 1), abs=1e-9)
        assert (c.better, c.equal, c.worse) == tuple(sum(np.sign(d) == s) / len(d) for s in (1, 0, -1))
        assert c.cohen_dz == pytest.approx(c.difference / np.std(d, ddof=1), rel=1e-5)
        # W+ and W- from ranks counted in a loop, zeros among them.
        size = np.round(np.abs(d), 6)
        ranks = [(size < x).sum() + ((size == x).sum() + 1) / 2 for x in size]
        plus, minus = (sum(r for r, x in zip(ranks, d, strict=True) if s * x > 1e-7) for s in (1, -1))
        assert c.rank_biserial == pytest.approx((plus - minus) / (plus + minus))
        assert c.p_wilcoxon == pytest.approx(stats.wilcoxon(np.round(d, 6), zero_method="pratt").pvalue)


def test_the_bootstrap_is_that_of_the_differences():
    # Resampling every model's mean and subtracting is resampling the differences.
    given = samples()
    found = compare(given, seed=5, resamples=500)
    for c in found.pairs:
        d = given[c.model][1].astype(float) - given[c.against][1]
        low, high = percentile_bounds(bootstrap_means(d[:, None], 5, 500))
        assert_allclose([c.low, c.high], [low[0], high[0]], atol=1e-12)


def test_a_correction_can_cover_pairs_of_other_calls():
    given = samples(n=2)
    (alone,), (among,) = compare(given, resamples=500).pairs, compare(given, resamples=500, of=10).pairs
    assert (alone.tests, among.tests) == (1, 10)
    for name in ("p_bootstrap", "p_wilcoxon"):
        p = getattr(alone, name)
        assert getattr(among, name) == p and getattr(alone, f"{name}_holm") == p
        assert getattr(among, f"{name}_holm") == pytest.approx(min(1, 10 * p))
    least = compare(given, of=45).pairs[0]  # enough resamples that a pair can be significant
    assert least.resamples == 9000 and least.tests == 45
    assert compare(samples(), of=2).pairs == compare(samples()).pairs  # fewer than there are change nothing


@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.005, 0.015, 0.03]))
def test_the_bootstrap_p_is_below_005_just_where_the_interval_leaves_0_out(seed, shift):
    rng = np.random.default_rng(seed)
    a, b = rng.random(200), rng.random(200) + shift
    (c,) = compare({"a": (users(200), a), "b": (users(200), b)}, seed=seed, resamples=199).pairs
    inside = c.low <= 0 <= c.high
    # The bounds are interpolated between two draws and p counts draws: they may part by one or two draws.
    if abs(c.p_bootstrap - LEVEL) > 2 * 2 / 200:
        assert inside == (c.p_bootstrap > LEVEL)


def test_turning_the_pair_round_turns_signs_and_nothing_else():
    given = samples(n=2)
    (c,) = compare(given).pairs
    worse, best = c.model, c.against
    # Lifting the other one above the best mirrors the pair only where the values stay: use the baseline for that.
    both = compare(given, baseline=worse).pairs
    back = next(each for each in both if (each.model, each.against) == (best, worse))
    assert (back.difference, back.low, back.high) == (-c.difference, -c.high, -c.low)
    assert (back.better, back.worse, back.rank_biserial) == (c.worse, c.better, -c.rank_biserial)
    assert (back.p_bootstrap, back.p_wilcoxon, back.p_wilcoxon_holm) == (c.p_bootstrap, c.p_wilcoxon, c.p_wilcoxon_holm)


def test_users_are_matched_by_id_whatever_their_order_and_those_of_one_model_are_left_out():
    given = samples(n=3)
    order = np.random.default_rng(1).permutation(300)
    mixed = dict(given)
    mixed["b"] = (given["b"][0][order], given["b"][1][order])
    assert compare(mixed) == compare(given)
    fewer = dict(given)
    fewer["b"] = (given["b"][0][:290], given["b"][1][:290])
    found = compare(fewer)
    assert {(c.users, c.left_out) for c in found.pairs} == {(290, 10)}
    alone = compare({name: (ids[:290], v[:290]) for name, (ids, v) in given.items()})
    assert found == replace(alone, pairs=tuple(replace(pair, left_out=10) for pair in alone.pairs))


def test_identical_models_are_not_tested_and_do_not_swell_the_family():
    given = samples(n=3)
    alone = {(c.model, c.against): c for c in compare(given).pairs}
    doubled = compare(given | {"twin": given["a"]})
    for c in doubled.pairs:
        twin = {c.model, c.against} == {"a", "twin"}
        assert c.identical == twin and c.tests == 3
        if (c.model, c.against) in alone:
            assert c.p_wilcoxon_holm == alone[c.model, c.against].p_wilcoxon_holm
    against_twin = compare(given | {"twin": given["a"]}, baseline="twin").pairs
    (c,) = [each for each in against_twin if (each.model, each.against) == ("a", "twin")]
    assert (c.difference, c.low, c.high, c.p_wilcoxon, c.p_bootstrap_holm, c.equal) == (0, 0, 0, 1, 1, 1)
    assert c.verdict == "identical for every user" and c.rank_biserial is None
    assert not np.signbit([c.difference, c.low, c.high]).any()


def test_pairs_that_are_asked_for_have_the_numbers_of_all_pairs():
    given = samples()
    by_pair = {(c.model, c.against): c for name in given for c in compare(given, baseline=name).pairs}
    for pair in by_pair:
        assert compare(given, pairs=[pair]).pairs == (by_pair[pair],)
    assert compare(given, pairs=[]).pairs == ()


def test_a_constant_difference_and_a_single_user_have_numbers_or_none():
    (c,) = compare({"a": (users(40), np.full(40, 0.5)), "b": (users(40), np.full(40, 0.25))}).pairs
    assert (c.difference, c.low, c.high, c.cohen_dz, c.rank_biserial, c.worse) == (-0.25, -0.25, -0.25, None, -1, 1)
    assert c.p_bootstrap == pytest.approx(2 / 2001) and c.distinguishable
    (one,) = compare({"a": (users(1), np.array([0.0])), "b": (users(1), np.array([1.0]))}, baseline="a").pairs[:1]
    assert one.users == 1 and not one.distinguishable and one.cohen_dz is None


def test_a_mean_that_few_users_move_against_the_many_does_not_count():
    # Of 100 users, 90 gain 0.01 to 0.02, and ten lose 0.5 to 1: both tests are significant, but oppose each other.
    rng = np.random.default_rng(0)
    gain = np.where(np.arange(1000) % 100 < 90, rng.uniform(0.01, 0.02, 1000), -rng.uniform(0.5, 1, 1000))
    (c,) = compare({"a": (users(1000), 0.5 + gain), "b": (users(1000), np.full(1000, 0.5))}).pairs
    assert max(c.p_bootstrap_holm, c.p_wilcoxon_holm) < 0.05 and c.difference * c.rank_biserial < 0
    assert not c.distinguishable and c.verdict == "not distinguishable at 0.05"


def test_a_seed_gives_the_same_numbers_and_the_best_is_the_first_of_equals():
    given = samples()
    assert compare(given, seed=1) == compare(given, seed=1)
    first, other = compare(given, seed=1).pairs[0], compare(given, seed=2).pairs[0]
    assert (first.low, first.high) != (other.low, other.high) and first.p_wilcoxon == other.p_wilcoxon
    x = (users(5), np.arange(5.0))
    assert compare({"b": x, "a": x}).best == "b"


@pytest.mark.parametrize(
    ("given", "more", "error", "message"),
    [
        (samples(), {"baseline": "d"}, ConfigError, "unknown baseline 'd'"),
        ({"a": (users(2), np.ones(2)), "b": (users(2) + 2, np.ones(2))}, {}, DataError, "a and b each have users"),
        ({"a": (users(2), np.ones(2)), "b": (users(0), np.ones(0))}, {}, DataError, "no user is measured in all"),
        ({"a": (users(2), np.ones(2)), "b": (np.zeros(2), np.ones(2))}, {}, DataError, "b: a user has two values"),
        ({"a": (users(2), np.array([1, np.nan])), "b": (users(2), np.ones(2))}, {}, DataError, "a: 1 users have a value"),
    ],
)
def test_what_cannot_be_compared_is_refused(given, more, error, message):
    with pytest.raises(error, match=message):
        compare(given, **more)


def test_many_models_leave_the_bootstrap_able_to_tell_them_apart():
    # Of 2000 resamples the smallest p is 0.001: 66 pairs would lift it above 0.05, however clear the difference.
    rng = np.random.default_rng(0)
    given = {str(n): (users(200), rng.random(200) + n) for n in range(12)}
    assert all(c.tests == 66 and c.distinguishable for c in compare(given).pairs)


def test_a_user_s_value_is_the_mean_over_the_samples_it_is_in():
    ids, values, _ = user_means([(np.array([3, 1]), np.array([1.0, 0.0])), (np.array([1, 2]), np.array([0.5, 0.75]))])
    assert dict(zip(ids.tolist(), values.tolist(), strict=True)) == {1: 0.25, 2: 0.75, 3: 1.0}
    ids, values, _ = user_means([(users(2), np.array([0.0, 1.0])), (users(2), np.array([1.0, 1.0]))])
    assert (ids.tolist(), values.tolist()) == ([0, 1], [0.5, 1.0])


def of_a_group(m=300):
    """Two models with recall 0.5 and 1 for every user of a group, whose users differ in their number of targets."""
    rng = np.random.default_rng(0)
    targets = np.where(rng.random(m) < 0.3, rng.integers(1, 9, m), 0)
    values, weights = Ratio(targets * 1.0, targets).parts()
    return {"half": UserValues(users(m), values / 2, weights), "all": UserValues(users(m), values, weights)}


def test_a_metric_that_is_a_ratio_is_one_in_every_resample():
    """Users outside of the group change neither the ratio nor the shares of users."""
    found = compare(of_a_group())
    assert asdict(found.means["half"]) == pytest.approx({"mean": 0.5, "low": 0.5, "high": 0.5})
    (pair,) = found.pairs
    assert (pair.difference, pair.low, pair.high) == pytest.approx((-0.5, -0.5, -0.5))
    assert (pair.better, pair.equal, pair.worse) == (0, 0, 1)
    assert pair.users == np.count_nonzero(of_a_group()["all"].weights) < 300


def test_ratios_of_other_users_are_of_one_unit_and_those_of_other_groups_are_refused():
    targets = np.array([1, 2, 3, 6])
    of_all, of_few = (UserValues(users(m), *Ratio(0.5 * targets[:m], targets[:m]).parts()) for m in (4, 3))
    assert compare({"all": of_all, "few": of_few}).pairs[0].identical
    other = UserValues(users(4), *Ratio(targets * 0.5, targets[::-1]).parts())
    with pytest.raises(OtherGroups, match="b: its groups of items or users are not those of the first model"):
        compare({"a": of_all, "b": other})


def test_the_interval_of_a_ratio_is_that_of_a_run():
    rng = np.random.default_rng(1)
    reached, possible = rng.random(200), rng.integers(0, 5, 200)
    values, weights = Ratio(reached * possible, possible).parts()
    run = summarise(PerUser(users(200), {"pooled": values}, {}, {"pooled": weights}), 3, 2000)["pooled"]
    table = per_user_table(pa.array(users(200)), PerUser(users(200), {"pooled": values}, {}, {"pooled": weights}).columns)
    stored = values_of(table, "pooled")
    assert asdict(compare({"a": stored}, seed=3).means["a"]) == pytest.approx(asdict(run), rel=1e-6)
    # In another order, and with users that the other model lacks, whose weights do not count.
    order = rng.permutation(200)
    fewer = UserValues(*(column[:150] for column in stored))
    both = compare({"a": UserValues(*(column[order] for column in stored)), "b": fewer}, seed=3)
    assert both.means["a"].mean == pytest.approx((reached * possible)[:150].sum() / possible[:150].sum(), rel=1e-6)
    assert both.pairs[0].identical and metrics_of(table.column_names) == ["pooled"]


@pytest.mark.slow
def test_under_the_null_each_test_rejects_as_often_as_it_says():
    # Two models whose values are exchangeable for every user; half of the users have no difference.
    trials, rejected = 2000, np.zeros(2)
    for trial in range(trials):
        rng = np.random.default_rng([7, trial])
        x, y = ndcg_like(rng, 400), ndcg_like(rng, 400)
        same = rng.random(400) < 0.5
        (c,) = compare({"a": (users(400), x), "b": (users(400), np.where(same, x, y))}, seed=trial, resamples=399).pairs
        rejected += [c.p_bootstrap < LEVEL, c.p_wilcoxon < LEVEL]
    error = 4 * np.sqrt(LEVEL * (1 - LEVEL) / trials)
    assert_allclose(rejected / trials, LEVEL, atol=error)


@pytest.mark.slow
def test_six_equal_models_are_seldom_called_different_from_the_one_that_happens_to_be_best():
    trials, wrong = 600, np.zeros(3)
    for trial in range(trials):
        rng = np.random.default_rng([8, trial])
        given = {name: (users(300), ndcg_like(rng, 300)) for name in "abcdef"}
        pairs = compare(given, seed=trial, resamples=999).pairs
        wrong += [
            any(c.p_bootstrap_holm < LEVEL for c in pairs),
            any(c.p_wilcoxon_holm < LEVEL for c in pairs),
            # What correcting for the five pairs with the best alone would do.
            any(p < LEVEL for p in holm([c.p_wilcoxon for c in pairs])),
        ]
    error = 4 * np.sqrt(LEVEL * (1 - LEVEL) / trials)
    assert (wrong[:2] / trials <= LEVEL + error).all()
    assert wrong[2] > wrong[1]


@pytest.mark.parametrize(("metric", "words"), [("ndcg@20", ("better", "worse")), ("miscalibration@20", ("higher", "lower"))])
def test_of_metrics_that_describe_lists_a_value_is_higher_and_not_better(metric, words):
    rng, users = np.random.default_rng(0), np.arange(300)
    values = rng.random(300)
    found = compare({"a": (users, values), "b": (users, values + 0.5 + 0.1 * rng.random(300))}, metric=metric, baseline="a")
    verdicts = {(pair.model, pair.against): pair.verdict for pair in found.pairs}
    assert verdicts["b", "a"] == words[0] and verdicts["a", "b"] == words[1]


def many(n_models, n_users=40):
    rng = np.random.default_rng(5)
    base, users = rng.random(n_users), np.arange(n_users)
    return {f"m{i}": (users, base + 0.05 * rng.normal(size=n_users) + 0.01 * i) for i in range(n_models)}


def test_the_pairs_that_are_tested_of_many_models_have_the_numbers_of_a_test_of_all():
    samples = many(FEW + 2)
    samples["twin"] = samples["m3"]
    seen = []
    every, some = compare(samples), compare(samples, every_pair=False, on_progress=seen.append)
    order = sorted(samples, key=lambda name: -every.means[name].mean)
    both = compare(samples, pairs=[*zip(order[1:], order, strict=False)])

    def numbers(pairs):
        return [{k: v for k, v in asdict(pair).items() if not k.endswith("_holm")} for pair in pairs]

    assert numbers(some.pairs) == numbers(every.pairs) and some.means == every.means
    assert numbers(some.neighbours) == numbers(both.pairs) and not every.neighbours
    # A correction that does not know the other tests is never weaker: no verdict becomes easier because fewer pairs are tested.
    for mine, theirs in zip((*some.pairs, *some.neighbours), (*every.pairs, *both.pairs), strict=True):
        assert mine.p_wilcoxon_holm >= theirs.p_wilcoxon_holm and mine.p_bootstrap_holm >= theirs.p_bootstrap_holm
    shown = [c for c in (*some.pairs, *some.neighbours) if not c.identical]
    # The twin's tests are those of m3.
    tested = {frozenset("m3" if name == "twin" else name for name in (c.model, c.against)): c for c in shown}
    others = some.pairs[0].tests - len(tested)
    assert some.pairs[0].tests == (FEW + 2) * (FEW + 1) // 2
    corrected = holm([*(c.p_wilcoxon for c in tested.values()), *[1.0] * others])[: len(tested)]
    assert_allclose([c.p_wilcoxon_holm for c in tested.values()], corrected, rtol=1e-12)
    assert seen == sorted(seen) and seen[-1] == pytest.approx(1.0)


def test_all_pairs_of_few_models_are_tested():
    samples = many(FEW)
    assert compare(samples, every_pair=False) == compare(samples)
    assert Effort.of(FEW, 40, False, 1) == Effort.of(FEW, 40, True, 1)
    effort = Effort.of(55, 5000, False, 1)
    assert (effort.pairs, effort.tested) == (1485, 107) and effort.seconds < Effort.of(55, 5000, True, 1).seconds / 2


@pytest.mark.parametrize(
    ("p", "text"), [(0.0, "< 0.001"), (0.00099, "< 0.001"), (0.001, "0.001"), (0.0496, "0.050"), (1.0, "1.000")]
)
def test_a_p_value_is_printed_in_one_way(p, text):
    assert p_text(p) == text and p_text(p, "= ") == (text if text.startswith("<") else f"= {text}")


def test_a_ratio_of_which_nobody_has_a_part_is_zero():
    nothing = UserValues(users(4), np.zeros(4), np.zeros(4))
    assert compare({"a": nothing, "b": nothing}).pairs[0].identical


def test_threads_change_no_bit_of_a_bootstrap():
    table = np.random.default_rng(0).random((3000, 7))
    one, three = (bootstrap_means(table, 3, 4000, threads) for threads in (1, 3))
    assert one.tobytes() == three.tobytes()
    rng, picked = stream(3, "bootstrap", 3000), []
    for n in (1398, 1398, 1204):  # the draws of the definition, in the batches that fix the order of its sums
        picks = rng.integers(0, 3000, (n, 3000), dtype=np.int32)
        picked += [np.bincount(row, minlength=3000) for row in picks]
    assert_allclose(one, np.array(picked) @ table / 3000, rtol=1e-12)
