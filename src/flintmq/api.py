"""connect(): picks the way of running by the URL."""

from __future__ import annotations

from .client.client import Client
from .clock import Clock
from .errors import InvalidRequest
from .model import Seconds


def connect(
    url: str = "memory://",
    *,
    auto_create: bool = True,
    timeout: Seconds | None = 30.0,
    clock: Clock | None = None,
) -> Client:
    """Connect to a broker: `async with flintmq.connect("memory://") as mq`.

    `memory://` runs a broker inside this process, in memory; each call makes a broker of its own.
    With `auto_create=False`, a topic has to be made before it is used. `timeout` is how long a
    publish may wait (None: as long as it takes). `clock` is for tests.
    """
    scheme, separator, rest = url.partition("://")
    if scheme == "memory" and separator:
        if rest:
            raise InvalidRequest(
                f"memory:// takes no path, not {url!r}: every connect is a broker of its own; "
                "share the connection instead"
            )
        from .engine.broker import Broker

        return Client(Broker(clock), auto_create=auto_create, timeout=timeout)
    raise InvalidRequest(f"unknown broker URL {url!r}; this version runs memory://")
