"""Stores that people merge by hand: what cannot be right is named, the rest can be read, and nothing is lost by writing."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from rankbench.core.errors import DataError
from rankbench.ledger.json_lines import LARGEST_FILE, LONGEST_LINE, MOST_LINES, JsonLines
from rankbench.ledger.line import Line, origin


@dataclass(frozen=True)
class Setting(Line):
    dataset: str
    name: str
    value: float
    params: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self):
        return (self.name,)


GOOD = b'{"dataset": "d", "name": "a", "value": 1.5}'


@pytest.fixture
def file(tmp_path):
    return JsonLines(tmp_path / "d.jsonl", Setting, "d")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (GOOD, "line 1 is of the same entry; keep one of them"),
        (b"<<<<<<< HEAD", "is a conflict marker of a merge"),
        (b"=======", "is a conflict marker of a merge"),
        (b">>>>>>> theirs", "is a conflict marker of a merge"),
        (b"", "line: Invalid JSON"),
        (b"no json", "line: Invalid JSON"),
        (b"[" * 100_000, "line: Invalid JSON"),
        (b"\xff\xfe", "is not UTF-8"),
        (b"[]", "line: Input should be an object"),
        (GOOD.replace(b'"a"', b'"b\0"'), "has a NUL"),
        (GOOD.replace(b'"a"', b'"b\\u0000"'), "has a NUL"),
        (GOOD.replace(b'"a"', b'"b\\ud800"'), "is not UTF-8"),
        (GOOD.replace(b'"d"', b'"other"'), "dataset: is of 'other', and the file has those of 'd'"),
        (GOOD.replace(b"1.5", b"NaN"), "NaN is no finite number, or too large"),
        (GOOD.replace(b"1.5", b"-Infinity"), "-Infinity is no finite number, or too large"),
        (GOOD.replace(b"1.5", b"1e308"), "1e308 is no finite number, or too large"),
        (GOOD.replace(b"1.5", b"1e999"), "1e999 is no finite number, or too large"),
        (GOOD.replace(b"1.5", b"9" * 5000), "is no finite number, or too large"),
        (GOOD.replace(b"1.5", b'1, "params": {"lam": NaN}'), "NaN is no finite number, or too large"),
        (GOOD.replace(b"1.5", b'1, "value": 2'), "has a key twice"),
        (GOOD.replace(b"1.5", b'"much"'), "value: Input should be a valid number"),
        (GOOD.replace(b"1.5", b'"10"'), "value: Input should be a valid number"),
        (GOOD.replace(b"1.5", b"true"), "value: Input should be a valid number"),
        (GOOD.replace(b"a", b"b" * LONGEST_LINE), "is longer than 1 MB"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
def test_a_wrong_line_is_named_and_the_rest_can_be_read(file, line, told):
    last = GOOD.replace(b'"a"', b'"last"')
    content = b"\n".join([GOOD, line, last]) + b"\n"
    file.path.write_bytes(content)
    row = 1 if line == GOOD else 2
    with pytest.raises(DataError) as refused:
        file.read()
    message = str(refused.value)
    assert message.startswith(f"{file.path}:{row}: ") and "--skip-bad" in message and "\n" not in message
    skipped = []
    # Of two lines of one entry, none is left: their order must decide nothing.
    assert [each.name for each in file.read(skipped)] == (["last"] if line == GOOD else ["a", "last"])
    assert skipped[-1].startswith(f"{file.path}:2: ") and told in skipped[-1] and len(skipped) == 3 - row
    # What cannot be read is not destroyed.
    with pytest.raises(DataError, match="correct or remove the line"):
        file.update(lambda lines: lines)
    assert file.path.read_bytes() == content


def test_a_file_that_is_none_or_too_large_is_named(file):
    with file.path.open("wb") as sparse:
        sparse.truncate(LARGEST_FILE + 1)
    with pytest.raises(DataError, match="expected a file of at most 64 MB"):
        file.read()
    file.path.write_bytes(b"\n" * (MOST_LINES + 1))
    with pytest.raises(DataError, match="expected at most 100,000 lines"):
        file.read([])
    file.path.unlink()
    file.path.mkdir()
    with pytest.raises(DataError, match="expected a file"):
        file.read()


def test_what_was_written_is_read(file):
    assert file.read() == []
    lines = [Setting("d", "a", 1.5, {"n": 2, "x": 0.1, "on": True}), Setting("d", "ä", -1.0)]
    assert file.update(lambda stored: stored + lines) == file.read() == lines
    assert isinstance(file.read()[0].params["n"], int)
    file.path.write_bytes(b"")
    assert file.read() == []


def test_a_package_that_is_not_installed_has_no_version():
    """Its line could not be read again: a version is a text."""
    assert origin({"packages": {"torch": None, "numpy": "2.3", "ray": "2.5"}})["versions"] == {"numpy": "2.3"}
