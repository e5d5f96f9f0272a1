"""Changes of the files of a saved model."""

import json

import numpy as np
from safetensors.numpy import load_file, save_file

from rankbench.core.files import sha256_of


def change_array(folder, name, change):
    """With a checksum that fits, so that it is the contents that are refused."""
    arrays = load_file(folder / "arrays.safetensors")
    save_file(arrays | {name: np.ascontiguousarray(change(arrays.get(name)))}, folder / "arrays.safetensors")
    edit(folder, sha256=sha256_of(folder / "arrays.safetensors"))


def edit(folder, **changes):
    """Other values of model.json."""
    path = folder / "model.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | changes), encoding="utf-8")
