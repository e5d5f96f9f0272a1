"""PSL: worked numbers of its three activations, its formula, and the end of its range."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rows import batches, gradient
from toy import C, row_b, whole

from rankbench.losses.psl import PSL, psl

SURROGATES = ["tanh", "atan", "relu"]
ACTIVATIONS = {"tanh": lambda x: 1 + math.tanh(x), "atan": lambda x: 1 + math.atan(x), "relu": lambda x: max(1 + x, 0)}
TAUS = st.floats(0.05, 1)


def halved(s):
    """Cosines, as PSL sees them."""
    return replace(s, pos=s.pos / 2, neg=s.neg / 2)


@pytest.mark.worked("psl")
@pytest.mark.parametrize(("surrogate", "row", "catalogue"), [
    ("tanh", -0.4102119470, 1.3559959105),
    ("atan", -0.4104084916, 1.3559797018),
    ("relu", -0.4191746907, 1.3591842780),
])  # fmt: skip
def test_row_b_and_the_whole_catalogue_c(surrogate, row, catalogue):
    p = PSL(0.1, surrogate)
    assert psl(halved(row_b()), p).item() == pytest.approx(row, abs=1e-9)
    assert psl(halved(whole(C)), p).mean().item() == pytest.approx(catalogue, abs=1e-9)


@given(s=batches(-0.45, 0.45), tau=TAUS, surrogate=st.sampled_from(SURROGATES))
def test_it_is_its_formula(s, tau, surrogate):
    value = psl(s, PSL(tau, surrogate)).tolist()
    for b, pos in enumerate(s.pos.tolist()):
        terms = [ACTIVATIONS[surrogate](x - pos) ** (1 / tau) for x in s.neg[b].tolist()]
        assert value[b] == pytest.approx(math.log(math.fsum(terms)), abs=1e-9)


@pytest.mark.parametrize("tau", [0.005, 0.3])
def test_relu_is_its_formula_close_to_the_end_of_the_range_and_finite_at_it(tau):
    close, end = (row_b(pos=torch.tensor([0.5]), neg=torch.full((1, 3), -x)) for x in (0.499, 0.5))
    assert psl(close, PSL(tau, "relu")).item() == pytest.approx(math.log(0.001) / tau + math.log(3), rel=1e-3)
    assert psl(end, PSL(tau, "relu")).isfinite().all()
    assert all(g.isfinite().all() for g in gradient(psl, end, PSL(tau, "relu"), "pos", "neg"))
