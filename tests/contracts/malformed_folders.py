"""Malformed folders of saved models: arrays that are not what their header says, and a model.json that is not true."""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harm import harm_file
from malformed import TOY, Case

ARRAYS, ABOUT = "arrays.safetensors", "model.json"
WIDTHS = {"F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "I8": 1, "U8": 1, "BOOL": 1, "BF16": 2, "F16": 2, "I64": 8, "U64": 8}
CLAIMS = [0, 1, 7, 2**16, 10**8, 2**31, 2**40, 2**63 - 1, 2**64 - 1]
HEADERS = [
    b"", b"{}", b"[]", b"{" * 50_000, b'{"a":' * 50_000, b"\xff\xfe", b'{"a": NaN}', b" " * 3_000_000, b'{"a":1,"a":2}',
]  # fmt: skip
OFFSETS = [[0, 2**63], [8, 0], [-8, 0], [0, 0], [2**64 - 8, 2**64 - 1], [0.5, 8], None, [0], "a"]
SHAPES = [[2**32, 2**32], [0], [-1], [], None, [2**63], [1.5], "ab", [1] * 300, [10**12]]
VALUES = {
    "sha256": (None, "", "0" * 64, 7, []),
    "form": ("linear by tiles", "pairs", "autoencoder", "../../x", "", None, 7),
    "method": ("", "../../x", "<b>x</b>", "ev*l", "family:x", "a\0b", "x" * 10_000, None, 7, ["ease"]),
    "params": (None, [], "lam=1", {"lam": "x"}, {"lam": -1}, {"no": 1}, {"epochs": {}}),
    "fit_on": ("test", "", None, 7),
    "seed": (-1, None, "1", 0.5, True),
    "format": (2, 0, None, "1"),
    "dataset": (None, {}, "toy", {"card": 7}, {"card": "../../x"}),
}


@dataclass
class Model:
    """What model.json says, and the header and the data of the arrays. `claims`: the size of the header, if it is not the true
    one. `ends`: where the file of the arrays ends; beyond the data are zeros that take no room on the disk.
    """

    about: dict[str, Any]
    header: dict[str, Any] | bytes
    data: bytes
    claims: int | None = None
    ends: int | None = None

    @classmethod
    def read(cls, folder: Path) -> Model:
        content = (folder / ARRAYS).read_bytes()
        (size,) = struct.unpack("<Q", content[:8])
        return cls(json.loads((folder / ABOUT).read_bytes()), json.loads(content[8 : 8 + size]), content[8 + size :])

    def write(self, folder: Path) -> None:
        """Write both, with the checksum of arrays that are changed, so that more than the checksum is tried."""
        before = (folder / ARRAYS).read_bytes()
        header = self.header if isinstance(self.header, bytes) else json.dumps(self.header).encode()
        content = struct.pack("<Q", len(header) if self.claims is None else self.claims) + header + self.data
        content = content[: self.ends]
        (folder / ARRAYS).write_bytes(content)
        if self.ends is not None:
            os.truncate(folder / ARRAYS, self.ends)
        if self.about.get("sha256") == hashlib.sha256(before).hexdigest():
            self.about["sha256"] = hashlib.sha256(content).hexdigest()
        (folder / ABOUT).write_text(json.dumps(self.about), encoding="utf-8")

    @property
    def arrays(self) -> list[str]:
        """The names of the arrays, in the order of their data."""
        return sorted({*self.header} - {"__metadata__"}, key=lambda name: self.header[name]["data_offsets"])

    def lay_out(self, changed: str, size: int) -> int:
        """Put the arrays one after the other, one of them with another size. Returns the size of all."""
        at = 0
        for name in self.arrays:
            begin, end = self.header[name]["data_offsets"]
            self.header[name]["data_offsets"] = [at, at := at + (size if name == changed else end - begin)]
        return at


def a_folder(rng: random.Random) -> Case:
    folder = f"models/{rng.choice(['ease', 'ials', 'popularity'])}"
    answers = [["recommend", folder, "--all", "-k", "3"], ["recommend", folder, "--user", "1"]]
    words = rng.choice([*answers, ["similar", folder, "--item", "3"]])
    seed, (how, codes) = rng.random(), rng.choice(HARMS)

    def harm(root: Path) -> None:
        drawn, model = random.Random(seed), Model.read(root / folder)
        how(drawn, model, drawn.choice(model.arrays))
        model.write(root / folder)

    def harm_a_file(root: Path) -> None:
        harm_file(random.Random(seed), root / folder / (ABOUT if seed < 0.5 else ARRAYS))

    return Case([*words, "--out", "top.csv"], TOY, models=True, harm=harm if how else harm_a_file, codes=codes)


def _type(rng: random.Random, model: Model, name: str) -> None:
    """Give an array another type, most often with bytes enough for it."""
    array = model.header[name]
    array["dtype"] = rng.choice([*WIDTHS, "F4", "F6_E2M3", "C64", "F128", "", None, 7])
    if (width := WIDTHS.get(str(array["dtype"]))) and rng.random() < 0.8:
        model.data = bytes(model.lay_out(name, math.prod(array["shape"]) * width))


def _cut(rng: random.Random, model: Model, name: str) -> None:
    whole = 8 + len(json.dumps(model.header)) + len(model.data)
    model.ends = rng.choice([0, 1, 7, 8, 9, rng.randrange(whole), whole - 1])


def _header(rng: random.Random, model: Model, name: str) -> None:
    """Write a header that is larger than the file, no JSON, too deep, or says what cannot be."""
    array, how = model.header[name], rng.randrange(7)
    if how == 0:
        model.claims = rng.choice(CLAIMS)
    elif how == 1:
        model.header = rng.choice(HEADERS)
    elif how == 2:
        array["data_offsets"] = rng.choice(OFFSETS)
    elif how == 3:
        array["shape"] = rng.choice(SHAPES)
    elif how == 4:
        model.header[rng.choice(["model.more", "", "../../x", "x" * 100_000])] = dict(array)  # two arrays of the same bytes
    elif how == 5:
        del model.header[name]
    else:
        end = len(model.data)
        model.header |= {f"more.{n}": {"dtype": "F32", "shape": [0], "data_offsets": [end, end]} for n in range(20_000)}


def _shape(rng: random.Random, model: Model, name: str) -> None:
    """Write an array that is whole, and does not fit the ids."""
    shape = model.header[name]["shape"]
    model.header[name]["shape"] = rng.choice([[*shape, 1], [1, *shape], [*shape[::-1], 1], [1, 1, 1]])


def _holes(rng: random.Random, model: Model, name: str) -> None:
    """Write a file of up to a terabyte that takes no room on the disk, whose header may say that it is whole."""
    model.ends = rng.choice([10**10, 10**11, 10**12])
    if rng.random() < 0.5:
        array = model.header[name]
        width = 8 if array["dtype"] in ("F64", "I64", "U64") else 4
        rows = model.ends // width // 4
        array["shape"] = [rows, 4] if len(array["shape"]) == 2 else [rows * 4]
        size = model.lay_out(name, rows * 4 * width)
        model.data, model.ends = b"", 8 + len(json.dumps(model.header)) + size
        model.about["sha256"] = rng.choice([model.about.get("sha256"), None])


def _ids(rng: random.Random, model: Model, name: str) -> None:
    key = rng.choice(["users", "items"])
    ids = model.about[key]
    last = rng.choice([None, True, 1.5, 2**63, -(2**63) - 1, [], {}, "text among numbers", ids[0]])
    whole = [[], None, {}, "text", ids[:-1], [*ids, 99], [ids], len(ids), list(range(3_000_000)), ["x" * 100_000] * len(ids)]
    texts = [str(each) for each in ids[:-1]] + [str(ids[0])]
    model.about[key] = rng.choice([[*ids[:-1], last], rng.choice(whole), texts])


def _about(rng: random.Random, model: Model, name: str) -> None:
    key = rng.choice([*VALUES])
    model.about[key] = rng.choice(VALUES[key])


def _value(rng: random.Random, model: Model, name: str) -> None:
    """Write other numbers, NaN among them: histories that point nowhere, or scores that are none."""
    begin, end = model.header[name]["data_offsets"]
    place = rng.randrange(begin, end) // 8 * 8
    wrong = rng.choice([b"\xff", b"\x7f", b"\x00", b"\x80"])
    model.data = model.data[:place] + (wrong * 8)[: end - place] + model.data[min(place + 8, end) :]


# A type that is as wide as the true one may give other numbers; an array that no method reads may have any type.
HARMS: list[tuple[Callable[[random.Random, Model, str], None] | None, tuple[int, ...]]] = [
    (_type, (0, 2)), (_cut, (2,)), (_header, (2,)), (_shape, (2,)), (_holes, (2,)), (_ids, (2,)), (_about, (2,)),
    (_value, (0, 2, 3)), (None, (0, 2, 3, 5)),
]  # fmt: skip
