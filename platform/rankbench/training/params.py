"""The parameters of training by gradient steps, and how they are joined with those of a loss and an encoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from rankbench.core.errors import require
from rankbench.core.params import Choice, Fixed, Range, param
from rankbench.fitting.stopping import Stopping
from rankbench.losses.spec import Loss, Similarity
from rankbench.training.schedule import WAIT


def _sampled(p: TrainingParams) -> bool:
    return p.objective == "sampled"


@dataclass(frozen=True)
class TrainingParams(Stopping):
    model: str = param(
        "mf",
        "encoder of users and items, such as mf or lightgcn",
        Choice("mf", "lightgcn", "xsimgcl", "dgcf", "gat", "neumf", "ngcf", "pinsage", "sgl", "simplex", "youtubenet"),
    )
    embedding_dim: int = param(64, "dimension of the user and item vectors", Fixed(64), gt=0)
    epochs: int = param(100, "largest number of passes over the interactions", Range(20, 1000), gt=0)
    objective: Literal["sampled", "catalogue"] = param(
        "sampled",
        "items that a positive is compared with: sampled negatives, or all items of the catalogue",
        Choice("sampled", "catalogue"),
    )
    batch_size: int = param(2048, "number of interactions per gradient step", Range(512, 8192), used=_sampled, gt=0)
    users_per_step: int = param(
        480,
        "number of users per gradient step, with all their interactions, for objective = catalogue",
        Range(96, 960),
        used=lambda p: p.objective == "catalogue",
        gt=0,
    )
    n_negatives: int = param(
        100,
        "number of negatives per positive",
        Range(1, 4096),
        used=lambda p: _sampled(p) and p.sampler != "in-batch",
        gt=0,
    )
    shared_negatives: bool = param(
        False,
        "whether all rows of a batch share their negatives, other than those that the sampler does not draw for a row: faster, "
        "but not as in the papers",
        Choice(False, True),
        used=lambda p: _sampled(p) and p.sampler != "in-batch",
    )
    sampler: Literal["auto", "uniform-all", "uniform-other", "popularity", "in-batch"] = param(
        "auto", "distribution that negatives are drawn from; auto: that of the loss's papers", Fixed("auto")
    )
    popularity_power: float = param(
        1.0,
        "power of the interaction counts, for sampler = popularity",
        Range(0, 1),
        used=lambda p: _sampled(p) and p.sampler == "popularity",
        ge=0,
    )
    learning_rate: float = param(0.01, "learning rate of Adam", Range(0.0001, 0.1), gt=0)
    reference_batch: int = param(
        0,
        "interactions per step that learning_rate is meant for: it is multiplied by the square root of those of a step over "
        "these; 0: it is used as it is",
        Fixed(1024),
        ge=0,
    )
    schedule: Literal["constant", "plateau", "cosine", "drop"] = param(
        "constant",
        "learning rate over the steps; plateau halves it at the 4th evaluation without improvement on the validation set (with "
        "patience = 0, of the training loss), and ends the fit at 1e-6; drop takes a tenth of it in the last quarter of the "
        "epochs",
        Fixed("constant"),
    )
    warmup: float = param(0.0, "epochs in which the learning rate rises in every step up to its value", Range(0, 2), ge=0)
    weight_decay: float = param(
        0.0,
        "L2 penalty on the vectors; with decay = gradient, on all that the encoder learns",
        Range(0, 0.001, log=True),
        ge=0,
    )
    decay: Literal["gradient", "batch", "batch-negatives", "layer-0"] = param(
        "gradient",
        "where weight_decay acts: on Adam's gradient, or on the loss, for the rows of the batch: the scored vectors of its "
        "positives, those of its drawn negatives too, or the learned vectors of both before any layer",
        Fixed("gradient"),
        used=lambda p: p.weight_decay > 0,
    )
    optimizer: Literal["adam", "row-adam"] = param(
        "adam",
        "adam moves every row in every step, as in the papers; row-adam only the rows of the batch, if the encoder scores its "
        "tables themselves (mf, neumf); other encoders take adam",
        Fixed("adam"),
    )
    adam_eps: float = param(
        1e-8,
        "number that Adam adds to the root of the squared gradients: where a loss has smaller gradients, vectors hardly move; "
        "with decay = gradient, it must be above those of the penalty, which otherwise move vectors by whole steps",
        Choice(1e-8, 1e-16),
        gt=0,
    )
    init: Literal["normal", "xavier", "ials"] = param(
        "normal",
        "initial vectors: normal with standard deviation init_scale, Xavier, or those of a fitted iALS",
        Fixed("normal"),
    )
    init_scale: float = param(
        0.1,
        "standard deviation of the initial vectors, for init = normal",
        Range(0.01, 1),
        used=lambda p: p.init == "normal",
        gt=0,
    )
    patience: int = param(
        10,
        "epochs without improvement on the validation set after which training ends (with eval_every: evaluations); 0: never",
        Fixed(10),
        ge=0,
    )
    eval_every: int = param(
        0,
        "epochs between evaluations; 0: often at first, then as often as costs about 5 % of the training",
        Range(0, 20),
        used=lambda p: p.patience > 0 or p.schedule == "plateau",
        ge=0,
    )
    reduction: Literal["interaction", "user"] = param(
        "interaction",
        "unit that has equal weight in the loss: every interaction, or every user; the penalty on a batch's rows (decay) and "
        "the contrastive loss of sgl are means over interactions either way",
        Fixed("interaction"),
    )
    similarity: Literal["auto", "dot", "cosine", "distance"] = param(
        "auto",
        "score of a user and an item: the dot product, cosine, or minus the squared distance; auto: the loss's own",
        Fixed("auto"),
    )
    rank_by: Literal["auto", "dot"] = param(
        "auto", "score that items are ranked by after training: that of the training, or the dot product", Fixed("auto")
    )
    temperature: float = param(1.0, "number that dot products and cosines are divided by in the loss", Range(0.05, 1), gt=0)
    precision: Literal["float32", "bfloat16"] = param(
        "float32",
        "precision of products with shared negatives, of softmax and sparsemax with the catalogue and, with one worker "
        "on the CPU, of the rows that lightgcn's nodes read from their neighbours; the loss itself is float32, and a fit "
        "without any of these is refused",
        Fixed("float32"),
    )

    @property
    def every_iteration(self) -> bool:
        return self.schedule == "plateau"

    def sampler_for(self, usual: str | None) -> str | None:
        """The sampler of a loss whose `usual` one this is; over the catalogue, it says which items count."""
        return usual if self.sampler == "auto" else self.sampler

    @property
    def shares_negatives(self) -> bool:
        """Whether the rows of a batch have the same negatives."""
        return self.shared_negatives or self.sampler == "in-batch"

    def scores_by_products(self, loss: Loss) -> bool:
        """Whether the scores that a loss reads are products of many vectors with the same items, which `precision` is for."""
        return loss.by_products or (self.shares_negatives and loss.sampler is not None)

    def similarity_for(self, usual: Similarity) -> Similarity:
        """The similarity of a loss whose `usual` one this is."""
        return usual if self.similarity == "auto" else self.similarity

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.sampler != "in-batch" or self.batch_size > 1, "sampler=in-batch needs batch_size >= 2, got 1")
        require(
            self.schedule != "plateau" or not 0 < self.patience <= WAIT + 1,
            f"schedule=plateau halves the rate after {WAIT + 1} evaluations without improvement, and patience={self.patience} "
            f"ends the fit before: use patience >= {WAIT + 2}, or 0",
        )
        if self.objective == "catalogue":
            require(
                self.sampler in ("auto", "uniform-all", "uniform-other"),
                "objective=catalogue needs sampler=uniform-all (all items) or uniform-other (all but the user's own)",
            )
            require(not self.shared_negatives, "objective=catalogue draws no negatives: leave shared_negatives out")
            require(self.precision == "float32", "objective=catalogue has products in float32 only: use precision=float32")


@dataclass(frozen=True)
class TrainedParams:
    """The parameters of a method trained by gradient steps: those of its loss, its encoder and the training."""

    loss: Any
    encoder: Any
    training: TrainingParams
