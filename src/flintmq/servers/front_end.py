"""Servers of other protocols: what the daemon knows of them, and which ones a broker has.

A new one is a setting for its address, an `assembly.py` in its package, and two lines in
`front_ends_of`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ..broker_api import BrokerApi
from ..config import Config
from ..config_kinds import Address
from .gate import WatchedGate
from .limits import Limits
from .native import NativeServer
from .tls import ServerTls

if TYPE_CHECKING:
    from .http.collectors import Collector


class FrontEnd(Protocol):
    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; where. Port 0 takes any that is free."""
        ...

    def set_limits(self, limits: Limits) -> None: ...
    def collectors(self) -> list[Collector]:
        """What it shows on `/metrics`, beside everything else there."""
        ...

    async def drain(self, seconds: float, is_worked_for: Callable[[], bool]) -> None:
        """Take no new connections and publishes, and give what is under way time to end: requests,
        and what consumers of the broker have in work."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a front end stands on."""

    broker: BrokerApi
    gate: WatchedGate
    tls: ServerTls | None
    native: NativeServer
    """Its limits count for all, and so do its places."""
    config: Callable[[], Config]
    """As it is now: some settings change while the broker runs."""


def front_ends_of(around: Surroundings) -> dict[str, tuple[Address, FrontEnd]]:
    """Those that are configured, each with its address. What a broker does not serve it does not
    load. Raises InvalidRequest for what it cannot be made of."""
    config = around.config()
    found: dict[str, tuple[Address, FrontEnd]] = {}
    if config.hermes is not None:
        from .hermes import assembly as hermes

        found["hermes"] = config.hermes, hermes.front_end(around)
    if config.blip is not None:
        from .blip import assembly as blip

        found["blip"] = config.blip, blip.front_end(around)
    return found
