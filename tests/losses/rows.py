"""Batches for properties of losses: what hypothesis draws, and gradients in scores."""

from dataclasses import replace

import torch
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from toy import whole

from rankbench.losses.spec import Scores

TAUS = st.floats(0.05, 2.0)


@st.composite
def batches(draw, low=-1.0, high=1.0, n_negatives=st.integers(1, 5)):
    """Up to three rows of scores in [low, high], with the same number of extra positives as of negatives."""
    n_rows, n = draw(st.integers(1, 3)), draw(n_negatives)
    numbers = st.floats(low, high)
    pos, neg, own = (
        torch.from_numpy(draw(arrays(float, shape, elements=numbers))) for shape in ((n_rows,), (n_rows, n), (n_rows, n))
    )
    return Scores(
        pos=pos,
        neg=neg,
        extra_positives=own,
        n_items=20,
        n_interactions=torch.arange(1, n_rows + 1),
        users=torch.from_numpy(draw(arrays("int64", n_rows, elements=st.integers(0, 2)))),
        items=torch.zeros(n_rows, dtype=torch.int64),
        logq=torch.full((1, n), -3.0, dtype=torch.float64),
        logq_pos=torch.full((n_rows,), -3.0, dtype=torch.float64),
    )


@st.composite
def catalogues(draw, low=-1.0, high=1.0, n_items=st.integers(3, 8), negatives="all"):
    """(o, s): a user's scores of all items in [low, high], and a row for each of the first one or two items."""
    n = draw(n_items)
    o = torch.from_numpy(draw(arrays(float, n, elements=st.floats(low, high))))
    return o, whole(o, list(range(draw(st.integers(1, 2)))), negatives)


def gradient(function, s: Scores, p, *names: str) -> list[torch.Tensor]:
    """Of the sum over rows, in the scores that are named."""
    given = [getattr(s, name).clone().requires_grad_() for name in names]
    return list(torch.autograd.grad(function(replace(s, **dict(zip(names, given, strict=True))), p).sum(), given))
