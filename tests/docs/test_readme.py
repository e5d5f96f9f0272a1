"""The numbers of README.md that the evidence decides."""

import re

from pages import ROOT

from rankbench.core.environment import Environment
from rankbench.reproduce.catalogue import paper_tables
from rankbench.reproduce.counts import counts
from rankbench.reproduce.evidence import Evidence
from rankbench.reproduce.simulations import SIMULATIONS


def test_what_readme_says_about_published_numbers_is_what_the_evidence_says():
    environment = Environment.from_env()
    tables = paper_tables(environment)
    names = {table.name for table in tables} | {study.table for study in SIMULATIONS}
    every = counts(tables, names, Evidence(ROOT / "experiments" / "evidence"), environment)["all"]
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    numbers = r"(\d+) have been measured: (\d+) % are within 1 %, (\d+) % within 3 %"
    said = re.search(rf"{numbers}; of {every.with_others} beside other rows, (\d+) % agree, (\d+) % by chance", text)
    assert said, "README.md: no sentence about the published numbers"
    measured, *shares = map(int, said.groups())
    assert measured == every.measured
    near = every.within_1 / measured, every.within_3 / measured
    expected = [*near, every.others_agree / every.with_others, every.by_chance / every.with_others]
    assert shares == [round(100 * share) for share in expected]
