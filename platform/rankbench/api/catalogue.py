"""What there is to fit and to fit on, as tables."""

from __future__ import annotations

import pandas as pd

from rankbench.core.environment import Environment
from rankbench.core.public import public
from rankbench.data.cards import card_names, read_card
from rankbench.data.describe import raw_data
from rankbench.experiment.method_facts import facts_of
from rankbench.experiment.methods import method, registered


@public
def datasets(*, environment: Environment | None = None) -> pd.DataFrame:
    """Return one row per dataset of the catalogue, by name: title, counts of its card, protocol, and where its raw data are."""
    environment = environment or Environment.from_env()
    cards = [read_card(path) for path in card_names(environment).values()]
    rows = [
        {
            "title": card.title,
            **{name: getattr(card.expect.prepared, name) for name in ("users", "items", "interactions")},
            "protocol": card.split.protocol,
            "raw_data": raw_data(card, environment),
        }
        for card in cards
    ]
    frame = pd.DataFrame(rows, index=pd.Index([card.name for card in cards], name="dataset"))
    return frame.astype({name: "Int64" for name in ("users", "items", "interactions")})


@public
def methods(name: str | None = None) -> pd.DataFrame:
    """Return one row per method: title, source, and its own parameters. With a `name`, one row per parameter of that method:
    default, search range and description.

    Raises ConfigError with the nearest name for an unknown method.
    """
    if name is None:
        specs = list(registered())
        about = [{"title": spec.title, "source": spec.source, "parameters": ", ".join(spec.own)} for spec in specs]
        return pd.DataFrame(about, index=pd.Index([spec.name for spec in specs], name="method"))
    params = facts_of(method(name)).params
    rows = [{"default": each.default, "search": each.search, "description": each.help} for each in params]
    index = pd.Index([each.name for each in params], name="parameter")
    return pd.DataFrame(rows, index=index, columns=["default", "search", "description"])
