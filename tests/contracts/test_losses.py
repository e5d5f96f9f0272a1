"""What every registered loss keeps, alone and trained with every encoder; a new file in losses/ or models/ is held to it."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from rankbench.core.errors import ConfigError
from rankbench.data.blocks import csr_from_pairs
from rankbench.experiment.execution import Execution
from rankbench.experiment.fit import fit as fit_configs
from rankbench.experiment.job import configure
from rankbench.fitting.checkpoints import Checkpoints
from rankbench.fitting.recommenders import FactorRecommender
from rankbench.losses.others import ScoreTable
from rankbench.losses.spec import Ragged, Scores, Sizes, registered
from rankbench.models.spec import registered as encoders

LOSSES = [loss.name for loss in registered()]
EVERY_LOSS = pytest.mark.parametrize("name", LOSSES)
EVERY_MODEL = pytest.mark.parametrize("model", encoders().names())
RANGE = {"dot": (-50.0, 50.0), "cosine": (-1.0, 1.0), "half-cosine": (-0.5, 0.5), "distance": (-4.0, 0.0)}
N_USERS, N_ITEMS, DIM = 12, 20, 4


def batch(loss, p, dtype=torch.float64, seed=0, ends=False):
    """Six rows of random scores in the loss's range, or at its `ends`; leaves that collect gradients."""
    rng = np.random.default_rng(seed)
    low, high = RANGE[loss.similarity]
    B, n = 6, 5

    def draw(*shape):
        values = rng.choice([low, high], shape) if ends else rng.uniform(low, high, shape) * 0.3
        return torch.tensor(values, dtype=dtype, requires_grad=True)

    users = torch.tensor(rng.integers(0, N_USERS, B))
    whole = draw(B, N_ITEMS)
    rival = draw(B, n)
    return Scores(
        pos=draw(B),
        neg=draw(B, n),
        n_items=N_ITEMS,
        n_interactions=torch.tensor(rng.integers(1, 5, B), dtype=dtype),
        users=users,
        items=torch.tensor(rng.integers(0, N_ITEMS, B)),
        neg_items=torch.tensor(rng.integers(0, N_ITEMS, (B, n))),
        logq=torch.full((B, n), -float(np.log(N_ITEMS)), dtype=dtype),
        logq_pos=torch.full((B,), -float(np.log(N_ITEMS)), dtype=dtype),
        user_vectors=torch.tensor(rng.normal(size=(B, DIM)) * 0.3, dtype=dtype, requires_grad=True),
        extra_positives=draw(B, getattr(p, "n_positives", 1)),
        all_positives=Ragged(draw(2 * B).detach(), torch.arange(B).repeat_interleave(2)),
        catalogue=ScoreTable(whole),
        rival=lambda k: rival.gather(1, k[:, None])[:, 0],
    )


def evaluate(loss, s, p, state=None):
    return loss.function(s, p, state) if loss.state else loss.function(s, p)


def new_state(loss, p, dtype=torch.float64):
    if loss.state is None:
        return None
    state = loss.state(p, Sizes(N_USERS, N_ITEMS, DIM), torch.Generator().manual_seed(1)).to(dtype)
    state.begin_epoch(1)
    return state


def at_the_ends(params):
    """The default parameters, and each one at the ends of the range that its papers search, as its help states it."""
    yield params()
    for field in dataclasses.fields(params):
        found = re.fullmatch(r"(\S+) to (\S+)", field.metadata["search"])
        for end in found.groups() if found else ():
            yield dataclasses.replace(params(), **{field.name: type(field.default)(float(end))})


def test_the_contract_found_the_losses_and_the_encoders():
    assert len(LOSSES) >= 28
    assert {"mf", "lightgcn", "xsimgcl"} <= set(encoders().names())


@EVERY_LOSS
def test_a_worked_number_of_its_paper_is_reproduced_somewhere(name):
    text = "".join(path.read_text(encoding="utf-8") for path in (Path(__file__).parents[1] / "losses").glob("test_*.py"))
    assert f'worked("{name}")' in text, f"no test in tests/losses is marked worked({name!r})"


@EVERY_LOSS
def test_values_and_gradients_are_finite_at_the_ends_of_scores_and_parameters(name):
    loss = registered().get(name)
    checked = 0
    for p in at_the_ends(loss.params):
        for ends in (True, False):
            s = batch(loss, p, torch.float32, ends=ends)
            state = new_state(loss, p, torch.float32)
            rows = evaluate(loss, s, p, state)
            assert rows.shape == (6,) and torch.isfinite(rows).all(), p
            total = rows.sum()
            if state and (own := state.own_loss(s)) is not None:
                total = total + own
            total.backward()
            leaves = [s.pos, s.neg, s.extra_positives, s.catalogue.values, s.user_vectors]
            leaves += list(state.parameters()) if state else []
            gradients = [leaf.grad for leaf in leaves if leaf.grad is not None]
            assert gradients, p
            assert all(torch.isfinite(gradient).all() for gradient in gradients), p
            checked += 1
    assert checked >= 2


@EVERY_LOSS
def test_a_loss_declares_whether_it_asks_for_the_scores_of_the_whole_catalogue(name, monkeypatch):
    asked = []
    monkeypatch.setattr(ScoreTable, "of_all", lambda self, function: asked.append(name) or function(self.values))
    loss = registered().get(name)
    p = loss.params()
    evaluate(loss, batch(loss, p), p, new_state(loss, p))
    assert bool(asked) == loss.whole_catalogue


@EVERY_LOSS
def test_the_order_of_rows_and_of_negatives_changes_nothing(name):
    loss = registered().get(name)
    p = loss.params()
    s = batch(loss, p)
    before = evaluate(loss, s, p, new_state(loss, p))
    negatives = torch.tensor([3, 0, 4, 1, 2])
    moved = dataclasses.replace(
        s, neg=s.neg[:, negatives], neg_items=s.neg_items[:, negatives], logq=s.logq[:, negatives],
        rival=lambda k: s.rival(negatives[k]),
    )  # fmt: skip
    assert_allclose(evaluate(loss, moved, p, new_state(loss, p)).detach(), before.detach(), rtol=1e-9, atol=1e-12)
    rows = torch.tensor([5, 2, 0, 1, 4, 3])
    turned = rows_of(s, rows)
    assert_allclose(evaluate(loss, turned, p, new_state(loss, p)).detach(), before[rows].detach(), rtol=1e-9, atol=1e-12)


@EVERY_LOSS
def test_every_row_twice_has_the_same_mean(name):
    loss = registered().get(name)
    p = loss.params()
    s = batch(loss, p)
    once = evaluate(loss, s, p, new_state(loss, p)).mean()
    twice = evaluate(loss, rows_of(s, torch.arange(6).repeat(2)), p, new_state(loss, p)).mean()
    assert_allclose(twice.detach(), once.detach(), rtol=1e-9, atol=1e-12)


def rows_of(s, rows):
    """The batch with only `rows`, in that order."""
    fields = ("pos", "neg", "n_interactions", "users", "items", "neg_items", "logq", "logq_pos", "user_vectors")
    chosen = {name: getattr(s, name)[rows] for name in (*fields, "extra_positives")}
    lists = s.all_positives.values.reshape(6, 2)[rows]
    positives = Ragged(lists.reshape(-1), torch.arange(len(rows)).repeat_interleave(2))
    rival = lambda k: torch.stack([s.rival(torch.full((6,), int(k[b])))[rows[b]] for b in range(len(rows))])  # noqa: E731
    whole = ScoreTable(s.catalogue.values[rows])
    return dataclasses.replace(s, **chosen, all_positives=positives, catalogue=whole, rival=rival)


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(5)
    met = rng.random((N_USERS, N_ITEMS)) < 0.25
    met[0], met[:, 3] = False, False  # a user and an item without interactions
    return csr_from_pairs(*np.nonzero(met), met.shape)


def fit(X, name, model, seed=0, checkpoints=None, tell=lambda step: None, **params):
    given = {"model": model, "embedding_dim": DIM, "epochs": 3, "batch_size": 16, "n_negatives": 6, "patience": 0} | params
    execution = Execution(checkpoints=checkpoints)
    return fit_configs((configure(name, given),), X, "float32", seed, execution, lambda step: tell(step) or {}).models[0]


@EVERY_LOSS
@EVERY_MODEL
def test_training_gives_finite_vectors_and_the_same_bits_for_the_same_seed(name, model, X):
    first, second, other = fit(X, name, model), fit(X, name, model), fit(X, name, model, seed=1)
    assert isinstance(first, FactorRecommender)
    assert first.U.shape[0] == N_USERS and first.V.shape[0] == N_ITEMS
    assert np.isfinite(first.U).all() and np.isfinite(first.V).all()
    assert_array_equal(first.U, second.U)
    assert_array_equal(first.V, second.V)
    assert (first.U != other.U).any()


class Stop(Exception):
    pass


@EVERY_LOSS
@pytest.mark.parametrize("model", ["mf", "xsimgcl"])
def test_a_fit_that_goes_on_from_a_checkpoint_ends_as_one_that_was_never_stopped(name, model, X, tmp_path):
    params = {"epochs": 4, "schedule": "plateau"}
    whole = fit(X, name, model, **params)
    checkpoints = Checkpoints(tmp_path / "c", resume=True)

    def tell(step):
        if step.number == 3:
            raise Stop

    with pytest.raises(Stop):
        fit(X, name, model, tell=tell, checkpoints=checkpoints, **params)
    assert checkpoints.last().number == 2
    numbers = []
    resumed = fit(X, name, model, tell=lambda step: numbers.append(step.number), checkpoints=checkpoints, **params)
    assert numbers == [3, 4]
    assert_array_equal(resumed.U, whole.U)
    assert_array_equal(resumed.V, whole.V)


@EVERY_LOSS
def test_parameters_of_a_method_say_what_they_are(name):
    for field in configure(name, {}).spec.fields():
        assert field.metadata["help"] and field.metadata["search"], field.name


def test_a_parameter_of_another_encoder_is_refused():
    with pytest.raises(ConfigError, match="model mf has no parameter 'n_layers'"):
        configure("bpr", {"n_layers": 1})


def test_an_unknown_encoder_gets_a_suggestion():
    with pytest.raises(ConfigError, match="did you mean lightgcn"):
        configure("bpr", {"model": "lightgnc"})
