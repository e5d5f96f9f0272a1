"""The inverse by PyTorch, here on the processor: `cpu:0` names it as a device, which takes every step but the transfer."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from rankbench.core.errors import ConfigError, NumericalError
from rankbench.data.blocks import csr_from_pairs
from rankbench.experiment.execution import Execution
from rankbench.experiment.fit import fit as fit_configs
from rankbench.experiment.job import configure
from rankbench.training.device import require_device, spd_inverse_on_


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-4), (np.float64, 1e-10)])
def test_it_is_the_inverse_in_the_same_memory(dtype, tolerance):
    X = np.random.default_rng(0).standard_normal((60, 40))
    A = (X.T @ X + np.eye(40)).astype(dtype)
    expected = np.linalg.inv(A.astype(float))
    found = spd_inverse_on_(A, "cpu:0")
    assert found is A and found.dtype == dtype
    assert_allclose(found, expected, rtol=0, atol=tolerance)


def test_a_matrix_that_is_not_positive_definite_is_told_with_its_row():
    with pytest.raises(NumericalError, match="of 5"):
        spd_inverse_on_(np.diag([1.0, 2.0, -3.0, 4.0, 5.0]), "cpu:0")


def test_a_closed_form_on_a_device_is_that_of_the_processor():
    rng = np.random.default_rng(0)
    X = csr_from_pairs(rng.integers(0, 60, 900), rng.integers(0, 40, 900), (60, 40))
    chosen = (configure("edlae", {"p": 0.3, "lam": 5}), configure("dlae", {"p": 0.3, "lam": 5}))
    for one, other in zip(
        fit_configs(chosen, X, "float64", 0).models,
        fit_configs(chosen, X, "float64", 0, Execution(device="cpu:0")).models,
        strict=True,
    ):
        assert_allclose(other.C, one.C, atol=1e-12)
        assert_allclose(other.beta, one.beta, rtol=1e-9)


@pytest.mark.parametrize("device", ["gpu", "cuda:99", "xla"])
def test_a_device_that_is_not_there_is_named(device):
    with pytest.raises(ConfigError, match=f"^device {device}: "):
        require_device(device)
