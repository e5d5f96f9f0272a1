"""What is asked of every encoder: the vectors that it gives, and fits with losses that read different things."""

from __future__ import annotations

import numpy as np
import torch

from rankbench.contracts.check import Contract, NotCheckedError, expect, expect_equal, expect_finite
from rankbench.contracts.parameters import check_parameters
from rankbench.contracts.training import (
    DIM,
    N_ITEMS,
    N_USERS,
    expect_learning,
    expect_resumable,
    expect_trainable,
    interactions,
)
from rankbench.data.blocks import csr_from_pairs
from rankbench.fitting.recommenders import score
from rankbench.models.propagation import propagate
from rankbench.models.spec import EmbeddingModel, Encoder, PairModel

CONTRACT = Contract("model")
check_parameters(CONTRACT, lambda encoder: encoder.params)
LOSSES = ("bpr", "softmax", "mse")  # of one negative each, of sums, and of pointwise errors
PAIR_LOSSES = ("bpr", "sampled-softmax", "mse")  # the same for encoders that score pairs
N_PAIRS = 7  # items of each user whose scores are compared


def built(encoder: Encoder, dtype: torch.dtype = torch.float32) -> EmbeddingModel:
    """The module with the same random start in each call."""
    start = torch.Generator().manual_seed(0)
    users, items = (torch.randn(n, DIM, generator=start, dtype=dtype) * 0.1 for n in (N_USERS, N_ITEMS))
    return encoder.build(interactions(), encoder.params(), users, items, torch.Generator().manual_seed(1))


@CONTRACT.check(
    "forward() gives a finite vector of the given type for every user and item",
    "return U (n_users, d) and V (n_items, d), also for users and items without interactions",
)
def vectors_are_finite(encoder: Encoder) -> None:
    for dtype in (torch.float32, torch.float64):
        pair = built(encoder, dtype).eval()()
        width = pair[1].shape[1]
        for vectors, n, name in zip(pair, (N_USERS, N_ITEMS), ("users", "items"), strict=True):
            shape = tuple(vectors.shape)
            expect(shape == (n, width), f"vectors of {name} have the shape {shape}, not {(n, width)} as those of items")
            expect(vectors.dtype == dtype, f"vectors of {name} are {vectors.dtype}, not {dtype}")
            expect_finite(vectors.detach(), f"vectors of {name}")


@CONTRACT.check(
    "in evaluation mode the vectors are the same in every call",
    "add noise and drop-out only if self.training, and draw from the generator that the encoder gets",
)
def evaluation_is_repeatable(encoder: Encoder) -> None:
    model = built(encoder).eval()
    with torch.no_grad():
        for one, two in zip(model(), model(), strict=True):
            expect_equal(one, two, "vectors of two calls")


@CONTRACT.check(
    "gradients reach the learned vectors of users and items",
    "compute U and V from self.users and self.items, without detach() and torch.no_grad()",
)
def gradients_arrive(encoder: Encoder) -> None:
    model = built(encoder)
    users, items = model()
    own = model.row_vectors(*(torch.from_numpy(ids.astype("int64")) for ids in interactions().nonzero()))
    what = "None" if own is None else "vectors"
    expect((own is not None) == encoder.per_row, f"per_row={encoder.per_row}, and row_vectors() returns {what}")
    users = users if own is None else own
    (users.square().sum() + items.square().sum()).backward()
    for name in ("users", "items"):
        if not getattr(model, name).numel():
            continue  # an encoder without vectors of users
        gradient = getattr(model, name).grad
        expect(gradient is not None and bool((gradient != 0).any()), f"no gradient reaches self.{name}")
        expect_finite(gradient, f"gradient of self.{name}")


@CONTRACT.check(
    "`plain` and `polynomial`, whose steps do not call forward(), say what forward() returns",
    "set plain = True only if forward() returns self.users and self.items, and polynomial only if it returns that sum of them, "
    "in training, too, and with nothing else that is learned",
)
def shortcuts_are_true(encoder: Encoder) -> None:
    model = built(encoder, torch.float64)
    if not model.plain and model.polynomial is None:
        raise NotCheckedError("neither is set")
    learned = len([*model.parameters()])
    only = learned == 2 or isinstance(model, PairModel)
    expect(only, f"{learned} parameters, of which steps change self.users and self.items alone")
    for mode in ("training", "evaluation"):
        model.train(mode == "training")
        with torch.no_grad():
            expected = model.users, model.items
            if model.polynomial is not None:
                assert model.graph is not None
                expected = propagate(model.graph, *expected, model.polynomial)
            for side, found, wanted in zip(("users", "items"), model(), expected, strict=True):
                expect_equal(found, wanted, f"vectors of {side} in {mode}, and those that steps work with", 1e-9, 1e-12)


@CONTRACT.check(
    "`work` is declared if and only if the encoder scores pairs, whose scores are those of its recommender",
    "declare work= for a PairModel alone, let pair_scores treat each pair on its own, and give `recommender` every parameter",
)
def pairs_are_scored(encoder: Encoder) -> None:
    model = built(encoder, torch.float64).eval()
    expect((encoder.work is not None) == isinstance(model, PairModel), "work= and PairModel do not belong together")
    if not isinstance(model, PairModel):
        raise NotCheckedError("the scores are products")
    items = torch.arange(N_USERS * N_PAIRS).view(N_USERS, N_PAIRS) % N_ITEMS
    with torch.no_grad():
        users, vectors = model()
        own, shared = model.pair_scores(users, vectors[items]), model.pair_scores(users, vectors[None])
    expect_equal(own, shared.gather(1, items), "scores with own and with shared items", 1e-9, 1e-12)
    recommender = model.recommender(users, vectors)
    nothing = csr_from_pairs(*np.zeros((2, 0), np.int64), (N_USERS, N_ITEMS))
    scores = score(recommender, np.arange(N_USERS, dtype=np.int32), nothing, slice(0, N_ITEMS))
    expect_equal(scores, shared, "scores of the recommender and of pair_scores", 1e-9, 1e-12)


@CONTRACT.check(
    "training gives finite vectors with losses of every form, and the same bits for the same seed",
    "draw random numbers only from the generator that the encoder gets",
)
def training_is_repeatable(encoder: Encoder) -> None:
    for loss in PAIR_LOSSES if encoder.work else LOSSES:
        expect_trainable(loss, encoder.name)


@CONTRACT.check(
    "a fit ranks what it was fitted on above other items",
    "what `forward`, `rows`, `row_vectors` and `recommender` return must be the vectors that a batch is trained with",
)
def fits_learn(encoder: Encoder) -> None:
    expect_learning("bpr", encoder.name)


@CONTRACT.check(
    "an interrupted and resumed fit ends as an undisturbed one",
    "keep what is remembered between batches in parameters and buffers, which are part of a checkpoint",
)
def fits_resume(encoder: Encoder) -> None:
    for loss in PAIR_LOSSES if encoder.work else LOSSES:
        expect_resumable(loss, encoder.name)
