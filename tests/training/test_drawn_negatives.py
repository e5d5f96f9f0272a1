"""The rows of every loss, and their gradients, from the scores of a batch against the definition from arrays of all scores."""

import dataclasses

import numpy as np
import pytest
import torch
from fits import DIM, N_ITEMS, N_USERS, interactions, of_each_row, params
from numpy.testing import assert_allclose
from torch.nn.functional import normalize

from rankbench.experiment.job import configure
from rankbench.losses.spec import Ragged, Scores, Sizes, registered
from rankbench.training.batches import Batch, Rows, touched_items
from rankbench.training.drawn_negatives import SharedScores
from rankbench.training.negatives import NegativeSampler
from rankbench.training.scoring import own_items, scores_of

LOSSES = sorted(
    loss.name for loss in registered() if loss.sampler and loss.needs <= {"extra_positives", "all_positives", "rivals"}
)
SAMPLING = {
    "own": ("uniform-other", False),
    "shared": ("uniform-all", True),
    "shared, of others": ("uniform-other", True),
    "shared, by popularity": ("popularity", True),
    "in-batch": ("in-batch", True),
}
USERS = np.array([1, 5, 5, 7, 5, 1, 9])
TOLERANCE = {torch.float64: {"rtol": 1e-10, "atol": 1e-12}, torch.float32: {"rtol": 2e-4, "atol": 2e-5}}


def drawn_batch(X, sampling, n_extra=2):
    rng = np.random.default_rng(4)
    kind, shared = SAMPLING[sampling]
    items = np.array([X[[user]].indices[rng.integers(X[[user]].nnz)] for user in USERS]).astype(np.int64)
    negatives = NegativeSampler(X, kind, 6, shared).draw(0, 1, 0, USERS, items)
    extra = np.array([rng.choice(X[[user]].indices, n_extra) for user in USERS]).astype(np.int64)
    return Batch(USERS, items, negatives, extra, kind == "in-batch")


def defined(loss, batch, U, V, X, temperature):
    """The scores by an array of all scores; in-batch negatives of a row are the positives of the others."""
    if loss.similarity == "distance":
        whole = -torch.cdist(U, V).square()
    else:
        half = 0.5 if loss.similarity == "half-cosine" else 1
        units = (U, V) if loss.similarity == "dot" else (normalize(U, dim=1), normalize(V, dim=1))
        whole = half * units[0] @ units[1].T / temperature
    users, items = torch.from_numpy(batch.users), torch.from_numpy(batch.items)
    n = len(users)
    logq = torch.from_numpy(batch.negatives.logq)
    ids = torch.from_numpy(of_each_row(batch.negatives, n))
    logq = logq.expand(n, ids.shape[1])
    if batch.in_batch:
        others = torch.tensor([[b for b in range(n) if b != a] for a in range(n)])
        ids, logq = items[others], logq.gather(1, others)
    row, own = own_items(X, batch.users)

    def rival(k):
        j = ids[torch.arange(n), k]
        assert loss.similarity == "distance"
        return -(V[items] - V[j]).square().sum(dim=1)

    return Scores(
        pos=whole[users, items],
        neg=whole[users[:, None], ids],
        n_items=X.shape[1],
        n_interactions=torch.from_numpy(np.diff(X.indptr)[batch.users]).to(U),
        users=users,
        items=items,
        neg_items=ids,
        logq=logq.to(U),
        logq_pos=torch.from_numpy(batch.negatives.logq_pos).to(U),
        own_drawn=batch.negatives.own,
        extra_positives=whole[users[:, None], torch.from_numpy(batch.extra)],
        all_positives=Ragged(whole[users[row], own].detach(), row),
        rival=rival,
    )


def measured(loss, s, p, U, V, state):
    rows = loss.function(s, p, *((state,) if state else ()))
    weight = torch.linspace(0.5, 2, len(rows), dtype=rows.dtype)
    gradients = torch.autograd.grad((weight * rows).sum(), (U, V), retain_graph=True, allow_unused=True)
    own = state.own_loss(s) if state else None
    return rows.detach(), *gradients, torch.zeros(()) if own is None else own.detach()


def tables(dtype):
    draw = torch.Generator().manual_seed(2)
    return [torch.randn(n, DIM, dtype=torch.float64, generator=draw).to(dtype).requires_grad_() for n in (N_USERS, N_ITEMS)]


def new_state(loss, p, dtype):
    if not loss.state:
        return None
    state = loss.state(p, Sizes(N_USERS, N_ITEMS, DIM), torch.Generator().manual_seed(1)).to(dtype)
    with torch.no_grad():
        for number, each in enumerate(state.state_dict().values()):
            each.add_(0.1 * torch.randn(each.shape, generator=torch.Generator().manual_seed(number), dtype=dtype))
    return state


@pytest.mark.parametrize(
    ("sampling", "dtype"), [*((each, torch.float64) for each in SAMPLING), ("shared", torch.float32)], ids=str
)
@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_of_a_batch_is_that_of_its_definition(name, sampling, dtype):
    X, loss = interactions(), registered().get(name)
    p, temperature = params(name).loss, 1.0 if loss.similarity == "distance" else 0.7
    batch = drawn_batch(X, sampling, getattr(p, "n_positives", 2))
    U, V = tables(dtype)
    state = new_state(loss, p, dtype)
    every = V.detach()
    own = own_items(X, batch.users) if "all_positives" in loss.needs else None
    rows = Rows(U, None), Rows(V, None)
    if sampling in ("own", "in-batch"):  # the rows of the batch alone
        chosen = np.unique(batch.users), touched_items(batch, N_ITEMS, whole=False)
        rows = tuple(Rows(table[ids], ids) for table, ids in zip((U, V), chosen, strict=True))
    s = scores_of(loss, batch, *rows, X, every, own, "float32", temperature)
    found = measured(loss, s, p, U, V, state)
    expected = measured(loss, defined(loss, batch, U, V, X, temperature), p, U, V, state)
    for one, other in zip(found, expected, strict=True):
        assert_allclose(one, other, **TOLERANCE[dtype])


def sums_negatives(name):
    """What an estimate of memory goes by."""
    config = configure(name, {"shared_negatives": True})
    return config.spec.sums_negatives(config.params)


@pytest.mark.parametrize("sampling", ["shared", "shared, of others", "in-batch"])
@pytest.mark.parametrize("name", sorted({"psl", "recall-at-k", *filter(sums_negatives, LOSSES)}))
def test_sums_that_a_kernel_has_build_no_array_of_scores(name, sampling, monkeypatch):
    X, loss, p = interactions(), registered().get(name), params(name).loss
    batch = drawn_batch(X, sampling)
    U, V = tables(torch.float64)
    s = scores_of(loss, batch, Rows(U, None), Rows(V, None), X, V.detach())
    assert isinstance(s.others, SharedScores)
    monkeypatch.setattr("rankbench.training.drawn_negatives.product", None)
    state = new_state(loss, p, torch.float64)
    loss.function(s, p, *((state,) if state else ())).sum().backward()
    with pytest.raises(TypeError):
        s.neg  # noqa: B018


@pytest.mark.parametrize("sampling", sorted({*SAMPLING} - {"own"}))
def test_the_mean_of_a_function_is_that_of_the_scores_of_each_row(sampling):
    X, loss = interactions(), registered().get("sl")
    batch, (U, V) = drawn_batch(X, sampling), tables(torch.float64)
    s = scores_of(loss, batch, Rows(U, None), Rows(V, None), X, V.detach())
    expected = defined(loss, batch, U, V, X, 1.0).neg.exp().mean(dim=1)
    assert_allclose(s.others.mean(torch.exp).detach(), expected.detach(), **TOLERANCE[torch.float64])


@pytest.mark.parametrize("name", ["sl", "psl", "bce", "ccl", "mse", "llpauc", "recall-at-k", "advinfonce"])
def test_a_user_of_all_shared_negatives_is_compared_with_what_replaces_them(name):
    X, loss, p = interactions(), registered().get(name), params(name).loss
    U, V = tables(torch.float64)
    sampler = NegativeSampler(X, "uniform-other", 1, shared=True)
    items = np.array([X[[user]].indices[0] for user in USERS]).astype(np.int64)
    drawn = (sampler.draw(0, epoch, 0, USERS, items) for epoch in range(100))
    negatives = next(each for each in drawn if len({USERS[row] for row in each.replaced.rows}) > 1)
    batch = Batch(USERS, items, negatives, None, False)
    s = scores_of(loss, batch, Rows(U, None), Rows(V, None), X, V.detach())
    assert isinstance(s.others, SharedScores)
    state = new_state(loss, p, torch.float64)
    expected = defined(loss, dataclasses.replace(batch, extra=items[:, None]), U, V, X, 1.0)
    for one, other in zip(measured(loss, s, p, U, V, state), measured(loss, expected, p, U, V, state), strict=True):
        assert_allclose(one, other, **TOLERANCE[torch.float64])


@pytest.mark.parametrize("tau", [0.1, 0.03, 0.005, 0.001])
def test_powers_of_sigmoids_do_not_vanish(tau):
    """PSL of the best item against bad ones: the powers are as small as 1e-100 and less."""
    X, loss, p = interactions(), registered().get("psl"), dataclasses.replace(params("psl").loss, tau=tau)
    batch = drawn_batch(X, "shared")
    V = -torch.ones(N_ITEMS, DIM)
    V[batch.items] = 1.0
    U = torch.ones(N_USERS, DIM)
    negatives = dataclasses.replace(batch.negatives, items=np.setdiff1d(np.arange(N_ITEMS), batch.items)[None, :3])
    batch = dataclasses.replace(batch, negatives=negatives)
    rows = loss.function(scores_of(loss, batch, Rows(U, None), Rows(V, None), X, V), p)
    assert_allclose(rows, np.log(3) + np.log1p(np.tanh(-1.0)) / tau, rtol=1e-5)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_who_reads_scores_first_without_gradients_takes_them_from_nobody(precision):
    X, loss = interactions(), registered().get("sl")
    U, V = tables(torch.float64)
    s = scores_of(loss, drawn_batch(X, "shared"), Rows(U, None), Rows(V, None), X, V.detach(), precision=precision)
    with torch.no_grad():
        s.neg.sum()
    assert s.neg.requires_grad
    (gradient,) = torch.autograd.grad(s.neg.sum(), V)
    assert gradient.abs().sum() > 0
