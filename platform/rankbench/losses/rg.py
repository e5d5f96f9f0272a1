r"""RG² and RG× by SGD: softmax expanded to second order (Pu et al., ICML 2024, Eq. 13; Pu et al., arXiv 2025, Eq. 15).

$$\ell(u, i) = -o_{ui} + \frac{1}{2N} \lVert o_u + 1 \rVert^2
  = -o_{ui} + \operatorname*{mean}_j o_{uj} + \tfrac12 \operatorname*{mean}_j o_{uj}^2 + \tfrac12$$ (rg2-sgd)

$$\ell(u, i) = -o_{ui} + \frac{1}{2N} \lVert o_u + 1 \rVert^2 - \frac{1}{2N^2} (1^\top o_u)^2
  = -o_{ui} + \operatorname*{mean}_j o_{uj} + \tfrac12 \operatorname*{var}_j o_{uj} + \tfrac12$$ (rgx-sgd)

paper $o_{ui}$ → `s.pos` (B,), dot products; mean and mean square of $o_u$ over all N items → `s.catalogue.moments()`.
The minimum of RG² is at $N/n_u - 1$ on a user's $n_u$ positives and −1 elsewhere, far outside the range of a cosine.
Both losses are negative there. RG× does not change when all scores of a user are shifted.

The sampled forms replace the mean and the variance by unbiased estimates from n items $j_k$, drawn from all items with
replacement:

$$\ell(u, i) = -o_{ui} + \frac{1}{n} \sum_{k=1}^{n} \bigl(o_{uj_k} + \tfrac12 o_{uj_k}^2\bigr) + \tfrac12$$ (rg2-sampled-sgd)

$$\ell(u, i) = -o_{ui} + \bar o_u + \frac{1}{2(n - 1)} \sum_{k=1}^{n} (o_{uj_k} - \bar o_u)^2 + \tfrac12, \qquad
\bar o_u = \frac{1}{n} \sum_{k=1}^{n} o_{uj_k}$$ (rgx-sampled-sgd)

Differs from the papers: Eq. 13 is printed without the parenthesis that puts the square under its sum's minus sign, and without
1/|D|. The sampled loss of the journal version keeps the positive among the n + 1 scores that it squares, which changes the
target of positives; here the positive is left out. That paper claims RG² + log N − ½ to bound softmax, which it does not.
"""

from __future__ import annotations

from functools import partial

from torch import Tensor

from rankbench.core.errors import require
from rankbench.losses.spec import NoParams, Scores, loss

JOURNAL = "Pu et al., arXiv 2025"
BECAUSE = "its optimum lies far outside the range of a cosine"
MEAN = "its mean is that over all items"
UNBOUNDED = "scores of positives outside them would have no bound"
rg_loss = partial(loss, similarity="dot", only_because=BECAUSE, among_all=UNBOUNDED, families=("rg",))


@rg_loss(
    "rg2-sgd",
    sampler=None,
    needs=("catalogue",),
    over_catalogue=True,
    title="RG² by SGD: softmax's squared surrogate over all items",
    source="Pu et al., ICML 2024",
    pace=0.25,  # two moments replace the scores of the catalogue
)
def rg2(s: Scores, p: NoParams) -> Tensor:
    mean, mean_square = s.catalogue.moments()
    return -s.pos + mean + mean_square / 2 + 0.5


@rg_loss(
    "rgx-sgd",
    sampler=None,
    needs=("catalogue",),
    over_catalogue=True,
    title="RG× by SGD: softmax to second order over all items",
    source=f"{JOURNAL}, Eq. 15",
    pace=0.2,  # two moments replace the scores of the catalogue
)
def rgx(s: Scores, p: NoParams) -> Tensor:
    mean, mean_square = s.catalogue.moments()
    return -s.pos + mean + (mean_square - mean.square()) / 2 + 0.5


@rg_loss(
    "rg2-sampled-sgd",
    sampler="uniform-all",
    only_uniform=MEAN,
    title="RG² by SGD, with its mean over sampled items",
    source="Pu et al., ICML 2024",
)
def rg2_sampled(s: Scores, p: NoParams) -> Tensor:
    return -s.pos + (s.neg + 1).square().mean(dim=1) / 2


@rg_loss(
    "rgx-sampled-sgd",
    sampler="uniform-all",
    only_uniform=MEAN,
    title="RG× by SGD, with its mean and variance over sampled items",
    source=JOURNAL,
)
def rgx_sampled(s: Scores, p: NoParams) -> Tensor:
    n = s.neg.shape[1]
    require(n > 1, f"n_negatives must be > 1 for rgx-sampled-sgd, because it estimates a variance, got {n}")
    return -s.pos + s.neg.mean(dim=1) + s.neg.var(dim=1, correction=1) / 2 + 0.5
