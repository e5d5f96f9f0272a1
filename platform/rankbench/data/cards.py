"""A dataset card: one YAML file with everything that decides what a result on this dataset means."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from encodings.aliases import aliases
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SerializeAsAny, field_validator, model_validator

from rankbench.core.config import Strict, override, read_yaml, validate
from rankbench.core.environment import Environment
from rankbench.core.errors import ConfigError, printable, require, shown
from rankbench.core.names import Name
from rankbench.core.registry import nearest
from rankbench.core.wording import MD5, SHA256
from rankbench.data.interactions import PARTS, Part
from rankbench.data.protocols.spec import SplitSpec, protocols


def _names_a_file(path: str) -> str:
    if Path(path).name in ("", "..") or "\0" in path:
        raise ValueError(f"must end in a file name, got {shown(path)}")
    return path


def without_query(url: str) -> str:
    """Return the address for messages and records: without its query, which may be a key that gives access to the file."""
    address, question, _ = url.partition("?")
    return printable(address) + ("?..." if question else "")


LocalFile = Annotated[str, AfterValidator(_names_a_file)]


class RemoteFile(Strict):
    """One raw file: its URL or local path, and its checksum if known. A bare text is the path, or the URL."""

    url: str | None = None
    file: LocalFile | None = Field(None, description="a local file instead of a URL, relative to the card")
    member: str | None = Field(None, description="the file inside a zip or tar archive; *.gz is opened by itself")
    sha256: str | None = Field(None, pattern=SHA256)
    md5: str | None = Field(None, pattern=MD5)

    @model_validator(mode="before")
    @classmethod
    def _bare_name(cls, given: Any) -> Any:
        return {"url" if "://" in given else "file": given} if isinstance(given, str) else given

    @model_validator(mode="after")
    def _one_origin(self) -> RemoteFile:
        if (self.url is None) == (self.file is None):
            raise ValueError("give either url or file")
        if self.url is not None:
            if "@" in urlsplit(self.url).netloc:  # first, because no other message may repeat it
                raise ValueError("an address with a user name or password would be stored with every result; download the file")
            if not self.url.startswith("https://"):
                raise ValueError(f"only https:// is downloaded, got {shown(without_query(self.url))}")
            _names_a_file(self.filename)
        return self

    @property
    def checksums(self) -> dict[str, str]:
        """The known checksums by their kind."""
        return self.model_dump(include={"sha256", "md5"}, exclude_none=True)

    @property
    def filename(self) -> str:
        return PurePosixPath(urlsplit(self.url).path if self.file is None else self.file).name


class Mirror(Strict):
    """The Parquet form of the same data in a RANKBENCH_MIRROR folder."""

    folder: str | None = Field(None, description="its name in the mirror, if not the card's name")
    sha256: dict[str, str] = {}
    parts: tuple[Part, ...] = Field(
        (),
        description="parts that only a mirror has, because no reader reads the published form; the card's `read` names their "
        "columns",
    )

    @field_validator("folder")
    @classmethod
    def _stays_inside(cls, folder: str | None) -> str | None:
        if folder is not None and (Path(folder).is_absolute() or ".." in Path(folder).parts):
            raise ValueError(f"must lie inside the mirror, got {folder!r}")
        return folder


# For suggestions: the encodings of texts, by the names that people write.
OF_BYTES = ("base64_codec", "bz2_codec", "hex_codec", "quopri_codec", "uu_codec", "zlib_codec", "rot_13", "tactis", "mbcs")
ENCODINGS = sorted({"latin-1", *(name.replace("_", "-") for name in aliases.values() if name not in OF_BYTES)})
MOST_PAIRS = 10**11  # users x items: a random number is drawn per pair, about an hour in all; published datasets have fewer


class Generator(Strict):
    """Parameters of the built-in synthetic data; data/synthetic.py describes what each one does."""

    users: int = Field(2000, ge=2, le=50_000_000)
    items: int = Field(1000, ge=2, le=50_000_000)
    interactions_per_user: float = Field(30.0, gt=0, le=50_000_000)
    tastes: int = Field(20, ge=1, le=4096)
    taste_strength: float = Field(3.0, ge=0, le=1000)
    popularity_exponent: float = Field(0.8, ge=0, le=20)
    activity_exponent: float = Field(2.5, ge=1.1, le=100)
    seed: int = Field(0, ge=0)

    @model_validator(mode="after")
    def _can_be_drawn(self) -> Generator:
        if self.users * self.items > MOST_PAIRS:
            raise ValueError(
                f"{self.users:,} users x {self.items:,} items take too long to draw; the product may be {MOST_PAIRS:,} at most"
            )
        return self


class Source(Strict):
    """The origin of the raw data: `files` by part, one `file`, a `folder` in which the format finds its files, a mirror only,
    or the generator.

    `companions` are further files that the reader of the format needs by name, such as a table of ids.
    """

    files: dict[Part, RemoteFile] = {}
    file: LocalFile | None = Field(None, description="shorthand for files: {all: {file: ...}}")
    folder: str | None = Field(
        None, pattern=r"^[^\x00]+$", description="a local folder as the library of the format writes it, relative to the card"
    )
    companions: dict[str, RemoteFile] = {}
    generator: Generator | None = None
    mirror: Mirror = Mirror()
    home: str | None = None
    licence: str | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Source:
        given = [bool(self.files), self.file, self.folder, self.generator, bool(self.mirror.parts)]
        if sum(each not in (None, False) for each in given) != 1:
            raise ValueError("give one of files, file, folder, generator, mirror.parts")
        if "all" in self.files and len(self.files) > 1:
            raise ValueError("files: the part all cannot be given together with other parts")
        # The cache and the mirror store a part under its file name.
        urls: dict[str, str] = {}
        for remote in [*self.files.values(), *self.companions.values()]:
            if remote.url and urls.setdefault(remote.filename, remote.url) != remote.url:
                raise ValueError(f"two URLs end in {remote.filename}; fetch them yourself and give `file` instead")
        return self

    def parts(self) -> dict[str, RemoteFile]:
        return {"all": RemoteFile(file=self.file)} if self.file else dict(self.files)

    @property
    def part_names(self) -> list[str]:
        """Names of the parts of the data, in the order of PARTS; those in a `folder` are known once it is looked into."""
        return [part for part in PARTS if part in self.parts() or part in self.mirror.parts]


class Read(Strict):
    """How to read the raw files; columns are given by name, or by position (0, 1, ...) if the file has no header. What is None
    is as the format has it.
    """

    format: str = Field("delimited", description="name of a reader, in data/readers or a plugin; found by itself if not given")
    separator: str | None = None
    header: bool = True
    encoding: str = Field("utf-8", description="of a text, by its name in Python, such as latin-1, cp1252 or utf-16")
    user: str | int | None = None
    item: str | int | None = None
    value: str | int | None = None
    time: str | int | None = Field(None, description="seconds since 1970, or a date such as 2005-09-06 or 2010-10-19T23:55:27Z")

    def columns(self, usual: dict[str, str | int]) -> dict[str, str | int]:
        """user, item and, if they are named, value and time → the column that the card names, or else the usual one."""
        named = {name: getattr(self, name) for name in ("user", "item", "value", "time")}
        return {
            name: usual[name] if column is None else column
            for name, column in named.items()
            if column is not None or name in usual
        }

    @field_validator("separator")
    @classmethod
    def _separates(cls, separator: str | None) -> str | None:
        if separator is None:
            return None
        if not separator or set(separator) & set('\r\n"'):
            raise ValueError(f"must be one or more characters without a line end or a quote, got {separator!r}")
        return separator

    @field_validator("encoding")
    @classmethod
    def _is_known(cls, encoding: str) -> str:
        try:
            "a".encode(encoding)  # also refuses codecs that are not of texts, such as hex
        except (LookupError, ValueError):
            hint = nearest(encoding.replace("_", "-"), ENCODINGS)
            raise ValueError(f"unknown encoding {shown(encoding)}{hint}; Python's names are known, such as latin-1") from None
        return encoding


class Step(Strict):
    """One preparation step; exactly one field is set. A step that only takes `true` may be written as its bare name."""

    drop_missing: Literal[True] | None = Field(
        None,
        description="drop rows without a user, an item, the value that card or format names, or a needed time; counted",
    )
    min_value: float | None = Field(None, description="keep interactions whose value is at least this")
    timed: Literal[True] | None = Field(None, description="keep interactions that have a time")
    duplicates: Literal["first", "last", "max"] | None = Field(None, description="which one of repeated pairs to keep")
    min_items_per_user: int | None = Field(None, ge=1)
    min_users_per_item: int | None = Field(None, ge=1)
    k_core: int | None = Field(None, ge=1, description="both minima, repeated until nothing changes")

    @model_validator(mode="before")
    @classmethod
    def _bare_name(cls, given: Any) -> Any:
        if not isinstance(given, str):
            return given
        if given not in cls.model_fields:
            raise ValueError(f"unknown step {shown(given)}{nearest(given, cls.model_fields)}")
        if cls.model_fields[given].annotation != Literal[True] | None:
            raise ValueError(f"the step {given} needs a value, as in `{given}: ...`")
        return {given: True}

    @model_validator(mode="after")
    def _exactly_one(self) -> Step:
        if len(self.model_dump(exclude_unset=True, exclude_none=True)) != 1 or len(self.model_fields_set) != 1:
            raise ValueError(f"one step per line, one of {', '.join(type(self).model_fields)}")
        return self


class RawCounts(Strict):
    users: int | None = None
    items: int | None = None
    interactions: int | None = None


class Counts(RawCounts):
    train: int | None = None
    valid: int | None = None
    test: int | None = None


class Expect(Strict):
    """Counts of the raw files and of the prepared data: published ones or, where there are none, those of the files at the time
    of the card. A difference is reported and is never an error.
    """

    raw: RawCounts = RawCounts()
    prepared: Counts = Counts()


class Card(Strict):
    """One dataset variant. `recall` says which recall the published tables use: `recall` divides by |targets|,
    `recall_capped` by min(k, |targets|); with `open` the papers do not say, and both are reported. `stand_in`, for data
    that replace the published ones, is a sentence that says so; every output repeats it.
    """

    name: Name
    title: str = ""
    source: Source
    read: Read = Read()
    prepare: tuple[Step, ...] = ()
    split: SerializeAsAny[SplitSpec] = Field(default={}, validate_default=True)
    expect: Expect = Expect()
    recall: Literal["recall", "recall_capped", "open"] = "recall"
    stand_in: str | None = None
    path: Path | None = Field(None, exclude=True, description="the file of the card; local files are relative to its folder")
    reference: str = Field("", exclude=True, description="what `load_card` finds this card by: a name, or the path of its file")
    changes: dict[str, Any] = Field({}, exclude=True, description="dotted keys whose values differ from the file")

    @field_validator("prepare")
    @classmethod
    def _missing_first(cls, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        if any(step.drop_missing for step in steps[1:]):
            raise ValueError("drop_missing must be the first step, because it is applied while the files are read")
        return steps

    @model_validator(mode="after")
    def _parts_have_a_protocol(self) -> Card:
        if "protocol" not in self.split.model_fields_set and {"train", "test"} <= {*self.source.part_names}:
            raise ValueError(
                "split.protocol: missing; the source has its own train and test: write `protocol: published`, or the protocol "
                "that draws a new split of all of them"
            )
        return self

    @property
    def drops_missing(self) -> bool:
        return bool(self.prepare and self.prepare[0].drop_missing)

    @field_validator("split", mode="before")
    @classmethod
    def _protocol_of(cls, given: Any) -> Any:
        """Check the parameters of the named protocol against the protocol's own schema."""
        if not isinstance(given, dict):
            return given
        name = given.get("protocol", "random-per-user")
        known = protocols()
        if name not in known.names():
            hint = nearest(str(name), known.names())
            raise ConfigError(f"split.protocol: unknown {name!r}{hint}; known: {', '.join(known.names())}")
        try:
            return validate(known.get(name).spec, given, "split")
        except ConfigError as error:
            raise ConfigError(str(error).replace("split: ", "split.", 1)) from None

    @property
    def final_fit(self) -> Literal["train", "train+valid"]:
        """The parts that the tested model is fitted on: train+valid, or train if validation users are held out."""
        return "train+valid" if protocols().get(self.split.protocol).refit else "train"

    @property
    def folder(self) -> Path | None:
        """The folder of the card's file; None for a card that was not read from a file."""
        return self.path.parent if self.path else None

    def local(self, name: str) -> Path:
        """A local file or folder of the card, whose name is relative to the card's folder."""
        return (self.folder or Path()) / name

    @property
    def mirror_folder(self) -> str:
        return self.source.mirror.folder or self.name

    def content_key(self) -> str:
        """A hash of what determines the prepared data: reading, steps, protocol and generator, but not titles or URLs."""
        content = self.model_dump(mode="json", include={"read", "prepare", "split"})
        for name, default in LATER.items():
            if content["split"].get(name) == default:
                del content["split"][name]
        content["generator"] = self.source.generator.model_dump() if self.source.generator else None
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


# Fields of splits that are left out of keys at these values, so that keys are those of the time before the field. The
# fingerprint tells data with cold users apart.
LATER = {"rank_valid": False, "cold_users": "drop", "repeats": "drop", "targets_by": "random"}
CARDS = (".yaml", ".yml")
ORIGIN = {"path", "reference", "changes"}  # fields that say where a card comes from, and not what it says


def card_names(environment: Environment) -> dict[str, Path]:
    """The file of each card by name; the user's own folders take precedence over the product's."""
    return dict(sorted((path.stem, path) for path in environment.catalogue_files("datasets").values()))


def load_card(dataset: str, environment: Environment, changes: dict[str, Any] | None = None) -> Card:
    """Load the card named `dataset`, or the card file at that path, with dotted `changes` ("split.seed") applied.

    Raises ConfigError for an unknown name, with the nearest one, and for every key or value that the schema rejects.
    """
    if is_card_path(dataset):
        path = Path(dataset)
        if not path.is_file():
            raise ConfigError(f"{dataset}: no such dataset card{_import_hint(dataset)}")
        try:
            return read_card(path, changes)
        except ConfigError as error:
            raise ConfigError(f"{error}{_import_hint(dataset)}") from None
    cards = card_names(environment)
    if dataset not in cards:
        known = f"{nearest(dataset, cards)} (rankbench data list)"
        raise ConfigError(f"unknown dataset {dataset!r}{known}{_import_hint(dataset)}")
    card = read_card(cards[dataset], changes)
    if card.name != (changes or {}).get("name", dataset):
        raise ConfigError(f"{cards[dataset]}: name: {card.name}: a card in this folder must be named after its file, {dataset}")
    return card.model_copy(update={"reference": dataset})


def is_card_path(dataset: str) -> bool:
    """Whether `dataset` is the path of a card file and not the name of a card."""
    return dataset.endswith(CARDS) or "/" in dataset


def _import_hint(dataset: str) -> str:
    """What to do with a file or folder of interactions where a card is expected; empty for what cannot be one."""
    a_file = "/" in dataset or Path(dataset).suffix or os.path.exists(dataset)  # noqa: PTH110  False for a name that is too long
    if dataset.endswith(CARDS) or not a_file:
        return ""
    return f"; `rankbench data import {shlex.quote(dataset)}` writes a card for interactions of your own"


def read_card(path: Path, changes: dict[str, Any] | None = None) -> Card:
    """Read the card file at `path`, with dotted `changes` applied. Raises ConfigError for what the schema rejects."""
    content, changes = read_yaml(path), changes or {}
    if isinstance(own := content.get("split"), dict):
        usual, given = own.get("protocol"), changes.get("split", {"protocol": changes.get("split.protocol")})
        if isinstance(given, dict) and (given.get("protocol") or usual) != usual:
            content["split"] = {}  # shares of one protocol say nothing of another
        elif isinstance(changes.get("split"), dict):
            changes = changes | {"split": own | given}
    content = override(content, changes)
    origin = {"path": path.resolve(), "reference": str(path.resolve()), "changes": changes}
    for key in origin:
        require(key not in content, f"{path}: {key}: unknown key")
    card = validate(Card, {**content, **origin}, str(path))
    # Imported late, because the readers import the schema above.
    from rankbench.data.readers import readers

    if card.read.format not in readers():
        formats = readers().names()
        hint = nearest(card.read.format, formats)
        raise ConfigError(f"{path}: read.format: unknown {card.read.format!r}{hint}; known: {', '.join(formats)}")
    return card
