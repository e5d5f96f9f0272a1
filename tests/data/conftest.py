"""A card and its raw files, side by side in a folder."""

from pathlib import Path
from typing import Any

import pytest
import yaml


@pytest.fixture
def write(tmp_path: Path):
    """write(card, {"raw.csv": "..."}) → the card's path; a card without a name is called toy."""

    def write(card: dict[str, Any], files: dict[str, str | bytes] | None = None) -> str:
        folder = tmp_path / "cards"
        folder.mkdir(exist_ok=True)
        for name, content in (files or {}).items():
            (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
        path = folder / "toy.yaml"
        path.write_text(yaml.safe_dump({"name": "toy"} | card), encoding="utf-8")
        return str(path)

    return write
