"""Training an encoder that scores pairs: which losses it takes, what they read, and what a fit learns."""

import numpy as np
import pytest
import torch
from fits import N_ITEMS, N_USERS, driven, interactions, params, trainer_of
from numpy.testing import assert_allclose, assert_array_equal

from rankbench.contracts.losses import refused
from rankbench.contracts.training import expect_resumable
from rankbench.core.errors import ConfigError
from rankbench.experiment.job import configure
from rankbench.fitting.recommenders import score
from rankbench.losses.spec import registered
from rankbench.models.spec import registered as encoders
from rankbench.training.batches import Batch, Rows
from rankbench.training.negatives import Negatives
from rankbench.training.scoring import own_items, scores_of

REFUSED = {
    "ccl": "it needs cosines, because its margin is a cosine",
    "cml": "it needs distances of vectors",
    "debiased-ccl": "it needs cosines, because its margin is a cosine",
    "debiased-infonce": "it needs cosines, because its floor is the smallest value of a cosine",
    "psl": "it needs cosines, because its surrogates need half cosines",
    "recall-at-k-catalogue": "it reads the scores of all items",
    "rg2-sgd": "it reads the scores of all items",
    "rgx-sgd": "it reads the scores of all items",
    "sml": "it needs distances of vectors",
    "softmax": "it reads the scores of all items",
    "sparsemax": "it reads the scores of all items",
    "uib": "it reads the vectors of users",
}


def test_the_losses_that_need_more_than_scores_of_pairs_are_refused_and_no_others():
    found = {loss.name: refused(loss, encoders().get("neumf")) for loss in registered()}
    assert {name for name, refusal in found.items() if refusal} == set(REFUSED)
    for name, reason in REFUSED.items():
        assert found[name].startswith(f"{name}: {name} does not train model=neumf, which scores pairs: {reason}"), found[name]
        assert "\n" not in found[name]
    for name in ("mf", "lightgcn", "xsimgcl"):
        assert not any(refused(loss, encoders().get(name)) for loss in registered())


@pytest.mark.parametrize(
    ("method", "values", "message"),
    [
        ("infonce", {}, "scores pairs: it has no cosine; use similarity=dot"),
        ("bpr", {"similarity": "cosine"}, "scores pairs: it has no cosine; use similarity=dot"),
        ("bce", {"objective": "catalogue"}, "scores pairs: objective=catalogue needs products of vectors"),
        ("bpr", {"rank_by": "dot"}, "scores pairs: rank_by=dot needs products of vectors"),
        ("bpr", {"temperature": 0.5}, "scores pairs: temperature and precision are those of products"),
        ("bpr", {"precision": "bfloat16"}, "scores pairs: temperature and precision are those of products"),
        ("bpr", {"network": "he", "gmf_dim": 64}, "bpr: network=he needs 0 < gmf_dim < embedding_dim, got 64 and 64"),
    ],
)
def test_parameters_that_mean_nothing_for_pairs_are_refused_before_the_fit(method, values, message):
    with pytest.raises(ConfigError, match=message):
        configure(method, {"model": "neumf"} | values)


@pytest.mark.parametrize("shared", [False, True])
def test_every_field_of_the_scores_is_the_network_of_its_pair(shared):
    X = interactions()
    trainer = trainer_of(X, "debiased-mse", model="neumf")
    encoder = trainer.encoder
    U, V = (table.detach() for table in (encoder.users, encoder.items))
    with torch.no_grad():
        table = encoder.pair_scores(U, V[None]).numpy()
    users, items = np.array([3, 1, 3]), np.array([5, 0, 19])
    drawn = np.array([[4, 4]]) if shared else np.array([[4, 4], [0, 7], [19, 2]])
    extra = np.array([[1, 2], [3, 4], [5, 6]])
    negatives = Negatives(drawn, np.zeros_like(drawn, float), np.zeros(3))
    batch = Batch(users, items, negatives, extra)
    rows = Rows.of(U, np.array([1, 3])), Rows(V, None)
    s = scores_of(trainer.loss, batch, *rows, X, V, own_items(X, users), pairs=encoder)
    assert_allclose(s.pos.detach(), table[users, items])
    assert_allclose(s.neg.detach(), table[users[:, None], drawn])
    assert_allclose(s.extra_positives.detach(), table[users[:, None], extra])
    row, ids = (each.numpy() for each in own_items(X, users))
    assert_allclose(s.all_positives.values, table[users[row], ids])
    assert not s.all_positives.values.requires_grad and s.pos.requires_grad and s.neg.requires_grad


@pytest.mark.parametrize("network", ["ngcf", "he"])
def test_a_step_of_the_rows_is_a_step_of_adam_on_all_parameters(network, monkeypatch):
    """The learner of single rows, and PyTorch's Adam over every table and layer."""
    X, values = interactions(empty=True), {"model": "neumf", "network": network, "embedding_dim": 10}
    ours = trainer_of(X, "bpr", **values)
    monkeypatch.setattr("rankbench.training.learner.compiled", lambda device: False)
    plain = trainer_of(X, "bpr", **values)
    monkeypatch.undo()
    assert type(ours.learner).__name__ == "RowLearner" and type(plain.learner).__name__ == "DenseLearner"
    for number in (1, 2):
        assert ours.epoch(number, 1.0) == pytest.approx(plain.epoch(number, 1.0), rel=1e-9)
    for name, array in vars(plain.model()).items():
        assert_allclose(getattr(ours.model(), name), array, rtol=1e-6, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("values", [{"hidden_dropout": 0.3}, {"optimizer": "row-adam", "weight_decay": 0.01}], ids=str)
def test_a_fit_resumes_to_the_bit(values):
    expect_resumable("bpr", "neumf", **values)


def test_a_model_is_not_changed_by_the_steps_after_it():
    X, models = interactions(), []
    fit = driven(X, "bpr", model="neumf", epochs=2, tell=lambda step, valid: models.append(step.model()))
    before = [{name: array.copy() for name, array in vars(model).items()} for model in models]
    assert len(models) >= 2 and not np.array_equal(models[0].network, models[-1].network)
    for model, arrays in zip(models, before, strict=True):
        for name, array in arrays.items():
            assert_array_equal(getattr(model, name), array)
    everyone = np.arange(N_USERS, dtype=np.int32)
    assert score(fit.model, everyone, X, slice(0, N_ITEMS)).shape == (N_USERS, N_ITEMS)


def test_the_parameters_of_a_record_are_those_that_the_network_reads():
    used = configure("bpr", {"model": "neumf"}).spec.used(params("bpr", model="neumf"))
    assert {"network", "hidden_layers", "hidden_dim", "hidden_dropout"} <= set(used) and "gmf_dim" not in used
    assert "gmf_dim" in configure("bpr", {}).spec.used(params("bpr", model="neumf", network="he", embedding_dim=10))
