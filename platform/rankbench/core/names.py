"""The rule for names, and the wider one for the labels of rows.

Names of methods, losses, encoders, metrics, protocols, readers, datasets and experiments are words of a command line, parts of
paths and keys of stores, and are selected by patterns. Labels of arms are texts of a table: those of papers, such as
"RG² with α" and "SL@K, K = 20". Both are parts of pages and are selected by patterns (`core/patterns.py`), so that neither has
markup or pattern signs.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, ValidationInfo

from rankbench.core.errors import shown

DECLARED = {"declared": True}  # context of what a user declares, in contrast to what was stored
LONGEST = 64  # characters
ALL = "all"  # selects every name, so that nothing can have this name
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{LONGEST - 1}}}")
_NOT_IN_LABELS = r"<>&/\|`*?[]"  # markup, separators of paths and columns, pattern signs


def checked_name(name: Any) -> str:
    """Return a name unchanged. Raises ValueError, which says what a name is, if it is none."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name == ALL:
        raise ValueError(
            f"expected a name of at most {LONGEST} letters, digits, dots, hyphens and underscores that begins with a letter or "
            f"digit and is not {ALL}, got {shown(name)}"
        )
    return name


def _checked_label(label: str, info: ValidationInfo) -> str:
    # A sweep that was stored before is read whatever its labels are.
    return checked_label(label) if info.context is DECLARED else label


def checked_label(label: str) -> str:
    """Return a label unchanged. Raises ValueError, which says what a label is, if it is none."""
    if not 0 < len(label) <= LONGEST or not label.isprintable() or label != label.strip() or {*label} & {*_NOT_IN_LABELS}:
        raise ValueError(f"expected a text of 1 to {LONGEST} characters without {_NOT_IN_LABELS}, got {shown(label)}")
    return label


Name = Annotated[str, AfterValidator(checked_name)]
Label = Annotated[str, AfterValidator(_checked_label)]
