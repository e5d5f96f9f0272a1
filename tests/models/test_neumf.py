"""NeuMF against a number worked out by hand, and the formula in a dozen lines."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from numpy.testing import assert_allclose

from rankbench.core.errors import ConfigError
from rankbench.fitting.recommenders import score
from rankbench.models.neumf import NeuMF, NeuMFModel

N_USERS, N_ITEMS = 5, 7
FORMS = pytest.mark.parametrize(
    ("p", "dim"),
    [
        (NeuMF(), 4),
        (NeuMF(hidden_layers=1, hidden_dim=3), 4),
        (NeuMF(hidden_layers=3, hidden_dim=5), 2),
        (NeuMF(network="he"), 20),
        (NeuMF(network="he", gmf_dim=3, hidden_dim=7, hidden_layers=2), 5),
        (NeuMF(network="he", hidden_layers=1), 5),
    ],
)


def built(p, dim, dtype=torch.float64, seed=0):
    rng = np.random.default_rng(seed)
    tables = [torch.tensor(rng.normal(size=(n, dim)), dtype=dtype) for n in (N_USERS, N_ITEMS)]
    encoder = NeuMFModel(sp.csr_array((N_USERS, N_ITEMS)), p, *tables, torch.Generator().manual_seed(seed))
    with torch.no_grad():
        for bias in encoder.biases:
            bias += torch.tensor(rng.normal(size=bias.shape), dtype=dtype)
        if encoder.bias is not None:
            encoder.bias += 0.7
    return encoder


def all_scores(encoder):
    return encoder.pair_scores(encoder.users, encoder.items[None])


def restated(encoder, u, i):
    """The paper's formula for one pair."""
    p, q = encoder.users[u].detach().numpy(), encoder.items[i].detach().numpy()
    f = encoder.f
    z = np.concatenate([p[f:], q[f:]] if encoder.p.network == "he" else [p, q, p * q])
    for W, b in zip(encoder.weights, encoder.biases, strict=True):
        z = np.maximum(z @ W.detach().numpy() + b.detach().numpy(), 0)
    last = np.concatenate([p[:f] * q[:f], z])
    return last @ encoder.output.detach().numpy() + (0 if encoder.bias is None else encoder.bias.item())


@FORMS
def test_scores_are_those_of_the_formula(p, dim):
    encoder = built(p, dim)
    expected = [[restated(encoder, u, i) for i in range(N_ITEMS)] for u in range(N_USERS)]
    assert_allclose(all_scores(encoder).detach(), expected, rtol=1e-12)
    items = torch.tensor([[3, 0], [1, 1], [6, 2]])
    rows = encoder.pair_scores(encoder.users[:3], encoder.items[items])
    assert_allclose(rows.detach(), np.take_along_axis(np.array(expected)[:3], items.numpy(), axis=1), rtol=1e-12)


@FORMS
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_recommender_scores_as_the_network(p, dim, dtype):
    encoder = built(p, dim, dtype).eval()
    model = encoder.recommender(*encoder())
    history = sp.csr_array((N_USERS, N_ITEMS), dtype=np.float32)
    found = score(model, np.arange(N_USERS, dtype=np.int32), history, slice(None))
    assert found.dtype == model.A.dtype == (np.float32 if dtype == torch.float32 else np.float64)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    assert_allclose(found, all_scores(encoder).detach(), rtol=tolerance, atol=tolerance)


def test_the_number_worked_out_by_hand():
    """f = e = 2, layers [4, 3, 2]."""
    encoder = built(NeuMF(network="he", gmf_dim=2, hidden_dim=4, hidden_layers=2), 4)
    matrices = [
        [[0.5, -0.25, 1], [1, 0.5, -0.5], [-1, 0.5, 0.25], [0.25, 1, -0.75]],
        [[0.5, 1], [-0.5, 0.25], [1, -1]],
    ]
    for mine, given in ((encoder.weights, matrices), (encoder.biases, [[0.1, 0, -0.1], [0, 0.2]])):
        for position, values in enumerate(given):
            mine[position] = torch.nn.Parameter(torch.tensor(values, dtype=torch.float64))
    with torch.no_grad():
        encoder.output.copy_(torch.tensor([1, -1, 0.5, 2]))
        encoder.bias.fill_(0.1)
    user = torch.tensor([[0.5, -1, 1, 0.5]], dtype=torch.float64)  # p^G, p^M
    item = torch.tensor([[2, 0.25, -0.5, 1]], dtype=torch.float64)  # q^G, q^M
    logit = encoder.pair_scores(user, item[None])
    model = encoder.recommender(user, item)
    exact = {"rtol": 1e-10, "atol": 1e-10}
    assert_allclose(model.A[0], [1.1, 0, 0.65], **exact)
    assert_allclose(model.C[0], [0.75, 0.75, -0.875], **exact)
    z_1 = np.maximum(model.A[0] + model.C[0], 0)
    assert_allclose(z_1, [1.85, 0.75, 0], **exact)
    ((W, b),) = model.layers()
    assert_allclose(np.maximum(z_1 @ W + b, 0), [0.55, 2.2375], **exact)
    assert_allclose(logit.detach(), [[6.1]], **exact)
    assert_allclose(score(model, np.array([0]), sp.csr_array((1, 1)), slice(None)), [[6.1]], **exact)


def test_dropout_is_drawn_in_training_alone_and_keeps_the_mean():
    encoder = built(NeuMF(hidden_dropout=0.4, hidden_layers=1, hidden_dim=4000), 3)
    with torch.no_grad():
        noisy, other = all_scores(encoder), all_scores(encoder)
        encoder.eval()
        clean = all_scores(encoder)
        assert torch.equal(clean, all_scores(encoder))
    assert not torch.equal(noisy, other)
    z = encoder.train().active(torch.ones(100, 1000, dtype=torch.float64))
    assert set(z.unique().tolist()) == {0.0, 1 / 0.6}
    assert z.mean().item() == pytest.approx(1, abs=0.01)


def test_layers_start_as_their_rules_say():
    encoder = NeuMFModel(sp.csr_array((2, 2)), NeuMF(network="he"), *(torch.zeros(2, 2, 40)), torch.Generator())
    assert [tuple(W.shape) for W in encoder.weights] == [(64, 32), (32, 16), (16, 8)]
    assert [b.abs().max().item() for b in (*encoder.biases, encoder.bias)] == [0, 0, 0, 0]
    for W in encoder.weights:
        limit = np.sqrt(6 / sum(W.shape))
        assert 0.9 * limit < W.abs().max().item() <= limit
    assert 0.5 * np.sqrt(3 / 16) < encoder.output.abs().max().item() <= np.sqrt(3 / 16)
    ngcf = NeuMFModel(sp.csr_array((2, 2)), NeuMF(), *torch.zeros(2, 2, 64), torch.Generator())
    assert [tuple(W.shape) for W in ngcf.weights] == [(192, 64), (64, 64)] and ngcf.bias is None
    assert NeuMF().work(64) == 2 * 64 * 64 + 64 and NeuMF(network="he").work(40) == 8 + 32 * 16 + 16 * 8 + 8


@pytest.mark.parametrize(
    ("values", "dim", "message"),
    [
        ({"network": "he"}, 4, "needs 0 < gmf_dim < embedding_dim, got 0 and 4"),
        ({"network": "he", "gmf_dim": 8}, 8, "needs 0 < gmf_dim < embedding_dim, got 8 and 8"),
        ({"network": "he", "hidden_dim": 3}, 40, "halves hidden_dim in each layer: 3 is too small for 3 layers"),
        ({"hidden_layers": 10**9}, 4, r"hidden_layers must lie in \[0, 64\], got 1000000000"),  # a list of so many widths
    ],
)
def test_widths_that_leave_nothing_are_refused(values, dim, message):
    with pytest.raises(ConfigError, match=message):
        NeuMF(**values).widths(dim)
