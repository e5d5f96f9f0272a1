"""The parameters that a method says it does not use have no effect; those that it uses are the only ones MLflow shows."""

import numpy as np
import pytest
import scipy.sparse as sp

from rankbench.experiment.fit import fit
from rankbench.experiment.job import configure

SMALL = {"embedding_dim": 4, "epochs": 2, "batch_size": 32, "n_negatives": 3, "patience": 0}
ALTERNATIVES = {
    "users_per_step": 7, "popularity_power": 0.5, "decay": "batch", "init_scale": 0.5, "eval_every": 3, "stop_metric": "ndcg@5",
    "batch_size": 16, "n_negatives": 5, "shared_negatives": True, "cg_steps": 5,
    "subspace_dim": 32,
}  # fmt: skip


def vectors(method, values):
    X = sp.csr_array(np.random.default_rng(0).random((30, 20)) < 0.2, dtype=np.float32)
    model = fit((configure(method, values),), X, "float32", 0).models[0]
    return np.concatenate([model.U.ravel(), model.V.ravel()])


@pytest.mark.parametrize(
    ("method", "changes", "unused"),
    [
        ("bpr", {}, {"users_per_step", "popularity_power", "decay", "eval_every", "stop_metric"}),
        ("bpr", {"sampler": "in-batch"}, {"n_negatives", "shared_negatives"}),
        ("bpr", {"init": "xavier"}, {"init_scale"}),
        ("softmax", {}, {"n_negatives", "shared_negatives"}),
        ("infonce", {"objective": "catalogue"}, {"n_negatives", "batch_size"}),
        ("ials", {}, {"cg_steps", "subspace_dim"}),
    ],
)
def test_an_unused_parameter_changes_no_bit(method, changes, unused):
    known = configure(method, {}).flat
    given = {name: value for name, value in SMALL.items() if name in known} | changes
    used = set(configure(method, given).used)
    assert not used & unused
    before = vectors(method, given)
    for name in unused:
        np.testing.assert_array_equal(vectors(method, given | {name: ALTERNATIVES[name]}), before, err_msg=name)


@pytest.mark.parametrize(
    ("changes", "used"),
    [
        ({"objective": "catalogue"}, {"users_per_step"}),
        ({"sampler": "popularity"}, {"popularity_power"}),
        ({"weight_decay": 0.1}, {"decay"}),
        ({"patience": 2}, {"eval_every", "stop_metric"}),
        ({"model": "lightgcn"}, {"n_layers"}),
        ({"model": "pinsage"}, {"n_neighbours", "n_walks"}),
    ],
)
def test_a_parameter_is_used_where_another_one_calls_for_it(changes, used):
    assert used <= set(configure("infonce", changes).used)
