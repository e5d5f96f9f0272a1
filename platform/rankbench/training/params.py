"""What every method trained by gradient steps can be told, beside the parameters of its loss and its encoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from rankbench.core.config import param
from rankbench.core.errors import require
from rankbench.fitting.stopping import Stopping


@dataclass(frozen=True)
class TrainingParams(Stopping):
    model: str = param("mf", "the encoder: mf, lightgcn, xsimgcl", "mf, lightgcn, xsimgcl")
    embedding_dim: int = param(64, "length of the vectors of users and items, > 0", "64")
    epochs: int = param(100, "passes over the interactions, > 0", "20 to 1000")
    batch_size: int = param(2048, "interactions a step, > 0", "512 to 8192")
    n_negatives: int = param(100, "negatives a positive, > 0", "1 to 4096")
    shared_negatives: bool = param(
        False, "one draw, of all items, for all rows of a batch: faster; the papers draw for each", "false, true"
    )
    sampler: Literal["auto", "uniform-all", "uniform-other", "popularity", "in-batch"] = param(
        "auto", "whence negatives are drawn; auto: as the loss's papers do", "auto"
    )
    popularity_power: float = param(1.0, "of the counts, for sampler = popularity, ≥ 0", "0 to 1")
    learning_rate: float = param(0.01, "Adam's rate, > 0", "0.0001 to 0.1")
    schedule: Literal["constant", "plateau", "cosine"] = param(
        "constant", "the rate over epochs; plateau halves it at the 4th evaluation without a gain, down to 1e-6", "constant"
    )
    weight_decay: float = param(0.0, "L2 penalty of vectors, ≥ 0", "0 to 0.001")
    decay: Literal["gradient", "batch"] = param(
        "gradient", "where it acts: in Adam's gradient, or in the loss, on the rows of the batch", "gradient"
    )
    optimizer: Literal["row-adam", "adam"] = param(
        "row-adam", "row-adam steps on what a batch touched; adam moves every row by its momentum", "row-adam"
    )
    init: Literal["normal", "xavier"] = param("normal", "vectors start normal with deviation init_scale, or Xavier", "normal")
    init_scale: float = param(0.1, "deviation of the vectors at the start, > 0", "0.01 to 1")
    patience: int = param(10, "evaluations on the validation set without a gain before training ends; 0: all epochs", "10")
    reduction: Literal["interaction", "user"] = param("interaction", "what weighs the same", "interaction")
    precision: Literal["float32", "bfloat16"] = param(
        "float32", "of products with shared negatives or the catalogue; the loss is float32", "float32"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("embedding_dim", "epochs", "batch_size", "n_negatives"):
            require(getattr(self, name) > 0, f"{name} must be > 0, got {getattr(self, name)}")
        for name in ("learning_rate", "init_scale"):
            require(getattr(self, name) > 0, f"{name} must be > 0, got {getattr(self, name)}")
        for name in ("weight_decay", "popularity_power"):
            require(getattr(self, name) >= 0, f"{name} must be >= 0, got {getattr(self, name)}")
        require(self.sampler != "in-batch" or self.batch_size > 1, "sampler=in-batch needs batch_size >= 2, got 1")
        require(
            not (self.shared_negatives and self.sampler == "uniform-other"),
            "shared_negatives cannot avoid the items of every user: use sampler=uniform-all",
        )


@dataclass(frozen=True)
class TrainedParams:
    """The parameters of a method that is trained by gradient steps: of its loss, of its encoder, and of the training."""

    loss: Any
    encoder: Any
    training: TrainingParams
