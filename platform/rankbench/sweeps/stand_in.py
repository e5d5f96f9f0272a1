"""An experiment on synthetic data of its datasets' sizes: what runs where the data themselves cannot be had.

The counts are those that a card says were published; what the data are like beyond that, data/synthetic.py decides. So a number
measured here stands beside none of a paper: the published ones are left out, and every output says what the data are.
"""

from __future__ import annotations

from typing import Any

from rankbench.core.config import validate
from rankbench.core.environment import Environment
from rankbench.core.errors import require
from rankbench.data.cards import Card
from rankbench.evaluation.metrics import metric_set
from rankbench.schema.datasets import card_of
from rankbench.schema.experiment import ArmSpec, ExperimentSpec

COUNTS = ("users", "items", "interactions")
FEWEST = 10  # users and items of the smallest, and items a place of the longest list that is measured
SUFFIX = "-stand-in"


def stand_in(spec: ExperimentSpec, environment: Environment, factor: float, where: str) -> ExperimentSpec:
    """`spec` on stand-ins of its datasets, with users, items and interactions scaled by `factor`, 0 < factor <= 1.

    Parameters that the file gives as `chosen` for a dataset are those of its stand-in. Raises ConfigError where a card does not
    say how large its data are, and as `load_card` does.
    """
    require(0 < factor <= 1, f"--stand-in: a factor above 0 and at most 1, got {factor:g}")
    cards = [card_of(entry, environment, f"{where}: datasets[{position}]") for position, entry in enumerate(spec.datasets)]
    longest = metric_set([*spec.metrics, *spec.report_metrics], spec.cutoffs).k
    stand_ins = {card.name: stand_in_card(card, factor, where, FEWEST * longest) for card in cards}
    changes = {
        "name": spec.name[: 64 - len(SUFFIX)] + SUFFIX,
        "question": f"{spec.question} (On synthetic stand-ins.)".strip(),
        "datasets": tuple(_entry(card) for card in stand_ins.values()),
        "arms": tuple(_arm(arm, stand_ins) for arm in spec.arms),
        "published": None,
        "not_run": (),
    }
    if any(arm.published for arm in spec.arms):
        # The columns of the papers' tables are measured all the same.
        changes["metrics"] = tuple(dict.fromkeys([*spec.metrics, *spec.report_metrics]))
    return spec.model_copy(update=changes)


def stand_in_card(card: Card, factor: float, where: str, fewest_items: int = FEWEST) -> Card:
    """With `fewest_items`, or as many as the card has. Raises ConfigError where it does not say how large its data are."""
    scaled, of = ("", "") if factor == 1 else (f"-{factor:g}", f"{factor:g} of ")
    if made := card.source.generator:
        if factor == 1:
            return card
        counts = {"users": made.users, "items": made.items, "interactions": made.users * made.interactions_per_user}
        name, told = f"{card.name}{scaled}", f"the built-in data at {of}the size of {card.name}"
    else:
        counts = _counts(card, where)
        name, told = f"{card.name}{SUFFIX}{scaled}", f"synthetic data at {of}the size of {card.name}, none of its own"
    users, items = max(FEWEST, round(counts["users"] * factor)), round(counts["items"] * factor)
    items = max(FEWEST, min(fewest_items, counts["items"]), items)
    generator = (made.model_dump() if made else {}) | {
        "users": users,
        "items": items,
        "interactions_per_user": min(counts["interactions"] / counts["users"], items / 2),
    }
    split, changed = _split(card, factor)
    size = f"{users:,} users, {items:,} items, {generator['interactions_per_user']:.1f} interactions a user"
    content = {
        "name": name,
        "title": told,
        "source": {"generator": generator},
        "split": split,
        "stand_in": f"{told} ({size}){changed}",
    }
    return validate(Card, content, f"{where}: the stand-in of {card.name}")


def _counts(card: Card, where: str) -> dict[str, int]:
    """As published for the prepared data; those of the raw files where that is all the card has."""
    found = {name: getattr(card.expect.prepared, name) or getattr(card.expect.raw, name) for name in COUNTS}
    missing = [name for name, number in found.items() if not number]
    require(
        not missing,
        f"{where}: {card.name}: no stand-in, since its card does not say how many {', '.join(missing)} there are "
        "(expect.prepared or expect.raw)",
    )
    return found


def _split(card: Card, factor: float) -> tuple[dict[str, Any], str]:
    """The card's protocol, and in words what of it needs more than the generator gives: times, or parts as published."""
    given = card.split.model_dump()
    if card.split.protocol == "held-out-users":
        # A number of users goes with their number; a share stays.
        for part in ("valid", "test"):
            given[part] = given[part] if given[part] < 1 else max(1, round(given[part] * factor))
        return given, ""
    if card.split.protocol == "leave-one-out" and card.split.order == "time":
        return given | {"order": "random"}, "; a random interaction of each user is left out, not the last: it has no times"
    shares = {"published": (0.2, 0.1), "temporal": (given.get("test"), given.get("valid"))}.get(card.split.protocol)
    if shares is None:
        return given, ""
    test, valid = shares
    why = "it has no times" if card.split.protocol == "temporal" else "nobody has published parts of it"
    instead = {"protocol": "random-per-user", "seed": card.split.seed, "test": test, "valid": valid}
    return instead, f"; split at random per user, {test:g} test and {valid:g} of the rest valid, since {why}"


def _entry(card: Card) -> dict[str, Any]:
    return {"name": card.name, "card": card.model_dump(mode="json", exclude={"folder"}, exclude_none=True)}


def _arm(arm: ArmSpec, stand_ins: dict[str, Card]) -> ArmSpec:
    chosen = {stand_ins[dataset].name: values for dataset, values in arm.chosen.items() if dataset in stand_ins}
    return arm.model_copy(update={"published": {}, "chosen": chosen})
