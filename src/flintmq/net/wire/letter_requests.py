"""The control parts of what is done with dead letters."""

from __future__ import annotations

from typing import Any

from .control import Control


class RedriveRequest(Control):
    topic: Any
    group: Any
    offsets: list[int] | None = None
    filter: str | None = None


class RedriveEditedRequest(Control):
    topic: Any
    group: Any
    id: int
    """Of the dead letter."""
    changes: dict[str, Any]
    """To `value`, `key`, `headers`, `content_type`."""
