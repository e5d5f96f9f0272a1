"""The file of draws: draws are read as they were written, even if the last line is damaged, and from a store, too."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbench.core.errors import DataError
from rankbench.core.storage import Storage
from rankbench.schema.shared_sweeps import FILES, copy_sweep
from rankbench.sweeps import store as stores
from rankbench.sweeps.search.draws import Draws
from rankbench.sweeps.store import SweepStore

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


def test_in_a_store_few_draws_are_written_again_with_each_and_another_host_reads_all(environment, s3, tmp_path, monkeypatch):
    sent, write = [], Storage.write
    monkeypatch.setattr(Storage, "write", lambda self, key, content: (sent.append(len(content)), write(self, key, content)))
    monkeypatch.setattr(stores, "PART", 500)
    name, shared = "small-01234567-20260101-000000-000000", Storage.from_env(f"{s3}/results", "here")
    hosts = [replace(environment, results=tmp_path / each, results_store=shared) for each in ("a", "b", "reader")]

    def begin(host):
        """A process that runs the sweep, from its start or where it ended."""
        store = SweepStore.of(copy_sweep(name, host), host).claimed()
        return Draws(store.folder / "draws.jsonl", store)

    def add(draws, numbers):
        for number in numbers:
            sent.clear()
            draws.add("x", {"tau": number})
            line = len(json.dumps({"search": "x", "draw": number, "params": {"tau": number}})) + 1
            if number > numbers[0]:  # with the first one, a new process stores what was there before
                assert sum(sent) < 500 + line
            stored = Draws(copy_sweep(name, hosts[2]) / "draws.jsonl")
            assert stored.params["x"] == [{"tau": n} for n in range(number + 1)]

    first = begin(hosts[0])
    add(first, range(30))
    assert len(shared.objects(f"sweeps/{name}/{FILES}")) > 2
    # Of the same process, as when another search begins: its first part is the whole file, and smaller ones are left.
    add(Draws(first.path, first._store), range(30, 45))
    second = begin(hosts[1])
    assert second.drawn("x", 44) == {"tau": 44}
    add(second, range(45, 75))
    assert (hosts[1].results / "sweeps" / name / "draws.jsonl").read_bytes() == (
        hosts[2].results / "sweeps" / name / "draws.jsonl"
    ).read_bytes()
