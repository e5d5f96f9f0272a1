"""How every table, page and sentence prints a p-value, an interval, a difference, a share, a duration and several names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

MANY = 5  # most names that a sentence lists


def p_text(p: float, equals: str = "") -> str:
    """Return a p-value: `0.012`, after `equals`, or `< 0.001`."""
    return f"{equals}{p:.3f}" if p >= 0.001 else "< 0.001"


def number(value: float | None) -> str:
    """Return a metric with four digits, empty for None."""
    return "" if value is None else f"{value:.4f}"


def difference(value: float | None, digits: int = 4) -> str:
    """Return a difference with its sign, empty for None."""
    return "" if value is None else f"{value:+.{digits}f}"


def estimate(mean: float, low: float | None = None, high: float | None = None) -> str:
    """Return a mean with four digits, or one digit from 10 on, and its interval in brackets if there is one."""
    digits = 4 if abs(mean) < 10 else 1
    bounds = "" if low is None or high is None else f" [{low:.{digits}f}, {high:.{digits}f}]"
    return f"{mean:.{digits}f}{bounds}"


def interval(low: float | None, high: float | None, form: str = ".4f") -> str:
    """Return the bounds of an interval, empty if there is none."""
    return "" if low is None or high is None else f"{low:{form}} – {high:{form}}"


def percent(part: float, form: str = ".0f") -> str:
    """Return a part of 1 in percent."""
    return f"{100 * part:{form}} %"


def parts(shares: Iterable[float]) -> str:
    """Return parts of one whole in percent, such as `20 / 50 / 30 %`."""
    return " / ".join(f"{100 * share:.0f}" for share in shares) + " %"


def share(part: int, whole: int) -> str:
    """Return a number with its share of the whole; empty if there is no whole."""
    return f"{part} ({percent(part / whole)})" if whole else ""


def counted(n: int, one: str, many: str = "") -> str:
    """Return a number with its noun, such as `3 fits`; `many` is a plural that does not end with s alone."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def duration(seconds: float) -> str:
    """Return seconds as text in a suitable unit, such as 40 s, 12 min or 3 h 20 min."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def listed(names: Iterable[str]) -> str:
    """Return the names in one line, with semicolons between them if one contains a comma as in "BPR, MF", else with commas."""
    names = list(names)
    return ("; " if any("," in name for name in names) else ", ").join(names)


def in_words(names: Sequence[str], kind: str = "models", most: int = MANY) -> str:
    """Return names as part of a sentence: all of them, or the first few of more than `most`, and the number of the others."""
    shown = list(names) if len(names) <= most else [*names[: most - 1], f"{len(names) - most + 1} other {kind}"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
