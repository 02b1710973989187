"""What the pages of the HTTP server are made from."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...broker_api import BrokerApi
from ...cluster_model import ClusterApi
from ...config.table import Setting
from ...errors import FlintError
from ...loop.turns import Turns
from ...model import TopicOptions
from ...net.server.gate import ApiKeyGate
from ...net.server.native import NativeServer
from ...observe.recent import RecentEvents
from ...webhook_model import WebhookState
from .turnstile import Turnstile


@dataclass(slots=True)
class HttpState:
    """Handed to every page. The daemon fills it; tests fill it with a broker in memory."""

    broker: BrokerApi
    """Not open yet while `why_not_ready` says so: then only `/health` and `/ready` are served."""
    gate: ApiKeyGate
    native: NativeServer | None
    """Its connections are listed, if there are any."""
    version: str
    why_not_ready: Callable[[], str | None] = lambda: None
    """None once it is recovered, listening and not on the way down; else what is going on."""
    can_be_asked: Callable[[], bool] = lambda: True
    """Whether the broker has recovered and is not closed; then every page is served."""
    failure: Callable[[], FlintError | None] = lambda: None
    """What ended the broker's disk, if anything did."""
    damaged_messages: Callable[[], int] = lambda: 0
    """How many messages are known to be damaged on the disk."""
    turns: Turns | None = None
    """The watchdog of the event loop, where there is one."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """The settings in force, secrets left out."""
    keys: Callable[[], list[dict[str, Any]]] = list
    """The keys as they may be shown: name, grants, when made; never a secret or its hash."""
    hosts: Collection[str] | None = None
    """The names this broker may be asked by while no key is asked for; None: by any."""
    webhooks: Callable[[], list[WebhookState]] = list
    """How the webhooks are doing that this node delivers."""
    cluster: ClusterApi | None = None
    """The cluster this broker is a node of."""
    origins: Collection[str] = ()
    """Origins of other web pages that may ask, in lower case; see origins.py."""
    wait_seconds: Callable[[], float] = lambda: 60.0
    """How long a long poll may wait."""
    data_dir: Path | None = None
    """Where its disk is, if it has one."""
    settings: Callable[[], Sequence[tuple[Setting, Any, str]]] = tuple
    """Every setting as it is in force, with the value as it may be shown, and its source."""
    topic_defaults: Callable[[], TopicOptions] = TopicOptions
    """Of a topic that is made without saying more."""
    events: RecentEvents | None = None
    """The last lines of the log."""
    starters: list[Callable[[Turnstile], None]] = field(default_factory=list)
    """Called by the server when it listens."""
    closers: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    """Called by the server when it closes."""
    started_at: float = field(default_factory=time.time)
    """Seconds since 1970."""
    _began: float = field(default_factory=time.monotonic)

    def is_ready(self) -> bool:
        return self.why_not_ready() is None

    def uptime(self) -> float:
        return time.monotonic() - self._began
