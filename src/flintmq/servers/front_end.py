"""What the daemon knows of a server of another protocol, whichever it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from .limits import Limits

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

    async def drain(self, seconds: float) -> None:
        """Take no new connections and publishes, and give what is under way time to end."""
        ...

    async def close(self) -> None: ...
