"""Negatives shared by the rows of a batch against negatives of each row's own: what is the same on average, and what is not.

Every outcome of drawing two negatives from a small catalogue is enumerated with its probability, so expectations are exact.
Equal: the expected loss of every row and the expected gradients of the batch, since one row by itself cannot tell whether
others see the same draws. That holds for a mean over negatives (bce), for a sum of exponentials (mine before its logarithm),
and for their logarithm as well. Not equal: the variance of a batch and of its gradient, since shared draws make the rows depend
on one another, and so anything that is not a sum over rows. Neither is the expectation of a logarithm what a sum over all items
has: that bias has the same size under both. The proposal must be the same: sampler=auto with shared negatives draws from all
items, where some losses would draw from those the user has not met.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from rankbench.data.blocks import csr_from_pairs
from rankbench.losses.spec import registered
from rankbench.training.batches import Batch, Rows
from rankbench.training.negatives import Negatives, NegativeSampler
from rankbench.training.scoring import scores_of

N_ITEMS, N_DRAWN = 4, 2
USERS, ITEMS = np.array([0, 1]), np.array([2, 0])
TAU = 0.3


@pytest.fixture(scope="module")
def X():
    return csr_from_pairs(np.array([0, 0, 1, 2, 2, 2]), np.array([2, 3, 0, 0, 1, 2]), (3, N_ITEMS))


@pytest.fixture(scope="module")
def tables():
    draw = torch.Generator().manual_seed(2)
    return [torch.randn(n, 3, dtype=torch.float64, generator=draw) for n in (3, N_ITEMS)]


def bce(s):
    return registered().get("bce").function(s, registered().get("bce").params())


def mine(s):
    return registered().get("mine").function(s, registered().get("mine").params(tau=TAU))


def mine_before_its_logarithm(s):
    return (s.neg / TAU).exp().mean(dim=1)


ROWS = {"bce": ("bce", bce), "sum of exponentials": ("mine", mine_before_its_logarithm), "mine": ("mine", mine)}


@dataclass
class Moments:
    """Of the rows (B,) and of the gradient of their mean in both tables: means, and the covariance of the rows."""

    rows: np.ndarray
    gradients: list[np.ndarray]
    covariance: np.ndarray
    gradient_variance: float


def enumerated(X, tables, kind, shared, what) -> Moments:
    name, function = ROWS[what]
    probability = np.exp(NegativeSampler(X, kind, N_ITEMS, True).draw(0, 1, 0, USERS, ITEMS).logq)
    if kind == "uniform-all":
        law = np.full(N_ITEMS, probability.item())
    else:
        law = np.bincount(X.indices, minlength=N_ITEMS) / X.nnz
    assert_allclose(law.sum(), 1, rtol=1e-12)
    shape = (1 if shared else len(USERS), N_DRAWN)
    chances, rows, gradients = [], [], []
    for outcome in product(range(N_ITEMS), repeat=int(np.prod(shape))):
        drawn = np.array(outcome).reshape(shape)
        negatives = Negatives(drawn, np.log(law)[drawn], np.log(law)[ITEMS])
        U, V = (table.clone().requires_grad_() for table in tables)
        s = scores_of(registered().get(name), Batch(USERS, ITEMS, negatives, None), Rows(U, None), Rows(V, None), X, V)
        values = function(s)
        values.mean().backward()
        chances.append(law[drawn].prod())
        rows.append(values.detach().numpy())
        gradients.append([table.grad.numpy() for table in (U, V)])
    chances, rows = np.array(chances), np.array(rows)
    assert_allclose(chances.sum(), 1, rtol=1e-12)
    mean = chances @ rows
    sides = [np.array(side) for side in zip(*gradients, strict=True)]  # (outcomes, n, 3) each
    expected = [np.tensordot(chances, side, 1) for side in sides]
    covariance = (rows - mean).T @ (chances[:, None] * (rows - mean))
    spread = sum(((side - middle) ** 2).sum(axis=(1, 2)) for side, middle in zip(sides, expected, strict=True))
    return Moments(mean, expected, covariance, float(chances @ spread))


@pytest.fixture(scope="module", params=[(kind, what) for kind in ("uniform-all", "popularity") for what in ROWS], ids=str)
def pair(request, X, tables):
    kind, what = request.param
    return [enumerated(X, tables, kind, shared, what) for shared in (True, False)]


def test_every_row_has_the_same_expectation(pair):
    shared, own = pair
    assert_allclose(shared.rows, own.rows, rtol=1e-12, atol=1e-12)


def test_the_expected_gradients_are_the_same(pair):
    shared, own = pair
    for found, expected in zip(shared.gradients, own.gradients, strict=True):
        assert np.abs(expected).max() > 1e-3
        assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_rows_vary_alike_but_depend_on_one_another_only_where_negatives_are_shared(pair):
    shared, own = pair
    assert_allclose(np.diag(shared.covariance), np.diag(own.covariance), rtol=1e-10)
    size = np.sqrt(np.prod(np.diag(own.covariance)))
    assert abs(own.covariance[0, 1]) < 1e-12 * size
    assert abs(shared.covariance[0, 1]) > 0.05 * size
    assert abs(shared.gradient_variance / own.gradient_variance - 1) > 1e-3


def test_the_sum_of_exponentials_is_on_average_that_of_all_items_and_its_logarithm_is_not(X, tables):
    U, V = tables
    cosine = torch.nn.functional.normalize(U, dim=1)[USERS] @ torch.nn.functional.normalize(V, dim=1).T
    whole = (cosine / TAU).exp().mean(dim=1).numpy()
    for shared in (True, False):
        found = enumerated(X, tables, "uniform-all", shared, "sum of exponentials")
        assert_allclose(found.rows, whole, rtol=1e-12)
        logarithm = enumerated(X, tables, "uniform-all", shared, "mine").rows + cosine[[0, 1], ITEMS].numpy() / TAU
        assert (logarithm < np.log(N_DRAWN * whole) - 1e-3).all()  # by Jensen's inequality
