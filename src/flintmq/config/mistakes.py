"""What is said about settings that are misspelled, or whose value does not fit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .kinds import UnfitValue
from .table import BY_NAME, Setting


def nearest(name: str, known: Iterable[str] = tuple(BY_NAME), *, cutoff: float = 0.6) -> str | None:
    """The known name most similar to `name`, if there is one."""
    import difflib  # for those who make mistakes

    wanted = name.strip().lower().replace("-", "_")
    found = difflib.get_close_matches(wanted, list(known), n=1, cutoff=cutoff)
    return found[0] if found else None


def why_not(setting: Setting, value: Any, unfit: UnfitValue) -> str:
    """What is wrong with a value. A secret value is not repeated."""
    said = "" if setting.secret else f", not {value!r}"
    return f"{setting.name} must be {unfit}{said}"
