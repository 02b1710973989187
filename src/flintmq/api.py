"""connect(): picks the way of running by the URL."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import unquote_to_bytes

from .broker_api import BrokerApi
from .client.client import Client
from .clock import Clock
from .errors import InvalidRequest
from .fsync_policy import FsyncPolicy
from .model import Seconds, timeout_seconds
from .observe.logs import event
from .observe.tracing import tracing_for
from .serde.codec import DECODED_BYTES_MAX, Codec

OnFull = Literal["block", "raise"]
File = str | os.PathLike[str]

_log = logging.getLogger(__name__)

SERVER = "FLINTMQ_SERVER"
API_KEY = "FLINTMQ_API_KEY"
API_KEY_MAX = 4096
OUTBOX_BYTES = 256 << 20


def connect(
    url: str | None = None,
    *,
    auto_create: bool = True,
    timeout: Seconds | None = 30.0,
    decoded_bytes_max: int = DECODED_BYTES_MAX,
    clock: Clock | None = None,
    fsync: str = "always",
    on_full: OnFull = "block",
    api_key: str | None = None,
    tls_ca: File | None = None,
    tls_cert: File | None = None,
    tls_key: File | None = None,
    tls_verify: bool = True,
    outbox: File | None = None,
    outbox_bytes_max: int = OUTBOX_BYTES,
    tracing: bool | None = None,
) -> Client:
    """Connect to a broker: `async with flintmq.connect("memory://") as mq`.

    Without a URL, FLINTMQ_SERVER is used, else `memory://`; `mq.url` and a log line say which.

    `memory://` runs a broker in memory, inside this process; each call creates a new one. With
    `auto_create=False`, topics must be created before they are used. `timeout` is the default time
    limit of calls that have none of their own (None: no limit). `decoded_bytes_max` limits the size
    of a message after decompression. `clock` is for tests.

    `file:///path` stores everything in a directory, across restarts and crashes. Only one process
    can use it at a time. `fsync` says when to sync to disk: `always` (before every receipt),
    `every_n:<n>`, `interval:<ms>` or `never`.

    `flint://host:port` is a broker on the network; several hosts are separated by commas. Lost
    connections are reopened automatically. Every call ends at its deadline, whatever happens to the
    connection. `on_full` says what a publish does when too much is unacknowledged: `block`, or
    `raise` QueueFull. `api_key` is your key, by default that in FLINTMQ_API_KEY. A wrong key raises
    NotAuthenticated; if a key is revoked later, everything open raises it.

    `flints://host:port` is the same over TLS. The certificate of the broker must be valid for that
    host, and signed by a CA that this machine trusts, or by `tls_ca`, a CA file. `tls_cert` and
    `tls_key` are the client certificate, if the broker requires one. `tls_verify=False` does not
    verify the broker: for experiments only. The environment variables are FLINTMQ_TLS_CA,
    FLINTMQ_TLS_CLIENT_CERT, FLINTMQ_TLS_CLIENT_KEY and FLINTMQ_TLS_VERIFY.

    `outbox` is a directory that stores publishes while a flint:// broker is unreachable, across
    restarts and crashes of this process. Every publish goes there, its receipt says `queued`, and
    it is sent in order, exactly once, when the broker can be reached. Only one process can use it
    at a time. When it holds `outbox_bytes_max`, publishes raise OutboxFull. `fsync` applies to it.

    `tracing` creates OpenTelemetry spans for publishing and processing, and passes `traceparent` in
    the headers. By default it is on if OpenTelemetry is set up in this process; True requires
    `flintmq[otel]`.
    """
    spans = tracing_for(tracing)
    if url is None:
        url = _url_by_default()
    if not isinstance(url, str):
        raise InvalidRequest(f"a broker URL must be a str such as 'memory://', not {url!r}")
    scheme, separator, rest = url.partition("://")
    given = {"tls_ca": tls_ca, "tls_cert": tls_cert, "tls_key": tls_key}
    named = [name for name, value in given.items() if value is not None]
    if not tls_verify:
        named.append("tls_verify")
    if named and scheme != "flints":
        raise InvalidRequest(
            f"{' and '.join(named)} is for TLS: connect to flints://host:port, not {url!r}"
        )
    if outbox is not None and scheme not in ("flint", "flints"):
        raise InvalidRequest(f"an outbox is for flint:// and flints://, not for {url!r}")
    codec = Codec(decoded_bytes_max)
    broker: BrokerApi
    if scheme == "memory" and separator:
        if rest:
            raise InvalidRequest(
                f"memory:// takes no path, not {url!r}: every connect creates its own "
                "broker; share the connection instead"
            )
        from .engine.broker import Broker

        broker = Broker(clock, codec)
    elif scheme == "file" and separator:
        policy = FsyncPolicy.parse(fsync)
        directory = _directory(url, rest)
        from .engine.host import durable_broker
        from .storage.filesystem import LocalFileSystem

        broker = durable_broker(
            LocalFileSystem(directory), clock=clock, decoder=codec, fsync=policy
        )
    elif scheme in ("flint", "flints") and separator:
        from .net.remote.broker import RemoteBroker

        tls = None
        if scheme == "flints":
            from .net.remote.tls import ClientTls

            tls = ClientTls.given(ca=tls_ca, cert=tls_cert, key=tls_key, verify=tls_verify)
        broker = RemoteBroker(
            url,
            clock=clock,
            decoder=codec,
            timeout=timeout_seconds(timeout),
            auto_create=auto_create,
            on_full=on_full,
            api_key=_checked_key(api_key),
            tls=tls,
        )
        if outbox is not None:
            broker = _with_outbox(
                broker,
                Path(outbox),
                FsyncPolicy.parse(fsync),
                bytes_max=outbox_bytes_max,
                auto_create=auto_create,
                timeout=timeout_seconds(timeout),
            )
    else:
        raise InvalidRequest(
            f"unknown broker URL {url!r}; use memory://, file://, flint:// or flints://"
        )
    kind = Client
    if spans is not None:
        from .client.traced import TracedClient

        kind = TracedClient
    return kind(broker, codec, auto_create=auto_create, timeout=timeout, tracing=spans, url=url)


def _with_outbox(
    remote: BrokerApi, directory: Path, fsync: FsyncPolicy, **settings: Any
) -> BrokerApi:
    from .client.outbox import OutboxBroker
    from .engine.host import durable_broker
    from .storage.filesystem import LocalFileSystem

    local = durable_broker(LocalFileSystem(directory), clock=remote.clock, fsync=fsync)
    return cast(BrokerApi, OutboxBroker(remote, local, directory=str(directory), **settings))


def _checked_key(given: str | None) -> str | None:
    """The key as it is sent. A wrong one is never repeated in a text: it may be nearly right."""
    key = os.environ.get(API_KEY) if given is None else given
    if key is None:
        return None
    if not isinstance(key, str):
        raise InvalidRequest(f"api_key must be a str, not {type(key).__name__}")
    key = key.strip()  # what was read from a file ends with its line
    if not key.isascii() or not key.isprintable() or len(key) > API_KEY_MAX:
        raise InvalidRequest("api_key is not a valid key: keys look like flint_ID_SECRET")
    return key or None


def _directory(url: str, path: str) -> Path:
    if not path.startswith("/"):
        raise InvalidRequest(
            f"file:// needs an absolute path, for example file:///var/lib/flint; not {url!r}"
        )
    try:
        directory = os.fsdecode(unquote_to_bytes(path))
    except UnicodeEncodeError:
        raise InvalidRequest(f"the path of {url!r} is not valid Unicode") from None
    if "\0" in directory:
        raise InvalidRequest(f"the path of {url!r} contains a NUL character")
    return Path(directory)


def _url_by_default() -> str:
    url = os.environ.get(SERVER)
    why = f"from {SERVER}" if url else f"inside this process; set {SERVER} to use another broker"
    url = url or "memory://"
    event(_log, logging.INFO, "url_by_default", f"connect() without a URL: {url}, {why}", url=url)
    return url
