"""Every registered method gives the same bits for any number of threads: model, curve, metrics, intervals and users' values."""

import numba
import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal

from rankbench.core.environment import Environment
from rankbench.data.cards import load_card
from rankbench.evaluation.metrics import metric_set
from rankbench.experiment.execution import Execution
from rankbench.experiment.job import Job, configure
from rankbench.experiment.methods import registered
from rankbench.experiment.run import run
from rankbench.solvers.als import half_step as side
from rankbench.solvers.inverse import lowrank
from rankbench.training import catalogue

THREADS = (1, 3)
# Small, and still more than one block of everything that is cut: the inverse has three panels.
SIZE = {"users": 700, "items": 600, "interactions_per_user": 20}
# A batch of 1024 x 128 scores is cut by PyTorch where it has several threads, and by the kernels of training.
SHORT = {"epochs": 1, "iterations": 2, "batch_size": 1024, "n_negatives": 128, "patience": 0}
VARIANTS = [
    ("softmax", {"model": "lightgcn"}),
    ("softmax", {"model": "xsimgcl"}),
    ("bpr", {"model": "xsimgcl"}),
    ("bpr", {"model": "ngcf"}),
    ("bpr", {"model": "sgl"}),
    ("ccl", {"model": "simplex", "aggregator": "user_attention", "shared_items": False, "user_dropout": 0.1}),
    ("sampled-softmax", {"model": "youtubenet"}),
    ("softmax", {"model": "gat"}),
    ("softmax", {"model": "dgcf"}),
    ("softmax", {"model": "pinsage"}),
    ("bpr", {"model": "neumf", "hidden_dropout": 0.1}),
    ("bce", {"model": "neumf", "network": "he", "embedding_dim": 40, "patience": 1}),
    ("psl", {"optimizer": "row-adam", "reduction": "user"}),
    ("sl", {"objective": "catalogue", "users_per_step": 200}),
    ("talos", {"objective": "catalogue", "users_per_step": 200}),
    ("psl", {"patience": 1}),
    ("sampled-softmax", {"shared_negatives": True}),
    ("sampled-softmax", {"shared_negatives": True, "precision": "bfloat16"}),
    ("softmax", {"precision": "bfloat16"}),
    ("bce", {"sampler": "in-batch"}),
    ("ials", {"solver": "cg"}),
    ("ials", {"solver": "subspace", "embedding_dim": 64}),
    ("deql-low-rank", {"embedding_dim": 8}),  # few enough for Lanczos
    ("edlae-low-rank", {"embedding_dim": 8}),
]


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    folder = tmp_path_factory.mktemp("threads")
    return Environment(folder / "data", None, True, folder / "results", None, None)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(side, "CHUNK", 128)
    monkeypatch.setattr(lowrank, "ROWS", 128)
    monkeypatch.setattr(catalogue, "_CHUNK", 1 << 17)


def outcomes(method, values, environment, dtype="float32"):
    """What a run with each number of threads has in its record, its table of users and its model."""
    card = load_card("synthetic", environment, {"source.generator": SIZE})
    known = {field.name for field in registered().get(method).fields()}
    chosen = configure(method, {name: value for name, value in SHORT.items() if name in known} | values)
    metrics = metric_set(["recall", "ndcg", "auc"], [10])
    job = Job(card, (chosen,), chosen.part_to_fit(card), metrics=metrics, dtype=dtype, curve=1)
    return [run(job, environment, Execution(n))[0] for n in THREADS]


def require_equal(found):
    first = found[0]
    arrays = {name: value for name, value in vars(first.model).items() if isinstance(value, np.ndarray)}
    assert arrays
    for other in found[1:]:
        for name, expected in arrays.items():
            assert_array_equal(getattr(other.model, name), expected, err_msg=name)
        assert other.record.metrics == first.record.metrics
        assert without_seconds(other.record.curve) == without_seconds(first.record.curve)
        assert other.per_user.equals(first.per_user)


def without_seconds(curve):
    return [{name: value for name, value in row.items() if name != "seconds"} for row in curve]


def test_this_process_can_use_as_many_threads():
    assert max(THREADS) <= numba.config.NUMBA_NUM_THREADS


@pytest.mark.parametrize("method", registered().names())
def test_the_number_of_threads_changes_no_bit(method, environment):
    require_equal(outcomes(method, {}, environment))


@pytest.mark.slow
@pytest.mark.parametrize("method, values", VARIANTS)
def test_nor_with_other_parameters(method, values, environment):
    require_equal(outcomes(method, values, environment))


@pytest.mark.parametrize("method", ["ease", "ials", "psl", "rg2-newton"])
def test_nor_in_float64(method, environment):
    require_equal(outcomes(method, {}, environment, "float64"))


def test_a_run_leaves_the_numbers_of_threads_as_they_were(environment):
    before = torch.get_num_threads(), numba.get_num_threads()
    outcomes("popularity", {}, environment)
    assert (torch.get_num_threads(), numba.get_num_threads()) == before
