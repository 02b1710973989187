"""What one client may cost the HTTP server, and the server the broker."""

from __future__ import annotations

import msgspec


class HttpLimits(msgspec.Struct, frozen=True, kw_only=True):
    connections: int = 100
    """Beyond that the one that has said nothing for longest makes room; where all are being
    answered, new ones wait in the system's line."""
    requests: int = 64
    """Requests under way; more are answered with 503 at once. Health and readiness always pass.
    Long polls and streams do not count while they wait: connections bound them."""
    backlog: int = 128
    header_bytes: int = 16 * 1024
    body_bytes: int = 1024 * 1024
    header_seconds: float = 10.0
    """For the whole of a request's headers, however slowly they come."""
    body_seconds: float = 30.0
    handler_seconds: float = 10.0
    """What an answer may take; then it is 504."""
    idle_seconds: float = 75.0
    """How long a connection without a request is kept; longer than scrapers and proxies wait."""
    cpu_share: float = 0.1
    """How much of the event loop's time HTTP may take, beside messages. What is over waits."""
    wait_seconds: float = 60.0
    """How long a long poll may wait."""
    heartbeat_seconds: float = 15.0
    """How often an idle stream says that it is alive."""
    stream_seconds: float = 86_400.0
    """The age of a stream; then it ends, and its client comes back."""
    metrics: bool = True
    """Whether `/metrics` is served."""
    metrics_max_series: int = 10_000
    """Topics and groups beyond that are summed up as one."""
