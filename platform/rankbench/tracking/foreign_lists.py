"""What a record of foreign lists says about them: lists that another program made, which were measured and not fitted here."""

from __future__ import annotations

from dataclasses import dataclass

METHOD = "lists"
MARK = "(foreign lists)"  # follows their name in every table


@dataclass(frozen=True)
class ForeignLists:
    """`file` and its `sha256`, the number of its `rows`, and `by` what they are ordered. Of the users who are measured: how
    many are `without_list`, have a `short` one with fewer items than the longest cutoff `k`, or equal scores in it (`tied`).
    `seen_items`: number of items that were left out, because their users' histories have them. `not_measured`: other users with
    a list. `told_seconds`: whether the seconds of the fit are as the user said.
    """

    file: str
    sha256: str
    rows: int
    by: str
    k: int
    told_seconds: bool
    without_list: int = 0
    short: int = 0
    tied: int = 0
    seen_items: int = 0
    not_measured: int = 0
    by_popularity: int = 0

    @property
    def sentences(self) -> list[str]:
        """What was done with users and items, as far as there were any."""
        seen = "1 item" if self.seen_items == 1 else f"{self.seen_items:,} items"
        said = {
            f"{_have(self.without_list)} no list, and each counts as 0": self.without_list,
            f"{_have(self.short)} fewer than {self.k} items": self.short,
            f"left out before lists are cut, because the user's history has them: {seen}": self.seen_items,
            f"{_have(self.tied)} equal scores, where the lower item id goes first": self.tied,
            f"{_have(self.not_measured)} a list without being measured": self.not_measured,
            f"{_have(self.by_popularity)} no history: ranked by popularity instead of the list": self.by_popularity,
        }
        return [sentence for sentence, number in said.items() if number]


def _have(number: int) -> str:
    return "1 user has" if number == 1 else f"{number:,} users have"
