"""Values of searched parameters that a paper's printed optima lack: those of an arm go before those of the file."""

import pytest

from rankbench.core.errors import ConfigError
from rankbench.reproduce.agreement import measurements
from rankbench.reproduce.pages import write_pages
from rankbench.reproduce.required_fits import rows_of

from .stored import stored

TABLE = """\
unprinted: {iterations: 3, alpha0: 0.5}
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


def test_values_of_an_arm_go_before_those_of_the_file(evidence, toy):
    a, b, c = rows_of(toy(TABLE), ["synthetic"])
    settings = [row.setting("printed", evidence).params for row in (a, b)]
    assert [(p.iterations, p.alpha0, p.lam) for p in settings] == [(3, 0.5, 0.01), (3, 0.1, 0.1)]
    assert [row.lacking for row in (a, b)] == [["iterations", "alpha0"], ["iterations", "alpha0", "lam"]]
    with pytest.raises(ConfigError, match=r"C: printed\.synthetic: no lam; state it here or in unprinted"):
        c.setting("printed", evidence)


def test_an_optimum_that_lacks_values_is_printed_in_part_and_the_page_names_them(home, evidence, toy, tmp_path):
    whole = "    printed: {synthetic: {iterations: 1, alpha0: 0.1, lam: 0.01}}\n"
    rows = list(rows_of(toy(TABLE.replace("    printed: {synthetic: {}}\n", whole)), ["synthetic"]))
    for row in rows:
        evidence.add(stored(row, row.setting("printed", evidence), {"recall@20": (0.5, 0.4, 0.6)}))
    words = [each.setting for row in rows for each in measurements(row, evidence)]
    assert words == ["printed in part", "printed in part", "printed"]
    write_pages(tmp_path, [rows[0].table], evidence, home)
    lines = [line for line in (tmp_path / "toy.md").read_text().splitlines() if line.startswith("- ")]
    assert lines == [
        "- iterations 3, which the printed optimum lacks: A",
        "- alpha0 0.5, which the printed optimum lacks: A",
        "- alpha0 0.1, which the printed optimum lacks: B",
        "- lam 0.01, which the printed optimum lacks: B",
    ]
