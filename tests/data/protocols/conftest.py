"""Rows in, parts out by raw ids: what the tests of every protocol say their oracles in."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from rankbench.data.cards import Step
from rankbench.data.interactions import PARTS, Encoder, Interactions
from rankbench.data.protocols.spec import SplitSpec
from rankbench.data.splits import LABELS, Split, split
from rankbench.data.steps import apply


class Cut(NamedTuple):
    """`parts`: for every matrix of the split its (user, item) pairs, sorted."""

    split: Split
    data: Interactions
    parts: dict[str, list[tuple]]


def interactions(rows: list[tuple], parts: list[str] | None = None) -> Interactions:
    """(user, item) or (user, item, time) rows, time perhaps None, sorted as `split` asks for, each of its part or of all."""
    names = ("user", "item", "time")[: len(rows[0])]
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    if "time" in columns:
        columns["time"] = pa.array(columns["time"], pa.int64())
    encoder = Encoder("test")
    encoder.add(pa.table(columns), PARTS.index("all"))
    data = encoder.finish()
    if parts:
        data = replace(data, part=np.array([PARTS.index(part) for part in parts], np.int8))
    return data.sorted()


def _pairs(data: Interactions, matrix) -> list[tuple]:
    users, items = data.users.to_pylist(), data.items.to_pylist()
    return sorted((users[row], items[column]) for row, column in zip(*matrix.nonzero(), strict=True))


@pytest.fixture(scope="session")
def pairs():
    """pairs(data, matrix) → the (user, item) pairs of a matrix, sorted."""
    return _pairs


@pytest.fixture(scope="session")
def cut():
    """cut(rows, spec, *steps) → Cut; no pair lies in two parts, and every row and column of the matrices has one."""

    def cut(rows: list[tuple], spec: SplitSpec, *steps: dict, parts: list[str] | None = None) -> Cut:
        prepared = interactions(rows, parts)
        for step in steps:
            prepared = apply(Step(**step), prepared)
        made, data = split(prepared.sorted(), spec)
        found = {name: _pairs(data, getattr(made, name)) for name in LABELS}
        every = [pair for part in found.values() for pair in part]
        assert len(every) == len(set(every)) and all((getattr(made, name).data == 1).all() for name in LABELS)
        assert made.train.shape == (len(data.users), len(data.items))
        assert {user for user, _ in every} == set(data.users.to_pylist())
        assert {item for _, item in every} == set(data.items.to_pylist())
        return Cut(made, data, found)

    return cut
