"""MultiVAE: its worked number, its gradients, and what a fit draws, resumes and folds in."""

import itertools
from unittest import mock

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from rankbench.contracts.training import expect_resumes
from rankbench.core import devices, threads
from rankbench.core.errors import NumericalError
from rankbench.data.cards import load_card
from rankbench.experiment.execution import Execution
from rankbench.experiment.fit import fit as fit_configs
from rankbench.experiment.job import Job, configure
from rankbench.experiment.run import run
from rankbench.fitting.recommenders import AutoencoderRecommender, score
from rankbench.training.autoencoders import blocks
from rankbench.training.autoencoders.blocks import BlockNetwork, loss_and_gradients
from rankbench.training.autoencoders.multivae import MultiVAE, batches, divergence_weight, recommender, start_weights
from rankbench.training.autoencoders.network import Batch, Network

SMALL = {"hidden_dim": 6, "latent_dim": 3, "users_per_step": 16, "epochs": 4, "anneal_epochs": 2, "learning_rate": 0.01}

# Two hidden units, one latent dimension and three items; rows of Q1 and P2 are items.
WEIGHTS = {
    "Q1": [[0.5, -0.2], [0.1, 0.4], [-0.3, 0.6]],
    "q1": [0.05, -0.05],
    "Q2": [[0.7, 0.2], [-0.4, 0.3]],
    "q2": [0.1, -0.2],
    "P1": [[0.6, -0.5]],
    "p1": [0.02, 0.03],
    "P2": [[0.3, 0.4], [-0.1, 0.5], [0.2, -0.6]],
    "p2": [0.0, 0.1, -0.1],
}
WEIGHTS = {name: np.array(values) for name, values in WEIGHTS.items()}


def histories(*rows):
    return sp.csr_array(np.array(rows, dtype=np.float64))


def whole_batch(x, noise, beta):
    return Batch.of(x, np.ones(x.nnz, bool), 1.0, np.array(noise), beta)


def plain(w, x, inputs, noise, beta):
    """The definition in dense NumPy: h, μ, log σ², f, and the loss of each user in its two parts."""
    h = np.tanh(inputs @ w["Q1"] + w["q1"])
    mean, log_variance = np.split(h @ w["Q2"] + w["q2"], 2, axis=1)
    z = mean + noise * np.exp(log_variance / 2)
    f = np.tanh(z @ w["P1"] + w["p1"]) @ w["P2"].T + w["p2"]
    negative = -(x * (f - np.log(np.exp(f).sum(axis=1, keepdims=True)))).sum(axis=1)
    divergence = (np.exp(log_variance) + mean**2 - 1 - log_variance).sum(axis=1) / 2
    return h, mean, log_variance, f, negative, divergence, (negative + beta * divergence).mean()


# The worked number


def test_the_worked_number():
    x, noise = histories([1, 1, 0]), np.array([[0.5]])
    h, mean, log_variance, f, negative, divergence, loss = plain(WEIGHTS, x.toarray(), x.toarray() / np.sqrt(2), noise, 0.2)
    assert_allclose(h, [[0.44163816, 0.09116751]], atol=1e-8)
    assert_allclose((mean[0, 0], log_variance[0, 0]), (0.37267971, -0.08432212), atol=1e-8)
    assert_allclose(f, [[-0.00472041, -0.13690013, 0.22318535]], atol=1e-8)
    assert_allclose((negative[0], divergence[0], loss), (2.41561936, 0.07117371, 2.42985410), atol=1e-8)
    batch = whole_batch(x, noise, 0.2)
    assert loss_and_gradients(WEIGHTS, batch, np.arange(3))[0] == pytest.approx(2.42985410, abs=1e-8)
    assert loss_and_gradients(WEIGHTS, batch, np.arange(3))[0] == pytest.approx(loss, rel=1e-14)
    network = Network(WEIGHTS, MultiVAE(), torch.device("cpu"))
    assert network.loss(batch).item() == pytest.approx(loss, rel=1e-14)


def test_the_worked_scores():
    x = histories([1, 1, 0])
    found = score(recommender(WEIGHTS), np.array([0]), x, slice(0, 3))
    assert_allclose(found, [[0.00963881, -0.00142927, 0.04082717]], atol=1e-8)
    assert_allclose(found, plain(WEIGHTS, x.toarray(), x.toarray() / np.sqrt(2), 0.0, 0.2)[3], atol=1e-14)


def test_the_worked_input_of_which_dropout_keeps_one_item():
    batch = Batch.of(histories([1, 1, 0]), np.array([True, False]), 0.5, np.array([[0.5]]), 0.2)
    assert_allclose(batch.values, [2 / np.sqrt(2), 0])
    h = plain(WEIGHTS, np.zeros((1, 3)), np.array([[batch.values[0], 0, 0]]), 0.0, 0.2)[0]
    assert_allclose(h, [[0.63936963, -0.32107276]], atol=1e-8)
    # The likelihood is that of both items all the same.
    inputs = np.array([[batch.values[0], 0, 0]])
    expected = plain(WEIGHTS, np.array([[1, 1, 0]]), inputs, np.array([[0.5]]), 0.2)[-1]
    assert loss_and_gradients(WEIGHTS, batch, np.array([0]))[0] == pytest.approx(expected, rel=1e-14)


# Loss and gradients


def problem(seed, n_users, n_items, dropout, beta, hidden=4, latent=3):
    """Random weights and a batch, with its dense history and input."""
    rng = np.random.default_rng(seed)
    shapes = {"Q1": (n_items, hidden), "q1": hidden, "Q2": (hidden, 2 * latent), "q2": 2 * latent}
    shapes |= {"P1": (latent, hidden), "p1": hidden, "P2": (n_items, hidden), "p2": n_items}
    weights = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    x = sp.csr_array((rng.random((n_users, n_items)) < 0.4).astype(np.float64))
    keep = rng.random(x.nnz) >= dropout
    batch = Batch.of(x, keep, 1 - dropout, rng.standard_normal((n_users, latent)), beta)
    inputs = sp.csr_array((batch.values, x.indices, x.indptr), x.shape).toarray()
    return weights, batch, x.toarray(), inputs


@given(
    seed=st.integers(0, 10**6),
    n_users=st.integers(1, 6),
    n_items=st.integers(1, 9),
    dropout=st.sampled_from([0.0, 0.5, 0.9]),
    beta=st.sampled_from([0.0, 0.3, 1.0]),
    n_in_block=st.sampled_from([2, 3, 2048]),
)
def test_the_loss_is_that_of_the_definition_and_the_gradients_are_those_of_autograd(
    seed, n_users, n_items, dropout, beta, n_in_block
):
    """Users without interactions, and items that no user of the batch has, included."""
    weights, batch, x, inputs = problem(seed, n_users, n_items, dropout, beta)
    seen = np.unique(batch.items[batch.values != 0])
    with mock.patch.object(blocks, "ITEMS", n_in_block):
        total, gradients = loss_and_gradients(weights, batch, seen)
    assert total == pytest.approx(n_users * plain(weights, x, inputs, batch.noise, beta)[-1], rel=1e-12)
    network = Network(weights, MultiVAE(), torch.device("cpu"))
    losses = network.loss(batch)
    losses.mean().backward()
    assert losses.sum().item() == pytest.approx(total, rel=1e-12)
    for name, gradient in gradients.items():
        expected = network.tensors[name].grad.numpy()
        if name == "Q1":
            assert not np.delete(expected, seen, axis=0).any()
            expected = expected[seen]
        assert_allclose(gradient, expected, rtol=1e-9, atol=1e-12, err_msg=name)


def test_products_in_bfloat16_round_to_eight_bits_on_both_sides():
    """Each factor and product is off by at most 2⁻⁸ of itself, so a sum is off by a few of these."""
    weights, batch, _, _ = problem(3, 40, 60, 0.5, 0.3, hidden=32, latent=8)
    seen = np.arange(60)
    total, exact = loss_and_gradients(weights, batch, seen)
    short_total, short = loss_and_gradients(weights, batch, seen, "bfloat16")
    network = Network(weights, MultiVAE(precision="bfloat16"), torch.device("cpu"))
    losses = network.loss(batch)
    losses.mean().backward()
    assert short_total != total
    assert short_total == pytest.approx(total, rel=1e-2)
    assert losses.sum().item() == pytest.approx(total, rel=1e-2)
    for name, gradient in exact.items():
        for found in (short[name], network.tensors[name].grad.numpy()):
            assert np.linalg.norm(found - gradient) < 0.02 * np.linalg.norm(gradient), name


def test_scores_of_any_size_have_a_finite_loss():
    weights, batch, _, _ = problem(3, 4, 6, 0.0, 0.2)
    weights["p2"] = np.array([0, 1e4, -1e4, 500, 0, 0.0])
    total, gradients = loss_and_gradients(weights, batch, np.arange(6))
    assert np.isfinite(total) and all(np.isfinite(each).all() for each in gradients.values())


@pytest.mark.parametrize("lam", [0.0, 0.05])
def test_steps_of_both_networks_are_those_of_adam(lam):
    """Q1 has rows that no batch uses: they move by their momentum, and with λ by their decay."""
    X, p = interactions(), MultiVAE(**SMALL | {"lam": lam})
    start = start_weights(X.shape[1], p, 0, np.dtype(np.float64))
    ours = BlockNetwork({name: each.copy() for name, each in start.items()}, p.learning_rate, lam)
    theirs = Network(start, p, torch.device("cpu"))
    for epoch in (1, 2, 3):
        for batch in batches(X, p, 0, epoch, np.dtype(np.float64)):
            assert ours.step(batch) == pytest.approx(theirs.step(batch).item(), rel=1e-9)
    expected = theirs.weights()
    for name, found in ours.weights().items():
        assert_allclose(found, expected[name], rtol=1e-7, atol=1e-9, err_msg=name)


# What is drawn


def test_beta_rises_to_its_cap_by_epochs_or_as_in_the_program():
    by_epochs = MultiVAE(beta=0.2, anneal_epochs=50)
    assert [divergence_weight(by_epochs, step, 60) for step in (0, 1500, 3000, 10**6)] == [0, pytest.approx(0.1), 0.2, 0.2]
    as_published = MultiVAE(beta=0.2, anneal_steps=200_000)
    assert [divergence_weight(as_published, step, 234) for step in (0, 20_000, 40_000, 10**6)] == [0, 0.1, 0.2, 0.2]
    assert divergence_weight(as_published, 60 * 200, 60) == pytest.approx(0.06)  # Gowalla after 200 epochs
    assert divergence_weight(MultiVAE(anneal_epochs=0), 0, 60) == 0.2


def test_initial_weights_are_xavier_and_a_cut_normal():
    weights = start_weights(500, MultiVAE(hidden_dim=60, latent_dim=20), 3, np.dtype(np.float64))
    for name, fans in {"Q1": 560, "Q2": 100, "P1": 80, "P2": 560}.items():
        bound = np.sqrt(6 / fans)
        assert np.abs(weights[name]).max() <= bound
        assert weights[name].std() == pytest.approx(bound / np.sqrt(3), rel=0.06)
    assert np.abs(weights["p2"]).max() <= 0.002
    assert weights["p2"].std() == pytest.approx(0.00088, rel=0.1)  # of a normal distribution that is cut at two deviations
    again = start_weights(500, MultiVAE(hidden_dim=60, latent_dim=20), 3, np.dtype(np.float32))
    assert all(np.array_equal(again[name], weights[name].astype(np.float32)) for name in weights)


def test_an_epoch_has_every_user_with_interactions_once_and_drops_the_given_share():
    X, p = interactions(), MultiVAE(**SMALL)
    active = np.flatnonzero(np.diff(X.indptr))
    assert len(active) < X.shape[0]
    epochs = [list(batches(X, p, 5, epoch, np.dtype(np.float32))) for epoch in (1, 2, 1)]
    for each in epochs:
        assert sum(len(batch.counts) for batch in each) == len(active)
        assert sum(len(batch.items) for batch in each) == X.nnz
    values = np.concatenate([batch.values for batch in epochs[0]])
    assert np.mean(values == 0) == pytest.approx(0.5, abs=0.06)
    first, second, again = (np.concatenate([batch.items for batch in each]) for each in epochs)
    assert_array_equal(first, again)
    assert (first != second).any()
    for one, other in zip(epochs[0], epochs[2], strict=True):
        assert_array_equal(one.values, other.values)
        assert_array_equal(one.noise, other.noise)


# A fit


def interactions(n_users=60, n_items=40, seed=5):
    """Two groups of users, each with items of its own, and a user without any."""
    rng = np.random.default_rng(seed)
    own = (np.arange(n_users)[:, None] % 2) == (np.arange(n_items) % 2)
    met = rng.random((n_users, n_items)) < np.where(own, 0.4, 0.02)
    met[7] = False
    return sp.csr_array(met.astype(np.float32))


def fitted(X, **params):
    return fit_configs((configure("multivae", SMALL | params),), X, "float32", 0)


def arrays(model):
    return {name: getattr(model, name) for name in AutoencoderRecommender.__dataclass_fields__}


@pytest.mark.parametrize("generic", [False, True], ids=["blocks", "PyTorch"])
def test_a_step_whose_items_are_all_dropped_is_made(generic, monkeypatch):
    monkeypatch.setattr(devices, "_COMPILED", not generic)
    model = fitted(interactions(), users_per_step=1, dropout=0.95, epochs=2).models[0]
    assert all(np.isfinite(array).all() for array in arrays(model).values())


@pytest.mark.parametrize("generic", [False, True], ids=["blocks", "PyTorch"])
@pytest.mark.parametrize("lam", [0.0, 0.01])
def test_a_resumed_fit_has_the_bits_of_an_undisturbed_one(generic, lam, monkeypatch):
    monkeypatch.setattr(devices, "_COMPILED", not generic)
    with threads.pinned(1):  # PyTorch's own operations have the same bits for the same number of threads only
        expect_resumes(configure("multivae", SMALL | {"lam": lam, "epochs": 6}), interactions())


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_threads_change_no_bits(precision, monkeypatch):
    monkeypatch.setattr(blocks, "ITEMS", 16)
    models = []
    for n_threads in (1, 2, 3):
        with threads.pinned(n_threads):
            models.append(
                arrays(fitted(interactions(600, 130), hidden_dim=64, users_per_step=200, precision=precision).models[0])
            )
    for one, other in itertools.pairwise(models):
        for name in one:
            assert_array_equal(one[name], other[name], err_msg=name)


def test_users_who_were_held_out_are_scored(environment):
    changes = {"source.generator.users": 300, "source.generator.items": 120, "split.protocol": "held-out-users"}
    card = load_card("synthetic", environment, changes | {"split.valid": 40, "split.test": 40})
    results = [
        run(Job(card, (configure(name, values),), fit_on="train"), environment, Execution(1))[0]
        for name, values in (("multivae", SMALL | {"hidden_dim": 16, "epochs": 30}), ("random", {}))
    ]
    ours, chance = (result.record.metrics["ndcg@20"].mean for result in results)
    assert ours > 1.5 * chance


@pytest.mark.filterwarnings("error")
def test_a_fit_that_diverges_says_what_to_try():
    with pytest.raises(NumericalError, match=r"the loss is .* in epoch .*learning_rate=1e\+30 is probably too high"):
        fitted(interactions(), learning_rate=1e30, epochs=20)


def test_parameters_of_annealing_are_used_only_where_they_count():
    def used(**values):
        config = configure("multivae", values)
        return set(config.spec.used(config.params))

    assert {"beta", "anneal_epochs", "anneal_steps"} <= used()
    assert "anneal_epochs" not in used(anneal_steps=200_000)
    assert not {"anneal_epochs", "anneal_steps"} & used(beta=0.0)
