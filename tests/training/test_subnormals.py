"""Subnormal numbers count as zero within the steps of a fit, and nowhere else."""

import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import numba
import numpy as np
import pytest
import scipy.sparse as sp
import torch

from rankbench.core.thread_pool import in_order, threads_of
from rankbench.data.blocks import csr_from_pairs, gram
from rankbench.experiment.job import configure
from rankbench.losses.sparsemax import sparsemax_of
from rankbench.losses.spec import registered as losses
from rankbench.training import subnormals, trainer
from rankbench.training.trainer import Trainer


@numba.njit
def compiled_product(x, y):
    return x * y


def products():
    """A product and a gradient that are subnormal in float32, as NumPy, PyTorch, autograd and a compiled loop compute them."""
    x = torch.tensor(1.0, requires_grad=True)
    (x * 1e-30 * 1e-10).backward()
    small, factor = np.float32(1e-30), np.float32(1e-10)
    every = small * factor, torch.tensor(small) * factor, x.grad, compiled_product(small, factor)
    return [float(each) for each in every]


def test_a_forked_child_has_threads_of_its_own():
    assert list(in_order(abs, [-1, -2], 2)) == [1, 2]
    child = multiprocessing.get_context("fork").Process(target=lambda: list(in_order(abs, [-1, -2], 2)), daemon=True)
    child.start()
    child.join(20)
    assert child.exitcode == 0


def test_loops_that_threads_divide_compute_the_same_in_a_forked_child():
    """The threads of numba and OpenMP do not: there, the child was ended, or a matrix had nothing in it."""
    X = csr_from_pairs(np.arange(600) % 60, np.arange(600) % 47, (60, 47))
    expected, z = gram(X).take(), torch.randn(70, 9, generator=torch.Generator().manual_seed(0))
    best = sparsemax_of(z)

    def computes():
        assert np.array_equal(gram(X).take(), expected) and torch.equal(sparsemax_of(z), best)

    child = multiprocessing.get_context("fork").Process(target=computes, daemon=True)
    child.start()
    child.join(60)
    assert child.exitcode == 0


def test_they_are_zero_within_the_block_and_in_its_threads():
    assert all(product == pytest.approx(1e-40, rel=1e-3) for product in products())
    with subnormals.flushed():
        assert products() == [0, 0, 0, 0]
        with subnormals.flushed():
            assert products() == [0, 0, 0, 0]
        assert products() == [0, 0, 0, 0]
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(products).result() == [0, 0, 0, 0]
    assert all(product > 0 for product in products())


def test_a_pool_that_began_outside_of_the_block_has_other_threads():
    """What ran before in the process changes no bits."""
    before = threads_of(2).submit(products).result()
    with subnormals.flushed():
        assert threads_of(2).submit(products).result() == [0, 0, 0, 0]
        assert threads_of(2) is threads_of(2)
    assert threads_of(2).submit(products).result() == before and all(product > 0 for product in before)


def test_the_setting_is_restored_after_an_error():
    with pytest.raises(KeyError), subnormals.flushed():
        raise KeyError
    assert all(product > 0 for product in products())


def fitted(method, given, epochs=3):
    X = sp.random_array((40, 30), density=0.2, rng=np.random.default_rng(0), format="csr")
    X.data[:] = 1
    run = Trainer(X, configure(method, given).params, losses().get(method), 0, np.float32, "cpu")
    seen = []
    step = run._step
    run._step = lambda *given: (seen.append(products()), step(*given))[1]
    means = [run.epoch(number, 1.0) for number in range(1, epochs + 1)]
    return run.encoder.users.detach().clone(), means, seen


@pytest.mark.parametrize("method", ["llpauc", "bpr"])
def test_a_fit_with_saturated_scores_has_the_numbers_of_one_without(method, monkeypatch):
    given = {"embedding_dim": 8, "batch_size": 16, "n_negatives": 5, "init": "normal", "init_scale": 3.0, "learning_rate": 0.5}
    vectors, means, seen = fitted(method, given)
    assert seen and all(each == [0, 0, 0, 0] for each in seen)
    assert all(product > 0 for product in products())
    monkeypatch.setattr(trainer, "flushed", nullcontext)
    others, other_means, seen = fitted(method, given)
    assert not any(each == [0, 0, 0, 0] for each in seen)
    torch.testing.assert_close(vectors, others, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(means, other_means, rtol=1e-6)
