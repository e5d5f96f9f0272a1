"""No step on a GPU waits for it, shown on the meta device: its tensors have no values, so that whoever reads one on the host
gets an error, as does whoever asks for a size that depends on values. A copy to the device is seen by its call.
"""

import numpy as np
import pytest
import torch
from fits import uneven
from torch.utils._python_dispatch import TorchDispatchMode

from rankbench.experiment.job import configure
from rankbench.losses.spec import registered as losses
from rankbench.models.propagation import Graph
from rankbench.training import trainer
from rankbench.training.autoencoders.multivae import batches, start_weights
from rankbench.training.autoencoders.network import Network

ADAM = torch.optim.Adam
ONLY_THE_ORDER = {
    "samples of all items": ("sl", {"sampler": "uniform-all"}),
    "samples of other items": ("sl", {"sampler": "uniform-other", "decay": "batch", "weight_decay": 1e-4}),
    "shared samples": ("sl", {"sampler": "uniform-all", "shared_negatives": True}),
    "by popularity": ("bpr", {"sampler": "popularity"}),
    "top-K weights": ("sl-at-k", {"sampler": "uniform-all"}),
    "LightGCN": ("bpr", {"model": "lightgcn", "decay": "layer-0", "weight_decay": 1e-4}),
}
MORE = {
    "own positives": ("talos", {"sampler": "uniform-other"}),
    "weights of users": ("bpr", {"sampler": "uniform-all", "reduction": "user"}),
    "shared samples of other items": ("sl", {"sampler": "uniform-other", "shared_negatives": True}),
    "catalogue, softmax": ("sl", {"objective": "catalogue", "sampler": "uniform-other"}),
    "catalogue, sums": ("bce", {"objective": "catalogue", "sampler": "uniform-all"}),
    "catalogue, quantile": ("talos", {"objective": "catalogue", "sampler": "uniform-all"}),
    "catalogue, learned quantile": ("talos", {"objective": "catalogue", "sampler": "uniform-other", "threshold": "learned"}),
}


class Copies(TorchDispatchMode):
    """Counts the copies from the host to the device, and lists those that wait."""

    def __init__(self):
        super().__init__()
        self.count, self.waiting = 0, []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if function is torch.ops.aten._to_copy.default and (args[0].device.type, result.device.type) == ("cpu", "meta"):
            self.count += 1
            self.waiting += [] if kwargs.get("non_blocking") else [tuple(result.shape)]
        assert function is not torch.ops.aten.copy_.default or args[0].device == args[1].device
        return result


@pytest.fixture(autouse=True)
def meta(monkeypatch):
    """PyTorch's fused Adam and its sparse products have no form for the meta device. Neither waits on a GPU."""
    monkeypatch.setattr(torch.optim, "Adam", lambda groups, fused, **given: ADAM(groups, foreach=False, **given))

    def dense(graph, device, dtype, scaled):
        R = torch.empty(graph.n_users, graph.n_nodes - graph.n_users, dtype=dtype, device=device)
        return R, R.T

    monkeypatch.setattr(Graph, "_sides", dense)


def copies_of_an_epoch(method, params):
    """The copies of an epoch, up to the one number that is read at its end, and the number of its steps."""
    given = {"embedding_dim": 8, "batch_size": 64, "users_per_step": 16, "n_negatives": 6, "learning_rate": 0.05} | params
    fit = trainer.Trainer(uneven(), configure(method, given).params, losses().get(method), 3, np.float64, "meta")
    steps, own_step = [], fit._step
    fit._step = lambda *args: steps.append(own_step(*args)) or steps[-1]
    with Copies() as copies, pytest.raises((NotImplementedError, RuntimeError), match=r"[Mm]eta"):
        fit.epoch(1, 1.0)
    return copies, len(steps), len([*fit._chosen(1)])


@pytest.mark.parametrize("method, params", ONLY_THE_ORDER.values(), ids=ONLY_THE_ORDER)
def test_the_steps_of_an_epoch_need_nothing_from_the_host_but_its_order(method, params):
    copies, steps, expected = copies_of_an_epoch(method, params)
    assert steps == expected > 2
    assert copies.count == 2 and not copies.waiting


@pytest.mark.parametrize("method, params", MORE.values(), ids=MORE)
def test_no_other_copy_waits(method, params):
    copies, steps, expected = copies_of_an_epoch(method, params)
    assert steps == expected > 2
    assert copies.count > 2 and not copies.waiting


def test_no_copy_of_multivae_waits():
    X, p = uneven(), configure("multivae", {"hidden_dim": 8, "latent_dim": 4, "users_per_step": 16}).params
    network = Network(start_weights(X.shape[1], p, 0, np.dtype(np.float64)), p, torch.device("meta"))
    steps = [*batches(X, p, 0, 1, np.dtype(np.float64))]
    with Copies() as copies:
        for batch in steps:
            network.step(batch)
    assert copies.count >= 6 * len(steps) and not copies.waiting


def test_a_loss_that_reads_scores_on_the_host_is_found():
    _, steps, _ = copies_of_an_epoch("sparsemax", {})
    assert steps == 0


def test_a_copy_that_waits_is_found(monkeypatch):
    monkeypatch.setattr(trainer, "on_device", lambda array, device: torch.from_numpy(array).to(device))
    copies, steps, _ = copies_of_an_epoch(*MORE["weights of users"])
    assert len(copies.waiting) == 2 + steps
