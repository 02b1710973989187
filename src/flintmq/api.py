"""connect(): picks the way of running by the URL."""

from __future__ import annotations

from .client.client import Client
from .clock import Clock
from .errors import InvalidRequest
from .model import Seconds
from .serde.codec import DECODED_BYTES_MAX, Codec


def connect(
    url: str = "memory://",
    *,
    auto_create: bool = True,
    timeout: Seconds | None = 30.0,
    decoded_bytes_max: int = DECODED_BYTES_MAX,
    clock: Clock | None = None,
) -> Client:
    """Connect to a broker: `async with flintmq.connect("memory://") as mq`.

    `memory://` runs a broker inside this process, in memory; each call makes a broker of its own.
    With `auto_create=False`, a topic has to be made before it is used. `timeout` is how long a
    publish may wait (None: as long as it takes). `decoded_bytes_max` bounds what a compressed
    message may grow to. `clock` is for tests.
    """
    if not isinstance(url, str):
        raise InvalidRequest(f"a broker URL is a str such as 'memory://', not {url!r}")
    scheme, separator, rest = url.partition("://")
    if scheme == "memory" and separator:
        if rest:
            raise InvalidRequest(
                f"memory:// takes no path, not {url!r}: every connect is a broker of its own; "
                "share the connection instead"
            )
        from .engine.broker import Broker

        codec = Codec(decoded_bytes_max)
        return Client(Broker(clock, codec), codec, auto_create=auto_create, timeout=timeout)
    raise InvalidRequest(f"unknown broker URL {url!r}; this version runs memory://")
