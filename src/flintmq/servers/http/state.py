"""What the pages of the HTTP server are made from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...broker_api import BrokerApi
from ..gate import Gate
from ..native import NativeServer


@dataclass(slots=True)
class HttpState:
    """Handed to every page. The daemon fills it; tests fill it with a broker in memory."""

    broker: BrokerApi
    gate: Gate
    native: NativeServer | None
    """Its connections are listed, if there are any."""
    version: str
    is_ready: Callable[[], bool] = lambda: True
    """Recovered, listening and not on the way down."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """The settings in force, secrets left out."""
    keys: Callable[[], list[dict[str, Any]]] = list
    """The keys as they may be shown: name, grants, when made; never a secret or its hash."""
