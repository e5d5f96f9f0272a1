"""Encoders over graphs have the same bits for any number of threads, in value and gradient."""

import pytest
import torch
from graphs import random_interactions, random_tensor

from rankbench.core.threads import pinned
from rankbench.kernels import parallel
from rankbench.models.dgcf import DGCF, DGCFModel
from rankbench.models.gat import GAT, GATModel
from rankbench.models.ngcf import NGCF, NGCFModel
from rankbench.models.pinsage import PinSage, pinsage
from rankbench.models.xsimgcl import XSimGCL, XSimGCLModel

ENCODERS = {
    "dgcf": (DGCFModel, DGCF(2, 4)),
    "gat": (GATModel, GAT(2, 2)),
    "ngcf": (NGCFModel, NGCF(n_layers=2)),
    "pinsage": (pinsage, PinSage()),
    "xsimgcl": (XSimGCLModel, XSimGCL()),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ENCODERS)
def test_same_bits_for_one_two_and_four_threads(name, dtype, monkeypatch):
    monkeypatch.setattr(parallel, "_BLOCK", 1000)  # several blocks on a small graph, too
    monkeypatch.setattr(parallel, "ROWS", 64)
    monkeypatch.setattr(parallel, "_SMALL", 1)
    (build, p), met, found = ENCODERS[name], random_interactions(15, 300, 200, 0.1), []
    for threads in (1, 2, 4):
        with pinned(threads):
            tables = random_tensor(16, 300, 16, dtype=dtype), random_tensor(17, 200, 16, dtype=dtype)
            encoder, ids = build(met, p, *tables, torch.Generator().manual_seed(0)), torch.arange(100)
            vectors = torch.cat(encoder())
            own = encoder.own_loss(ids, ids)
            loss = vectors.square().sum() + (0 if own is None else own)
            found.append([vectors, *torch.autograd.grad(loss, [*encoder.parameters()])])
    for other in found[1:]:
        assert all(torch.equal(*pair) for pair in zip(found[0], other, strict=True))
