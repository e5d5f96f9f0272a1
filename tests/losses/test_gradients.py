"""Gradients of the forms that are not the default one, which the contract of every loss checks, against finite differences."""

from dataclasses import replace

import pytest

from rankbench.contracts.losses import gradients_are_derivatives
from rankbench.losses.spec import registered

FORMS = [
    ("bce", {"neg_reduction": "sum"}),
    ("bsl", {"form": "multi"}),
    ("ccl", {"clipped": True, "margin": 0.1}),
    ("cml", {"rank_weight": False}),
    ("debiased-ccl", {"lam": 0.7, "margin": 0.1, "positive_weight": "one"}),
    ("debiased-infonce", {"lam": 4, "tau": 0.5}),
    ("debiased-mse", {"lam": 0.7, "a": 0.5}),
    ("mine-plus", {"tau": 0.4, "lam": 1.2}),
    ("opauc", {"form": "kl", "tau": 3.0}),
    ("psl", {"surrogate": "atan"}),
    ("psl", {"surrogate": "relu"}),
    ("recall-at-k", {"scale_rank": True, "tau1": 0.3}),
    ("sampled-softmax", {"correction": "both"}),
    ("sampled-softmax", {"correction": "expected_count"}),
    ("sl", {"include_positive": True}),
    ("sl-at-k", {"tau_d": 0.3, "tau_w": 0.5}),
    ("talos", {"ablation": "quantile"}),
    ("talos", {"ablation": "outside"}),
    ("talos", {"ablation": "denominator"}),
    ("uib", {"boundary": "embedding", "a": 0.3}),
    ("uib", {"phi": "hinge"}),
]


@pytest.mark.parametrize(("name", "values"), FORMS, ids=str)
def test_gradients_are_the_derivatives(name, values):
    loss = registered().get(name)
    gradients_are_derivatives(replace(loss, params=lambda: loss.params(**values)))
