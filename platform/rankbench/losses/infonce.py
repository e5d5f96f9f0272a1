r"""InfoNCE, MINE, MINE+ and the mean difference, as losses for recommendation (Jin and Li, arXiv 2023, Eq. 4, 10, 16, §2.3).

$$\ell(u, i) = -\frac{y_{ui}}{t} + \log\Bigl(e^{y_{ui}/t} + \sum_j e^{y_{uj}/t}\Bigr)$$ (infonce)

$$\ell(u, i) = -\frac{y_{ui}}{t} + \log \sum_j e^{y_{uj}/t}$$ (mine)

$$\ell(u, i) = -\frac{y_{ui}}{t} + \lambda \log \sum_j e^{y_{uj}/t}$$ (mine-plus)

$$\ell(u, i) = \frac{1}{n} \sum_j (y_{uj} - y_{ui})$$ (mean-difference)

paper y → `s.pos` (B,), `s.neg` (B, n), cosines; t → `tau`; λ → `lam`.
Of all items (sampler = uniform-all, or objective = catalogue), the sum has the positive once more: InfoNCE tends to log 2, and
not to 0, as the positive leaves the others behind.
MINE omits the constant factor 1/n of its expectation. It can be negative, and its gradient by the positive never vanishes.
By Jensen's inequality the logarithm of a mean of exponentials is at least the mean, so MINE with temperature 1 is at least
log n plus the mean difference. The gradient of the latter by an item does not depend on its score: no negative is harder than
another.
Differs from the paper: the paper prints t in Eq. 16 only, and does not say whether the similarity of MINE is the cosine.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from torch import Tensor
from torch.nn.functional import logsigmoid

from rankbench.core.params import Params, Range, param
from rankbench.losses.spec import NoParams, Scores, Twin, loss

PAPER = "Jin and Li, arXiv 2023"
cosine_loss = partial(loss, similarity="cosine", over_catalogue=True, sampler="uniform-all", families=("softmax",))


@dataclass(frozen=True)
class Temperature(Params):
    tau: float = param(0.2, "temperature t that divides the cosine", Range(0.05, 0.5, published=False), gt=0)


@dataclass(frozen=True)
class MINEPlus(Temperature):
    tau: float = param(0.4, "temperature t that divides the cosine", Range(0.4, 0.5), gt=0)
    lam: float = param(1.1, "weight λ of the negatives; 1 is MINE", Range(1, 1.2), gt=0)


@cosine_loss(
    "infonce",
    Temperature,
    twin=lambda p: Twin("sl", (p.tau, True)),
    title="InfoNCE: softmax over the positive and sampled negatives",
    source=f"{PAPER}, Eq. 4",
)
def infonce(s: Scores, p: Temperature) -> Tensor:
    return -logsigmoid(-mine(s, p))


@cosine_loss(
    "mine",
    Temperature,
    twin=lambda p: Twin("sl", (p.tau, False)),
    title="MINE: a bound on mutual information, without the positive in the sum",
    source=f"{PAPER}, Eq. 10",
)
def mine(s: Scores, p: Temperature) -> Tensor:
    return s.others.logsumexp(p.tau) - s.pos / p.tau


@cosine_loss(
    "mine-plus",
    MINEPlus,
    twin=lambda p: Twin("sl", (p.tau, False)) if p.lam == 1 else None,
    title="MINE+: MINE with weighted negatives",
    source=f"{PAPER}, Eq. 16",
)
def mine_plus(s: Scores, p: MINEPlus) -> Tensor:
    return p.lam * s.others.logsumexp(p.tau) - s.pos / p.tau


@cosine_loss(
    "mean-difference",
    families=("pointwise",),
    title="Mean difference: the Jensen bound of MINE",
    source=f"{PAPER}, §2.3",
)
def mean_difference(s: Scores, p: NoParams) -> Tensor:
    return s.others.moments()[0] - s.pos
