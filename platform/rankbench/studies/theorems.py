"""How often the inequalities that papers prove for their losses hold for drawn scores, and how far apart their two sides are.

A list has the N items of a dataset, and as many positives as one of its users has. Its scores are drawn.

    RG² is above softmax       log Σ_j exp(o_j) ≤ ‖o + 1‖² / 2N + log N − 1/2
    Talos is above Precision   −log Precision@K ≤ −log(Σ_P σ_τ / Σ_I σ_τ) + log 2 / τ,   σ_τ = σ(s − β)^(1/τ)
    Talos is a robust loss     max_Q E_Q[g] = min_τ (τ log mean_j exp(g_j / τ) + τη) for KL(Q ‖ uniform) ≤ η,   g = log σ(s − β)
    SL is a robust loss        the same for g = s

The first is Proposition B.2 of Pu et al. (ICML 2024) and Proposition 7 of the journal article, without −o_i on both sides. It
assumes that I/N − diag(p) + p pᵀ has no negative eigenvalue, p = softmax(o), which the papers call acceptable. Logits are
`height` for the positives and 0 for others, with normal noise; or they are the targets of RG², N/n − 1 for the n positives and
−1 for others.

The second is Theorem 3.1 of Zhang et al. (WWW 2026); β is the K-th largest score, and log 0 = log ε in −log Precision@K. The
available text lacks its constant. log 2 / τ is what the K items of the list require, each of which has σ_τ ≥ 2^(−1/τ); the
right side can then still be smaller by log(1 + n 2^(−1/τ)). For a list without a hit, n ≤ K, the inequality is certain only if
τ ≤ log 2 / log(1/ε).

The others are Theorem 3.2, over the items that are no positives, and its counterpart for SL. Each τ stands for a radius η: that
of the distribution Q ∝ exp(g / τ). The study compares E_Q[g] with the right side, minimised by a search over all τ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import log_expit, logsumexp

from rankbench.core.environment import Environment
from rankbench.core.errors import require
from rankbench.core.params import Params, param
from rankbench.core.progress import Progress
from rankbench.core.rng import stream
from rankbench.data.prepare import load
from rankbench.experiment.outcome import describe
from rankbench.reports.figure import Figure, Marks, Panel, styles
from rankbench.studies.metric_inconsistency import MetricInconsistency, positives_of_users
from rankbench.studies.spec import Findings, study

HEIGHTS = (1.0, 2.0, 5.0, 10.0, 20.0)
TAUS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3)  # the range of Zhang et al.
ROUNDING = 1e-9
SOFTMAX, TARGET = "RG² is above softmax", "RG² is above softmax, at its targets"

# Theorem and height or τ → of each list, gap and second value.
Values = dict[tuple[str, float | None], list[tuple[float, float]]]


@dataclass(frozen=True)
class Theorems(Params):
    dataset: str = param(
        "amazon-beauty", "dataset whose items and users give the sizes of lists and their numbers of positives"
    )
    trials: int = param(100, "number of lists", ge=1)
    K: int = param(20, "length of the list whose Precision is bounded", ge=1)
    epsilon: float = param(1e-4, "ε of log 0 = log ε", gt=0, lt=1)
    noise: float = param(0.5, "standard deviation of logits", ge=0)
    spread: float = param(0.2, "standard deviation of cosines", gt=0)
    lift: float = param(0.4, "how much higher the cosines of positives are", ge=0)


def softmax_gap(o: np.ndarray) -> float:
    """The right side of the first inequality minus the left one, for the logits o (N,) of a list."""
    return float(np.square(o + 1).mean() / 2 + np.log(len(o)) - 0.5 - logsumexp(o))


def least_eigenvalue(o: np.ndarray) -> float:
    """The least eigenvalue of I/N − diag(p) + p pᵀ, p = softmax(o), o (N,)."""
    p = np.exp(o - logsumexp(o))
    low, high = np.sort(p)[-2:]
    if high - low < 1e-9 * high:
        return float(1 / len(p) - high)
    # The largest eigenvalue x of diag(p) − p pᵀ lies between the two largest p and solves Σ p / (p − x) = 0.
    margin = 1e-9 * (high - low)

    def root_below(x: float) -> float:
        return float((p / (p - x)).sum())

    if root_below(low + margin) >= 0:  # the largest p is nearly all of the mass, and the root is at the second largest
        return float(1 / len(p) - low)
    return float(1 / len(p) - brentq(root_below, low + margin, high - margin))


def talos_gap(s: np.ndarray, n: int, tau: float, p: Theorems) -> tuple[float, int]:
    """The right side of the second inequality minus the left one, and the number of hits, for the cosines s (N,) of a list, of
    which the first n are those of positives.
    """
    beta = np.partition(s, -p.K)[-p.K]
    activations = log_expit(s - beta) / tau
    hits = int(np.count_nonzero(s[:n] >= beta))
    right = logsumexp(activations) - logsumexp(activations[:n]) + np.log(2) / tau
    return float(right + np.log(hits / p.K if hits else p.epsilon)), hits


def robust_gap(g: np.ndarray, tau: float) -> tuple[float, float]:
    """How far the two sides of the equality are apart, and the radius η that τ stands for, for values g of items."""
    log_q = g / tau - logsumexp(g / tau)
    q, log_n = np.exp(log_q), np.log(len(g))
    radius = float(q @ log_q + log_n)

    def right(log_tau: float) -> float:
        other = np.exp(log_tau)
        return float(other * (logsumexp(g / other) - log_n + radius))

    least = minimize_scalar(right, bounds=(np.log(tau) - 2, np.log(tau) + 2), method="bounded", options={"xatol": 1e-7}).fun
    return abs(float(q @ g) - least), radius


def simulate(sizes: np.ndarray, n_items: int, p: Theorems, seed: int, progress: Progress) -> Values:
    """The values of the theorems for `p.trials` lists of n_items, with numbers of positives drawn from `sizes` (users,)."""
    found: Values = {}
    rng = stream(seed, "theorems")
    for number, n in enumerate(rng.choice(sizes, p.trials)):
        progress("simulate", number, p.trials)
        z, positive = rng.standard_normal(n_items), np.arange(n_items) < n
        logits = {(SOFTMAX, height): p.noise * z + height * positive for height in HEIGHTS}
        for key, o in (logits | {(TARGET, None): positive * (n_items / n) - 1.0}).items():
            found.setdefault(key, []).append((softmax_gap(o), least_eigenvalue(o)))
        s = np.clip(p.spread * z + p.lift * positive, -1, 1)
        beta = np.partition(s, -p.K)[-p.K]
        for tau in TAUS:
            gap, hits = talos_gap(s, n, tau, p)
            found.setdefault((f"Talos is above Precision, {'hits' if hits else 'no hit'}", tau), []).append((gap, hits))
            for name, g in (("Talos", log_expit(s[n:] - beta)), ("SL", s[n:])):
                found.setdefault((f"{name} is a robust loss", tau), []).append(robust_gap(g, tau))
    return found


def row(theorem: str, at: float | None, values: list[tuple[float, float]]) -> dict[str, Any]:
    """A row of the table: of an inequality, the share of lists in which it holds; of an equality, that without a difference."""
    gap, second = np.array(values, dtype=float).T
    robust = "robust" in theorem
    holds = gap <= ROUNDING if robust else gap >= -ROUNDING
    return {
        "theorem": theorem,
        "at": at,
        "lists": len(gap),
        "holds": 100 * float(holds.mean()),
        "least": float(gap.min()),
        "mean": float(gap.mean()),
        "largest": float(gap.max()),
        "assumption": 100 * float((second >= -ROUNDING).mean()) if "softmax" in theorem else None,
        "radius": float(second.mean()) if robust else None,
    }


@study(
    "theorems",
    Theorems,
    title="How often the bounds of losses hold",
    source="Pu et al., ICML 2024, Prop. B.2; Zhang et al., WWW 2026, Theorems 3.1 and 3.2",
)
def theorems(p: Theorems, seed: int, environment: Environment, progress: Progress) -> Findings:
    data = load(p.dataset, environment)
    n_items, sizes = data.split.n_items, positives_of_users(data.split, MetricInconsistency())
    require(n_items > p.K, f"K must be < {n_items:,}, the number of items of {p.dataset}, got {p.K:,}")
    found = simulate(sizes[sizes < n_items], n_items, p, seed, progress)
    rows = [row(theorem, at, found[theorem, at]) for theorem, at in sorted(found, key=lambda key: (key[0], key[1] or 0))]
    columns = {
        "theorem": "theorem", "at": "height or τ", "lists": "lists", "holds": "holds, %", "least": "least gap",
        "mean": "mean gap", "largest": "largest gap", "assumption": "assumption holds, %", "radius": "radius η",
    }  # fmt: skip
    notes = [
        "Gap: the upper side minus the lower one; of a robust loss, the difference between two sides that are equal.",
        f"Talos's bound has the constant log 2 / τ, and log 0 = log {p.epsilon:g}; without a hit it is certain only for "
        f"τ ≤ {np.log(2) / -np.log(p.epsilon):.3f}.",
        f"Scores are drawn, not learned: positives are higher by the height, or by {p.lift:g}, and the standard deviation is "
        f"{p.noise:g} (logits of RG²) or {p.spread:g} (cosines).",
    ]
    return Findings(columns, rows, [vars(describe(data))], notes, _figure(rows))


def _figure(rows: list[dict[str, Any]]) -> Figure:
    look = styles(each["theorem"] for each in rows)
    drawn = {
        "mean gap by height": ("height of positives", "mean", SOFTMAX),
        "least gap by height": ("height of positives", "least", SOFTMAX),
        "mean gap by τ": ("τ", "mean", "Precision"),
        "radius η by τ": ("τ", "radius", "robust"),
    }
    panels = []
    for title, (x_label, value, word) in drawn.items():
        marks = []
        for theorem, style in look.items():
            own = [each for each in rows if each["theorem"] == theorem and word in theorem and each["at"] is not None]
            if own:
                x, y = [each["at"] for each in own], [each[value] for each in own]
                marks.append(Marks(x, y, style, name=theorem, size=4, width=1.5))
        panels.append(Panel(title, x_label, "", marks, size=(4, 3.2), legend="best"))
    return Figure("plot", "Gaps of bounds, and the radius that a temperature stands for.", panels, columns=2)
