"""NGCF: its layers on a toy graph with published arithmetic, against a restatement node by node."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from graphs import U, V, X, random_interactions, random_tensor, tensor
from numpy.testing import assert_allclose

from rankbench.models import ngcf as module
from rankbench.models.ngcf import NGCF, NGCFModel

W1, W2 = tensor([1, 0.5], [0, 1]), tensor([0.5, 0], [-0.5, 1])


def encoder(X=X, U=U, V=V, seed=0, **values):
    generator = torch.Generator().manual_seed(seed)
    return NGCFModel(sp.csr_array(X), NGCF(**values), U.clone(), V.clone(), generator).eval()


def worked(**values):
    made = encoder(n_layers=1, **values)
    with torch.no_grad():
        made.W[0][:], made.W[1][:] = W1, W2
        for bias in made.b:
            bias.zero_()
    return made


def test_a_layer_of_the_paper_and_its_scores():
    made = worked(ngcf_form="paper")
    layer = torch.cat([side for side, _ in made.paper_layer(0, U, V)]).detach()
    expected = [
        [1.75, 1.95710678],
        [0.66789322, -0.17071068],
        [0.70710678, 1.35355339],
        [2.375, 0.875],
        [-0.12928932, -0.17677670],
    ]
    assert_allclose(layer, expected, atol=1e-8)
    users, items = made()
    scores = [[3.88648539, 6.86871843, -1.57222718], [-0.75879419, 0.93687455, -1.05617379]]
    assert_allclose((users @ items.T).detach(), scores, atol=1e-8)


@pytest.mark.parametrize(
    ("adjacency", "expected"),
    [
        ("self", [[1, 1], [0.29166667, 0.21666667], [0.45, 1.25], [1.25, 0.41666667], [0.1375, -0.1]]),
        ("mean-and-self", [[2.25, 1.75], [0.5, 0.25], [0.9, 2.5], [2.375, 1.875], [0.275, -0.2]]),
    ],
)
def test_a_layer_of_the_program(adjacency, expected):
    layer = torch.cat([side for side, _ in worked(adjacency=adjacency).program_layer(0, U, V)]).detach()
    assert_allclose(layer, expected, atol=1e-8)


def test_scores_and_decay_of_the_program():
    users, items = (side.detach() for side in worked()())
    scores = [[0.90481870, 1.89442719, -0.84403743], [-0.16702128, 0.45012389, -0.70153298]]
    assert_allclose(users @ items.T, scores, atol=1e-8)
    assert (users[0].square().sum() + items[0].square().sum() + items[2].square().sum()) / 2 == pytest.approx(3.125, abs=1e-8)


@pytest.mark.parametrize("form", ["program", "paper"])
@pytest.mark.parametrize("adjacency", ["self", "mean", "mean-and-self"])
def test_layers_are_those_of_a_loop_over_nodes(form, adjacency):
    rng = np.random.default_rng(2)
    met = (rng.random((7, 5)) < 0.4).astype(np.float64)
    met[3] = 0  # a user without interactions
    users, items = (torch.from_numpy(rng.normal(size=(n, 3))) for n in met.shape)
    made = encoder(met, users, items, n_layers=2, ngcf_form=form, adjacency=adjacency)
    E = np.concatenate([users, items])
    A = np.block([[np.zeros((7, 7)), met], [met.T, np.zeros((5, 5))]])
    degree = A.sum(axis=1)
    leaky = lambda x: np.where(x > 0, x, 0.2 * x)  # noqa: E731
    W, b = ([each.detach().numpy() for each in part] for part in (made.W, made.b))
    layers = [E]
    for layer in range(2):
        new = np.empty_like(E)
        for node in range(12):
            near = [t for t in range(12) if A[node, t]]
            if form == "paper":
                message = sum((E[t] / np.sqrt(degree[node] * degree[t]) for t in near), np.zeros(3))
                new[node] = leaky((message + E[node]) @ W[2 * layer] + (message * E[node]) @ W[2 * layer + 1])
                continue
            total = sum((E[t] for t in near), np.zeros(3))
            mean = total / max(1, len(near))
            S = {"self": (total + E[node]) / (len(near) + 1), "mean": mean, "mean-and-self": mean + E[node]}[adjacency]
            first, second = S @ W[2 * layer] + b[2 * layer][0], (S * E[node]) @ W[2 * layer + 1] + b[2 * layer + 1][0]
            new[node] = leaky(first) + leaky(second)
        E = new
        layers.append(E / np.maximum(np.linalg.norm(E, axis=1, keepdims=True), 1e-12) if form == "program" else E)
    assert_allclose(torch.cat(made()).detach(), np.concatenate(layers, axis=1), rtol=1e-12, atol=1e-12)


def test_dropout_is_drawn_by_the_generator_and_only_in_training():
    made = encoder(message_dropout=0.5, seed=4)
    assert torch.equal(made()[0], made()[0])
    made.train()
    state = made.generator.get_state()
    first, other = made()[0], made()[0]
    made.generator.set_state(state)
    assert torch.equal(made()[0], first) and not torch.equal(other, first)


@pytest.mark.parametrize("adjacency", ["self", "mean", "mean-and-self"])
@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_all_layers_in_blocks_are_those_one_by_one(monkeypatch, adjacency, rate):
    met, dim = random_interactions(1, 2500, 200, 0.02), module.LANES
    tables = random_tensor(2, 2500, dim), random_tensor(3, 200, dim)
    made = encoder(met, *tables, n_layers=2, adjacency=adjacency, message_dropout=rate).train()
    parameters, found = [*made.parameters()], []
    for lanes in (dim, dim + 1):  # with the latter, the width is not one of the blocks
        monkeypatch.setattr(module, "LANES", lanes)
        made.generator.manual_seed(5)
        scored = torch.cat(made())
        given, few = random_tensor(4, *scored.shape), torch.arange(0, 2700, 30)
        totals = (scored * given).sum(), (scored[few] * given[few]).sum()
        found.append(
            [scored, *(slope for each in totals for slope in torch.autograd.grad(each, parameters, retain_graph=True))]
        )
    torch.testing.assert_close(*found, rtol=0, atol=1e-11)
    monkeypatch.setattr(module, "LANES", dim)
    made.generator.manual_seed(5)
    some = made.rows(few.numpy())
    torch.testing.assert_close(some, scored[few], rtol=0, atol=1e-12)
    slopes = torch.autograd.grad((some * given[few]).sum(), parameters)
    torch.testing.assert_close([*slopes], found[0][-len(slopes) :], rtol=0, atol=1e-11)
