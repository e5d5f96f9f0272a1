"""Rows with seeds on a GPU and on processors, against the difference that was put in."""

import pytest
from scipy import stats

from rankbench.reproduce.devices import Shift, fits_on_gpu, gpu_shift
from rankbench.reproduce.evidence import Evidence

from .stored import stored

TABLE = """\
arms:
  - {name: A, method: bpr, params: {epochs: 1}, published: {synthetic: {recall@20: 0.5}}}
  - {name: B, method: bpr, params: {epochs: 2}, published: {synthetic: {recall@20: 0.5}}}
  - {name: C, method: bpr, params: {epochs: 3}, published: {synthetic: {recall@20: 0.5}}}
  - {name: D, method: bpr, params: {epochs: 4}, published: {synthetic: {recall@20: 0.5}}}
"""


def measure(row, evidence, on_processors, on_gpu):
    config = row.setting("printed", evidence)
    means = [("cpu", mean) for mean in on_processors] + [("cuda", mean) for mean in on_gpu]
    for seed, (device, mean) in enumerate(means):
        evidence.add(stored(row, config, {"recall@20": (mean, mean - 0.1, mean + 0.1)}, seed, device=device))


def test_the_shift_is_the_mean_over_rows_with_seeds_on_both(rows, tmp_path):
    evidence = Evidence(tmp_path / "evidence")
    measure(rows[0], evidence, [0.5], [0.505, 0.515])
    measure(rows[1], evidence, [0.38, 0.42], [0.396])
    assert gpu_shift(rows, evidence) is None
    measure(rows[2], evidence, [0.2], [0.2])
    measure(rows[3], evidence, [0.2, 0.3], [])
    shifts = [0.02, -0.01, 0.0]
    low, high = stats.t.interval(0.95, 2, loc=sum(shifts) / 3, scale=stats.sem(shifts))
    assert vars(gpu_shift(rows, evidence)) == pytest.approx(vars(Shift(3, 1, sum(shifts) / 3, low, high)))
    assert fits_on_gpu(evidence) == (4, 10)
