"""What is asked of every split protocol: a label for every interaction, determined by the data and the seed alone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from rankbench.contracts.check import Contract, expect, expect_equal
from rankbench.core.errors import DataError
from rankbench.data.interactions import PARTS, Interactions
from rankbench.data.protocols.spec import Protocol
from rankbench.data.splits import split

CONTRACT = Contract("protocol")
N_USERS, N_ITEMS = 60, 40


def interactions(part: bool) -> Interactions:
    """Sorted random interactions with values and times; with `part`, in published parts."""
    rng = np.random.default_rng(3)
    user, item = np.nonzero(rng.random((N_USERS, N_ITEMS)) < 0.4)
    parts = rng.choice(3, len(user), p=[0.7, 0.1, 0.2]) if part else np.full(len(user), PARTS.index("all"))
    return Interactions(
        user=user.astype(np.int32),
        item=item.astype(np.int32),
        part=parts.astype(np.int8),
        users=pa.array([f"u{number:03d}" for number in range(N_USERS)]),
        items=pa.array([f"i{number:03d}" for number in range(N_ITEMS)]),
        value=rng.integers(1, 6, len(user)).astype(np.float32),
        time=rng.permutation(len(user)).astype(np.int64) + 1_000_000_000,
    ).sorted()


def labels_of(protocol: Protocol) -> tuple[Interactions, np.ndarray]:
    """Labels of data in one part or, if the protocol refuses these, of data in published parts."""
    spec = protocol.spec(protocol=protocol.name)
    try:
        data = interactions(part=False)
        return data, np.asarray(protocol.label(data, spec))
    except DataError:
        data = interactions(part=True)
        return data, np.asarray(protocol.label(data, spec))


@CONTRACT.check(
    "every parameter has a default and can be written down and read again",
    "inherit SplitSpec or CarvedValid, and give each field as Field(default, description=...)",
)
def parameters_are_described(protocol: Protocol) -> None:
    spec = protocol.spec(protocol=protocol.name)
    expect(
        protocol.spec.model_validate(spec.model_dump()) == spec, "the parameters that are read are not those that were written"
    )


@CONTRACT.check(
    "each interaction has one of the labels, and train, valid and test are not empty",
    "return an int8 array with one of TRAIN, VALID, TEST, VALID_HISTORY, TEST_HISTORY and DROPPED per interaction",
)
def labels_are_known(protocol: Protocol) -> None:
    data, _ = labels_of(protocol)
    split(data, protocol.spec(protocol=protocol.name))  # it checks them


@CONTRACT.check(
    "the same data and seed give the same labels, and the data are not changed",
    "draw from rankbench.core.rng.stream(p.seed, ...), and write to no array of the data",
)
def labels_repeat(protocol: Protocol) -> None:
    before, first = labels_of(protocol)
    data, second = labels_of(protocol)
    expect_equal(first, second, "labels of two calls")
    for name in ("user", "item", "part", "value", "time"):
        expect_equal(getattr(before, name), getattr(interactions(bool((data.part < 3).any())), name), f"the data's {name}")


@CONTRACT.check(
    "no label depends on raw ids that come later in the alphabet",
    "use ids only to tell users and items apart; `data` is sorted already",
)
def later_ids_change_nothing(protocol: Protocol) -> None:
    data, labels = labels_of(protocol)
    longer = Interactions(
        data.user, data.item, data.part, data.users, pa.array([*data.items.to_pylist(), "zzz"]), data.value, data.time
    )
    spec = protocol.spec(protocol=protocol.name)
    expect_equal(protocol.label(longer, spec), labels, "labels after an item was added that nobody met")
