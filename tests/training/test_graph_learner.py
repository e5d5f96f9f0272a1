"""Steps on a polynomial of the graph against those that autograd and torch.optim.Adam make of whole tables."""

import numpy as np
import pytest
from fits import interactions, trainer_of

from rankbench.contracts.training import expect_resumable
from rankbench.core.threads import pinned
from rankbench.data.blocks import csr_from_pairs
from rankbench.kernels import parallel
from rankbench.training.graph_learner import GraphLearner
from rankbench.training.learner import DenseLearner

DECAYS = [{}, *({"weight_decay": 0.1, "decay": kind} for kind in ("gradient", "batch", "batch-negatives", "layer-0"))]


def trained(X, loss, whole_tables, epochs=2, **values):
    trainer = trainer_of(X, loss, model="lightgcn", **values)
    assert type(trainer.learner) is GraphLearner
    if whole_tables:
        p = trainer.p
        decay = p.weight_decay if p.decay == "gradient" else 0.0
        trainer.learner = DenseLearner(trainer.encoder, p.learning_rate, decay, trainer.exchange, p.adam_eps)
    losses = [trainer.epoch(number, 1.0) for number in range(1, epochs + 1)]
    return losses, trainer


def assert_same_fit(X, loss, rtol=1e-9, **values):
    (losses, trainer), (expected, other) = (trained(X, loss, whole, epochs=3, **values) for whole in (False, True))
    np.testing.assert_allclose(losses, expected, rtol=rtol)
    for table, of_other in zip(trainer.learner.vectors(), other.learner.vectors(), strict=True):
        np.testing.assert_allclose(table.detach(), of_other.detach(), rtol=rtol, atol=rtol)


@pytest.mark.parametrize("n_layers", [1, 2, 4])
@pytest.mark.parametrize("decay", DECAYS, ids=str)
def test_steps_are_those_of_whole_tables(n_layers, decay):
    assert_same_fit(interactions(empty=True), "bpr", n_layers=n_layers, batch_size=8, n_negatives=2, **decay)


@pytest.mark.parametrize(
    ("loss", "values"),
    [
        ("sl", {"shared_negatives": True}),
        ("sl", {"objective": "catalogue", "users_per_step": 5}),
        ("softmax", {"weight_decay": 0.1, "decay": "layer-0"}),
        ("debiased-infonce", {}),
        ("sl-at-k", {}),
        ("mine-plus", {"batch_size": 5}),
        ("advinfonce", {"T_adv": 2, "weight_decay": 0.1}),
    ],
    ids=str,
)
def test_steps_of_losses_that_read_other_rows_are_those_of_whole_tables(loss, values):
    assert_same_fit(interactions(), loss, **values)


def larger():
    rng = np.random.default_rng(0)
    return csr_from_pairs(*np.nonzero(rng.random((300, 500)) < 0.05 * np.geomspace(4, 0.2, 500)), (300, 500))


def test_bits_are_the_same_for_one_and_two_threads(monkeypatch):
    monkeypatch.setattr(parallel, "_BLOCK", 1000)  # several blocks on a small graph, too
    found = []
    for threads in (1, 2):
        with pinned(threads):
            _, trainer = trained(larger(), "bpr", False, dtype=np.float32, embedding_dim=40, batch_size=256)
            assert len(parallel.even_blocks(np.arange(32_001))) == (32 if threads == 2 else 1)
            found.append(np.concatenate([table.detach() for table in trainer.learner.vectors()]))
    np.testing.assert_array_equal(*found)


def test_a_fit_with_copies_of_16_bits_resumes_to_the_bit():
    expect_resumable("bpr", "lightgcn", precision="bfloat16", batch_size=256)


def test_16_bits_change_little_and_something():
    about = {"dtype": np.float32, "embedding_dim": 64, "batch_size": 256}
    fits = [trained(larger(), "bpr", False, precision=each, **about) for each in ("float32", "bfloat16")]
    exact, rounded = (np.concatenate([table.detach() for table in trainer.learner.vectors()]) for _, trainer in fits)
    assert 0 < np.abs(rounded - exact).max() < 0.02 * np.abs(exact).max()
