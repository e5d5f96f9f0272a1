"""Every loss as a method, whose parameters are composed of those of the loss, an encoder and training.

`register_losses` registers a method for each loss, with the loss's name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from rankbench.core.errors import ConfigError, require
from rankbench.core.params import P, used_names
from rankbench.core.registry import nearest
from rankbench.fitting.method import METHODS, Iterative, sized_parameters
from rankbench.fitting.stopping import Stopping
from rankbench.losses.spec import LOSSES, Loss
from rankbench.losses.spec import registered as losses
from rankbench.models.spec import MODELS, Encoder
from rankbench.models.spec import registered as encoders
from rankbench.training.params import TrainedParams, TrainingParams
from rankbench.training.refusals import refusal
from rankbench.training.steps import steps

NEGATIVES = ("n_negatives", "shared_negatives", "sampler", "popularity_power")
SHARED = ("learning_rate", "weight_decay")  # of what all losses share, what depends on the loss
SAVE_EVERY = 10.0  # seconds of training between checkpoints


@dataclass(frozen=True, kw_only=True)
class Trained(Iterative):
    """A method that minimises a loss by gradient steps on the vectors of an encoder."""

    loss: Loss
    on_device = by_workers = True
    cost = "trained"

    def why_alone(self, p: TrainedParams) -> str:
        if noisy := _encoder(p).noise_per_row(p.encoder):
            return f"{noisy} draws numbers for the rows of the batch in turn"
        short = p.training.precision != "float32" and not p.training.scores_by_products(self.loss)
        return f"precision={p.training.precision} is that of the rows that one worker reads" if short else ""

    @property
    def own(self) -> tuple[str, ...]:
        return _names(self.loss.params)

    def by_encoder(self) -> dict[str, set[str]]:
        return {each.name: set(_names(each.params)) for each in encoders()}

    def searched(self, p: TrainedParams) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.own, *SHARED, *_names(p.encoder))))

    def fields(self) -> tuple[dataclasses.Field, ...]:
        """The parameters of training, of every encoder and of the loss, each name once."""
        parts = (TrainingParams, *(encoder.params for encoder in encoders()), self.loss.params)
        return tuple({field.name: field for part in parts for field in dataclasses.fields(part)}.values())

    def configure(self, values: Mapping[str, Any], source: str) -> TrainedParams:
        """The parameters from flat values. A parameter of another encoder is refused unless it has its default value."""
        known = {field.name: field for field in self.fields()}
        for name in values:
            if name not in known:
                raise ConfigError(f"{source}: unknown parameter {name!r}{nearest(name, known)}")
        training = _part(TrainingParams, values, source)
        try:
            chosen = encoders().get(training.model)
        except ConfigError as error:
            raise ConfigError(f"{source}: {error}") from None
        used = {*_names(TrainingParams), *_names(chosen.params), *_names(self.loss.params)}
        for name, value in values.items():
            fits = name in used or value == known[name].default
            require(fits, f"{source}: model {training.model} has no parameter {name!r}")
        if problem := refusal(self.loss, chosen, training):
            raise ConfigError(f"{source}: {problem}")
        p = TrainedParams(_part(self.loss.params, values, source), _part(chosen.params, values, source), training)
        try:
            self.pair_work(p)
        except ConfigError as error:
            raise ConfigError(f"{source}: {error}") from None
        return p

    def flat(self, p: TrainedParams) -> dict[str, Any]:
        return dataclasses.asdict(p.training) | dataclasses.asdict(p.encoder) | dataclasses.asdict(p.loss)

    def used(self, p: TrainedParams) -> tuple[str, ...]:
        names = [name for part in (p.training, p.encoder, p.loss) for name in used_names(part)]
        unused = {*self.loss.unused(p.loss, p.training.objective)}
        if self.loss.sampler is None:  # a loss over all items draws no negatives
            # Over the catalogue, the sampler says whether a user's own items count.
            unused |= {*NEGATIVES} - ({"sampler"} if p.training.objective == "catalogue" else set())
        return tuple(name for name in dict.fromkeys(names) if name not in unused)

    def stopping(self, p: TrainedParams) -> Stopping | None:
        return p.training if p.training.patience > 0 else None

    def nested(self, p: TrainedParams) -> bool:
        return p.training.schedule == "constant"  # the others depend on the number of epochs or on the validation set

    def scores_new_users(self, p: TrainedParams) -> bool:
        # A distance depends on the length of a user's vector, which a product with the history does not know.
        return _encoder(p).folds(p.encoder) and not self.helper_columns(p)

    def helper_columns(self, p: TrainedParams) -> int:
        distance = p.training.similarity_for(self.loss.similarity) == "distance"
        return 2 if distance and p.training.rank_by == "auto" else 0

    def layers(self, p: TrainedParams) -> int:
        """Number of times that a pass of the encoder propagates vectors along the interactions."""
        return _encoder(p).layers(p.encoder)

    def per_edge(self, p: TrainedParams) -> int:
        """Number of numbers per interaction that the encoder keeps in a pass."""
        return _encoder(p).per_edge(p.encoder)

    def pair_work(self, p: TrainedParams) -> int | None:
        """Number of multiply-adds of a score, for an encoder that scores pairs; None for inner products."""
        work = _encoder(p).work
        return work and work(p.encoder, p.training.embedding_dim)

    def sums_negatives(self, p: TrainedParams) -> bool:
        """Whether the loss reads sums over negatives that rows share, which need no array of their scores on the CPU."""
        training, loss = p.training, self.loss
        shared = training.shares_negatives and training.precision == "float32"
        sums = loss.over_catalogue and not loss.whole_catalogue and "all_positives" not in loss.needs
        return shared and sums and not _encoder(p).work and training.similarity_for(loss.similarity) != "distance"

    def identity_of(self, p: TrainedParams) -> Hashable:
        twin, training = self.loss.twin(p.loss), p.training
        # The scale of a loss does not change Adam's steps, unless there is a penalty, the encoder's own loss or a large eps.
        scaled = twin is not None and twin.scale != 1
        free = training.weight_decay == 0 and training.model in ("mf", "lightgcn") and training.adam_eps <= 1e-8
        if twin is None or (scaled and not free):
            return (self.name, p)
        training = dataclasses.replace(training, sampler=training.sampler_for(self.loss.sampler))
        same = training.similarity_for(self.loss.similarity), self.loss.unit_ball
        return (twin.name, twin.params, p.encoder, training, same)


def _encoder(p: TrainedParams) -> Encoder:
    return encoders().get(p.training.model)


def _names(part: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(part))


def _part(part: type[P], values: Mapping[str, Any], source: str) -> P:
    """The parameters of a part, from the flat values of all parts."""
    return sized_parameters(part, {name: values[name] for name in _names(part) if name in values}, source)


def _require_distinct(loss: Loss) -> None:
    """Parameters are written flat, so two parts may share a name only if it means the same."""
    parts = (TrainingParams, *(encoder.params for encoder in MODELS), loss.params)
    owners: dict[str, tuple[type, object]] = {}
    for part in parts:
        for field in dataclasses.fields(part):
            owner, default = owners.setdefault(field.name, (part, field.default))
            if owner is not part and (TrainingParams in (part, owner) or part is loss.params or default != field.default):
                both = f"{owner.__name__} and {part.__name__} both have a parameter {field.name!r}"
                raise ConfigError(f"{loss.name}: {both}; give one of them another name")


def _method(loss: Loss) -> Trained:
    _require_distinct(loss)
    return Trained(
        name=loss.name,
        params=TrainedParams,
        title=loss.title,
        source=loss.source,
        families=("gradient", *loss.families),
        steps=partial(steps, loss),
        seeded=True,
        folds=False,
        length="epochs",
        save_every=SAVE_EVERY,
        pace=loss.pace,
        loss=loss,
    )


def register_losses() -> None:
    """Register a method for every loss that there is, and later for those that plugins add."""
    encoders().watch(_require_own_names)
    losses().watch(_register)


def refuse_encoder(name: str) -> None:
    """Raise ConfigError, with what to write, if `name` is that of an encoder, alone or with a loss as on a leaderboard."""
    for encoder in encoders():
        pairs = {encoder.name: encoder.paper_loss or "bpr"} | {f"{encoder.name}-{loss}": loss for loss in losses().names()}
        if name in pairs:
            what = f"{encoder.name} is an encoder, which learns with a loss"
            raise ConfigError(f"{name}: {what}: write the method {pairs[name]} with model={encoder.name}")


def _register(loss: Loss) -> None:
    known = METHODS.get(loss.name) if loss.name in METHODS else None
    if not (isinstance(known, Trained) and known.loss is loss):
        METHODS.add(loss.name, _method(loss), loss.function.__module__)


def _require_own_names(encoder: Encoder) -> None:
    for loss in LOSSES:
        _require_distinct(loss)
