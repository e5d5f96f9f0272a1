"""Losses that say they are one in other words train to the same model; those that do not, do not."""

import numpy as np
import pytest

from rankbench.data.blocks import csr_from_pairs
from rankbench.experiment.fit import fit as fit_configs
from rankbench.experiment.job import configure

COMMON = {"embedding_dim": 8, "epochs": 3, "batch_size": 64, "n_negatives": 20, "sampler": "uniform-all", "patience": 0}


def fitted(method, **params):
    rng = np.random.default_rng(0)
    X = csr_from_pairs(rng.integers(0, 60, 900), rng.integers(0, 40, 900), (60, 40))
    chosen = configure(method, COMMON | params)
    (model,) = fit_configs((chosen,), X, "float64", 0).models
    return chosen.identity, model.base(np.arange(60), X, slice(0, 40), np.empty((60, 40)))


@pytest.mark.parametrize(
    "method, params, same",
    [
        ("mine", {"tau": 0.3}, True),
        ("mine-plus", {"tau": 0.3, "lam": 1.0}, True),
        ("bsl", {"tau1": 0.7, "tau2": 0.3}, True),
        ("bsl", {"tau1": 0.7, "tau2": 0.3, "form": "multi"}, False),
        ("mine-plus", {"tau": 0.3, "lam": 1.1}, False),
        ("infonce", {"tau": 0.3}, False),
    ],
)
def test_equal_identities_are_equal_models(method, params, same):
    identity, scores = fitted("sl", tau=0.3)
    other_identity, other = fitted(method, **params)
    assert (other_identity == identity) is same
    # Adam's epsilon sees the scale of a gradient, a little.
    assert np.allclose(other, scores, rtol=0, atol=1e-4) is same


def test_a_loss_of_another_scale_is_another_fit_with_a_large_eps():
    of = {eps: [fitted("bsl", tau1=tau1, tau2=0.3, adam_eps=eps) for tau1 in (0.1, 1.0)] for eps in (1e-8, 1e-3)}
    assert [of[eps][0][0] == of[eps][1][0] for eps in of] == [True, False]
    assert np.abs(of[1e-3][0][1] - of[1e-3][1][1]).max() > 1e-3
