"""The control parts of what concerns definitions and webhooks."""

from __future__ import annotations

from typing import Any

from .control import Control


class DefinitionsRequest(Control):
    kind: str
    topic: Any = None
    name: str | None = None


class WebhookStatesRequest(Control):
    topic: Any = None


class DefineRequest(Control):
    kind: str
    topic: Any
    name: str
    value: bytes | None
    version: int | None = None
