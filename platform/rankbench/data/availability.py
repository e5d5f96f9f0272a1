"""Where the raw data of a dataset come from on this machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rankbench.core.environment import Environment
from rankbench.data.cards import Card
from rankbench.data.prepare import prepared_before, stored_before


def raw_data(card: Card, environment: Environment) -> str:
    """Return in a few words where the raw data are: built in, mirror, local file, cached, prepared only, download, or why they
    cannot be had: no such file or folder, offline, mirror only.
    """
    if card.source.generator:
        return "built in"
    if environment.mirror and any((environment.mirror / card.mirror_folder).glob("*")):
        return "mirror"
    if card.source.folder is not None:
        folder = (card.folder or Path()) / card.source.folder
        prepared = _prepared(card, environment)
        return "local folder" if folder.is_dir() else "prepared only" if prepared else "no such folder"
    remotes = card.source.parts().values()
    local = any(remote.file for remote in remotes)
    paths = [
        (card.folder or Path()) / remote.file if remote.file else environment.data / "raw" / card.name / remote.filename
        for remote in remotes
    ]
    if paths and all(path.is_file() for path in paths):
        return "local file" if local else "cached"
    if _prepared(card, environment):
        return "prepared only"
    if card.source.mirror.parts:
        return "mirror only"
    return "no such file" if local else "offline" if environment.offline else "download"


def why_missing(card: Card, environment: Environment) -> str:
    """Why the raw data cannot be had, in the words of `raw_data`; empty if they can, as far as is known without the network."""
    found = raw_data(card, replace(environment, data_store=None))
    return found if found in ("mirror only", "offline", "no such file", "no such folder") else ""


def _prepared(card: Card, environment: Environment) -> bool:
    return prepared_before(card, environment) is not None or stored_before(card, environment) is not None
