"""The file of draws: draws are read as they were written, even if the last line is damaged."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbench.core.errors import DataError
from rankbench.sweeps.draws import Draws

PARAMS = st.fixed_dictionaries({"tau": st.floats(0.01, 1), "k": st.integers(1, 9), "kind": st.sampled_from(["a", "b", None])})


@given(draws=st.lists(st.tuples(st.sampled_from(["x/one", "x/two"]), PARAMS), max_size=8), torn=st.integers(0, 60))
def test_what_was_drawn_stands_there_though_the_last_line_was_torn(tmp_path_factory, draws, torn):
    path = tmp_path_factory.mktemp("draws") / "sweep" / "draws.jsonl"
    first = Draws(path)
    assert first.lag("x/one", 3) == 3
    for search, params in draws:
        first.add(search, params)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines)[: -torn or None] if torn < len(lines[-1]) else b"".join(lines[:-1]))
    kept = draws[: max(0, len(lines) - 1 - (torn > 0))]
    again = Draws(path)
    for search in ("x/one", "x/two"):
        expected = [params for name, params in kept if name == search]
        assert [again.drawn(search, number) for number in range(len(expected) + 1)] == [*expected, None]
    again.add("x/one", {"tau": 0.5})  # on a line of its own
    assert all(json.loads(line) for line in path.read_text().splitlines())
    if len(lines) > 1:
        assert again.lag("x/one", 7) == 3  # what the sweep began with


@pytest.mark.parametrize("line", ["no json", "[]", '{"search": "x", "draw": 1, "params": {}}', '{"draw": 0}', "\xff"])
def test_a_file_of_something_else_is_named_with_its_line(tmp_path, line):
    path = tmp_path / "draws.jsonl"
    path.write_bytes(b'{"search": "x/one", "lag": 3}\n' + line.encode("latin-1") + b"\n")
    with pytest.raises(DataError, match=r"draws\.jsonl: line 2: not a draw of a sweep"):
        Draws(path)
