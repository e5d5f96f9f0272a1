"""Noise in the orthants of vectors: its definition restated in NumPy, and any number of threads."""

import numba
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from rankbench.core import devices
from rankbench.kernels import parallel
from rankbench.kernels.orthant_noise import with_noise

MASK = 2**64 - 1


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def uniform(seed, n, d):
    """The numbers Δ (n, d), by Python's integers."""

    def mixed(x):
        x ^= x >> 16
        x = x * 0x7FEB352D & 0xFFFFFFFF
        x ^= x >> 15
        x = x * 0x846CA68B & 0xFFFFFFFF
        return x ^ x >> 16

    def key(row):
        z = seed + (row + 1) * 0x9E3779B97F4A7C15 & MASK
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
        z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
        return z ^ z >> 31

    keys = [key(row) for row in range(n)]
    bits = [[mixed(mixed(k ^ own & 0xFFFFFFFF) ^ own >> 32) for k in range(d)] for own in keys]
    return ((np.array(bits) >> 9) + 0.5) / 2**23


@pytest.mark.parametrize(("n", "d"), [(1, 1), (3, 7), (20, 64)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_noise_is_its_definition(n, d, dtype, monkeypatch):
    v = torch.randn(n, d, generator=generator(1), dtype=dtype)
    delta = uniform(int(torch.randint(2**62, (), generator=generator(5))), n, d)
    wanted = v.numpy() + 0.3 * np.sign(v.numpy()) * delta / np.linalg.norm(delta, axis=1, keepdims=True)
    noisy = with_noise(v.requires_grad_(), 0.3, generator(5))
    assert_allclose(noisy.detach(), wanted, rtol=1e-12 if dtype == torch.float64 else 1e-6)
    assert torch.equal(torch.autograd.grad(noisy, v, torch.full_like(v, 2.0))[0], torch.full_like(v, 2.0))
    monkeypatch.setattr(devices, "_COMPILED", False)
    assert_allclose(with_noise(v, 0.3, generator(5)).detach(), wanted, rtol=1e-6)


def test_a_zero_stays_and_what_is_not_a_number_is_not_hidden():
    v = torch.tensor([[0.0, -2.0, 1.0], [float("nan"), 1.0, -1.0]])
    noisy = with_noise(v, 0.1, generator())
    assert noisy[0, 0] == 0 and noisy[0, 1] < -2 and noisy[0, 2] > 1
    assert noisy[1].isnan().tolist() == [True, False, False]


def test_bits_do_not_depend_on_the_number_of_threads(monkeypatch):
    monkeypatch.setattr(parallel, "_SMALL", 1)
    v, before, found = torch.randn(37, 20), numba.get_num_threads(), []
    try:
        for n in (1, 2, 5) if before >= 5 else (1, before):
            numba.set_num_threads(n)
            found.append(with_noise(v, 0.1, generator()).numpy())
    finally:
        numba.set_num_threads(before)
    for other in found[1:]:
        assert_array_equal(found[0], other)
