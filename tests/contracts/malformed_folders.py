"""Malformed folders of saved models: arrays that are not what their header says, and a model.json that is not true."""

# ruff: noqa: E501  a value a line would be longer still

from __future__ import annotations

import hashlib
import json
import os
import random
import struct
from pathlib import Path
from typing import Any

from harm import instead_of_file, put
from malformed import TOY, Case

HEADER_BOMBS = [0, 1, 7, 2**16, 10**8, 2**31, 2**40, 2**63 - 1, 2**64 - 1]
TYPES = [
    "F8_E4M3",
    "F8_E5M2",
    "F8_E8M0",
    "F4",
    "F6_E2M3",
    "BF16",
    "F16",
    "I8",
    "U8",
    "I64",
    "U64",
    "BOOL",
    "C64",
    "F128",
    "",
    None,
    7,
]


def a_folder(rng: random.Random) -> Case:
    folder = f"models/{rng.choice(['ease', 'ials', 'popularity'])}"
    words = rng.choice(
        [["recommend", folder, "--all", "-k", "3"], ["similar", folder, "--item", "3"], ["recommend", folder, "--user", "1"]]
    )
    seed = rng.random()
    how = rng.choice([*HARMS])

    def harm(root: Path) -> None:
        HARMS[how](random.Random(seed), root / folder)

    # A type that is as wide as the true one may give other numbers; an array that no method reads may have any type.
    codes = {"type": (0, 2), "file": (0, 2), "value": (0, 2, 3)}.get(how, (2,))
    return Case([*words, "--out", "top.csv"], TOY, models=True, harm=harm, codes=codes)


def _parts(folder: Path) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    """What model.json says, and header and data of the arrays."""
    content = (folder / "arrays.safetensors").read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    return json.loads((folder / "model.json").read_bytes()), json.loads(content[8 : 8 + size]), content[8 + size :]


def _write(folder: Path, about: dict[str, Any], arrays: bytes | None = None) -> None:
    """Write both, with the checksum of the arrays, so that more than the checksum is tried."""
    if arrays is not None:
        (folder / "arrays.safetensors").write_bytes(arrays)
        if about.get("sha256"):
            about["sha256"] = hashlib.sha256(arrays).hexdigest()
    (folder / "model.json").write_text(json.dumps(about), encoding="utf-8")


def _packed(header: dict[str, Any] | bytes, data: bytes) -> bytes:
    head = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(head)) + head + data


def _type(rng: random.Random, folder: Path) -> None:
    """An array of another type, most often with bytes enough for it."""
    about, header, data = _parts(folder)
    array = header[rng.choice(_arrays(header))]
    array["dtype"] = rng.choice(TYPES)
    widths = {"F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "I8": 1, "U8": 1, "BOOL": 1, "BF16": 2, "F16": 2, "I64": 8, "U64": 8}
    if (width := widths.get(str(array["dtype"]))) and rng.random() < 0.8:
        count = 1
        for size in array["shape"]:
            count *= size
        _lay_out(header, array, count * width)
        data = bytes(max(each["data_offsets"][1] for name, each in header.items() if name != "__metadata__"))
    _write(folder, about, _packed(header, data))


def _lay_out(header: dict[str, Any], changed: dict[str, Any], size: int) -> None:
    """Put the arrays one after the other, one of them with another size."""
    at = 0
    for name in sorted(_arrays(header), key=lambda name: header[name]["data_offsets"]):
        begin, end = header[name]["data_offsets"]
        length = size if header[name] is changed else end - begin
        header[name]["data_offsets"] = [at, at + length]
        at += length


def _arrays(header: dict[str, Any]) -> list[str]:
    return [name for name in header if name != "__metadata__"]


def _cut(rng: random.Random, folder: Path) -> None:
    about, header, data = _parts(folder)
    content = _packed(header, data)
    _write(folder, about, content[: rng.choice([0, 1, 7, 8, 9, rng.randrange(len(content)), len(content) - 1])])


def _header(rng: random.Random, folder: Path) -> None:
    """A header that is larger than the file, no JSON, too deep, or says what cannot be."""
    about, header, data = _parts(folder)
    array = header[rng.choice(_arrays(header))]
    how = rng.randrange(8)
    if how < 2:
        claimed = rng.choice(HEADER_BOMBS)
        return _write(folder, about, struct.pack("<Q", claimed) + json.dumps(header).encode() + data)
    if how == 2:
        texts = [
            b"",
            b"{}",
            b"[]",
            b"{" * 50_000,
            b'{"a":' * 50_000,
            b"\xff\xfe",
            b'{"a": NaN}',
            b" " * 3_000_000,
            b'{"a":1,"a":2}',
        ]
        return _write(folder, about, _packed(rng.choice(texts), data))
    if how == 3:
        array["data_offsets"] = rng.choice(
            [[0, 2**63], [8, 0], [-8, 0], [0, 0], [2**64 - 8, 2**64 - 1], [0.5, 8], None, [0], "a"]
        )
    elif how == 4:
        array["shape"] = rng.choice([[2**32, 2**32], [0], [-1], [], None, [2**63], [1.5], "ab", [1] * 300, [10**12]])
    elif how == 5:
        header[rng.choice(["model.more", "", "../../x", "x" * 100_000])] = dict(array)  # two arrays of the same bytes
    elif how == 6:
        del header[rng.choice(_arrays(header))]
    else:
        header |= {f"more.{n}": {"dtype": "F32", "shape": [0], "data_offsets": [len(data), len(data)]} for n in range(20_000)}
        del header[_arrays(header)[0]]
    _write(folder, about, _packed(header, data))


def _shape(rng: random.Random, folder: Path) -> None:
    """An array that is whole, and does not fit the ids."""
    about, header, data = _parts(folder)
    name = rng.choice(_arrays(header))
    array = header[name]
    array["shape"] = rng.choice([[*array["shape"], 1], [1, *array["shape"]], [*array["shape"][::-1], 1]])
    if rng.random() < 0.5:
        begin, end = array["data_offsets"]
        width = 8 if array["dtype"] in ("F64", "I64", "U64") else 4
        rows = (end - begin) // width - 1
        array["shape"] = [rows]
        if rows < 1:
            array["shape"] = [1, 1, 1]
        else:
            _lay_out(header, array, rows * width)
            data = data[: begin + rows * width] + data[end:]
    _write(folder, about, _packed(header, data))


def _holes(rng: random.Random, folder: Path) -> None:
    """A file of up to a terabyte that takes no room on the disk, whose header says that it is whole."""
    about, header, data = _parts(folder)
    path, size = folder / "arrays.safetensors", rng.choice([10**10, 10**11, 10**12])
    if rng.random() < 0.5:
        name = rng.choice(_arrays(header))
        width = 8 if header[name]["dtype"] in ("F64", "I64", "U64") else 4
        header[name]["shape"] = [size // width // 4, 4] if len(header[name]["shape"]) == 2 else [size // width]
        _lay_out(header, header[name], size // width // 4 * 4 * width)
        data = b""
    content = _packed(header, data)
    path.write_bytes(content)
    os.truncate(path, len(content) - len(data) + max(header[name]["data_offsets"][1] for name in _arrays(header)))
    if not data:
        about["sha256"] = rng.choice([about.get("sha256"), None])
    else:
        os.truncate(path, size)
    _write(folder, about)


def _ids(rng: random.Random, folder: Path) -> None:
    about, _, _ = _parts(folder)
    name = rng.choice(["users", "items"])
    ids = about[name]
    how = rng.randrange(6)
    if how == 0:
        ids[rng.randrange(1, len(ids))] = ids[0]
    elif how == 1:
        ids[-1] = rng.choice([None, True, 1.5, 2**63, -(2**63) - 1, [], {}, "text among numbers"])
    elif how == 2:
        about[name] = rng.choice([[], None, {}, "text", ids[:-1], [*ids, 99], [ids], len(ids)])
    elif how == 3:
        about[name] = list(range(3_000_000))  # 24 MB
    elif how == 4:
        about[name] = ["x" * 100_000] * len(ids)
    else:
        about[name] = [str(each) for each in ids[:-1]] + [str(ids[0])]
    _write(folder, about)


def _about(rng: random.Random, folder: Path) -> None:
    """Another key of model.json."""
    about, _, _ = _parts(folder)
    name, value = rng.choice(
        [("sha256", value) for value in (None, "", "0" * 64, 7, [])]
        + [("form", value) for value in ("linear by tiles", "pairs", "autoencoder", "../../x", "", None, 7)]
        + [
            ("method", value)
            for value in ("", "../../x", "<b>x</b>", "ev*l", "family:x", "a\0b", "x" * 10_000, None, 7, ["ease"])
        ]
        + [("params", value) for value in (None, [], "lam=1", {"lam": "x"}, {"lam": -1}, {"no": 1}, {"epochs": {}})]
        + [("fit_on", value) for value in ("test", "", None, 7)]
        + [("seed", value) for value in (-1, None, "1", 0.5, True)]
        + [("format", value) for value in (2, 0, None, "1")]
        + [("dataset", value) for value in (None, {}, "toy", {"card": 7}, {"card": "../../x"})]
    )
    about[name] = value
    _write(folder, about)


def _value(rng: random.Random, folder: Path) -> None:
    """Bytes of the arrays that are other numbers, NaN among them: histories that point nowhere, or scores that are none."""
    about, header, data = _parts(folder)
    begin, end = header[rng.choice(_arrays(header))]["data_offsets"]
    wrong = rng.choice([b"\xff", b"\x7f", b"\x00", b"\x80"])
    place = rng.randrange(begin, end) // 8 * 8
    data = data[:place] + (wrong * 8)[: end - place] + data[min(place + 8, end) :]
    _write(folder, about, _packed(header, data))


def _file(rng: random.Random, folder: Path) -> None:
    path = folder / rng.choice(["model.json", "arrays.safetensors"])
    content = path.read_bytes()
    path.unlink()
    put(path, instead_of_file(rng, content))


HARMS = {
    "type": _type, "cut": _cut, "header": _header, "shape": _shape, "holes": _holes, "ids": _ids, "about": _about, "value": _value,
    "file": _file,
}  # fmt: skip
