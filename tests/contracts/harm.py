"""Values, text, bytes and files that are harmed, by a seeded generator of random numbers."""

from __future__ import annotations

import copy
import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

LONG, DEEP = "x" * 300, "folder/" * 700
WORDS = [
    "", " ", ".", "..", "../../up", "/", "~nobody/x", LONG, "é", "\x1b[31m", "\u202e", "a\nb", "=", "*", "&a", "true", "nan",
]  # fmt: skip
NUMBERS = [-1, 0, 1, 0.5, -0.5, 1.5, 2**31, 2**63 - 1, 2**64, -(2**63), 1e30, 1e308, float("nan"), float("inf"), -float("inf")]
VALUES = [None, True, False, *NUMBERS, *WORDS, "a\0b", "1", "80", [], {}, [[]], [None], {"a": 1}, [1, "a", None], {"": {}}]
ARGUMENTS = [*WORDS, *NUMBERS, "-k", "--out", "--json", "a=b", "lam=1", DEEP, "[" * 900, "{}", "lam=[1, 2]", "-", "--"]
SIGNS = ["\t", "\0", "\ufeff", "'", '"', "{", "[", "&a ", "*a", "!!int ", "\n---\n", "\x1b", "%", ": ", "9" * 400]


def harmed_yaml(rng: random.Random, content: Any) -> bytes:
    for _ in range(rng.choice([1, 1, 1, 2])):
        harm_tree(rng, content)
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    how = rng.randrange(8)
    if how == 0:
        lines = text.splitlines()
        lines.insert(rng.randrange(len(lines)), rng.choice(lines))  # most often a key that is given twice
        text = "\n".join(lines) + "\n"
    elif how == 1:
        text = harmed_text(rng, text)
    elif how == 2:
        return harmed_bytes(rng, text.encode())
    return text.encode(rng.choice(["utf-8", "utf-8", "utf-8", "utf-8-sig", "utf-16"]) if how == 3 else "utf-8")


def harm_tree(rng: random.Random, tree: Any) -> None:
    """Change one place of nested dicts and lists."""
    places = list(_places(tree))
    node, key = rng.choice(places)
    value = node[key]
    how = rng.randrange(8)
    if how < 4:
        node[key] = copy.deepcopy(rng.choice(VALUES))
    elif how == 4:
        node[key] = rng.choice([[value], {"a": value}, [value, value], str(value), [[value]]])
    elif how == 5:
        del node[key]
    elif how == 6 and isinstance(node, dict):
        node[rng.choice([f"{key}s", str(key).upper(), "", LONG, 1, None, True])] = node.pop(key)
    else:
        other, there = rng.choice(places)
        node[key] = copy.deepcopy(other[there])


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    """(container, key) of every value."""
    for key in list(node) if isinstance(node, dict) else range(len(node)):
        yield node, key
        if isinstance(node[key], dict | list):
            yield from _places(node[key])


def harmed_text(rng: random.Random, text: str) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.choice(SIGNS) + text[at:]


def harmed_bytes(rng: random.Random, content: bytes) -> bytes:
    for _ in range(rng.choice([1, 1, 2, 3])):
        at = rng.randrange(len(content) + 1)
        how = rng.randrange(9)
        if how == 0:
            content = content[:at]
        elif how == 1 and content:
            at = min(at, len(content) - 1)
            content = content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]
        elif how == 2:
            content = content[:at] + rng.randbytes(rng.randrange(1, 40)) + content[at:]
        elif how == 3:
            content = content[:at] + content[at : at + rng.randrange(200)] + content[at:]
        elif how == 4:
            content = rng.choice([b"", b"\n", b"\0", b"\xef\xbb\xbf" + content, b"\xff\xfe" + content, 3 * content])
        elif how == 5:
            content = content[:at] + content[at + rng.randrange(1, 60) :]
        elif how == 6:
            wrong = [b"nan", b"-1", b"1e400", b"9" * 30, b"inf", b"", b"x", b'"', b"\r", b"1.5", b"\x1b[2J", b"\xc3"]
            parts = content.split(rng.choice([b",", b"\n", b" ", b":"]))
            separator = content[len(parts[0]) : len(parts[0]) + 1]
            parts[rng.randrange(len(parts))] = rng.choice(wrong)
            content = separator.join(parts)
        elif how == 7:
            lines = content.split(b"\n")
            rng.shuffle(lines)
            content = b"\n".join(lines)
        else:
            content = content.replace(rng.choice([b",", b"user", b"item", b"\n", b"1"]), rng.choice([b"", b";", b"\t", b"0"]))
    return content


def instead_of_file(rng: random.Random, content: bytes) -> bytes | Callable[[Path], Any]:
    """No file, or something that is none."""

    def forbidden(path: Path) -> None:
        path.write_bytes(content)
        path.chmod(0)  # root reads it all the same

    nothing, folder, dangling = lambda path: None, Path.mkdir, lambda path: path.symlink_to("nowhere")
    loop, endless = lambda path: path.symlink_to(path.name), lambda path: path.symlink_to("/dev/zero")
    return rng.choice([b"", nothing, folder, dangling, loop, endless, os.mkfifo, forbidden])


def harm_file(rng: random.Random, path: Path) -> None:
    """A file that is there: its JSON, its bytes, or the file as such."""
    content = path.read_bytes()
    how = rng.randrange(6)
    if how < 4 and path.suffix == ".json":
        tree = json.loads(content)
        for _ in range(rng.choice([1, 1, 2])):
            harm_tree(rng, tree)
        path.write_text(json.dumps(tree, default=str), encoding="utf-8")
        return
    path.unlink()
    put(path, instead_of_file(rng, content) if how == 4 else harmed_bytes(rng, content))


def put(path: Path, what: bytes | Callable[[Path], Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(what) if isinstance(what, bytes) else what(path)
