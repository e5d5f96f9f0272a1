"""Every method and encoder of the package has a formula, a paper of the bibliography and commands that are taken."""

import re
import shlex

import method_pages
import pytest
import references
from pages import ROOT
from test_blocks import check

from rankbench.core.config import assignments
from rankbench.experiment.fit_warnings import unread
from rankbench.experiment.job import configure

ENTRIES = [(page, each) for page in method_pages.pages() for each in page.entries]
KEYS = re.findall(r"^@\w+\{([\w-]+),$", (ROOT / "docs" / "references.bib").read_text(encoding="utf-8"), re.MULTILINE)


def test_every_method_has_a_formula():
    assert not [each.name for page, each in ENTRIES if each.name not in page.formulas]


def test_every_method_names_a_paper_of_the_bibliography():
    assert not [each.name for _, each in ENTRIES if not references.keys(each.source) and each.source != "baseline"]
    named = {key for _, each in ENTRIES for key in references.keys(each.source)}
    assert not named - {*KEYS} and len(KEYS) == len({*KEYS}) >= 30


@pytest.mark.parametrize(
    ("source", "keys"),
    [
        ("Wu et al., TOIS 2024, Eq. 8", ["wu-tois-2024"]),
        ("Covington, Adams, Sargin, RecSys 2016; Mao et al., CIKM 2021", ["covington-recsys-2016", "mao-cikm-2021"]),
        ("Veličković et al., ICLR 2018; their program", ["velickovic-iclr-2018"]),
        ("my own", []),
    ],
)
def test_a_source_gives_the_keys_of_its_papers(source, keys):
    assert references.keys(source) == keys


def test_each_paper_has_an_address_or_is_known_to_have_none():
    pytest.importorskip("pybtex", reason="the tools of the site are not installed")
    entries = references.references()
    assert list(entries) == KEYS
    assert [key for key, text in entries.items() if "](https://" not in text] == ["boyd-neurips-2012", "steck-neurips-2020"]


@pytest.mark.parametrize("each", [each for _, each in ENTRIES], ids=lambda each: each.name)
def test_the_commands_of_a_method_are_taken_by_the_command_line(each):
    fit, search = method_pages.commands(each)
    assert each.name in fit and each.name in search
    method, *words = shlex.split(fit)[3:]
    assert not unread(configure(method, assignments(words)), assignments(words))
    for command in (fit, search):
        check(shlex.split(command)[1:])
