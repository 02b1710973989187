"""Servers of other protocols: what the daemon knows of them, and which ones a broker has.

A new one is its package with an `assembly.py` (what it is made of) and a `metrics.py` (what it
shows), a setting for its address, and one line in `FRONT_ENDS`. Who may reach it, how many files it
takes and the pages of the docs follow from these.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ..broker_api import BrokerApi
from ..config.kinds import Address
from ..config.table import Config
from ..net.server.gate import ApiKeyGate
from ..net.server.limits import Limits
from ..net.server.native import NativeServer
from ..net.server.tls import ServerTls
from .cluster_view import ClusterView

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
class FrontEndContext:
    """What a front end stands on."""

    broker: BrokerApi
    gate: ApiKeyGate
    tls: ServerTls | None
    native: NativeServer
    """Its limits count for all, and so do its places."""
    config: Callable[[], Config]
    """As it is now: some settings change while the broker runs."""
    cluster: ClusterView | None = None
    """Where this broker is a node of one."""
    local: BrokerApi | None = None
    """There: the engine of this node, which refuses what another leads."""


class Offered(NamedTuple):
    """A front end that a broker can have."""

    name: str
    """Of its package here, and of the setting with its address."""
    clients: str
    """Its clients, as the docs call them."""
    asks_for_keys: bool = True
    """Whether its clients send a key. If not, it is reachable from this machine only."""


FRONT_ENDS = (
    Offered("hermes", "HermesMQ clients", asks_for_keys=False),
    Offered("blip", "BlipMQ clients"),
)


def configured(config: Config) -> dict[str, Address]:
    """The front ends that a broker shall have, each with its address."""
    addresses = config.addresses()
    return {one.name: addresses[one.name] for one in FRONT_ENDS if one.name in addresses}


def front_ends_of(around: FrontEndContext) -> dict[str, tuple[Address, FrontEnd]]:
    """Those that are configured, each with its address. What a broker does not serve it does not
    load. Raises InvalidRequest for what it cannot be made of."""
    return {
        name: (address, import_module(f".{name}.assembly", __package__).front_end(around))
        for name, address in configured(around.config()).items()
    }
