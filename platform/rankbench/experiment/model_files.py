"""A saved model: its files, and the checks of what they hold before it is used.

What the arrays would take is known from their header, before memory is taken for them.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp
from pydantic import Field, TypeAdapter
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save_file
from typing_extensions import TypedDict

from rankbench.core.config import read_json
from rankbench.core.errors import ConfigError, DataError, StorageError, first_line, require, shown
from rankbench.core.files import atomic_folder, sha256_of, write_json
from rankbench.core.memory import available_memory
from rankbench.core.wording import SHA256
from rankbench.data.blocks import csr_from_parts
from rankbench.experiment import methods
from rankbench.experiment.forms import FORMS, WHOLE, misshapen
from rankbench.solvers.tiled.matrix import TiledMatrix
from rankbench.solvers.tiled.recommender import TiledLinearRecommender

Part = Literal["train", "train+valid", "all"]
ABOUT, ARRAYS, TILES = "model.json", "arrays.safetensors", "tiles"  # TILES: the folder of a matrix that is solved by tiles
MOST_HEADER = 1 << 16  # bytes; a model has about ten arrays
_WHOLE, _REAL = {"I32": 4, "I64": 8}, {"F32": 4, "F64": 8}  # bytes of a number of a type of safetensors


class FittedOn(TypedDict):
    """The dataset of a saved model: its card, by name or path, and the changes to it."""

    card: str
    changes: NotRequired[dict[str, Any]]
    name: str
    fingerprint: str
    self_excluded: NotRequired[bool]  # whether an item with the user's own id is not a candidate


@dataclass(frozen=True)
class _About:
    """The content of model.json."""

    form: str
    method: str
    params: dict[str, Any]
    dataset: FittedOn
    fit_on: Part
    seed: Annotated[int, Field(ge=0)]
    users: list[Any]  # checked by `vocabulary`, because pydantic would note an error for each of millions
    items: list[Any]
    sha256: Annotated[str, Field(pattern=SHA256)]  # of the arrays
    iterations: int | None = None
    format: Literal[1] = 1


_OF_MODEL = ("method", "params", "dataset", "fit_on", "seed", "iterations")  # fields that _About and the model share


def save_model(model: Any, folder: Path) -> None:
    """Write a `fitted_model.Model` to a new folder, atomically. Raises ConfigError if it exists or cannot have this name."""
    try:
        folder.lstat()
    except OSError:
        pass  # as it should be, or else the making of the folder says what is wrong
    except ValueError:  # a null character, or half of a character
        raise ConfigError(f"{str(folder)!r}: no folder can have this name; choose another") from None
    else:
        raise ConfigError(f"{folder}: already exists; choose another folder")
    recommender = model.recommender
    form = next((name for name, cls in FORMS.items() if type(recommender) is cls), "")
    require(bool(form), f"a {type(recommender).__name__} cannot be saved, because it is none of the recommenders of rankbench")
    arrays = {f"model.{name}": getattr(recommender, name) for name in _arrays_of(type(recommender))}
    arrays |= {"history.indptr": model.history.indptr, "history.indices": model.history.indices}
    with atomic_folder(folder, exclusive=True) as scratch:
        save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, scratch / ARRAYS)
        about = _About(
            form=form,
            users=model.users.to_pylist(),
            items=model.items.to_pylist(),
            sha256=sha256_of(scratch / ARRAYS),
            **{name: getattr(model, name) for name in _OF_MODEL},
        )
        write_json(scratch / ABOUT, vars(about))
        if isinstance(recommender, TiledLinearRecommender):
            recommender.C.keep_in(scratch / TILES)


def load_model(folder: Path) -> dict[str, Any]:
    """Return the fields of the `fitted_model.Model` in a folder. Raises DataError naming the file if it is missing, damaged or
    of another format.
    """
    shapes = shapes_in(folder / ARRAYS)
    about = read_json(folder / ABOUT, TypeAdapter(_About), "a saved model", most_values(shapes))
    # Parameters from a file are checked like any input.
    try:
        spec = methods.method(about.method)
    except ConfigError:
        plugin = "if a plugin has it, load the plugin first: --plugin FILE, or rb.plugin(FILE)"
        raise DataError(f"{folder}: unknown method {shown(about.method)}; {plugin}") from None
    spec.configure(about.params, f"{folder}/{ABOUT}")
    if about.form not in FORMS:
        raise DataError(f"{folder / ABOUT}: form: expected {', '.join(FORMS)}, got {shown(about.form)}")
    cls = FORMS[about.form]
    expected = {f"model.{name}" for name in _arrays_of(cls)} | {"history.indptr", "history.indices"}
    if wrong := expected ^ {*shapes}:
        raise DataError(f"{folder / ARRAYS}: {shown(min(wrong))} does not belong there, or is missing; fit the model again")
    users, items = (vocabulary(getattr(about, name), f"{folder / ABOUT}: {name}") for name in ("users", "items"))
    rows, values = shapes["history.indptr"], prod(shapes["history.indices"])
    mine = {name.removeprefix("model."): shape for name, shape in shapes.items()}
    try:
        matrix = {"C": TiledMatrix(folder / TILES)} if cls is TiledLinearRecommender else {}
        mine |= {name: tiles.shape for name, tiles in matrix.items()}
        fits = rows == (len(users) + 1,) and shapes["history.indices"] == (values,) and values <= len(users) * len(items)
        if not fits or misshapen(cls, mine, len(users), len(items)):
            raise DataError(f"{folder / ARRAYS}: the shapes of its arrays do not fit the ids; fit the model again")
        if about.sha256 != sha256_of(folder / ARRAYS):
            raise DataError(f"{folder / ARRAYS}: damaged: {ABOUT} has another checksum; fit the model again")
        arrays = load_file(folder / ARRAYS)
        recommender = cls(**matrix, **{name: arrays[f"model.{name}"] for name in _arrays_of(cls)})
        history = _history(arrays["history.indptr"], arrays["history.indices"], len(items), folder)
        kept = {name: getattr(about, name) for name in _OF_MODEL}
        return {"recommender": recommender, "users": users, "items": items, "history": history} | kept
    except (OSError, ValueError, KeyError, TypeError, OverflowError, SafetensorError, StorageError) as error:
        raise DataError(f"{folder}: not a saved model ({type(error).__name__}: {first_line(error)})") from None


def _history(indptr: np.ndarray, indices: np.ndarray, n_items: int, folder: Path) -> sp.csr_array:
    """The known interactions. Raises DataError unless they fit the ids, because compiled loops do not check them."""
    inside = not len(indices) or (indices.min() >= 0 and indices.max() < n_items)
    if (indptr[0], indptr[-1]) != (0, len(indices)) or (np.diff(indptr) < 0).any() or not inside:
        raise DataError(f"{folder}: the histories do not fit the ids")
    return csr_from_parts(indptr, indices, n_items)


def _arrays_of(form: type) -> list[str]:
    """Return the fields that are saved as arrays."""
    elsewhere = ("C", "first", "held") if form is TiledLinearRecommender else ()
    return [each.name for each in dataclasses.fields(form) if each.name not in elsewhere]


def shapes_in(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the shape of each array in the safetensors file of a model; only its header is read.

    Raises DataError if the file is missing or damaged, has numbers of another type, or needs more memory than is free.
    """
    if not path.is_file():  # reading a pipe would never end
        raise DataError(f"{path}: not a saved model (no such file)")
    try:
        with path.open("rb") as file:
            if int.from_bytes(file.read(8), "little") > MOST_HEADER:
                raise DataError(f"{path}: not the arrays of a model (its header has more than {MOST_HEADER >> 10} kB)")
        with safe_open(path, "np") as arrays:
            found = {name: arrays.get_slice(name) for name in arrays.keys()}  # noqa: SIM118
            types = {name: each.get_dtype() for name, each in found.items()}
            shapes = {name: tuple(each.get_shape()) for name, each in found.items()}
    except (OSError, ValueError, SafetensorError) as error:
        raise DataError(f"{path}: not the arrays of a model ({first_line(error)}); fit the model again") from None
    needed = 0
    for name, shape in shapes.items():
        known = _WHOLE if name.startswith("history.") or name.removeprefix("model.") in WHOLE else _REAL
        if types[name] not in known:
            raise DataError(f"{path}: {shown(name)} has numbers of the type {types[name]}, expected {' or '.join(known)}")
        needed += prod(shape) * known[types[name]]
    if needed > (free := available_memory()):
        raise DataError(f"{path}: its arrays take {needed / 1e9:,.1f} GB of memory, {free / 1e9:,.1f} GB are free")
    return shapes


def most_values(shapes: dict[str, tuple[int, ...]]) -> int:
    """Return how many values the description of a model with these arrays may have: its ids, and room for parameters."""
    return 10_000 + sum(max(shape, default=0) for name, shape in shapes.items() if name != "history.indices")


def vocabulary(ids: list[Any], source: str) -> pa.Array:
    """Return the raw ids of a saved model. Raises DataError, starting with `source`, unless they are whole numbers of 64 bits
    or texts, and each is there once.
    """
    try:
        array = pa.array(ids)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{source}: expected whole numbers or texts ({first_line(error)})") from None
    if array.type not in (pa.int64(), pa.string()) or array.null_count:
        raise DataError(f"{source}: expected whole numbers or texts, got {array.type}{' with gaps' * bool(array.null_count)}")
    in_order = array.take(pc.sort_indices(array))  # a table of distinct values would take twenty times its memory
    if len(twice := in_order[1:].filter(pc.equal(in_order[1:], in_order[:-1]))):
        raise DataError(f"{source}: the id {shown(twice[0].as_py())} is given twice")
    return array
