"""What a user of MLflow chooses for runs: their experiment, their parent run, tags, a name, and where they came from.

The environment variables are MLflow's own: MLFLOW_EXPERIMENT_NAME, MLFLOW_EXPERIMENT_ID, MLFLOW_RUN_ID, and MLFLOW_RUN_CONTEXT,
a JSON object of tags.
"""

from __future__ import annotations

import getpass
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rankbench.core.errors import ConfigError, require

CONTEXT = "MLFLOW_RUN_CONTEXT"
RESERVED = ("mlflow.runName", "mlflow.parentRunId")  # set by --run-name and MLFLOW_RUN_ID
LONGEST_NAME, LONGEST_KEY, LONGEST_VALUE = 200, 250, 5000

_RUN_ID = re.compile(r"[a-zA-Z0-9][\w-]{0,255}")
_KEY = re.compile(r"[\w\-. :/]+", re.ASCII)


@dataclass(frozen=True)
class Labels:
    """`experiment` is a name, `experiment_id` an id, `parent` the id of a run; None if the user did not choose one. `tags` are
    for every run, among them the user and the `source` in MLflow's own fields. `name` begins the names of runs.
    """

    experiment: str | None = None
    experiment_id: str | None = None
    parent: str | None = None
    name: str = ""
    tags: dict[str, str] = field(default_factory=dict)

    @classmethod
    def if_tracked(cls, track: bool, source: str, tags: Iterable[str] | None, name: str | None = None) -> Labels | None:
        """Those of a command whose option `track` says whether MLflow gets a run; None if not. Raises ConfigError."""
        require(track or not (tags or name), "--no-track: no MLflow run is made; leave out --tag and --run-name")
        return cls.from_env(source, tags or (), name) if track else None

    @classmethod
    def from_env(
        cls, source: str = "", tags: Iterable[str] = (), name: str | None = None, environ: Mapping[str, str] = os.environ
    ) -> Labels:
        """Read the variables above; `tags` (KEY=VALUE) and `name` are options of the command. Raises ConfigError."""
        parent = environ.get("MLFLOW_RUN_ID") or None
        if parent is not None:
            require(bool(_RUN_ID.fullmatch(parent)), f"MLFLOW_RUN_ID={parent[:60]}: not the id of an MLflow run")
        if name is not None:
            require(0 < len(name.strip()) <= LONGEST_NAME, f"--run-name: expected 1 to {LONGEST_NAME} characters")
        origin = {"mlflow.user": _user(environ), "mlflow.source.name": source, "mlflow.source.type": "LOCAL" if source else ""}
        return cls(
            experiment=environ.get("MLFLOW_EXPERIMENT_NAME") or None,
            experiment_id=environ.get("MLFLOW_EXPERIMENT_ID") or None,
            parent=parent,
            name=(name or "").strip(),
            tags={key: value for key, value in origin.items() if value} | _context(environ.get(CONTEXT)) | _given(tags),
        )

    def place(self, experiment: str) -> dict[str, str | None]:
        """Where a run belongs, as in a message of the spool: in the `experiment` of this name unless the user chose another."""
        chosen = None if self.experiment else self.experiment_id
        return {"experiment": self.experiment or experiment, "experiment_id": chosen, "parent": self.parent}


def _user(environ: Mapping[str, str]) -> str:
    try:
        return environ.get("MLFLOW_TRACKING_USERNAME") or getpass.getuser()
    except (OSError, KeyError, ImportError):  # a user id without a name, as in some containers
        return ""


def _context(text: str | None) -> dict[str, str]:
    if not text:
        return {}
    try:
        tags = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f'{CONTEXT}: not JSON ({error}); expected tags such as {{"team": "search"}}') from None
    require(isinstance(tags, dict), f"{CONTEXT}: expected a JSON object of tags")
    return {_checked(str(key), str(value), CONTEXT): str(value) for key, value in tags.items()}


def _given(words: Iterable[str]) -> dict[str, str]:
    tags = {}
    for word in words:
        key, equals, value = word.partition("=")
        require(bool(equals), f"--tag {word}: expected KEY=VALUE")
        tags[_checked(key.strip(), value, f"--tag {word}")] = value
    return tags


def _checked(key: str, value: str, source: str) -> str:
    """Return `key`. Raises ConfigError if MLflow would refuse the tag, or it would overwrite one that runs are found by."""
    require(bool(_KEY.fullmatch(key)), f"{source}: a tag's name has letters, digits and _ - . / : or spaces, got {key!r}")
    require(len(key) <= LONGEST_KEY and len(value) <= LONGEST_VALUE, f"{source}: the tag {key[:40]!r} is too long")
    require(key not in RESERVED, f"{source}: {key} is set by --run-name and MLFLOW_RUN_ID; choose another name")
    require(not key.startswith("rankbench."), f"{source}: tags that begin with rankbench. are set by rankbench itself")
    return key
