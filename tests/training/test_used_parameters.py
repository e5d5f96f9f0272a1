"""The parameters that a method says it does not use have no effect; those that it uses are the only ones MLflow shows."""

import numpy as np
import pytest
import scipy.sparse as sp

from rankbench.contracts.encoders import built
from rankbench.core.errors import ConfigError
from rankbench.experiment.fit import fit
from rankbench.experiment.job import configure
from rankbench.models.spec import registered as encoders

SMALL = {"embedding_dim": 4, "epochs": 2, "batch_size": 32, "n_negatives": 3, "patience": 0}
ALTERNATIVES = {
    "users_per_step": 7, "popularity_power": 0.5, "decay": "batch", "init_scale": 0.5, "eval_every": 3, "stop_metric": "ndcg@5",
    "batch_size": 16, "n_negatives": 5, "shared_negatives": True, "cg_steps": 5,
    "subspace_dim": 32, "beta": 0.7, "tau": 0.7, "margin": 0.2, "beta_lr": 0.5, "threshold": "learned", "T_beta": 1,
    "n_positives": 2,
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
        ("opauc", {}, {"tau"}),
        ("opauc", {"form": "kl"}, {"beta"}),
        ("ials", {}, {"cg_steps", "subspace_dim"}),
        ("uib", {}, {"margin"}),
        ("talos", {}, {"threshold"}),
        ("talos", {"objective": "catalogue"}, {"beta_lr"}),
        ("aatp", {}, {"threshold"}),
        ("aatp", {"objective": "catalogue"}, {"beta_lr"}),
        ("sl-at-k", {"objective": "catalogue"}, {"T_beta"}),
        ("debiased-mse", {"objective": "catalogue"}, {"n_positives"}),
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
    ("method", "changes", "name"),
    [
        ("uib", {"phi": "hinge", "init_scale": 1.0}, "margin"),
        ("talos", {}, "beta_lr"),
        ("talos", {"objective": "catalogue"}, "threshold"),
        ("talos", {"objective": "catalogue", "threshold": "learned"}, "beta_lr"),
        ("sl-at-k", {}, "T_beta"),
        ("debiased-mse", {}, "n_positives"),
    ],
)
def test_what_depends_on_the_objective_is_used_where_it_changes_the_fit(method, changes, name):
    given = SMALL | changes
    assert name in configure(method, given).used
    assert (vectors(method, given) != vectors(method, given | {name: ALTERNATIVES[name]})).any()


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


@pytest.mark.parametrize(
    ("method", "changes", "problem"),
    [
        ("softmax", {"sampler": "in-batch"}, "sampler=in-batch: this loss draws no negatives"),
        ("recall-at-k-catalogue", {"sampler": "uniform-other"}, "sampler=uniform-other: this loss draws no negatives"),
        (
            "debiased-infonce",
            {"sampler": "popularity"},
            "sampler=popularity: this loss needs uniform-all, because it subtracts",
        ),
        ("rg2-sampled-sgd", {"sampler": "popularity"}, "sampler=popularity: this loss needs uniform-all, because its mean is"),
        ("sl", {"precision": "bfloat16"}, "precision=bfloat16: model=mf with own negatives has no product that it is for"),
        ("sl", {"model": "xsimgcl", "precision": "bfloat16"}, "precision=bfloat16: model=xsimgcl with own negatives has no"),
        *(
            (name, {"precision": "bfloat16"}, "precision=bfloat16: model=mf with sums over the catalogue has no product")
            for name in ("rg2-sgd", "rgx-sgd", "recall-at-k-catalogue")
        ),
    ],
)
def test_what_a_fit_would_ignore_without_a_word_is_refused(method, changes, problem):
    with pytest.raises(ConfigError, match=f"{method}: {problem}"):
        configure(method, changes)


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("softmax", {"sampler": "uniform-all"}),
        ("sampled-softmax", {"sampler": "in-batch", "precision": "bfloat16"}),
        ("sl", {"shared_negatives": True, "precision": "bfloat16"}),
        *((name, {"model": "lightgcn", "precision": "bfloat16"}) for name in ("sl", "rg2-sgd")),
        ("softmax", {"precision": "bfloat16"}),
    ],
)
def test_what_a_fit_reads_is_not_refused(method, changes):
    configure(method, changes)


def test_rows_of_16_bits_are_refused_where_no_kernel_reads_them():
    values = SMALL | {"model": "lightgcn", "precision": "bfloat16"}
    with pytest.raises(
        ConfigError, match="precision=bfloat16: model=lightgcn reads rows of 16 bits in float32, with one worker on the CPU"
    ):
        vectors("cml", values)  # whose vectors are kept in a ball
    with pytest.raises(ConfigError, match="fitted by one worker only, because precision=bfloat16 is that of the rows"):
        configure("bpr", values).require_workers(2, "workers=2")
    configure("bpr", values | {"shared_negatives": True}).require_workers(2, "workers=2")


@pytest.mark.parametrize("encoder", encoders(), ids=lambda encoder: encoder.name)
def test_an_encoder_with_a_polynomial_declares_that_its_rows_may_be_short(encoder):
    assert encoder.short_rows == (built(encoder).polynomial is not None)
