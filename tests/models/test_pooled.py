"""YouTubeNet and SimpleX, whose users are pooled from the vectors of their items."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from graphs import U, V, X
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from rankbench.experiment.fit import fit
from rankbench.experiment.job import configure
from rankbench.fitting.recommenders import FactorRecommender, LowRankRecommender, score
from rankbench.losses.spec import Scores
from rankbench.losses.spec import registered as losses
from rankbench.models.simplex import SimpleX, SimpleXModel
from rankbench.models.youtubenet import YouTubeNet, YouTubeNetModel


def youtubenet(**values):
    return YouTubeNetModel(X, YouTubeNet(**values), U.clone(), V.clone(), torch.Generator())


def simplex(U, V, X, **values):
    made = SimpleXModel(X, SimpleX(**values), U.clone(), V.clone(), torch.Generator().manual_seed(3))
    with torch.no_grad():
        made.values.weight[:] = torch.tensor([[0.5, 1], [-1, 0.5]])
        if made.keys is not None:
            made.keys.weight[:] = torch.tensor([[1, -0.5], [0.25, 0.5]])
            made.keys.bias[:] = torch.tensor([0.1, -0.1], dtype=torch.float64)
    return made


def test_the_mean_of_a_history_and_the_worked_loss():
    """User 0 has items 0 and 1: p = (0.5, 1), and the softmax loss of item 0 against items 2 and 1 is 1.10413061."""
    encoder = youtubenet().eval()
    users, items = encoder()
    assert_allclose(users[0].detach(), [0.5, 1], rtol=1e-14)
    scores = (items @ users[0]).detach()
    assert_allclose(scores, [1, 1.5, 0], rtol=1e-14)
    spec = losses().get("sampled-softmax")
    one = torch.ones(1, dtype=torch.float64)
    s = Scores(
        pos=scores[:1], neg=scores[[2, 1]][None], n_items=3, n_interactions=2 * one, users=torch.zeros(1).long(),
        items=torch.zeros(1).long(), logq=torch.full((1, 2), -np.log(3.0), dtype=torch.float64), logq_pos=-np.log(3.0) * one,
    )  # fmt: skip
    assert spec.function(s, spec.params(correction="nq_N")).item() == pytest.approx(1.10413061, abs=1e-8)


def test_a_row_in_training_leaves_its_own_item_out():
    encoder = youtubenet().train()
    rows = encoder.row_vectors(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 2]))
    assert_allclose(rows.detach(), V[[1, 0, 1]], rtol=1e-14)
    lone = YouTubeNetModel(sp.csr_array(np.eye(2, 3)), YouTubeNet(), U.clone(), V.clone(), torch.Generator())
    assert not lone.row_vectors(torch.tensor([0]), torch.tensor([0])).any()


def test_a_tower_is_relu_layers():
    encoder = youtubenet(n_towers=1).eval()
    with torch.no_grad():
        encoder.tower[0].weight[:] = torch.tensor([[1, -1], [0.5, 0.5]]).T  # y = Wᵀ x in the orientation of the example
        encoder.tower[0].bias[:] = torch.tensor([0, 0.1], dtype=torch.float64)
    assert_allclose(encoder()[0][0].detach(), [1, 0.1], rtol=1e-14)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"aggregator": "mean"}, [1.125, 0]),
        ({"aggregator": "user_attention"}, [1.17860754, -0.10721507]),
        ({"aggregator": "user_attention", "pad": 4}, [0.86978794, -0.05842381]),
    ],
    ids=str,
)
def test_the_worked_vectors_of_simplex(values, expected):
    history = torch.tensor([[0, 1], [1, 1]], dtype=torch.float64)
    encoder = simplex(U[:1], history, sp.csr_array(np.ones((1, 2))), own_weight=0.5, **values).eval()
    users, _ = encoder()
    assert_allclose(users[0].detach(), expected, atol=1e-8)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_bags_and_attention_are_those_of_a_loop_over_rows(data):
    seed = data.draw(st.integers(0, 10_000))
    rng = np.random.default_rng(seed)
    met = sp.csr_array(rng.random((6, 9)) < 0.4, dtype=np.float32)
    if not met.nnz:
        return
    about = {
        "aggregator": data.draw(st.sampled_from(["mean", "user_attention", "self_attention"])),
        "own_weight": data.draw(st.sampled_from([0.0, 0.3, 1.0])),
        "shared_items": data.draw(st.booleans()),
        "pad": data.draw(st.sampled_from([0, 12])),
    }
    users, items = (torch.from_numpy(rng.normal(size=(n, 3))) for n in met.shape)
    encoder = SimpleXModel(met, SimpleX(**about), users, items, torch.Generator().manual_seed(seed))
    row, column = met.nonzero()
    found = encoder.row_vectors(torch.from_numpy(row.astype(np.int64)), torch.from_numpy(column.astype(np.int64)))
    table = encoder.items if encoder.history is None else encoder.history
    for at, (user, item) in enumerate(zip(row, column, strict=True)):
        others = [j for j in met[[user]].indices if j != item]
        e = table[others]
        if encoder.keys is None:
            weight = torch.full((len(others),), 1 / max(1, len(others)), dtype=torch.float64)
        else:
            query = users[user] if about["aggregator"] == "user_attention" else encoder.query
            powers = (torch.tanh(e @ encoder.keys.weight.T + encoder.keys.bias) @ query).exp()
            weight = powers / (powers.sum() + (about["pad"] - len(others) if about["pad"] else 0))
        pooled = (weight[:, None] * e).sum(dim=0) if others else torch.zeros(3, dtype=torch.float64)
        expected = about["own_weight"] * users[user] + (1 - about["own_weight"]) * encoder.values.weight @ pooled
        assert_allclose(found[at].detach(), expected.detach(), rtol=1e-10, atol=1e-12)


def test_the_gradient_of_attention_is_that_of_finite_differences():
    encoder = simplex(U, V, X, aggregator="user_attention", pad=3)
    rows, columns = torch.tensor([0, 1, 1]), torch.tensor([0, 1, 2])

    def vectors(users, items):
        return encoder.attended(users[rows], encoder.without(rows, columns), items)

    assert torch.autograd.gradcheck(vectors, (U.clone().requires_grad_(), V.clone().requires_grad_()))


@pytest.mark.parametrize(
    ("model", "form"),
    [({"model": "youtubenet"}, LowRankRecommender), ({"model": "youtubenet", "n_towers": 1}, FactorRecommender),
     ({"model": "simplex", "aggregator": "user_attention", "shared_items": False}, FactorRecommender)],
    ids=str,
)  # fmt: skip
def test_a_fit_learns_and_its_model_has_the_right_form(model, form):
    rng = np.random.default_rng(1)
    group = np.arange(60) % 3
    near = rng.random((60, 30)) < np.where(group[:, None] == np.arange(30) % 3, 0.5, 0.02)
    near[np.arange(60), group] = True
    data = sp.csr_array(near, dtype=np.float32)
    values = {"embedding_dim": 8, "epochs": 30, "batch_size": 64, "n_negatives": 10, "patience": 0, "learning_rate": 0.05}
    config = configure("sampled-softmax", values | model)
    found = fit((config,), data, "float32", 0).models[0]
    assert type(found) is form
    table = score(found, np.arange(60), data, slice(None))
    same = group[:, None] == np.arange(30) % 3
    assert table[same].mean() > table[~same].mean() + table.std()
    again = fit((config,), data, "float32", 0).models[0]
    assert np.array_equal(score(again, np.arange(60), data, slice(None)), table)
    assert config.spec.scores_new_users(config.params) == (form is LowRankRecommender)
    if form is LowRankRecommender:  # a user who was not fitted, with the history of one who was
        new = sp.csr_array(data[[4]])
        assert_allclose(score(found, np.array([0]), new, slice(None))[0], table[4], rtol=1e-5)


def test_simplex_with_its_own_vectors_alone_is_mf():
    rng = np.random.default_rng(2)
    data = sp.csr_array(rng.random((30, 20)) < 0.3, dtype=np.float32)
    values = {"embedding_dim": 8, "epochs": 3, "batch_size": 32, "n_negatives": 10, "patience": 0, "w": 5, "margin": 0.3}
    found, expected = (
        score(fit((configure("ccl", values | model),), data, "float64", 0).models[0], np.arange(30), data, slice(None))
        for model in ({"model": "simplex", "own_weight": 1}, {"model": "mf"})
    )
    assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_a_vector_per_row_cannot_share_sums_over_the_catalogue():
    from rankbench.core.errors import ConfigError

    with pytest.raises(ConfigError, match=r"objective=catalogue: model simplex has a vector per interaction"):
        configure("sl", {"model": "simplex", "objective": "catalogue"})
