"""What a loss remembers between batches learns in the trainer's own epochs, at its own rate, and while the model rests."""

import pytest
import torch
from fits import interactions, trainer_of, vectors

from rankbench.losses.spec import registered

ONE_BATCH = {"batch_size": 1000, "optimizer": "row-adam"}


@pytest.fixture(scope="module")
def X():
    return interactions()


STATES = sorted(loss.name for loss in registered() if loss.state)


@pytest.mark.parametrize("name", STATES)
def test_what_a_loss_remembers_learns_from_sampled_negatives(name, X):
    every_epoch = {"advinfonce": {"T_adv": 1}, "sl-at-k": {"T_beta": 1}}.get(name, {})
    trainer = trainer_of(X, name, **every_epoch)
    before = {key: value.clone() for key, value in trainer.state.state_dict().items()}
    trainer.epoch(1, 1.0)
    after = trainer.state.state_dict()
    assert any(not torch.equal(before[key], after[key]) for key in before)


SAMPLING = {
    "own negatives": {"n_negatives": 200, "sampler": "uniform-other"},
    "shared negatives": {"n_negatives": 200, "shared_negatives": True},
    "all items": {"objective": "catalogue", "threshold": "learned", "sampler": "uniform-all", "users_per_step": 1000},
    "all others": {"objective": "catalogue", "threshold": "learned", "sampler": "uniform-other", "users_per_step": 1000},
}


@pytest.mark.parametrize("name", ["talos", "aatp"])
@pytest.mark.parametrize("sampling", SAMPLING.values(), ids=SAMPLING)
def test_learned_thresholds_end_at_the_quantiles_of_all_scores(name, sampling, X):
    K = 4
    trainer = trainer_of(X, name, K=K, learning_rate=1e-9, beta_lr=0.02, batch_size=1000, **sampling)
    for epoch in range(1, 200):
        trainer.epoch(epoch, 1.0 if epoch < 120 else 0.1)
    U, V = (table / table.norm(dim=1, keepdim=True) for table in vectors(trainer))
    best = (U @ V.T).detach().topk(K + 1, dim=1).values
    beta = trainer.state.beta.detach()
    assert (beta < best[:, K - 2] + 0.02).all() and (beta > best[:, K] - 0.02).all()


@pytest.mark.parametrize(
    "values",
    [
        *({"model": name} for name in ("xsimgcl", "sgl", "lightgcn")),
        {"model": "lightgcn", "weight_decay": 0.1},
        {"weight_decay": 0.1, "decay": "batch"},
        {},
    ],
    ids=str,
)
def test_the_model_rests_while_the_adversary_learns(values, X):
    trainer = trainer_of(X, "advinfonce", T_adv=2, **values)
    trainer.epoch(1, 1.0)
    before, adversary = [table.clone() for table in vectors(trainer)], trainer.state.user.detach().clone()
    trainer.epoch(2, 1.0)
    assert all(torch.equal(table, old) for table, old in zip(vectors(trainer), before, strict=True))
    assert not torch.equal(trainer.state.user, adversary)


def test_the_size_of_a_batch_is_for_the_rate_of_the_model_alone(X):
    steps = []
    for reference in (0, 5):
        trainer = trainer_of(X, "talos", reference_batch=reference, **ONE_BATCH)
        trainer.epoch(1, 1.0)
        steps.append((trainer.state.beta.abs().max().item(), vectors(trainer)[0].detach().clone()))
    assert steps[0][0] == pytest.approx(steps[1][0], rel=1e-6) and not torch.allclose(steps[0][1], steps[1][1])
