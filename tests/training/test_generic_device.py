"""Training by PyTorch's operations alone, on the CPU and on a GPU if there is one: the model that the compiled loops train."""

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from fits import uneven
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from torch.utils._python_dispatch import TorchDispatchMode

from rankbench.core import devices
from rankbench.experiment.job import configure
from rankbench.kernels import catalogue_sum
from rankbench.losses.spec import registered as losses
from rankbench.training.draws import OtherItems
from rankbench.training.negatives import NegativeSampler
from rankbench.training.trainer import Trainer

CPU = torch.device("cpu")
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture
def generic(monkeypatch):
    """Call to leave the compiled loops aside from then on."""
    return lambda: monkeypatch.setattr(devices, "_COMPILED", False)


@pytest.fixture(scope="module")
def X():
    return uneven()


def trained(X, method, device="cpu", **params):
    given = {"embedding_dim": 8, "batch_size": 64, "n_negatives": 6, "learning_rate": 0.05} | params
    trainer = Trainer(X, configure(method, given).params, losses().get(method), 3, np.float64, device)
    means = [trainer.epoch(number, 1.0) for number in (1, 2, 3)]
    return means, trainer.model()


CASES = {
    "softmax of samples": ("infonce", {"sampler": "uniform-all"}),
    "by popularity": ("bpr", {"sampler": "popularity", "n_negatives": 1}),
    "shared": ("sl", {"sampler": "uniform-all", "shared_negatives": True}),
    "shared, of others": ("sl", {"sampler": "uniform-other", "shared_negatives": True}),
    "distances and rivals": ("sml", {"sampler": "uniform-all"}),
    "own positives": ("talos", {"sampler": "uniform-all"}),
    "some own positives": ("debiased-mse", {"sampler": "uniform-all"}),
    "rows alone": ("bpr", {"sampler": "uniform-all", "optimizer": "row-adam", "n_negatives": 1, "batch_size": 8}),
    "rows alone, decay": ("ccl", {"optimizer": "row-adam", "weight_decay": 0.01, "n_negatives": 2, "batch_size": 4}),
    "LightGCN": ("bpr", {"sampler": "uniform-all", "model": "lightgcn"}),
    "SGL": ("bpr", {"sampler": "uniform-all", "model": "sgl"}),
    "XSimGCL": ("bpr", {"sampler": "uniform-all", "model": "xsimgcl"}),
    "NGCF": ("bpr", {"sampler": "uniform-all", "model": "ngcf"}),
    "GAT": ("bpr", {"sampler": "uniform-all", "model": "gat", "n_heads": 2}),
    "DGCF": ("bpr", {"sampler": "uniform-all", "model": "dgcf"}),
    "PinSage": ("bpr", {"sampler": "uniform-all", "model": "pinsage"}),
    "NeuMF": ("bpr", {"sampler": "uniform-all", "model": "neumf", "hidden_dropout": 0.2}),
    "NeuMF of the paper": ("bce", {"sampler": "uniform-all", "model": "neumf", "network": "he"}),
    "catalogue, dot products": ("softmax", {"objective": "catalogue"}),
    "catalogue, moments": ("mse", {"objective": "catalogue", "sampler": "uniform-other"}),
    "catalogue, cosines": ("sl", {"objective": "catalogue", "sampler": "uniform-other"}),
    "catalogue, softplus": ("bce", {"objective": "catalogue", "sampler": "uniform-other"}),
    "catalogue, hinge": ("ccl", {"objective": "catalogue", "sampler": "uniform-all"}),
    "catalogue, quantile": ("talos", {"objective": "catalogue"}),
    "catalogue of one loss": ("recall-at-k-catalogue", {"tau2": 5}),
}


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=on_gpu)])
@pytest.mark.parametrize("method, params", CASES.values(), ids=CASES)
def test_the_same_model_is_trained(X, generic, method, params, device):
    expected, model = trained(X, method, **params)
    generic()
    found, other = trained(X, method, device, **params)
    assert_allclose(found, expected, rtol=1e-9)
    for name, array in vars(model).items():
        assert_allclose(getattr(other, name), array, rtol=1e-6, atol=1e-9, err_msg=name)


class Largest(TorchDispatchMode):
    """The number of elements of the largest array that an operation makes."""

    numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for each in result if isinstance(result, tuple | list) else [result]:
            self.numbers = max(self.numbers, each.numel() if isinstance(each, torch.Tensor) else 0)
        return result


@pytest.mark.parametrize(
    ("method", "sampler"),
    [("softmax", "uniform-all"), *product(["sl", "bce", "ccl", "talos", "bsl"], ["uniform-all", "uniform-other"])],
)
def test_a_step_over_the_catalogue_has_no_array_of_all_scores(generic, monkeypatch, method, sampler):
    generic()
    monkeypatch.setattr(catalogue_sum, "PART", 1000)
    X = sp.csr_array((np.random.default_rng(1).random((60, 500)) < 0.01).astype(np.float32))
    params = configure(method, {"embedding_dim": 4, "objective": "catalogue", "sampler": sampler, "users_per_step": 60}).params
    trainer = Trainer(X, params, losses().get(method), 3, np.float64, "cpu")
    with Largest() as largest:
        trainer.epoch(1, 1.0)
    assert largest.numbers == 500 * 4  # a table; the scores of two users are fewer, and those of all are 30,000


def test_draws_from_other_items_have_their_distribution(X):
    users = np.arange(40).repeat(50)
    drawn = OtherItems(X, CPU).draw(12345, users, 40).numpy()
    dense = X.toarray()
    assert not dense[users[:, None], drawn].any() and drawn.min() >= 0 and drawn.max() < 30
    for user in (0, 7, 39):
        others = np.flatnonzero(dense[user] == 0)
        counts = np.bincount(drawn[users == user].ravel(), minlength=30)[others]
        assert stats.chisquare(counts).pvalue > 1e-4


def test_a_user_with_one_other_item_gets_it():
    dense = np.ones((3, 70), np.float32)
    for user, item in enumerate((0, 33, 69)):
        dense[user, item] = 0
    drawn = OtherItems(sp.csr_array(dense), CPU).draw(99, np.array([0, 1, 2, 1]), 9)
    assert_array_equal(drawn, np.tile([[0], [33], [69], [33]], 9))


@pytest.mark.parametrize("kind", ["uniform-all", "popularity"])
@pytest.mark.parametrize("shared", [False, True])
def test_other_draws_are_those_of_the_compiled_loops(X, generic, kind, shared):
    users = np.array([3, 3, 9])
    args = (11, 2, 4, users, np.array([0, 1, 2]))
    compiled = NegativeSampler(X, kind, 50, shared, 0.7, CPU).draw(*args)
    generic()
    found = NegativeSampler(X, kind, 50, shared, 0.7, CPU).draw(*args)
    assert isinstance(found.items, torch.Tensor)
    assert_array_equal(found.items, compiled.items)
    assert_array_equal(np.asarray(found.logq), compiled.logq)
    assert_array_equal(found.logq_pos, compiled.logq_pos)
