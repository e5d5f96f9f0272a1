"""The loop of gradient steps: what a step's gradient is, what is kept, what is left alone, and what ends it."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from fits import DIM, N_ITEMS, N_USERS, driven, fitted, gradients, interactions, only_batch, params, trainer_of, vectors
from numpy.testing import assert_allclose, assert_array_equal
from torch.nn.functional import cosine_similarity, softplus

from rankbench.core.errors import ConfigError, DataError, NumericalError
from rankbench.fitting.recommenders import FactorRecommender, score

OPTIMIZERS = pytest.mark.parametrize("optimizer", ["row-adam", "adam"])
ONE_BATCH = {"batch_size": 1000, "optimizer": "row-adam"}


@pytest.fixture(scope="module")
def X():
    return interactions()


def bpr_rows(U, V, users, items, drawn):
    """BPR of each row, from the tables; negatives (B, n), or (1, n) for all."""
    pos = (U[users] * V[items]).sum(1)
    neg = (U[users][:, None] * V[np.tile(drawn, (len(users) // len(drawn), 1))]).sum(2)
    return softplus(neg - pos[:, None]).mean(dim=1)


def test_training_data_without_interactions_are_refused():
    with pytest.raises(DataError, match="no interactions"):
        trainer_of(sp.csr_array((4, 3), dtype=np.float32), "bpr")


@pytest.mark.parametrize("rest", [1, 2, 3])
def test_a_rest_of_few_rows_joins_the_batch_before_it_if_rows_are_negatives(X, rest):
    """Some losses need two other rows of the batch."""
    run = trainer_of(X, "bpr", sampler="in-batch", batch_size=X.nnz - rest)
    sizes = [len(each) for each in run._chosen(1)]
    assert sizes == ([X.nnz - 3, 3] if rest == 3 else [X.nnz])
    assert math.isfinite(run.epoch(1, 1.0))
    assert [len(each) for each in trainer_of(X, "bpr", batch_size=X.nnz - rest)._chosen(1)] == [X.nnz - rest, rest]


# One step


@OPTIMIZERS
@pytest.mark.parametrize(
    "sampling",
    [{}, {"shared_negatives": True}, {"shared_negatives": True, "sampler": "uniform-other"}],
    ids=["own", "shared", "shared of others"],
)
@pytest.mark.parametrize("reduction", ["interaction", "user"])
@pytest.mark.parametrize(
    "decay",
    [{}, {"weight_decay": 0.3}, *({"weight_decay": 0.3, "decay": kind} for kind in ("batch", "batch-negatives", "layer-0"))],
    ids=str,
)
def test_a_step_has_the_loss_and_the_gradient_of_the_definition(optimizer, sampling, reduction, decay, X):
    trainer = trainer_of(X, "bpr", **ONE_BATCH | sampling | decay | {"optimizer": optimizer, "reduction": reduction})
    U, V = vectors(trainer)
    users, items, drawn = only_batch(trainer)
    rows = bpr_rows(U, V, users, items, drawn)
    if reduction == "interaction":
        expected = rows.sum() / X.nnz
    else:  # a mean over users of the mean over a user's items
        expected = sum(rows[users == user].mean() for user in range(N_USERS)) / N_USERS
    if decay.get("decay"):
        lengths = U[users].square().sum(dim=1) + V[items].square().sum(dim=1)
        if decay["decay"] != "batch":
            lengths = lengths + V[drawn].square().sum(dim=2).mean(dim=1)
        expected = expected + 0.15 * lengths.mean()
    by_hand = dict(zip(("users", "items"), torch.autograd.grad(expected, (U, V)), strict=True))
    if decay and "decay" not in decay:
        touched = {"users": np.unique(users), "items": np.union1d(items, drawn)}
        for side, table in (("users", U), ("items", V)):
            at = touched[side] if optimizer == "row-adam" else slice(None)
            by_hand[side][at] += 0.3 * table.detach()[at]
    assert trainer.epoch(1, 1.0) == pytest.approx(expected.item(), rel=1e-12)
    found = gradients(trainer)
    for side in ("users", "items"):
        assert_allclose(found[side], by_hand[side], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", ["batch", "batch-negatives", "layer-0"])
def test_a_graph_encoder_decays_its_scored_or_its_learned_vectors(kind, X):
    about = ONE_BATCH | {"model": "lightgcn", "n_layers": 1, "weight_decay": 0.3, "decay": kind, "optimizer": "adam"}
    trainer = trainer_of(X, "bpr", **about)
    learned = trainer.encoder.users, trainer.encoder.items
    U, V = trainer.encoder()
    users, items, drawn = only_batch(trainer)
    expected = bpr_rows(U, V, users, items, drawn).mean()
    left, right = learned if kind == "layer-0" else (U, V)
    lengths = left[users].square().sum(dim=1) + right[items].square().sum(dim=1)
    if kind != "batch":
        lengths = lengths + right[drawn].square().sum(dim=2).mean(dim=1)
    expected = expected + 0.15 * lengths.mean()
    by_hand = torch.autograd.grad(expected, learned)
    assert trainer.epoch(1, 1.0) == pytest.approx(expected.item(), rel=1e-12)
    for found, wanted in zip(gradients(trainer).values(), by_hand, strict=True):
        assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("model", ["simplex", "youtubenet"])
@pytest.mark.parametrize("kind", ["batch", "layer-0"])
def test_an_encoder_with_a_vector_per_row_decays_that_vector_or_the_learned_one(model, kind, X):
    about = ONE_BATCH | {"model": model, "decay": kind, "optimizer": "adam", "init_scale": 1.0}
    trainer, without = (trainer_of(X, "bpr", **about, weight_decay=decay) for decay in (0.3, 0.0))
    users, items, drawn = only_batch(trainer)
    with torch.no_grad():
        at = torch.from_numpy(users), torch.from_numpy(items)
        left = trainer.encoder.users[users] if kind == "layer-0" else trainer.encoder.row_vectors(*at)
        of_items = trainer.encoder.items.square().sum(dim=1)
        lengths = left.square().sum(dim=1) + of_items[items]
        if kind == "layer-0":
            lengths = lengths + of_items[drawn].mean(dim=1)
    assert trainer.epoch(1, 1.0) - without.epoch(1, 1.0) == pytest.approx(0.15 * lengths.mean().item(), rel=1e-9)


def test_negatives_of_the_batch_itself_do_not_decay_twice(X):
    about = {"sampler": "in-batch", "weight_decay": 0.3}
    both = [trainer_of(X, "bpr", **ONE_BATCH, **about, decay=kind).epoch(1, 1.0) for kind in ("batch", "layer-0")]
    assert both[0] == both[1]


@pytest.mark.parametrize(
    ("method", "about", "why"),
    [
        ("bce", {"objective": "catalogue"}, "reads the whole catalogue"),
        ("softmax", {}, "reads the whole catalogue"),
        ("bpr", {"sampler": "in-batch"}, "items of the batch"),
    ],
)
def test_a_penalty_on_negatives_that_are_not_drawn_is_refused(method, about, why):
    with pytest.raises(ConfigError, match=f"decay=batch-negatives: .*{why}.*; use decay=batch"):
        params(method, decay="batch-negatives", weight_decay=0.1, **about)
    params(method, decay="batch-negatives", **about)  # nothing decays


@OPTIMIZERS
@pytest.mark.parametrize("model", ["mf", "lightgcn"])
def test_small_gradients_move_vectors_only_with_a_smaller_eps(optimizer, model, X):
    """Adam divides by the size of the gradient, so the scale of a loss does not count, as long as it is far above eps."""
    moved = {}
    for temperature, eps in ((1.0, 1e-8), (1e9, 1e-8), (1e9, 1e-20)):
        about = {"optimizer": optimizer, "model": model, "temperature": temperature, "adam_eps": eps, "learning_rate": 0.01}
        trainer = trainer_of(X, "bpr", batch_size=1000, **about)
        before = trainer.encoder.users.detach().clone()
        trainer.epoch(1, 1.0)
        moved[temperature, eps] = (trainer.encoder.users.detach() - before).abs().mean().item()
    assert moved[1e9, 1e-8] < 0.2 * moved[1.0, 1e-8]
    assert moved[1e9, 1e-20] == pytest.approx(moved[1.0, 1e-8], rel=0.02)


def test_cosines_may_rank_by_dot_products(X):
    """SSM trains by cosines and ranks by products, in which the lengths of vectors count (Wu et al., TOIS 2024)."""
    about = {"model": "lightgcn", "n_layers": 1}
    by_cosine, by_dot = (trainer_of(X, "sl", **about, rank_by=kind) for kind in ("auto", "dot"))
    for trainer in (by_cosine, by_dot):
        trainer.epoch(1, 1.0)
    U, V = (side.detach().numpy() for side in by_dot.learner.vectors())
    assert_array_equal(by_dot.model().U, U)
    assert_array_equal(by_dot.model().V, V)
    assert_allclose(by_cosine.model().V, V / np.linalg.norm(V, axis=1, keepdims=True), rtol=1e-12)


def test_the_loss_of_an_epoch_is_its_mean_over_interactions(X):
    """At a rate of next to nothing, batches of any size have the mean of the whole; the last is smaller than the others."""
    small = trainer_of(X, "softmax", batch_size=7, learning_rate=1e-30).epoch(1, 1.0)
    assert len(trainer_of(X, "softmax").users) % 7
    assert small == pytest.approx(trainer_of(X, "softmax", batch_size=1000, learning_rate=1e-30).epoch(1, 1.0), rel=1e-12)


def test_the_factor_of_the_schedule_scales_the_step(X):
    moved = []
    for factor in (1.0, 0.25):
        trainer = trainer_of(X, "bpr", **ONE_BATCH)
        before = vectors(trainer)
        trainer.epoch(1, factor)
        moved.append([after.detach() - start.detach() for after, start in zip(vectors(trainer), before, strict=True)])
    for whole, quarter in zip(*moved, strict=True):
        assert_allclose(quarter, whole / 4, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize(
    "values, rows",
    [
        ({"batch_size": 16}, 16),
        ({"batch_size": 100_000}, None),  # a step of all interactions
        ({"objective": "catalogue", "users_per_step": 4, "batch_size": 3}, "users"),
    ],
    ids=["batches", "one batch", "users"],
)
def test_the_rate_grows_with_the_root_of_the_interactions_of_a_step(values, rows, X):
    active = np.count_nonzero(np.diff(X.indptr))
    rows = {None: X.nnz, "users": 4 * X.nnz / active}.get(rows, rows)
    found, expected = (
        trainer_of(X, "sl", **values, **rate)
        for rate in ({"learning_rate": 0.01, "reference_batch": 9}, {"learning_rate": 0.01 * (rows / 9) ** 0.5})
    )
    for trainer in (found, expected):
        trainer.epoch(1, 1.0)
    for one, other in zip(vectors(found), vectors(expected), strict=True):
        assert_allclose(one.detach(), other.detach(), rtol=1e-9)


# What is left alone


@OPTIMIZERS
@pytest.mark.parametrize("sampler", ["popularity", "in-batch", "uniform-all", "uniform-other"])
def test_a_user_without_interactions_stays_and_an_item_moves_only_where_it_is_drawn(sampler, optimizer):
    X = interactions(empty=True)
    values = {"sampler": sampler, "n_negatives": 50, "optimizer": optimizer}
    trainer = trainer_of(X, "bpr", **values)
    before = vectors(trainer)
    for epoch in (1, 2):
        trainer.epoch(epoch, 1.0)
    moved = [(after != start).any(dim=1).numpy() for after, start in zip(vectors(trainer), before, strict=True)]
    assert_array_equal(np.flatnonzero(~moved[0]), [0])
    assert_array_equal(np.flatnonzero(~moved[1]), [3] if sampler in ("popularity", "in-batch") else [])


# The unit ball


@OPTIMIZERS
def test_cml_keeps_its_vectors_in_the_unit_ball(optimizer, X):
    trainer = trainer_of(X, "cml", optimizer=optimizer, init_scale=1.0, learning_rate=0.5, n_negatives=20, dtype=np.float32)
    assert all((table.norm(dim=1) > 0.999).any() for table in vectors(trainer))
    for epoch in (1, 2):
        trainer.epoch(epoch, 1.0)
    for table in vectors(trainer):
        length = table.detach().norm(dim=1)
        assert length.max() <= 1 + 1e-6
        assert (length < 1 - 1e-3).any()  # a ball, not a sphere


# The model


@pytest.mark.parametrize(
    ("name", "between"),
    [
        ("bpr", lambda u, v: (u * v).sum(-1)),
        ("sl", lambda u, v: cosine_similarity(u, v, dim=-1)),
        ("psl", lambda u, v: cosine_similarity(u, v, dim=-1)),  # half a cosine ranks as a whole one
        ("cml", lambda u, v: -(u - v).square().sum(-1)),
    ],
)
def test_the_models_score_is_the_similarity_of_the_loss(name, between, X):
    trainer = trainer_of(X, name)
    trainer.epoch(1, 1.0)
    U, V = trainer.learner.vectors()
    model = trainer.model()
    assert isinstance(model, FactorRecommender) and len(model.U) == N_USERS and len(model.V) == N_ITEMS
    users = np.array([3, 0, 7])
    expected = between(U[users][:, None], V[None, 5:15]).detach()
    assert_allclose(score(model, users, X[users], slice(5, 15)), expected, rtol=1e-9, atol=1e-12)


def test_a_model_is_a_copy(X):
    trainer = trainer_of(X, "bpr")
    model = trainer.model()
    U, V = model.U.copy(), model.V.copy()
    trainer.epoch(1, 1.0)
    assert_array_equal(model.U, U)
    assert_array_equal(model.V, V)
    assert (trainer.model().U != U).any()


def test_bfloat16_ends_near_float32(X):
    values = {"shared_negatives": True, "n_negatives": 30, "epochs": 5, "learning_rate": 0.02}
    start, exact, rounded = (
        fitted(X, "sl", **values | more) for more in ({"learning_rate": 1e-30}, {}, {"precision": "bfloat16"})
    )
    assert exact.U.dtype == rounded.U.dtype == np.float32
    for side in ("U", "V"):
        way, apart = getattr(exact, side) - getattr(start, side), getattr(rounded, side) - getattr(exact, side)
        assert 0 < np.linalg.norm(apart) < 0.05 * np.linalg.norm(way)


# What ends it


def watched(X, values, **more):
    """The fit that is told `values`, one at each look, and the model after each of its steps."""
    told, models = iter(values), []
    about = {"patience": 2} | more
    fit = driven(X, "bpr", lambda model, metric: next(told), lambda step, valid: models.append(step.model()), **about)
    return fit, models


def test_looking_changes_nothing_of_the_training(X):
    fit, _ = watched(X, [0.1 * n for n in range(4)], epochs=4)
    assert_array_equal(fit.model.U, fitted(X, "bpr", epochs=4).U)


def test_a_plateau_of_valid_slows_the_fit(X):
    """Told that nothing gains, the rate is halved after the fifth look: from there the fits differ."""
    gains, stands = ([n / 10 if up else 0.0 for n in range(7)] for up in (True, False))
    fits = [watched(X, values, epochs=7, patience=100, schedule="plateau")[1] for values in (gains, stands)]
    same = [np.array_equal(first.U, second.U) for first, second in zip(*fits, strict=True)]
    assert same == [True] * 5 + [False] * 2


@OPTIMIZERS
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_loss_that_is_not_finite_stops_the_fit_with_its_epoch(optimizer, dtype, X):
    rate = 1e30 if dtype == np.float32 else 1e200
    with pytest.raises(NumericalError) as caught:
        fitted(X, "bpr", dtype=dtype, learning_rate=rate, optimizer=optimizer, batch_size=1000)
    message = str(caught.value)
    assert "in epoch 2" in message and np.dtype(dtype).name in message and f"learning_rate={rate}" in message
    assert "\n" not in message


# Where it starts


@pytest.mark.parametrize(("init", "scale"), [("normal", 0.3), ("xavier", None)])
def test_vectors_start_with_the_deviation_that_is_asked_for(init, scale):
    X = interactions()
    trainer = trainer_of(X, "bpr", init=init, init_scale=0.3, embedding_dim=4000)
    for table, n in zip(vectors(trainer), (N_USERS, N_ITEMS), strict=True):
        deviation = scale or math.sqrt(2 / (n + 4000))
        assert table.detach().numpy().std() == pytest.approx(deviation, rel=0.02)
        assert abs(table.detach().numpy().mean()) < 5 * deviation / math.sqrt(table.numel())


def test_users_and_items_start_from_numbers_of_their_own(X):
    U, V = vectors(trainer_of(X, "bpr", embedding_dim=DIM))
    assert (U[:N_USERS] != V[:N_USERS]).all()
    other = vectors(trainer_of(X, "bpr", embedding_dim=DIM, seed=1))[0]
    assert (other != U).all()
