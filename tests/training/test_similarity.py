"""Any loss with any similarity and a temperature: the scores that the loss sees, the ranking, and what is refused."""

import numpy as np
import pytest
import torch
from fits import driven, interactions, only_batch, params, trainer_of, vectors
from numpy.testing import assert_allclose
from torch.nn.functional import normalize, softplus

from rankbench.core.errors import ConfigError
from rankbench.fitting.recommenders import score
from rankbench.losses.spec import registered

SCORES = {
    "dot": lambda u, v: (u * v).sum(-1),
    "cosine": lambda u, v: (normalize(u, dim=-1) * normalize(v, dim=-1)).sum(-1),
    "distance": lambda u, v: -(u - v).square().sum(-1),
}


@pytest.mark.parametrize("similarity", SCORES)
def test_the_loss_sees_the_chosen_similarity_divided_by_the_temperature(similarity):
    X = interactions()
    temperature = 1.0 if similarity == "distance" else 0.3
    trainer = trainer_of(X, "bpr", similarity=similarity, temperature=temperature, batch_size=1000)
    U, V = vectors(trainer)
    users, items, drawn = only_batch(trainer)
    pos = SCORES[similarity](U[users], V[items])
    neg = SCORES[similarity](U[users][:, None], V[drawn])
    expected = softplus((neg - pos[:, None]) / temperature).mean(dim=1).mean()
    assert trainer.epoch(1, 1.0) == pytest.approx(expected.item(), rel=1e-10)
    # The model ranks by the same similarity; a temperature changes no order.
    U, V = trainer.learner.vectors()
    found = score(trainer.model(), np.array([2, 5]), X[[2, 5]], slice(0, 20))
    assert_allclose(found, SCORES[similarity](U[[2, 5]][:, None], V[None]), rtol=1e-9, atol=1e-12)


def test_a_temperature_of_sl_is_its_tau_in_both_objectives():
    for objective in ("sampled", "catalogue"):
        plain = trainer_of(interactions(), "sl", tau=0.1, objective=objective)
        scaled = trainer_of(interactions(), "sl", tau=1.0, temperature=0.1, objective=objective)
        assert plain.epoch(1, 1.0) == pytest.approx(scaled.epoch(1, 1.0), rel=1e-10)


def test_what_a_loss_needs_is_not_taken_from_it():
    for name in ("ccl", "debiased-ccl", "psl", "cml", "sml", "rg2-sgd"):
        loss = registered().get(name)
        other = "dot" if loss.similarity != "dot" else "cosine"
        with pytest.raises(ConfigError, match=f"similarity={other}: this loss needs {loss.similarity}, because .+"):
            params(name, similarity=other)
    with pytest.raises(ConfigError, match="no form for distances"):
        params("talos", similarity="distance")
    with pytest.raises(ConfigError, match="temperature divides dot products and cosines"):
        params("cml", temperature=0.5)
    for name in ("ccl", "debiased-ccl", "psl", "debiased-infonce"):
        with pytest.raises(ConfigError, match=r"temperature: not for this loss, because its .*cosine"):
            params(name, temperature=0.5)
    params("rg2-sgd", temperature=0.5)  # dot products have no range


def test_a_fit_can_start_from_ials_and_is_then_ahead():
    X, losses = interactions(), {}
    for init in ("normal", "ials"):
        trainer = trainer_of(X, "sl", init=init, objective="catalogue", embedding_dim=8)
        losses[init] = trainer.epoch(1, 0.0)  # without a step
    assert losses["ials"] < losses["normal"]
    cold = trainer_of(interactions(empty=True), "sl", init="ials", objective="catalogue", embedding_dim=8)
    for table in vectors(cold):  # user 0 and item 3 have no interactions, and a zero vector has no direction to move in
        assert table.norm(dim=1).min() > 0.01
    cold.epoch(1, 1.0)
    assert all(torch.isfinite(table).all() and table.abs().max() < 10 for table in vectors(cold))
    fit = driven(X, "bpr", init="ials", epochs=2)
    assert np.isfinite(fit.model.U).all() and torch.isfinite(torch.from_numpy(fit.model.V)).all()
