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
CASES = {
    f"{contract.kind}-{name}-{check.run.__name__}": (registry, name, check)
    for contract, registry in KINDS.items()
    for name in registry.names()
    for check in contract.checks
}


@pytest.mark.parametrize(("registry", "name", "check"), CASES.values(), ids=CASES)
def test_it_keeps_the_contract(registry, name, check):
    try:
        check.run(registry.get(name))
    except NotCheckedError as reason:
        pytest.skip(str(reason))


def test_there_are_some_of_each_kind():
    assert [len(registry) >= 3 for registry in KINDS.values()] == [True] * 4


# The contract writes one plain file, without an archive and companions.
PLAIN = [
    name
    for name, (_, how, file, member) in VALID.items()
    if not member and not file.endswith(".gz") and how["format"] != "mediawiki-sql"
]


@pytest.mark.parametrize("name", PLAIN)
def test_the_contract_of_readers_reads_and_damages_the_whole_files_of_their_tests(name, monkeypatch):
    """With an example, as a plugin may declare one; those of the package have their examples in tests."""
    content, how, *_ = VALID[name]
    options = {key: value for key, value in how.items() if key != "format"}
    of_test = readers.Reader(READERS.get(how["format"]).read, example=content, options=options)
    monkeypatch.setitem(READERS._specs, how["format"], of_test)
    for check in readers.CONTRACT.checks:
        check.run(of_test)
