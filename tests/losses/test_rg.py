"""RG² and RG×: worked numbers, their squared form, minimiser and expansion, and the sampled forms on average."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rows import catalogues, gradient, shifted, three_rows
from toy import A, whole

from rankbench.core.errors import ConfigError
from rankbench.losses.rg import rg2, rg2_sampled, rgx, rgx_sampled
from rankbench.losses.spec import NoParams

N = len(A)
RG2_OF_A, RGX_OF_A = [-0.625, 0.875], [-0.6805555556, 0.8194444444]
LOGITS = catalogues(-5, 5)


def all_pairs_of_draws(s):
    """The rows of `s` with two negatives drawn from all items with replacement, in each of the N² ways."""
    o = s.catalogue.values[0]
    for pair in itertools.product(o, repeat=2):
        yield replace(s, neg=torch.stack(pair).expand(len(s.pos), 2))


def on_average(function, s):
    return torch.stack([function(draw, NoParams()) for draw in all_pairs_of_draws(s)]).mean(dim=0)


@pytest.mark.worked("rg2-sgd")
def test_rg2_of_a():
    rows = rg2(whole(A), NoParams())
    assert rows.tolist() == pytest.approx(RG2_OF_A, abs=1e-9)
    assert rows.mean().item() == pytest.approx(0.125, abs=1e-9)
    assert rows.mean().item() + math.log(N) - 0.5 == pytest.approx(1.4167594692, abs=1e-9)
    assert rg2(shifted(whole(A), 3), NoParams()).mean().item() - rows.mean().item() == pytest.approx(5.5, abs=1e-9)


@pytest.mark.worked("rgx-sgd")
def test_rgx_of_a():
    rows = rgx(whole(A), NoParams())
    assert rows.tolist() == pytest.approx(RGX_OF_A, abs=1e-9)
    assert rows.mean().item() == pytest.approx(0.0694444444, abs=1e-9)
    assert rows.mean().item() + math.log(N) - 0.5 == pytest.approx(1.3612039137, abs=1e-9)


@pytest.mark.worked("rg2-sampled-sgd")
def test_sampled_rg2_of_a_on_average():
    assert on_average(rg2_sampled, whole(A)).tolist() == pytest.approx(RG2_OF_A, abs=1e-9)


@pytest.mark.worked("rgx-sampled-sgd")
def test_sampled_rgx_of_a_on_average():
    assert on_average(rgx_sampled, whole(A)).tolist() == pytest.approx(RGX_OF_A, abs=1e-9)


@given(drawn=LOGITS)
def test_the_sampled_forms_are_without_bias(drawn):
    _, s = drawn
    torch.testing.assert_close(on_average(rg2_sampled, s), rg2(s, NoParams()))
    torch.testing.assert_close(on_average(rgx_sampled, s), rgx(s, NoParams()))


@given(drawn=LOGITS)
def test_rg2_summed_over_a_user_is_a_weighted_squared_error(drawn):
    o, s = drawn
    n_items, n_u = len(o), len(s.pos)
    r = torch.zeros_like(o)
    r[s.items] = 1
    squared = n_u / (2 * n_items) * (o + 1 - r * n_items / n_u).square().sum()
    torch.testing.assert_close(rg2(s, NoParams()).sum(), squared + n_u - n_items / 2)


@given(drawn=LOGITS, c=st.floats(-5, 5))
def test_the_least_value_is_at_the_papers_targets(drawn, c):
    o, s = drawn
    n_items, n_u, positives = len(o), len(s.pos), s.items.tolist()
    best = torch.full_like(o, -1.0)
    best[s.items] = n_items / n_u - 1
    least = 1 - n_items / (2 * n_u)
    assert rg2(whole(best, positives), NoParams()).mean().item() == pytest.approx(least)
    assert rgx(whole(best + c, positives), NoParams()).mean().item() == pytest.approx(least)
    assert rgx(s, NoParams()).mean().item() >= least - 1e-9
    assert rg2(s, NoParams()).mean().item() >= least - 1e-9


@given(drawn=LOGITS, c=st.floats(-5, 5))
def test_rgx_forgives_a_shift_and_rg2_pays_for_it(drawn, c):
    _, s = drawn
    torch.testing.assert_close(rgx(shifted(s, c), NoParams()), rgx(s, NoParams()))
    mean = s.catalogue.values.mean(dim=1)
    paid = ((mean + c).square() - mean.square()) / 2
    torch.testing.assert_close(rg2(shifted(s, c), NoParams()) - rg2(s, NoParams()), paid)


def test_gradients_in_shared_negatives_are_finite_where_all_are_equal():
    s = replace(three_rows("dot"), neg=torch.full((3, 4), 50.0, dtype=torch.float64))
    assert all(g.isfinite().all() for g in gradient(rgx_sampled, s, NoParams(), "pos", "neg"))


def test_one_negative_has_no_variance():
    s = three_rows("dot")
    with pytest.raises(ConfigError, match="n_negatives must be > 1"):
        rgx_sampled(replace(s, neg=s.neg[:, :1]), NoParams())
