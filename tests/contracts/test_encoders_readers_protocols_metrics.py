"""Every encoder, reader, protocol and metric of the package keeps the contract of its kind."""

import sys
from pathlib import Path

import pytest

from rankbench.contracts import encoders, metrics, protocols, readers
from rankbench.contracts.check import NotCheckedError
from rankbench.data.protocols.spec import protocols as all_protocols
from rankbench.data.readers import FORMATS, READERS, reader
from rankbench.evaluation.metrics import METRICS
from rankbench.models.spec import registered as all_encoders

sys.path.insert(0, str(Path(__file__).parents[1] / "data" / "readers"))
from whole_files import VALID

for _format in FORMATS:
    reader(_format)
KINDS = {
    encoders.CONTRACT: all_encoders(),
    protocols.CONTRACT: all_protocols(),
    metrics.CONTRACT: METRICS,
    readers.CONTRACT: READERS,
}
CASES = [
    (contract, name, check) for contract, registry in KINDS.items() for name in registry.names() for check in contract.checks
]


@pytest.mark.parametrize(
    ("contract", "name", "check"),
    CASES,
    ids=[f"{contract.kind}-{name}-{check.run.__name__}" for contract, name, check in CASES],
)
def test_it_keeps_the_contract(contract, name, check):
    try:
        check.run(KINDS[contract].get(name))
    except NotCheckedError as reason:
        pytest.skip(str(reason))


def test_there_are_some_of_each_kind():
    assert [len(registry) >= 3 for registry in KINDS.values()] == [True] * 4


@pytest.mark.parametrize(
    "name", [name for name, (_, how, _, member) in VALID.items() if not member and how["format"] != "mediawiki-sql"]
)
def test_the_contract_of_readers_reads_and_damages_the_whole_files_of_their_tests(name, monkeypatch):
    """With an example, as a plugin may declare one; those of the package have their examples in tests."""
    content, how, file_name, _ = VALID[name]
    if file_name.endswith(".gz"):
        pytest.skip("the contract writes a plain file")
    options = {key: value for key, value in how.items() if key != "format"}
    of_test = readers.Reader(READERS.get(how["format"]).read, content, options)
    monkeypatch.setitem(READERS._specs, how["format"], of_test)
    for check in readers.CONTRACT.checks:
        check.run(of_test)
