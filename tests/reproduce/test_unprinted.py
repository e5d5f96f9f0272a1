"""Values of searched parameters that a paper's printed optima lack: those of an arm go before those of the file."""

import pytest

from rankbench.core.errors import ConfigError
from rankbench.reproduce.evidence import Evidence
from rankbench.reproduce.required_fits import rows_of

TABLE = """\
name: toy-table2
published: {paper: Toy, table: 2}
unprinted: {iterations: 3, alpha0: 0.5}
datasets: [synthetic]
arms:
  - name: A
    method: ials
    params: &ials {iterations: {choice: [1, 3]}, alpha0: {choice: [0.1, 0.5]}, lam: {choice: [0.01, 0.1]}}
    printed: {synthetic: {lam: 0.01}}
    published: {synthetic: {recall@20: 0.5}}
  - name: B
    method: ials
    params: *ials
    unprinted: {alpha0: 0.1, lam: 0.1}
    printed: {synthetic: {}}
    published: {synthetic: {recall@20: 0.3}}
  - name: C
    method: ials
    params: *ials
    printed: {synthetic: {}}
    published: {synthetic: {recall@20: 0.3}}
"""


def test_values_of_an_arm_go_before_those_of_the_file(home, toy):
    evidence = Evidence(home.home / "experiments" / "evidence")
    a, b, c = rows_of(toy(TABLE), ["synthetic"])
    settings = [row.setting("printed", evidence).params for row in (a, b)]
    assert [(p.iterations, p.alpha0, p.lam) for p in settings] == [(3, 0.5, 0.01), (3, 0.1, 0.1)]
    with pytest.raises(ConfigError, match=r"C: printed\.synthetic: no lam; state it here or in unprinted"):
        c.setting("printed", evidence)
