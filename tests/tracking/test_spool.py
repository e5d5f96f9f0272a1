"""The spool: messages come back as they were put and in their order; what is damaged or half-written harms nothing."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbench.core.errors import DataError
from rankbench.tracking.spool import CurveMessage, EntryMessage, RunMessage, Spool, SweepEnd, SweepStart

TEXT, MILLISECONDS = st.text(max_size=20), st.integers(0, 2**53)
WORDS = st.dictionaries(TEXT, TEXT, max_size=3)
MESSAGES = st.one_of(
    st.builds(RunMessage, experiment=TEXT, time=MILLISECONDS, record=TEXT, sweep=st.none() | TEXT, tags=WORDS,
              experiment_id=st.none() | TEXT, parent=st.none() | TEXT, name=TEXT, first=TEXT,
              params=st.none() | st.lists(TEXT, max_size=3), kind=st.just("run")),
    st.builds(SweepStart, experiment=TEXT, time=MILLISECONDS, sweep=TEXT, params=WORDS, tags=WORDS,
              name=TEXT, experiment_tags=WORDS, kind=st.just("sweep-start")),
    st.builds(SweepEnd, experiment=TEXT, time=MILLISECONDS, sweep=TEXT, note=TEXT, ok=st.booleans(),
              files=st.lists(TEXT, max_size=3), kind=st.just("sweep-end")),
    st.builds(EntryMessage, experiment=TEXT, time=MILLISECONDS, id=TEXT, name=TEXT, tags=WORDS, params=WORDS,
              metrics=st.dictionaries(TEXT, st.floats(0, 1), max_size=3), started=MILLISECONDS, seconds=st.floats(0, 1e6),
              reason=TEXT, kind=st.just("entry")),
    st.builds(CurveMessage, experiment=TEXT, time=MILLISECONDS, id=TEXT, name=TEXT, tags=WORDS, params=WORDS,
              started=MILLISECONDS, rows=st.lists(st.dictionaries(TEXT, st.floats(-1, 1), max_size=3), max_size=3),
              sweep=st.none() | TEXT, stage=TEXT, ended=st.booleans(), kind=st.just("curve")),
)  # fmt: skip
MESSAGE = RunMessage(experiment="x", time=1, record="runs/a")


@given(messages=st.lists(MESSAGES, max_size=5))
def test_messages_come_back_as_they_were_put_in_their_order(tmp_path_factory, messages):
    spool = Spool(tmp_path_factory.mktemp("spool"))
    for message in messages:
        spool.put(message)
    assert [spool.read(path) for path in spool.waiting()] == messages


def test_threads_never_write_over_each_other(tmp_path):
    spool = Spool(tmp_path / "spool")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: spool.put(RunMessage(experiment="x", time=i, record="r")), range(200)))
    assert sorted(spool.read(path).time for path in spool.waiting()) == list(range(200))


def test_what_a_killed_writer_left_is_not_a_message(tmp_path):
    spool = Spool(tmp_path)
    (tmp_path / ".tmp-1a2b-0001.json").write_text('{"kind": "ru')
    kept = spool.put(MESSAGE)
    assert spool.waiting() == [kept]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"kind": "run"}', '{"kind": "walk", "experiment": "x", "time": 1, "record": "r"}',
     json.dumps({"kind": "run", "experiment": "x", "time": "soon", "record": "r"}), "\x00\x00"],
)  # fmt: skip
def test_a_damaged_message_is_named_and_can_be_set_aside(tmp_path, text):
    spool, path = Spool(tmp_path), tmp_path / "1.json"
    path.write_text(text)
    with pytest.raises(DataError, match=r"1\.json: not a tracking message"):
        spool.read(path)
    spool.set_aside(path)
    assert (spool.waiting(), spool.aside()) == ([], [tmp_path / "1.bad"])
