"""What is asked of every loss: values and gradients on batches of scores, its declarations, and fits with every encoder."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rankbench.contracts.check import Contract, NotCheckedError, expect, expect_equal, expect_finite
from rankbench.contracts.parameters import at_the_ends, check_parameters
from rankbench.contracts.training import DIM, N_ITEMS, N_USERS, expect_learning, expect_resumable, expect_trainable
from rankbench.core.errors import ConfigError
from rankbench.experiment.job import configure
from rankbench.losses.others import OwnItems, ScoreTable
from rankbench.losses.spec import LOSSES, Loss, LossState, Ragged, ReturnedError, Scores, Sizes, row_losses
from rankbench.models.spec import MODELS, Encoder
from rankbench.models.spec import registered as encoders

CONTRACT = Contract("loss")
check_parameters(CONTRACT, lambda loss: loss.params)
# The exponential of 100 overflows float32.
RANGE = {"dot": (-100.0, 100.0), "cosine": (-1.0, 1.0), "half-cosine": (-0.5, 0.5), "distance": (-4.0, 0.0)}
ROWS, NEGATIVES = 6, 5
# Vectors learned, propagated, pooled per row, and scored by a network; each encoder's own contract trains three losses.
KINDS_OF_ENCODERS = ("mf", "lightgcn", "simplex", "neumf")
STEP = 1e-6  # of finite differences in float64


def batch(
    loss: Loss,
    p: Any,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    fill: str = "random",
    rows: int = ROWS,
    negatives: int = NEGATIVES,
) -> Scores:
    """Return rows of scores, leaves that collect gradients: random in the range of the loss's similarity, at the ends of the
    range (`fill="ends"`), or all zero (`fill="equal"`).
    """
    rng = np.random.default_rng(seed)
    low, high = RANGE[loss.similarity]

    def draw(*shape: int) -> Tensor:
        values = rng.choice([low, high], shape) if fill == "ends" else rng.uniform(low, high, shape) * 0.3
        return torch.tensor(values * (fill != "equal"), dtype=dtype, requires_grad=True)

    users = torch.tensor(rng.integers(0, N_USERS, rows))
    whole = draw(rows, N_ITEMS)
    rival = draw(rows, negatives)
    return Scores(
        pos=draw(rows),
        neg=draw(rows, negatives),
        n_items=N_ITEMS,
        n_interactions=torch.tensor(rng.integers(1, 5, rows), dtype=dtype),
        users=users,
        items=torch.tensor(rng.integers(0, N_ITEMS, rows)),
        neg_items=torch.tensor(rng.integers(0, N_ITEMS, (rows, negatives))),
        logq=torch.full((rows, negatives), -float(np.log(N_ITEMS)), dtype=dtype),
        logq_pos=torch.full((rows,), -float(np.log(N_ITEMS)), dtype=dtype),
        user_vectors=torch.tensor(rng.normal(size=(rows, DIM)) * 0.3, dtype=dtype, requires_grad=True),
        extra_positives=draw(rows, getattr(p, "n_positives", 1)),
        all_positives=Ragged(draw(2 * rows).detach(), torch.arange(rows).repeat_interleave(2)),
        catalogue=ScoreTable(whole),
        rival=lambda k: rival.gather(1, k[:, None])[:, 0],
    )


def new_state(loss: Loss, p: Any, dtype: torch.dtype = torch.float64) -> LossState | None:
    """The state of the loss before the first batch, or None."""
    if loss.state is None:
        return None
    state = loss.state(p, Sizes(N_USERS, N_ITEMS, DIM), torch.Generator().manual_seed(1)).to(dtype)
    state.begin_epoch(1)
    return state


def value(loss: Loss, s: Scores, p: Any) -> Tensor:
    """The loss of each row with a new state, without gradients."""
    return row_losses(loss, s, p, new_state(loss, p, s.pos.dtype)).detach()


def leaves_of(s: Scores) -> dict[str, Tensor]:
    """The scores and vectors that collect gradients, by name."""
    assert s.extra_positives is not None and isinstance(s.catalogue, ScoreTable) and s.user_vectors is not None
    scores = {"pos": s.pos, "neg": s.neg, "extra_positives": s.extra_positives}
    return scores | {"catalogue": s.catalogue.values, "user_vectors": s.user_vectors}


def rows_of(s: Scores, rows: Tensor) -> Scores:
    """The batch with only `rows`, in that order."""
    assert s.all_positives is not None and isinstance(s.catalogue, ScoreTable) and s.rival is not None
    fields = ("pos", "neg", "n_interactions", "users", "items", "neg_items", "logq", "logq_pos", "user_vectors")
    chosen = {name: getattr(s, name)[rows] for name in (*fields, "extra_positives")}
    lists = s.all_positives.values.reshape(len(s.pos), 2)[rows]
    positives = Ragged(lists.reshape(-1), torch.arange(len(rows)).repeat_interleave(2))
    rival = s.rival

    def of_rows(k: Tensor) -> Tensor:
        return torch.stack([rival(torch.full((len(s.pos),), int(k[b])))[rows[b]] for b in range(len(rows))])

    whole = ScoreTable(s.catalogue.values[rows])
    return dataclasses.replace(s, **chosen, all_positives=positives, catalogue=whole, rival=of_rows)


def _expect_finite(loss: Loss, p: Any, s: Scores, what: str) -> None:
    state = new_state(loss, p, s.pos.dtype)
    rows = row_losses(loss, s, p, state)
    expect_finite(rows.detach(), f"{what}: value")
    total = rows.sum()
    if state and (own := state.own_loss(s)) is not None:
        total = total + own
    expect(total.requires_grad, f"{what}: no gradient reaches the scores")
    total.backward()  # type: ignore[no-untyped-call]
    leaves = leaves_of(s) | (dict(state.named_parameters()) if state else {})
    gradients = {name: leaf.grad for name, leaf in leaves.items() if leaf.grad is not None}
    expect(bool(gradients), f"{what}: no gradient reaches the scores")
    for name, gradient in gradients.items():
        expect_finite(gradient, f"{what}: gradient with respect to {name}")


@CONTRACT.check(
    "one finite number per row, with finite gradients, at the ends of the scores and of the parameters",
    "sums of exponentials overflow float32: use torch.logsumexp, logsigmoid and softplus, and return one number per row",
)
def values_are_finite(loss: Loss) -> None:
    for p in at_the_ends(loss.params):
        for fill in ("ends", "random"):
            _expect_finite(loss, p, batch(loss, p, torch.float32, fill=fill), f"{p}, scores {fill}")


@CONTRACT.check(
    "the same where all scores are equal, with one negative, and with one row",
    "divide by no difference and by no standard deviation that can be 0, and squeeze no dimension",
)
def odd_batches_are_finite(loss: Loss) -> None:
    p = loss.params()
    _expect_finite(loss, p, batch(loss, p, torch.float32, fill="equal"), "all scores 0")
    _expect_finite(loss, p, batch(loss, p, torch.float32, rows=1), "one row")
    try:
        _expect_finite(loss, p, batch(loss, p, torch.float32, negatives=1), "one negative")
    except ReturnedError:
        raise
    except ConfigError:
        pass  # a loss may refuse a single negative, in words


@CONTRACT.check(
    "gradients are the derivatives of the values (finite differences in float64)",
    "if a part is held constant or works against the rest on purpose, declare `gradient_differs=` with the reason; else look "
    "for detach(), item(), torch.no_grad() and rounding",
)
def gradients_are_derivatives(loss: Loss) -> None:
    if loss.gradient_differs:
        raise NotCheckedError(f"the gradient is not the derivative: {loss.gradient_differs}")
    p, weights = loss.params(), torch.linspace(0.5, 1.5, ROWS, dtype=torch.float64)
    for seed in (0, 1):
        s = batch(loss, p, seed=seed)
        (row_losses(loss, s, p, new_state(loss, p)) * weights).sum().backward()  # type: ignore[no-untyped-call]
        for name, leaf in leaves_of(s).items():
            direction = torch.randn(leaf.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
            ends = []
            for sign in (1, -1):
                moved = leaf.detach() + sign * STEP * direction
                field = ScoreTable(moved) if name == "catalogue" else moved
                ends.append((value(loss, dataclasses.replace(s, **{name: field}), p) * weights).sum())
            slope = torch.zeros_like(ends[0]) if leaf.grad is None else (leaf.grad * direction).sum()
            derivative = (ends[0] - ends[1]) / (2 * STEP)
            expect_equal(slope, derivative, f"slope with respect to {name} by autograd and by differences", 1e-4, 1e-6)


@CONTRACT.check(
    "the state's own_loss trains the state alone",
    "compute own_loss from detached scores and vectors: it is added to the loss of the batch",
)
def own_loss_rests(loss: Loss) -> None:
    p = loss.params()
    s, state = batch(loss, p), new_state(loss, p)
    own = state and state.own_loss(s)
    if own is None or not own.requires_grad:
        raise NotCheckedError("the loss has no state with an own_loss")
    own.backward()  # type: ignore[no-untyped-call]
    for name, leaf in leaves_of(s).items():
        expect(leaf.grad is None or not leaf.grad.any(), f"a gradient of own_loss reaches {name}")


@CONTRACT.check(
    "the order of the rows and of the negatives changes nothing",
    "treat all rows, and all negatives of a row, alike",
)
def order_changes_nothing(loss: Loss) -> None:
    p = loss.params()
    s = batch(loss, p)
    before, negatives = value(loss, s, p), torch.tensor([3, 0, 4, 1, 2])
    assert s.neg_items is not None and s.logq is not None and s.rival is not None
    rival = s.rival
    moved = dataclasses.replace(
        s, neg=s.neg[:, negatives], neg_items=s.neg_items[:, negatives], logq=s.logq[:, negatives],
        rival=lambda k: rival(negatives[k]),
    )  # fmt: skip
    expect_equal(value(loss, moved, p), before, "values after the negatives changed places", 1e-9, 1e-12)
    rows = torch.tensor([5, 2, 0, 1, 4, 3])
    expect_equal(value(loss, rows_of(s, rows), p), before[rows], "values after the rows changed places", 1e-9, 1e-12)


@CONTRACT.check(
    "the loss of a row is the same in every batch",
    "return the loss of each row by its own scores, and leave the mean over the batch to the trainer: several workers, and "
    "parts of a large batch, each have some of the rows",
)
def rows_stand_alone(loss: Loss) -> None:
    p = loss.params()
    s = batch(loss, p)
    some = torch.tensor([4, 1])
    expect_equal(value(loss, rows_of(s, some), p), value(loss, s, p)[some], "values of two rows alone and of all", 1e-9, 1e-12)


@CONTRACT.check(
    "negatives that all rows share count as if each row had drawn them",
    "neg_items and logq may have one row instead of B: let them broadcast",
)
def shared_negatives(loss: Loss) -> None:
    p = loss.params()
    s = batch(loss, p)
    assert s.neg_items is not None and s.logq is not None
    own = dataclasses.replace(s, neg_items=s.neg_items[:1].expand(ROWS, -1), logq=s.logq[:1].expand(ROWS, -1))
    shared = dataclasses.replace(s, neg_items=s.neg_items[:1], logq=s.logq[:1])
    expect_equal(value(loss, shared, p), value(loss, own, p), "values with shared and with own negatives", 1e-12, 1e-12)


def similarity_for(loss: Loss, encoder: Encoder) -> dict[str, str]:
    """The similarity that a loss on cosines is trained with by an encoder that scores pairs, as a parameter."""
    scores_pairs = encoder.work is not None and loss.similarity == "cosine" and not loss.only_because
    return {"similarity": "dot"} if scores_pairs else {}


def refused(loss: Loss, encoder: Encoder) -> str:
    """Why the loss is not trained with the encoder, in one line; empty if it is. Only encoders that score pairs may refuse."""
    try:
        configure(loss.name, {"model": encoder.name} | similarity_for(loss, encoder))
    except ConfigError as error:
        return str(error)
    return ""


@CONTRACT.check(
    "`whole_catalogue` and `by_products` are declared if and only if the loss asks the catalogue for scores or products",
    "set whole_catalogue=True if the loss calls s.catalogue.of_all, by_products=True if it calls this or s.catalogue.logsumexp",
)
def whole_catalogue_is_declared(loss: Loss) -> None:
    p, asked = loss.params(), set[str]()
    s = batch(loss, p)

    class Asked(ScoreTable):
        def of_all(self, function: Callable[[Tensor], Tensor]) -> Tensor:
            asked.add("of_all")
            return super().of_all(function)

        def logsumexp(self, tau: float = 1.0) -> Tensor:
            asked.add("logsumexp")
            return super().logsumexp(tau)

    assert isinstance(s.catalogue, ScoreTable)
    value(loss, dataclasses.replace(s, catalogue=Asked(s.catalogue.values)), p)
    for name, calls in (("whole_catalogue", {"of_all"}), ("by_products", {"of_all", "logsumexp"})):
        expect(bool(asked & calls) == getattr(loss, name), f"{name}={getattr(loss, name)}, but called: {sorted(asked & calls)}")


@CONTRACT.check(
    "with `over_catalogue`, items are read only through `s.others` and `s.own`",
    "read s.others instead of s.neg and s.own instead of s.extra_positives, or leave out over_catalogue=True",
)
def over_catalogue_is_true(loss: Loss) -> None:
    if not loss.over_catalogue:
        raise NotCheckedError("over_catalogue is not declared")
    p = loss.params()
    s = batch(loss, p)
    assert isinstance(s.catalogue, ScoreTable) and s.all_positives is not None
    whole = s.catalogue.values.detach()
    own = OwnItems(s.all_positives.values, s.all_positives.row, torch.arange(ROWS), ROWS)
    nothing = {name: torch.full_like(getattr(s, name), torch.nan) for name in ("neg", "extra_positives")}
    items = torch.arange(N_ITEMS).expand(ROWS, -1)
    over = dataclasses.replace(s, other_items=ScoreTable(whole, ids=items), own_items=own, **nothing)
    expect_finite(value(loss, over, p), "values where s.neg and s.extra_positives are NaN")
    logq = torch.full(whole.shape, -float(np.log(N_ITEMS)), dtype=whole.dtype)
    sampled = dataclasses.replace(s, neg=whole, logq=logq, neg_items=items, own_items=own)
    expect_equal(
        value(loss, over, p), value(loss, sampled, p), "values over the catalogue and with all items drawn", 1e-9, 1e-9
    )
    expect_trainable(loss.name, "mf", objective="catalogue")


@CONTRACT.check(
    "a loss and its `twin` have gradients that differ by a factor",
    "correct twin=, or leave it out: settings with equal twins are fitted only once",
)
def twins_are_equal(loss: Loss) -> None:
    compared = 0
    for p in at_the_ends(loss.params):
        twin = loss.twin(p)
        if twin is None or twin.name not in LOSSES:
            continue
        other = LOSSES.get(twin.name)
        q = other.params(*twin.params)
        gradients = []
        for each, its in ((loss, p), (other, q)):
            s = batch(loss, p)
            row_losses(each, s, its, new_state(each, its)).mean().backward()  # type: ignore[no-untyped-call]
            leaves = leaves_of(s).values()
            gradients.append(torch.cat([(torch.zeros_like(x) if x.grad is None else x.grad).flatten() for x in leaves]))
        expect_equal(gradients[0], twin.scale * gradients[1], f"gradients of {p} and of {twin.name} {q}", 1e-7, 1e-10)
        compared += 1
    if not compared:
        raise NotCheckedError("no twin is declared")


@CONTRACT.check(
    "a GPU computes what the processor computes",
    "make new tensors with `like=`, `.new_zeros` or `device=s.pos.device`, and call no .numpy()",
)
def devices_agree(loss: Loss) -> None:
    if not torch.cuda.is_available():
        raise NotCheckedError("this machine has no GPU that PyTorch can use")
    p, state = loss.params(), new_state(loss, loss.params())
    expected = row_losses(loss, batch(loss, p), p, state).detach()
    with torch.device("cuda"):
        there = batch(loss, p)
    found = row_losses(loss, there, p, state.to("cuda") if state else None).detach()
    expect(found.device.type == "cuda", f"the values are on {found.device}")
    expect_equal(found.cpu(), expected, "values on the GPU and on the processor", 1e-9, 1e-12)


@CONTRACT.check(
    "training gives finite scores with each kind of encoder that does not refuse the loss, and the same bits for the same seed",
    "draw random numbers only from the generator that `state` gets, and keep what is remembered in buffers of a LossState",
)
def training_is_repeatable(loss: Loss) -> None:
    for name in KINDS_OF_ENCODERS:
        trains_on(loss, encoders().get(name))


def trains_on(loss: Loss, encoder: Encoder) -> None:
    """Raise BrokenError unless the encoder refuses the loss by name, or trains with it to finite scores, repeatably."""
    refusal = refused(loss, encoder)
    if refusal:
        named = encoder.work is not None and loss.name in refusal and f"model={encoder.name}" in refusal
        expect(named, f"with {encoder.name}: refused by {refusal!r}")
    else:
        expect_trainable(loss.name, encoder.name, **similarity_for(loss, encoder))


@CONTRACT.check(
    "a fit ranks what it was fitted on above other items",
    "a loss falls where positives score higher and negatives lower: look at the signs",
)
def fits_learn(loss: Loss) -> None:
    expect_learning(loss.name, "mf")


@CONTRACT.check(
    "an interrupted and resumed fit ends as an undisturbed one",
    "keep what is remembered between batches in parameters and buffers of a LossState, which are part of a checkpoint",
)
def fits_resume(loss: Loss) -> None:
    for name in ("mf", "xsimgcl", "neumf"):
        if name in MODELS and not refused(loss, MODELS.get(name)):
            expect_resumable(loss.name, name, **similarity_for(loss, MODELS.get(name)))
