"""objective=catalogue: every loss that has it equals its sampled form with every item drawn once, in value and gradient."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from fits import interactions, params, trainer_of
from numpy.testing import assert_allclose, assert_array_equal
from torch.nn.functional import logsigmoid, normalize, softplus

from rankbench.contracts.training import expect_resumable
from rankbench.core.errors import ConfigError, DataError
from rankbench.losses.others import OwnItems, ScoreTable
from rankbench.losses.spec import Ragged, Scores, Sizes, registered
from rankbench.training.batches import Batch, Rows
from rankbench.training.scoring import catalogue_scores_of
from rankbench.training.user_catalogue import UserCatalogue

LOSSES = [loss.name for loss in registered() if loss.over_catalogue]
N_OTHER = {"talos": {"K": 3}, "aatp": {"K": 3}, "sl-at-k": {"K": 3, "T_beta": 1}, "infonce": {"tau": 0.03}}


def gradients(total, leaves):
    return [
        part if part is not None else torch.zeros_like(leaf)
        for leaf, part in zip(leaves, torch.autograd.grad(total, leaves, allow_unused=True), strict=True)
    ]


def sampled_form(loss, p, U, V, X, left_out):
    """Scores of all interactions of X in rows, with every item (or every other one) as a negative; one row after another."""
    users, items = X.nonzero()
    if loss.similarity == "cosine":
        U, V = normalize(U, dim=1), normalize(V, dim=1)
    table = U @ V.T
    for user, item in zip(users, items, strict=True):
        own = X[[user]].indices
        others = np.setdiff1d(np.arange(V.shape[0]), own) if left_out else np.arange(V.shape[0])
        yield (
            Scores(
                pos=table[[user], [item]],
                neg=table[user, others][None],
                n_items=len(V),
                n_interactions=torch.tensor([float(len(own))], dtype=torch.float64),
                users=torch.tensor([user]),
                items=torch.tensor([item]),
                neg_items=torch.from_numpy(others)[None],
                user_vectors=U[[user]],
                extra_positives=table[user, own][None],
                all_positives=Ragged(table[user, own].detach(), torch.zeros(len(own), dtype=torch.int64)),
                catalogue=ScoreTable(table[[user]]),
            ),
            table[user],
        )


def set_up(name):
    """Interactions, a loss, random vectors of users and items, and the batch of all interactions."""
    X, draw = interactions(), torch.Generator().manual_seed(2)
    U, V = (torch.randn(rows, 4, dtype=torch.float64, generator=draw).requires_grad_() for rows in X.shape)
    users, items = X.nonzero()
    return X, registered().get(name), U, V, Batch(users.astype(np.int64), items.astype(np.int64), None, None)


@pytest.mark.parametrize("left_out", [False, True])
@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_over_the_catalogue_is_its_sampled_form_with_every_item_drawn_once(name, left_out):
    X, loss, U, V, batch = set_up(name)
    if left_out and "catalogue" in loss.needs:
        pytest.skip("its sum runs over all items by definition")
    p = params(name, **N_OTHER.get(name, {})).loss
    sizes, leaves = Sizes(*X.shape, 4), [U, V]

    def state():
        return [loss.state(p, sizes, torch.Generator().manual_seed(0)).double()] if loss.state else []

    expected, known = [], state()
    for s, row in sampled_form(loss, p, U, V, X, left_out):
        if hasattr(p, "K"):  # the threshold that the catalogue gives is the one that the sampled form learns or updates
            known[0].beta.data[s.users] = row.detach().topk(p.K).values[-1]
            if hasattr(known[0], "refreshing"):
                known[0].refreshing = False
        expected.append(loss.function(s, p, *known))
    expected = torch.cat(expected)
    s = catalogue_scores_of(loss, batch, Rows(U, None), V, X, left_out)
    found = loss.function(s, p, *state())
    assert_allclose(found.detach(), expected.detach(), rtol=1e-12, atol=1e-12)
    weight = torch.linspace(1, 2, len(found), dtype=torch.float64)
    for one, other in zip(gradients((found * weight).sum(), leaves), gradients((expected * weight).sum(), leaves), strict=True):
        assert_allclose(one, other, rtol=1e-11, atol=1e-12)
        assert math.isfinite(float(other.abs().max())) and other.abs().max() > 0


@pytest.mark.parametrize("left_out", [False, True])
def test_a_function_that_has_no_method_of_its_own_can_be_averaged(left_out):
    """For a loss in a file of the user's own: here softplus, which has one."""
    X, loss, U, V, batch = set_up("bce")
    mine, theirs = (catalogue_scores_of(loss, batch, Rows(U, None), V, X, left_out).others for _ in range(2))
    sides = mine.mean(softplus), theirs.mean_softplus()
    assert_allclose(sides[0].detach(), sides[1].detach(), rtol=1e-12)
    weight = torch.linspace(1, 2, len(sides[0]), dtype=torch.float64)
    for one, other in zip(*(gradients((side * weight).sum(), [U, V]) for side in sides), strict=True):
        assert_allclose(one, other, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("left_out", [False, True])
def test_in_its_own_epochs_the_adversary_ascends_alone(left_out):
    X, loss, U, V, batch = set_up("advinfonce")
    p = params("advinfonce", T_adv=1).loss
    state = loss.state(p, Sizes(*X.shape, 4), torch.Generator().manual_seed(0)).double()
    state.begin_epoch(1)
    found = loss.function(catalogue_scores_of(loss, batch, Rows(U, None), V, X, left_out), p, state)
    expected = torch.cat([loss.function(each, p, state) for each, _ in sampled_form(loss, p, U, V, X, left_out)])
    assert_allclose(found.detach(), expected.detach(), rtol=1e-12)
    leaves = [state.user, state.item, U, V]
    sides = [gradients((rows * torch.linspace(1, 2, len(rows))).sum(), leaves) for rows in (found, expected)]
    for number, (one, other) in enumerate(zip(*sides, strict=True)):
        assert_allclose(one, other, rtol=1e-10, atol=1e-13)
        assert (other.abs().max() > 0) == (number < 2)


def test_a_list_longer_than_the_catalogue_ends_with_it():
    X, loss, U, V, batch = set_up("sl-at-k")
    rows = []
    for K in (X.shape[1], X.shape[1] + 5):
        p = params("sl-at-k", K=K).loss
        state = loss.state(p, Sizes(*X.shape, 4), torch.Generator()).double()
        rows.append(loss.function(catalogue_scores_of(loss, batch, Rows(U, None), V, X, False), p, state).detach())
    assert_array_equal(*rows)


def test_the_thresholds_are_exact_quantiles_and_are_not_trained():
    X = interactions()
    trainer = trainer_of(X, "talos", objective="catalogue", K=3, users_per_step=5)
    before = trainer.state.beta.detach().clone()
    trainer.epoch(1, 1.0)
    assert_array_equal(trainer.state.beta.detach(), before)


@pytest.mark.parametrize("gap", [1.0, 10.0, 30.0, 100.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_an_own_item_far_above_the_others_that_is_left_out_takes_no_part(gap, dtype):
    U = torch.tensor([[1.0, 0.0]], dtype=dtype)
    V = torch.tensor([[gap, 0], [0, 1], [-0.05 * gap, 1], [-0.1 * gap, 1]], dtype=dtype, requires_grad=True)
    of = torch.zeros(1, dtype=torch.int64)
    others = UserCatalogue(U, V, of, OwnItems((U @ V.T)[0, :1], of, of, 1), np.array([0, 1]), np.array([0]), True, None)
    found = others.logsumexp(0.2)
    logits = (U @ V.detach().T)[0, 1:] / 0.2
    assert_allclose(found.detach()[0], torch.logsumexp(logits, 0), rtol=1e-5)
    (gradient,) = torch.autograd.grad(found.sum(), V)
    assert_allclose(gradient[:, 0] * 0.2, [0, *torch.softmax(logits, 0)], atol=1e-5)


@pytest.mark.parametrize("tau", [1.0, 0.1, 0.02])
@pytest.mark.parametrize("left_out", [False, True])
def test_powers_of_sigmoids_far_below_their_shift_do_not_vanish(tau, left_out):
    U = torch.tensor([[1.0, 0.0]])
    V = torch.tensor([[0.0, 0], [-1, 1], [-2, 1]], requires_grad=True)
    of = torch.zeros(1, dtype=torch.int64)
    others = UserCatalogue(U, V, of, OwnItems((U @ V.T)[0, :1], of, of, 1), np.array([0, 1]), np.array([0]), left_out, None)
    found = others.log_sum_sigmoid(torch.full((1,), 10.0), tau)
    logits = logsigmoid((U.double() @ V.detach().double().T)[0, int(left_out) :] - 10) / tau
    assert_allclose(found.detach()[0], torch.logsumexp(logits, 0), rtol=1e-5)
    (gradient,) = torch.autograd.grad(found.sum(), V)
    assert_allclose(gradient[int(left_out) :, 0] * tau, torch.softmax(logits, 0), atol=1e-4)


# The fit


def test_a_step_has_all_interactions_of_its_users_and_an_epoch_has_every_interaction_once():
    X = interactions(empty=True)
    trainer = trainer_of(X, "sl", objective="catalogue", users_per_step=5)
    batches = [*trainer._chosen(1)]
    assert_array_equal(np.sort(np.concatenate(batches)), np.arange(X.nnz))
    for chosen in batches:
        users = np.unique(trainer.users[chosen])
        assert len(users) <= 5 and len(chosen) == np.diff(X.indptr)[users].sum()


def test_a_fit_over_the_catalogue_resumes_to_the_bit():
    expect_resumable("talos", "mf", objective="catalogue", users_per_step=5)


@pytest.mark.parametrize("name", ["aatp", "talos", "sl", "uib", "llpauc", "ccl"])
def test_a_user_without_other_items_is_refused(name):
    X = interactions().tolil()
    X[2, :] = 1
    with pytest.raises(
        DataError, match=rf"row 2 \(from 0\) of .* has all {X.shape[1]} items: no negative is left; use sampler=uniform-all"
    ):
        trainer_of(sp.csr_array(X), name, objective="catalogue", sampler="uniform-other")
    trainer = trainer_of(sp.csr_array(X), name, objective="catalogue", sampler="uniform-all")
    assert np.isfinite(trainer.epoch(1, 1.0))


def test_what_has_no_such_form_is_refused_with_those_that_have():
    for name, why in (
        ("sparsemax", "the positive must be one of them"),
        ("softmax", "the positive must be one of them"),
        ("rg2-sgd", "scores of positives outside them would have no bound"),
        ("debiased-mse", "it subtracts the part of the user's own items itself"),
    ):
        with pytest.raises(ConfigError, match=f"sampler=uniform-other: this loss needs all items, because {why}"):
            params(name, objective="catalogue", sampler="uniform-other")
    with pytest.raises(ConfigError, match="sampler=uniform-other: this loss needs all items, because scores of positives"):
        params("rg2-sampled-sgd", sampler="uniform-other")
    with pytest.raises(ConfigError, match=r"objective=catalogue: this loss has no form for it; use one of .*talos"):
        params("bpr", objective="catalogue")
    for values, problem in (
        ({"sampler": "popularity"}, "objective=catalogue needs sampler"),
        ({"shared_negatives": True}, "objective=catalogue draws no negatives: leave shared_negatives out"),
    ):
        with pytest.raises(ConfigError, match=problem):
            params("sl", objective="catalogue", **values)
    with pytest.raises(ConfigError, match="float32 only"):
        params("sl", objective="catalogue", precision="bfloat16")


@pytest.mark.parametrize("users_per_step", [1, 5, 100])
@pytest.mark.parametrize("reduction", ["interaction", "user"])
def test_steps_of_users_weigh_each_interaction_or_user_equally(users_per_step, reduction):
    """The gradients of an epoch's steps from the same start add up to that of the mean over all interactions, times the number
    of mean batches: an active user is in large batches, whose mean alone would give its interactions less weight.
    """
    X = interactions(empty=True)

    def gradient_of_an_epoch(users_per_step):
        trainer = trainer_of(X, "sl", objective="catalogue", users_per_step=users_per_step, reduction=reduction, init_scale=1.0)
        totals = [torch.zeros_like(table) for table in (trainer.encoder.users, trainer.encoder.items)]
        for optimizer, total in zip(trainer.learner.optimizers, totals, strict=True):
            optimizer.step = lambda ids, grad, rate, total=total: total.index_add_(0, ids, grad)
        trainer.epoch(1, 1.0)
        return totals

    active = X.shape[0] - 1
    for part, whole in zip(gradient_of_an_epoch(users_per_step), gradient_of_an_epoch(1000), strict=True):
        assert whole.abs().max() > 0
        assert_allclose(part, whole * active / min(users_per_step, active), rtol=1e-9, atol=1e-12)
