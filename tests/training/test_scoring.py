"""What a loss sees of a batch, against scores worked out one by one from the two tables."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from torch.nn.functional import cosine_similarity

from rankbench.data.blocks import csr_from_pairs
from rankbench.losses.spec import registered
from rankbench.training.batches import Batch, Rows, touched_items
from rankbench.training.negatives import Negatives, NegativeSampler
from rankbench.training.scoring import scores_of

N_USERS, N_ITEMS, DIM = 30, 60, 3
USERS, ITEMS = np.array([4, 9, 4, 21]), np.array([7, 50, 12, 7])
BETWEEN = {
    "dot": lambda u, v: (u * v).sum(-1),
    "cosine": lambda u, v: cosine_similarity(u, v, dim=-1),
    "half-cosine": lambda u, v: cosine_similarity(u, v, dim=-1) / 2,
    "distance": lambda u, v: -(u - v).square().sum(-1),
}
EVERY_SIMILARITY = pytest.mark.parametrize("similarity", list(BETWEEN))
COMPACT = pytest.mark.parametrize("compact", [False, True], ids=["whole tables", "rows of the batch"])


@pytest.fixture(scope="module")
def X():
    met = np.random.default_rng(1).random((N_USERS, N_ITEMS)) < 0.1
    met[USERS, ITEMS] = True
    return csr_from_pairs(*np.nonzero(met), met.shape)


def a_loss(similarity, *needs):
    return replace(registered().get("bpr"), similarity=similarity, needs=frozenset(needs))


def tables():
    draw = torch.Generator().manual_seed(6)
    return [torch.randn(n, DIM, dtype=torch.float64, generator=draw).requires_grad_() for n in (N_USERS, N_ITEMS)]


def a_batch(X, kind="uniform-all", shared=False, n=5, rows=slice(None)):
    users, items = USERS[rows], ITEMS[rows]
    negatives = NegativeSampler(X, kind, n, shared).draw(0, 1, 0, users, items)
    return Batch(users, items, negatives, None, kind == "in-batch")


def seen(similarity, batch, X, U, V, compact, *needs):
    loss = a_loss(similarity, *needs)
    wanted = touched_items(batch, N_ITEMS, "catalogue" in needs)
    users, items = (Rows.of(U, np.unique(batch.users)), Rows.of(V, wanted)) if compact else (Rows(U, None), Rows(V, None))
    if compact:
        assert users.ids is not None and (items.ids is None) == ("catalogue" in needs)
    return scores_of(loss, batch, users, items, X, V.detach())


def agree(found, expected, leaves):
    """In value, and in the gradient of a sum with random weights."""
    assert_allclose(found.detach(), expected.detach(), rtol=1e-10, atol=1e-12)
    weight = torch.randn(expected.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    gradients = [torch.autograd.grad((value * weight).sum(), leaves, retain_graph=True) for value in (found, expected)]
    for mine, theirs in zip(*gradients, strict=True):
        assert_allclose(mine, theirs, rtol=1e-10, atol=1e-12)


@COMPACT
@EVERY_SIMILARITY
@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
@pytest.mark.parametrize("rows", [slice(None), slice(1)], ids=["four rows", "one row"])
def test_positives_and_negatives(similarity, shared, rows, compact, X):
    (U, V), batch = tables(), a_batch(X, shared=shared, rows=rows)
    s = seen(similarity, batch, X, U, V, compact)
    drawn = np.tile(batch.negatives.items, (1 if len(batch.negatives.items) > 1 else len(batch.users), 1))
    between = BETWEEN[similarity]
    agree(s.pos, between(U[batch.users], V[batch.items]), (U, V))
    agree(s.neg, between(U[batch.users][:, None], V[drawn]), (U, V))
    assert_array_equal(s.neg_items, batch.negatives.items)
    assert_array_equal(s.users, batch.users)
    assert_array_equal(s.items, batch.items)
    assert_array_equal(s.n_interactions, X.toarray().sum(axis=1)[batch.users])
    assert s.n_items == N_ITEMS and s.user_vectors is s.extra_positives is s.all_positives is s.catalogue is None


@COMPACT
@pytest.mark.parametrize(
    ("kind", "shared", "rows", "shape"),
    [
        ("uniform-all", False, slice(None), (1, 5)),
        ("uniform-all", True, slice(None), (1, 5)),
        ("uniform-other", False, slice(None), (4, 5)),
        ("popularity", False, slice(None), (4, 5)),
        ("popularity", True, slice(None), (1, 5)),
        ("popularity", True, slice(1), (1, 5)),
        ("uniform-other", False, slice(1), (1, 5)),
        ("in-batch", True, slice(None), (4, 3)),
    ],
)
def test_logq_broadcasts_to_the_negatives(kind, shared, rows, shape, compact, X):
    (U, V), batch = tables(), a_batch(X, kind, shared, rows=rows)
    s = seen("dot", batch, X, U, V, compact)
    assert s.logq.shape[1] == s.neg.shape[1] and s.logq.shape[0] in (1, len(batch.users))
    assert (s.logq + s.neg).shape == s.neg.shape and s.logq_pos.shape == s.pos.shape
    assert_allclose(s.logq_pos, batch.negatives.logq_pos, rtol=1e-12)
    assert (s.neg.shape[0], s.logq.dtype) == (len(batch.users), torch.float64)
    if kind != "uniform-all":
        assert s.logq.shape == shape
    counts = X.toarray().astype(np.float64).sum(axis=0)
    if kind == "uniform-all":
        expected = np.full(s.neg.shape, -np.log(N_ITEMS))
    elif kind == "uniform-other":
        expected = np.repeat(-np.log(N_ITEMS - X.toarray().sum(axis=1)[batch.users])[:, None], 5, axis=1)
    else:
        expected = np.log((counts / X.nnz)[s.neg_items])
    assert_allclose(s.logq.expand(s.neg.shape), np.broadcast_to(expected, s.neg.shape), rtol=1e-6)


@COMPACT
@pytest.mark.parametrize("similarity", ["dot", "cosine", "half-cosine"])
def test_the_catalogue_has_every_items_score(similarity, compact, X):
    (U, V), batch = tables(), a_batch(X)
    s = seen(similarity, batch, X, U, V, compact, "catalogue")
    every = BETWEEN[similarity](U[USERS][:, None], V[None])
    agree(s.catalogue.of_all(torch.Tensor.clone), every, (U, V))
    agree(s.catalogue.logsumexp(), torch.logsumexp(every, dim=1), (U, V))
    agree(s.catalogue.moments()[1], every.square().mean(dim=1), (U, V))


def test_a_loss_that_samples_nothing_gets_no_negatives(X):
    U, V = tables()
    s = seen("dot", Batch(USERS, ITEMS, None, None), X, U, V, False, "catalogue")
    assert s.neg.shape == (4, 0)
    assert s.neg_items is s.logq is s.logq_pos is s.rival is None


def test_touched_items_are_what_a_batch_scores(X):
    batch = Batch(USERS, ITEMS, Negatives(np.array([[3, 50]]), np.zeros((1, 1)), np.zeros(4)), np.array([[1, 3]]))
    assert_array_equal(touched_items(batch, N_ITEMS, whole=False), [1, 3, 7, 12, 50])
    assert touched_items(batch, N_ITEMS, whole=True) is None
    assert_array_equal(touched_items(Batch(USERS, ITEMS, None, None), N_ITEMS, whole=False), [7, 12, 50])


@pytest.mark.parametrize("per_row", [False, True], ids=["of users", "of rows"])
def test_a_temperature_does_not_scale_the_vectors_that_a_loss_reads(per_row, X):
    (U, V), batch = tables(), a_batch(X)
    given = {"row_vectors": U[USERS]} if per_row else {}
    s = scores_of(a_loss("dot", "user_vectors"), batch, Rows(U, None), Rows(V, None), X, V.detach(), temperature=0.5, **given)
    assert_allclose(s.pos.detach(), 2 * (U[USERS] * V[ITEMS]).sum(1).detach())
    assert_array_equal(s.user_vectors.detach(), U[USERS].detach())


@pytest.mark.parametrize("wanted", [[], [3], [0, 4, 9], list(range(10)), None], ids=str)
def test_rows_say_where_each_vector_stands(wanted):
    table = torch.arange(20.0).reshape(10, 2)
    numbers = None if wanted is None else np.array(wanted, dtype=np.int64)
    rows = Rows.of(table, numbers)
    asked = np.arange(10)[::-1] if wanted is None else numbers[::-1]
    assert_array_equal(rows.vectors[rows.positions(asked)], table[asked.copy()])


def test_bfloat16_rounds_the_products_alone(X):
    (U, V), batch = tables(), a_batch(X, shared=True)
    U, V = U.detach().float(), V.detach().float()
    exact, rounded = (
        scores_of(a_loss("dot"), batch, Rows(U, None), Rows(V, None), X, V, None, precision)
        for precision in ("float32", "bfloat16")
    )
    assert rounded.neg.dtype == torch.float32
    assert_array_equal(rounded.pos, exact.pos)
    assert (rounded.neg != exact.neg).any()
    length = U[USERS].norm(dim=1)[:, None] * V[batch.negatives.items[0]].norm(dim=1)
    assert ((rounded.neg - exact.neg).abs() <= 3 * 2**-8 * length).all()
