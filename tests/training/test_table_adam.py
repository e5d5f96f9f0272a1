"""Adam at the cost of the touched rows against torch.optim.Adam, which moves every row in every step."""

import numpy as np
import pytest
import torch
from fits import interactions, trainer_of
from numpy.testing import assert_allclose, assert_array_equal

from rankbench.training import learner as learners
from rankbench.training.adam import BETAS, EPS
from rankbench.training.table_adam import TableAdam

N, D = 120, 4
RATES = {
    "constant": lambda step: 0.01,
    "cosine": lambda step: 0.01 * (1 + np.cos(np.pi * step / 1000)) / 2,
    "halved": lambda step: 0.01 * 0.5 ** (step // 150),
    "zero at first": lambda step: 0.0 if step < 20 else 0.01,
}


def steps(scale, rate, n_steps=1000, per_step=3):
    """(rows, gradient, rate) of each step. The first rows are frequent, the last ones are used about twice."""
    rng = np.random.default_rng(3)
    share = 1 / np.arange(1, N + 1)
    for step in range(n_steps):
        rows = np.sort(rng.choice(N, per_step, replace=False, p=share / share.sum()))
        yield rows, scale * rng.normal(size=(per_step, D)), rate(step)


def start(dtype=np.float64):
    return torch.from_numpy(np.random.default_rng(4).normal(size=(N, D)).astype(dtype))


@pytest.mark.parametrize(
    ("scale", "eps", "rate"),
    [
        *((1e-5, EPS, rate) for rate in RATES),
        *((scale, eps, "halved") for scale, eps in ((1.0, EPS), (1e-3, EPS), (1e-10, 1e-16))),
    ],
)
def test_a_table_is_that_of_torch_adam_to_1e_6_also_after_a_checkpoint(scale, eps, rate):
    table, expected = start(), start().requires_grad_()
    optimizer, peer = TableAdam(table, eps), torch.optim.Adam([expected], betas=BETAS, eps=eps)
    for step, (rows, gradient, learning_rate) in enumerate(steps(scale, RATES[rate])):
        optimizer.read(rows)
        assert_allclose(table[rows], expected.detach()[rows], rtol=0, atol=1e-6)
        optimizer.step(torch.from_numpy(rows), torch.from_numpy(gradient), learning_rate)
        dense = np.zeros((N, D))
        dense[rows] = gradient
        expected.grad, peer.param_groups[0]["lr"] = torch.from_numpy(dense), learning_rate
        peer.step()
        if step == 500:
            saved = {name: array.copy() for name, array in optimizer.arrays().items()}
            table = table.clone()
            optimizer = TableAdam(table, eps)
            optimizer.restore(saved)
    moved = np.abs(expected.detach().numpy() - start().numpy())
    assert moved.max() > 0.3
    assert_allclose(optimizer.settled(), expected.detach(), rtol=0, atol=1e-6)
    # The rows that moved without having been read since: the test would not see a missing movement otherwise.
    assert np.abs(table.numpy() - expected.detach().numpy()).max() > 1e-3


def test_a_table_is_that_of_torch_adam_in_float32():
    table, expected = start(np.float32), start(np.float32).requires_grad_()
    optimizer, peer = TableAdam(table), torch.optim.Adam([expected], betas=BETAS, eps=EPS)
    for rows, gradient, rate in steps(1e-3, RATES["cosine"], 400):
        gradient = gradient.astype(np.float32)
        optimizer.read(rows)
        optimizer.step(torch.from_numpy(rows), torch.from_numpy(gradient), rate)
        dense = np.zeros((N, D), np.float32)
        dense[rows] = gradient
        expected.grad, peer.param_groups[0]["lr"] = torch.from_numpy(dense), rate
        peer.step()
    assert optimizer.settled().dtype == torch.float32
    assert_allclose(optimizer.settled(), expected.detach(), rtol=0, atol=1e-5)


def test_a_row_without_any_gradient_stays_and_one_that_is_not_finite_spoils_itself_alone():
    table, before = start(), start()
    optimizer = TableAdam(table)
    gradient = torch.ones(2, D, dtype=torch.float64)
    gradient[1, 0] = np.nan
    optimizer.step(torch.tensor([3, 5]), gradient, 0.1)
    for _ in range(3):
        optimizer.step(torch.tensor([3]), gradient[:1], 0.1)
    after = optimizer.settled().numpy()
    assert_array_equal(np.delete(after, [3, 5], axis=0), np.delete(before.numpy(), [3, 5], axis=0))
    assert not np.isfinite(after[5, 0]) and np.isfinite(after[[3, 3, 3], 1:]).all()


@pytest.mark.parametrize("name", ["bpr", "sl", "talos", "softmax", "bsl"])
def test_a_fit_is_that_of_a_pass_over_the_tables_in_every_step(name):
    """Also where a loss reads all items of a user, which may not be in the batch."""
    X, values = interactions(), {"batch_size": 3, "n_negatives": 2, "learning_rate": 0.05}
    rows = trainer_of(X, name, **values)
    assert isinstance(rows.learner, learners.RowLearner)
    dense = trainer_of(X, name, **values, weight_decay=1e-300)  # a penalty needs such a pass
    assert isinstance(dense.learner, learners.DenseLearner)
    for epoch in range(1, 9):
        factor = 1 / epoch
        assert rows.epoch(epoch, factor) == pytest.approx(dense.epoch(epoch, factor), rel=1e-7)
        for found, expected in zip(rows.learner.vectors(), dense.learner.vectors(), strict=True):
            assert_allclose(found, expected.detach(), rtol=0, atol=1e-7)


def test_a_table_can_go_back_to_an_earlier_state():
    table = torch.zeros(3, 2, dtype=torch.float64)
    optimizer = TableAdam(table)

    def go_on():
        for step in range(6):
            rows = np.array([step % 3])
            optimizer.read(rows)
            optimizer.step(torch.from_numpy(rows), torch.full((1, 2), 1.0 + step, dtype=torch.float64), 0.1)
        return optimizer.settled().numpy().copy()

    before, kept = table.clone(), {name: np.array(array) for name, array in optimizer.arrays().items()}
    first = go_on()
    table.copy_(before)
    optimizer.restore(kept)
    assert_array_equal(go_on(), first)
