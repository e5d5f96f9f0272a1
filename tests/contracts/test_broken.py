"""The contract finds what is broken: each fault below fails the check that is made for it."""

import dataclasses
import sys

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
import torch
from torch.nn.functional import softplus

from rankbench.contracts import encoders, losses, metrics, readers, solvers
from rankbench.contracts import protocols as split_protocols
from rankbench.contracts.check import BrokenError
from rankbench.contracts.plugin import check_plugin
from rankbench.contracts.training import interactions
from rankbench.core import plugins
from rankbench.core.errors import ConfigError
from rankbench.core.params import Choice, Params, Range, param
from rankbench.core.rng import stream
from rankbench.data.protocols.spec import TEST, TRAIN, VALID, SplitSpec, protocol, protocols
from rankbench.data.readers import READERS, delimited, reads, user_lines
from rankbench.evaluation.metrics import METRICS
from rankbench.experiment.methods import registered
from rankbench.fitting.checkpoints import State
from rankbench.fitting.method import METHODS, direct, iterative
from rankbench.fitting.pair_recommender import PairRecommender
from rankbench.fitting.recommenders import FactorRecommender, LowRankRecommender
from rankbench.fitting.step import Step
from rankbench.fitting.stopping import Stopping
from rankbench.losses.spec import LOSSES, LossState, Twin, loss
from rankbench.models.propagation import Graph
from rankbench.models.spec import MODELS, EmbeddingModel, PairModel, model


@pytest.fixture(autouse=True)
def forgotten():
    """What a test registers is removed after it: this file stands for a plugin."""
    registered()
    plugin = plugins.Plugin("broken.py", "broken.py", __name__, "")
    with plugins.separate():
        plugins._loading.append(plugin)
        yield plugin
        plugins._loading.remove(plugin)
        plugins.unload(plugin)
    assert "broken" not in LOSSES and "broken" not in METHODS


def failed(contract, registry, name="broken", only=None):
    """The functions of the checks that fail, each with something to do: of all checks, or of `only` one."""
    checks = [check for check in contract.checks if only in (None, check.run.__name__)]
    findings = [contract._finding(name, registry.get(name), check) for check in checks]
    assert all(found.problem and found.advice and "\n" not in found.problem for found in findings if found.state == "failed")
    return {check.run.__name__ for check, found in zip(checks, findings, strict=True) if found.state == "failed"}


@dataclasses.dataclass(frozen=True)
class Mine(Params):
    margin: float = param(1.0, "margin", Range(0.1, 2), gt=0)
    form: str = param("bpr", "form", Choice("bpr", "square"))


def hinge(s, p):
    return (p.margin - s.pos[:, None] + s.neg).clamp(min=0).mean(dim=1)


def bpr_rows(s):
    return softplus(s.neg - s.pos[:, None]).mean(dim=1)


def by_form(s, p):
    return bpr_rows(s) if p.form == "bpr" else bpr_rows(s).square()


class Counter(LossState):
    """Remembers the number of batches where a checkpoint does not see it."""

    def __init__(self):
        super().__init__()
        self.seen = 0


def counting(s, p, state):
    state.seen += 1
    return hinge(s, p) * state.seen


class Biases(LossState):
    """Learns a number from scores that are not detached."""

    def __init__(self):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.zeros(()))

    def own_loss(self, s):
        return (s.pos - self.bias).square().mean()


def drawing(s, p):
    return hinge(s, p) * torch.rand(())


@pytest.mark.parametrize(
    ("function", "about", "expected"),
    [
        (lambda s, p: hinge(s, p).mean(), {}, "values_are_finite"),
        (lambda s, p: None, {}, "values_are_finite"),
        (lambda s, p: hinge(s, p)[: len(s.pos) // 2], {}, "values_are_finite"),
        (lambda s, p: sys.exit(), {}, "values_are_finite"),
        (lambda s, p: s.neg.exp().sum(dim=1) - s.pos + 0 * p.margin, {}, "values_are_finite"),
        (lambda s, p: hinge(s, p) / (s.pos - s.neg[:, 0]), {}, "odd_batches_are_finite"),
        (lambda s, p: (p.margin - s.pos[:, None] + s.neg).squeeze().clamp(min=0).sum(dim=-1), {}, "odd_batches_are_finite"),
        (lambda s, p: hinge(s, p) / s.neg.std(dim=1), {}, "odd_batches_are_finite"),
        (lambda s, p: hinge(s, p) * s.pos.detach(), {}, "gradients_are_derivatives"),
        (lambda s, p: softplus(s.neg.detach() - s.pos[:, None]).mean(dim=1), {}, "gradients_are_derivatives"),
        (lambda s, p: softplus(s.pos[:, None] - s.neg).mean(dim=1), {}, "fits_learn"),
        (lambda s, p: hinge(s, p) + s.neg[:, 0], {}, "order_changes_nothing"),
        (lambda s, p: hinge(s, p) + torch.arange(len(s.pos)), {}, "order_changes_nothing"),
        (lambda s, p: hinge(s, p) / len(s.pos), {}, "rows_stand_alone"),
        (lambda s, p: hinge(s, p) - hinge(s, p).mean(), {}, "rows_stand_alone"),
        (lambda s, p: hinge(s, p) + s.logq[len(s.pos) - 1].mean(), {}, "shared_negatives"),
        (hinge, {"whole_catalogue": True}, "whole_catalogue_is_declared"),
        (lambda s, p: s.catalogue.logsumexp() - s.pos, {"needs": ("catalogue",)}, "whole_catalogue_is_declared"),
        (hinge, {"over_catalogue": True}, "over_catalogue_is_true"),
        (lambda s, p: s.others.mean_relu(s.pos - p.margin), {"over_catalogue": True}, "over_catalogue_is_true"),
        (hinge, {"twin": lambda p: Twin("bpr", ())}, "twins_are_equal"),
        (by_form, {"twin": lambda p: Twin("bpr", ())}, "twins_are_equal"),
        (lambda s, p: bpr_rows(s) - s.extra_positives.mean(dim=1), {"twin": lambda p: Twin("bpr", ())}, "twins_are_equal"),
        (drawing, {}, "training_is_repeatable"),
        (lambda s, p, state: hinge(s, p), {"state": lambda p, sizes, generator: Biases()}, "own_loss_rests"),
        (counting, {"state": lambda p, sizes, generator: Counter()}, "fits_resume"),
    ],
)
def test_a_broken_loss(function, about, expected):
    function.__module__ = __name__
    loss("broken", Mine, similarity="dot", title="Broken", source="here", **about)(function)
    # A fault that the first check finds is shown to leave the others their line.
    assert expected in failed(losses.CONTRACT, LOSSES, only=None if expected == "values_are_finite" else expected)


def test_a_sound_loss_and_a_declared_gradient():
    loss("broken", Mine, similarity="dot", title="Sound", source="here")(lambda s, p: hinge(s, p))
    assert not failed(losses.CONTRACT, LOSSES)
    held = losses.CONTRACT.findings("broken", dataclasses.replace(LOSSES.get("broken"), gradient_differs="the margin is held"))
    problems = [found.problem for found in held if "held" in found.problem]
    assert problems == ["the gradient is not the derivative: the margin is held"]


def test_parameters_without_help_and_bounds():
    bad = dataclasses.make_dataclass("Bad", [("margin", float, 1.0)], frozen=True)
    loss("broken", bad, similarity="dot", title="Broken", source="here")(lambda s, p: hinge(s, p))
    assert "parameters_are_described" in failed(losses.CONTRACT, LOSSES)


def svd(X, seed, k=4, start=None):
    V = stream(seed, "svd").standard_normal((X.shape[1], k)) if start is None else start
    return np.linalg.qr(X.T @ (X @ V))[0]


def low_rank(V):
    return LowRankRecommender(V, V, np.zeros(len(V)))


def by_margin(X, p, seed):
    return low_rank(X.sum(axis=0)[:, None] ** (1.0 if p.margin < 1 else -1.0))


def destroy(X, p, seed):
    X.data[:] = 2
    return low_rank(np.ones((X.shape[1], 1)))


@pytest.mark.parametrize(
    ("fit", "about", "expected"),
    [
        (lambda X, p, seed: "a model", {}, "scores_are_finite"),
        (lambda X, p, seed: low_rank(np.full((X.shape[1], 1), np.nan)), {}, "scores_are_finite"),
        (lambda X, p, seed: low_rank(np.random.default_rng().random((X.shape[1], 2))), {}, "seeds_repeat"),
        (lambda X, p, seed: low_rank(stream(seed, "x").random((X.shape[1], 2))), {}, "seeded_is_declared"),
        (lambda X, p, seed: low_rank(np.ones((X.shape[1], 1))), {"seeded": True}, "seeded_is_declared"),
        (destroy, {}, "input_is_unchanged"),
        (by_margin, {"identity": lambda p: "broken"}, "identities_are_true"),
        (
            lambda X, p, seed: FactorRecommender(X.toarray()[:, :2] + 1, np.random.default_rng(0).random((X.shape[1], 2))),
            {},
            "strangers_are_scored",
        ),
        (
            lambda X, p, seed: FactorRecommender(
                np.random.default_rng(0).random((X.shape[0], 2)), np.random.default_rng(1).random((X.shape[1], 2))
            ),
            {"folds": False},
            "users_have_no_order",
        ),
    ],
)
def test_a_broken_solver(fit, about, expected):
    direct("broken", Mine, title="Broken", source="here", **about)(fit)
    assert expected in failed(solvers.CONTRACT, METHODS)


@dataclasses.dataclass(frozen=True)
class Svd(Stopping):
    iterations: int = param(8, "products", Range(2, 20), gt=0)


@pytest.mark.parametrize(("saves", "expected"), [(True, set()), (False, {"fits_resume"})])
def test_an_iterative_solver_that_forgets_its_state(saves, expected):
    def steps(X: sp.csr_array, p, seed, dtype, context, start):
        V = start.arrays["V"] if start and saves else stream(seed, "svd").standard_normal((X.shape[1], 4))
        number = start.number if start else 0
        while True:
            yield Step(number, 0.0, 0.0, lambda V=V: low_rank(V), lambda V=V, n=number: State(n, {"V": V}, {}))
            V, number = svd(X, seed, start=V), number + 1

    iterative("broken", Svd, title="Broken", source="here", seeded=True)(steps)
    assert failed(solvers.CONTRACT, METHODS) == expected


class Noisy(EmbeddingModel):
    def forward(self):
        return self.users + torch.rand(()), self.items


class Detached(EmbeddingModel):
    def forward(self):
        return self.users.detach(), self.items


class Short(EmbeddingModel):
    def forward(self):
        return self.users[1:], self.items


class NotPlain(EmbeddingModel):
    plain = True

    def forward(self):
        return self.users * 2, self.items


class PlainUntilTraining(EmbeddingModel):
    plain = True

    def forward(self):
        return (self.users * 2 if self.training else self.users), self.items


class PlainWithWeights(EmbeddingModel):
    plain = True

    def __init__(self, users, items):
        super().__init__(users, items)
        self.W = torch.nn.Parameter(torch.eye(users.shape[1], dtype=users.dtype))

    def forward(self):
        return self.users @ self.W, self.items


class NoPolynomial(EmbeddingModel):
    polynomial = (0.5, 0.5)

    def __init__(self, users, items):
        super().__init__(users, items)
        self.graph = Graph(interactions())

    def forward(self):
        return self.users, self.items


class Pairs(PairModel):
    """A network of one layer, of which the recommender gets the half, or whose scores depend on the other items of a row."""

    plain = True
    share, bound = 1.0, False

    def forward(self):
        return self.users, self.items

    def pair_scores(self, users, items):
        scores = torch.relu(users[:, None] + items).sum(dim=2)
        return scores - scores.mean(dim=1, keepdim=True) if self.bound else scores

    def recommender(self, users, items):
        A, C = (table.detach().numpy() for table in (users, items))
        none, ones = np.zeros(A.shape[1], A.dtype), np.ones(A.shape[1], A.dtype)
        return PairRecommender.of(A, self.share * C, A, C, np.diag(none), none, [], ones)


class Halved(Pairs):
    share = 0.5


class Bound(Pairs):
    bound = True


@pytest.mark.parametrize(
    ("cls", "work", "expected"),
    [(Pairs, 4, False), (Pairs, None, True), (NotPlain, 4, True), (Halved, 4, True), (Bound, 4, True)],
)
def test_a_broken_encoder_of_pairs(cls, work, expected):
    empty = dataclasses.make_dataclass("Empty", [], frozen=True)
    declared = work and (lambda p, embedding_dim: work)
    register = model("broken", empty, title="Broken", source="here", work=declared)
    register(lambda X, p, users, items, generator: cls(users, items))
    found = {check.run.__name__: check.run for check in encoders.CONTRACT.checks}["pairs_are_scored"]
    if expected:
        with pytest.raises(BrokenError):
            found(MODELS.get("broken"))
    else:
        found(MODELS.get("broken"))


class Reversed(EmbeddingModel):
    def forward(self):
        return self.users if self.training else -self.users, self.items


class OfRows(EmbeddingModel):
    """Has a vector per interaction, which is not declared."""

    def forward(self):
        return self.users, self.items

    def row_vectors(self, users, items):
        return self.users[users]


@pytest.mark.parametrize(
    ("cls", "expected"),
    [
        (Reversed, "fits_learn"),
        (OfRows, "gradients_arrive"),
        (Noisy, "evaluation_is_repeatable"),
        (Noisy, "training_is_repeatable"),
        (Detached, "gradients_arrive"),
        (Short, "vectors_are_finite"),
        (NotPlain, "shortcuts_are_true"),
        (PlainUntilTraining, "shortcuts_are_true"),
        (PlainWithWeights, "shortcuts_are_true"),
        (NoPolynomial, "shortcuts_are_true"),
    ],
)
def test_a_broken_encoder(cls, expected):
    empty = dataclasses.make_dataclass("Empty", [], frozen=True)
    model("broken", empty, title="Broken", source="here")(lambda X, p, users, items, generator: cls(users, items))
    assert expected in failed(encoders.CONTRACT, MODELS)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda hits, n_targets: hits.mean(), "values_are_finite"),
        (lambda hits, n_targets: n_targets / hits.sum(axis=1), "values_are_finite"),
        (lambda hits, n_targets: hits.sum(axis=1) / n_targets.max(), "users_are_separate"),
        (lambda hits, n_targets: 1.0 - hits.mean(axis=1), "better_lists_have_larger_values"),
        (lambda hits, n_targets: hits.argmax(axis=1) * 1.0, "better_lists_have_larger_values"),
        (lambda hits, n_targets: np.sort(hits, axis=1, out=None).sum(axis=1) + hits.sort(axis=1), "arguments_are_unchanged"),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_a_broken_metric(function, expected):
    if expected == "arguments_are_unchanged":

        def function(hits, n_targets):
            hits.sort(axis=1)
            return hits.mean(axis=1)

    METRICS.add("broken", function, __name__)
    assert expected in failed(metrics.CONTRACT, METRICS)


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        (lambda data, p: np.zeros(3), "labels_are_known"),
        (lambda data, p: np.where(np.arange(len(data)) % 2, TRAIN, TEST), "labels_are_known"),
        (lambda data, p: np.arange(len(data)) % 9, "labels_are_known"),
        (lambda data, p: np.random.default_rng().choice([TRAIN, VALID, TEST], len(data)), "labels_repeat"),
        (lambda data, p: (np.arange(len(data)) + len(data.items)) % 3, "later_ids_change_nothing"),
    ],
)
def test_a_broken_protocol(label, expected):
    protocol("broken", SplitSpec)(label)
    assert expected in failed(split_protocols.CONTRACT, protocols())


def table(users, items, **more):
    return pa.table({"user": users, "item": items} | more)


def pairs(raw):
    with raw.open() as file:
        return [line.split(b"-") for line in file.read().split()]


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (lambda raw: [table([int(user) for user, _ in pairs(raw)], [int(item) for _, item in pairs(raw)])], "damaged_files"),
        (lambda raw: [pa.table({"user": [1], "items": [2]})], "example_is_read"),
        (lambda raw: [table([1.5], [2.5])], "example_is_read"),
        (lambda raw: [table([1, None], [2, 3])], "example_is_read"),
        (lambda raw: [table([1], [2], time=[0.5])], "example_is_read"),
        (lambda raw: [], "example_is_read"),
    ],
)
def test_a_broken_reader(read, expected):
    reads("broken", example=b"1-2\n3-4\n")(read)
    assert any(name.startswith(expected) for name in failed(readers.CONTRACT, READERS))


@pytest.mark.parametrize(
    ("read", "example", "options"),
    [
        (user_lines.read, b"1 2 3\n4 5\n", {}),
        (delimited.read, b"0|1|2\n0|3|4\n", {"separator": "|", "header": False, "user": 1, "item": 2}),
    ],
)
def test_a_sound_reader(read, example, options):
    reads("broken", example=example, options=options)(lambda raw, **given: read(raw, **given))
    assert not failed(readers.CONTRACT, READERS)


def test_all_that_a_plugin_registers_is_checked(forgotten):
    with pytest.raises(ConfigError, match=r"^broken\.py: registers nothing; decorate"):
        list(check_plugin(forgotten))
    loss("broken", Mine, similarity="dot", title="Broken", source="here")(lambda s, p: hinge(s, p))
    METRICS.add("broken_too", lambda hits, n_targets: hits.mean(axis=1), __name__)
    kinds = [(found.kind, found.subject) for found in check_plugin(forgotten)]
    n_checks = [len(losses.CONTRACT.checks), len(metrics.CONTRACT.checks)]
    assert sorted(kinds) == [("loss", "broken")] * n_checks[0] + [("metric", "broken_too")] * n_checks[1]
