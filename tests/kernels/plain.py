"""The operations of the room `kernels` in plain PyTorch, with gradients by autograd, from vectors gathered for every pair
(B, n, d) and the scores of all items (B, n_items).
"""

from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from rankbench.kernels.score_tiles import EXP, RELU, SIGMOID, SIGMOID_POWER, SOFTPLUS, SOFTPLUS_OF_SIGMOID


def gather_dot(rows: Tensor, table: Tensor, ids: Tensor) -> Tensor:
    """rows[b] · table[ids[b, k]], (B, n), for rows (B, d), table (N, d) and ids (B, n)."""
    return (rows[:, None] * table[ids]).sum(dim=2)


def catalogue_sum(
    users: Tensor, items: Tensor, shift: Tensor, kind: int, scale: float, power: Tensor, counts: Tensor, square: float = 0.0
) -> Tensor:
    """Σ_j f(scale · users_u · items_j − shift_u), (m,), over the items j where counts[u, j], bool (m, n_items), is set."""
    y, shift = scale * users @ items.T, shift[:, None]
    x, share = y - shift, y.sigmoid()
    functions = {
        EXP: x.exp,
        SOFTPLUS: lambda: softplus(x),
        RELU: x.relu,
        SIGMOID: x.sigmoid,
        SIGMOID_POWER: lambda: (power * logsigmoid(x)).exp(),
        SOFTPLUS_OF_SIGMOID: lambda: softplus(square * share**2 + power * share - shift),
    }
    return (functions[kind]() * counts).sum(dim=1)
