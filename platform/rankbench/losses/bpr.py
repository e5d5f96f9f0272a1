r"""BPR: Bayesian personalised ranking (Rendle et al., UAI 2009).

$$\ell(u, i) = \frac{1}{n} \sum_{k=1}^{n} \operatorname{softplus}(o_{uj_k} - o_{ui})$$

paper $\hat x_{ui}$ → `s.pos` (B,); $\hat x_{uj}$ → `s.neg` (B, n)
Differs from the paper: each row has n negatives instead of one, and their terms are averaged; some authors sum them, which is n
times this loss.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import softplus

from rankbench.losses.spec import NoParams, Scores, loss


@loss("bpr", similarity="dot", families=("pairwise",), title="BPR: pairwise logistic loss", source="Rendle et al., UAI 2009")
def bpr(s: Scores, p: NoParams) -> Tensor:
    return softplus(s.neg - s.pos[:, None]).mean(dim=1)
