"""An experiment on synthetic data of the same sizes, for datasets that are not available.

The counts are the published ones of a card; data/synthetic.py determines all else. Results on such data cannot be compared with
those of a paper: the published numbers are left out, and every output names the data.
"""

from __future__ import annotations

from typing import Any

from rankbench.core.config import validate
from rankbench.core.environment import Environment
from rankbench.core.errors import require
from rankbench.data.cards import ORIGIN, Card
from rankbench.evaluation.metrics import metric_set
from rankbench.schema.datasets import card_of
from rankbench.schema.experiment import ArmSpec, ExperimentSpec

COUNTS = ("users", "items", "interactions")
FEWEST = 10  # minimum number of users and items, and of items per position of the longest list that is measured
SUFFIX = "-stand-in"


def stand_in(spec: ExperimentSpec, environment: Environment, factor: float, source: str) -> ExperimentSpec:
    """`spec` on stand-ins of its datasets, with users, items and interactions scaled by `factor`, 0 < factor <= 1.

    The `chosen` parameters of a dataset become those of its stand-in. Raises ConfigError if a card does not say how large its
    data are, and the errors of `load_card`.
    """
    require(0 < factor <= 1, f"--stand-in: expected a factor above 0 and at most 1, got {factor:g}")
    cards = [card_of(entry, environment, f"{source}: datasets[{position}]") for position, entry in enumerate(spec.datasets)]
    longest = metric_set([*spec.metrics, *spec.report_metrics], spec.cutoffs).k
    stand_ins = {card.name: stand_in_card(card, factor, source, FEWEST * longest) for card in cards}
    changes: dict[str, Any] = {
        "name": spec.name[: 64 - len(SUFFIX)] + SUFFIX,
        "question": f"{spec.question} (On synthetic stand-ins.)".strip(),
        "datasets": tuple(
            {"name": card.name, "card": card.model_dump(mode="json", exclude=ORIGIN, exclude_none=True)}
            for card in stand_ins.values()
        ),
        "arms": tuple(_arm(arm, stand_ins) for arm in spec.arms),
        "published": None,
        "not_run": (),
    }
    if any(arm.published for arm in spec.arms):
        # The metrics of the papers' tables are still measured.
        changes["metrics"] = tuple(dict.fromkeys([*spec.metrics, *spec.report_metrics]))
    return spec.model_copy(update=changes)


def stand_in_card(card: Card, factor: float, source: str, fewest_items: int = FEWEST) -> Card:
    """The card of a stand-in with at least `fewest_items` items, or as many as the dataset has.

    Raises ConfigError if the card does not say how large its data are.
    """
    suffix, of = ("", "") if factor == 1 else (f"-{factor:g}", f"{factor:g} of ")
    if own_generator := card.source.generator:
        if factor == 1:
            return card
        counts = {name: getattr(own_generator, name) for name in ("users", "items")}
        counts["interactions"] = own_generator.users * own_generator.interactions_per_user
        name, title = f"{card.name}{suffix}", f"the built-in data at {of}the size of {card.name}"
    else:
        counts = _counts(card, source)
        name, title = f"{card.name}{SUFFIX}{suffix}", f"synthetic data at {of}the size of {card.name}, none of its own"
    users, items = max(FEWEST, round(counts["users"] * factor)), round(counts["items"] * factor)
    items = max(FEWEST, min(fewest_items, counts["items"]), items)
    generator = (own_generator.model_dump() if own_generator else {}) | {
        "users": users,
        "items": items,
        "interactions_per_user": min(counts["interactions"] / counts["users"], items / 2),
    }
    split, changed = _split(card, factor)
    size = f"{users:,} users, {items:,} items, {generator['interactions_per_user']:.1f} interactions a user"
    content = {
        "name": name,
        "title": title,
        "source": {"generator": generator},
        "split": split,
        "stand_in": f"{title} ({size}){changed}",
    }
    return validate(Card, content, f"{source}: the stand-in of {card.name}")


def _counts(card: Card, source: str) -> dict[str, int]:
    """The published counts of the prepared data, or else those of the raw files."""
    counts = {name: getattr(card.expect.prepared, name) or getattr(card.expect.raw, name) for name in COUNTS}
    missing = [name for name, number in counts.items() if not number]
    require(
        not missing,
        f"{source}: {card.name}: no stand-in, since its card does not say how many {', '.join(missing)} there are "
        "(expect.prepared or expect.raw)",
    )
    return counts


def _split(card: Card, factor: float) -> tuple[dict[str, Any], str]:
    """The card's protocol, with a sentence if it was replaced because the generator has no times and no published parts."""
    given = card.split.model_dump()
    if card.split.protocol == "held-out-users":
        lost = [given[name] for name in ("test", "targets_by") if given[name] in ("published", "time")]
        given |= {"test": 0.1 if given["test"] == "published" else given["test"], "targets_by": "random"}
        # A number of users is scaled; a share is not.
        for part in ("valid", "test"):
            given[part] = given[part] if given[part] < 1 else max(1, round(given[part] * factor))
        why = "; held-out users and their targets are random, since it has no published parts and no times"
        return given, why if lost else ""
    if card.split.protocol == "leave-one-out" and given["order"] == "time":
        return given | {"order": "random"}, "; a random interaction of each user is left out, not the last: it has no times"
    shares = {"published": (0.2, 0.1), "temporal": (given.get("test"), given.get("valid"))}.get(card.split.protocol)
    if shares is None:
        return given, ""
    test, valid = shares
    reason = "it has no times" if card.split.protocol == "temporal" else "nobody has published parts of it"
    instead = {"protocol": "random-per-user", "seed": card.split.seed, "test": test, "valid": valid}
    return instead, f"; split at random per user, {test:g} test and {valid:g} of the rest valid, since {reason}"


def _arm(arm: ArmSpec, stand_ins: dict[str, Card]) -> ArmSpec:
    chosen = {stand_ins[dataset].name: values for dataset, values in arm.chosen.items() if dataset in stand_ins}
    # What a paper says of the data says nothing of a stand-in.
    return arm.model_copy(update={"published": {}, "costs": {}, "printed": {}, "as_published": {}, "chosen": chosen})
