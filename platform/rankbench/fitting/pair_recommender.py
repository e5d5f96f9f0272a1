"""A fitted model whose score is a small network of a user and an item, and no inner product.

For a user u and an item i with vectors U_u and V_i, and layers of widths h_1, ..., h_L:

    z_1 = ReLU(A_u + C_i + (U_u ⊙ V_i) mix),    z_l = ReLU(z_{l−1} W_l + b_l),    score = h · z_L + direct · (U_u ⊙ V_i) + b

The first layer of a network that reads u and i side by side is the sum of a part of the user, A_u, and one of the item, C_i,
which are computed once. What remains of it depends on the pair: a product (d, h_1) per user where the network reads U_u ⊙ V_i.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from rankbench.core.compiler import numba
from rankbench.fitting.recommenders import ArrayRecommender

TILE = 512  # items at once: two layers of 64 float32 each take 256 KB, and stay in a core's second cache


@dataclass(frozen=True)
class PairRecommender(ArrayRecommender):
    """The arrays of the formula above, of one dtype, float32 or float64.

    A (n_users, h_1), with the bias of the first layer; C (n_items, h_1); U (n_users, d); V (n_items, d); mix (d, h_1); direct
    (d,). `network` is flat: W_l (h_{l−1}, h_l) and b_l (h_l,) for l = 2 to L, then h (h_L,) and b. `widths` (L,) int64 are
    h_1, ..., h_L. A matrix `mix` or `direct` of zeros costs nothing. Raises ValueError if the shapes do not fit.
    """

    SHARED = ("A", "U", "V", "mix", "direct", "network", "widths", "C")

    A: np.ndarray
    C: np.ndarray
    U: np.ndarray
    V: np.ndarray
    mix: np.ndarray
    direct: np.ndarray
    network: np.ndarray
    widths: np.ndarray

    def __post_init__(self) -> None:
        widths = self.widths.tolist() if self.widths.ndim == 1 and self.widths.dtype == np.int64 else []
        if not widths or min(widths) < 1:
            raise ValueError("widths are not the widths of at least one layer")
        if len({array.dtype for array in (self.A, self.C, self.U, self.V, self.mix, self.direct, self.network)}) > 1:
            raise ValueError("the arrays are not of one type")
        first, d = widths[0], self.direct.size
        n = sum(a * b + b for a, b in pairwise(widths)) + widths[-1] + 1
        expected = {
            "A": (len(self.A), first), "C": (len(self.C), first), "U": (len(self.A), d), "V": (len(self.C), d),
            "mix": (d, first), "direct": (d,), "network": (n,),
        }  # fmt: skip
        for name, shape in expected.items():
            if getattr(self, name).shape != shape:
                raise ValueError(f"{name} has the shape {getattr(self, name).shape} instead of {shape}")

    @classmethod
    def of(
        cls,
        A: np.ndarray,
        C: np.ndarray,
        U: np.ndarray,
        V: np.ndarray,
        mix: np.ndarray,
        direct: np.ndarray,
        layers: Sequence[tuple[np.ndarray, np.ndarray]],
        output: np.ndarray,
        bias: float = 0.0,
    ) -> PairRecommender:
        """The model of these arrays; `layers` are (W_l, b_l) for l = 2 to L, `output` is h (h_L,) and `bias` b."""
        parts = [np.ravel(array) for layer in layers for array in layer]
        network = np.concatenate([*parts, output, [bias]]).astype(A.dtype)
        widths = np.array([A.shape[1], *(len(b) for _, b in layers)], np.int64)
        return cls(A, C, U, V, mix, direct, network, widths)

    def layers(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """(W_l, b_l) for l = 2 to L."""
        at, widths = 0, self.widths.tolist()
        for a, b in pairwise(widths):
            yield self.network[at : at + a * b].reshape(a, b), self.network[at + a * b : at + a * b + b]
            at += a * b + b

    @property
    def output(self) -> tuple[np.ndarray, float]:
        """h (h_L,) and b."""
        return self.network[-1 - int(self.widths[-1]) : -1], float(self.network[-1])

    def base(self, users: np.ndarray, history: sp.csr_array, items: slice, out: np.ndarray) -> np.ndarray:
        """Each user's scores depend on `items` and on the user alone, to the bit.

        O(m · len(items) · (d h_1 + h_1 h_2 + ...)) time, and memory for the layers of TILE pairs.
        """
        start, stop, _ = items.indices(self.n_items)
        mixes, adds = bool(self.mix.any()), bool(self.direct.any())
        layers, (output, bias) = list(self.layers()), self.output
        work = [np.empty((TILE, width), self.dtype) for width in self.widths.tolist()]
        for low in range(start, stop, TILE):
            tile = slice(low, min(low + TILE, stop))
            C, V = self.C[tile], self.V[tile]
            z = [layer[: len(C)] for layer in work]
            for row, user in enumerate(users):
                scores = out[row, low - start : tile.stop - start]
                if mixes:
                    np.matmul(V, self.U[user][:, None] * self.mix, out=z[0])
                    _add_parts(z[0], C, self.A[user])
                else:
                    _parts(C, self.A[user], z[0])
                for below, above, (W, b) in zip(z, z[1:], layers, strict=False):
                    np.matmul(below, W, out=above)
                    _parts(above, b, above)
                _weighted_sums(z[-1], output, bias, scores)
                if adds:
                    scores += V @ (self.U[user] * self.direct)
        return out


# One pass each over what the products leave in the cache. The comparison is the one that keeps NaN, which a ranking reports.
_SUMS_IN_ANY_ORDER = {"reassoc", "contract", "nsz"}


@numba.njit(nogil=True, cache=True)
def _add_parts(z: np.ndarray, C: np.ndarray, a: np.ndarray) -> None:
    """z = ReLU(z + C + a)."""
    zero = z.dtype.type(0)
    for i in range(z.shape[0]):
        for k in range(z.shape[1]):
            x = z[i, k] + (C[i, k] + a[k])
            z[i, k] = zero if x < zero else x


@numba.njit(nogil=True, cache=True)
def _parts(C: np.ndarray, a: np.ndarray, z: np.ndarray) -> None:
    """z = ReLU(C + a); z may be C itself."""
    zero = z.dtype.type(0)
    for i in range(z.shape[0]):
        for k in range(z.shape[1]):
            x = C[i, k] + a[k]
            z[i, k] = zero if x < zero else x


@numba.njit(nogil=True, cache=True, fastmath=_SUMS_IN_ANY_ORDER)
def _weighted_sums(z: np.ndarray, h: np.ndarray, bias: float, out: np.ndarray) -> None:
    """out = z · h + bias, row by row."""
    for i in range(z.shape[0]):
        s = h.dtype.type(0)
        for k in range(z.shape[1]):
            s += z[i, k] * h[k]
        out[i] = s + bias
