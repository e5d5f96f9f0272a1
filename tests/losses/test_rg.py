"""RG² and RG×: worked numbers, and the sampled forms on average."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from toy import A, row_b, tensor, whole

from rankbench.core.errors import ConfigError
from rankbench.losses.rg import rg2, rg2_sampled, rgx, rgx_sampled
from rankbench.losses.spec import NoParams

N = len(A)
RG2_OF_A, RGX_OF_A = [-0.625, 0.875], [-0.6805555556, 0.8194444444]


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
    assert rg2(whole(A + 3), NoParams()).mean().item() - rows.mean().item() == pytest.approx(5.5, abs=1e-9)


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


def test_one_negative_has_no_variance():
    with pytest.raises(ConfigError, match="n_negatives must be > 1"):
        rgx_sampled(row_b(neg=tensor([[0.5]])), NoParams())
