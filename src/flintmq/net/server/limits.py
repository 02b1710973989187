"""What one client may cost a server."""

from __future__ import annotations

import msgspec

from ..wire.frames import FRAME_BYTES_MAX


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    connections: int = 10_000
    told: int = 100
    """Connections beyond that limit which get an answer, at a time; the others are cut off."""
    backlog: int = 1024
    """Connections that may be taken from the system in one turn."""
    frame_bytes: int = FRAME_BYTES_MAX
    in_flight_bytes: int = 16 * 1024 * 1024
    """Publishes of one connection that wait for the disk; beyond that it is not read from."""
    requests: int = 12_000
    """Requests of one connection that are under way, publishes to the disk left aside."""
    unacknowledged_bytes: int = 64 * 1024 * 1024
    """Replies that a client which may resume has not acknowledged."""
    streams: int = 10_000
    delivery_bytes: int = 1024 * 1024
    """What one reply to a take carries at most; a single message may be larger."""
    handshake_seconds: float = 10.0
    idle_seconds: float = 300.0
    ping_seconds: float = 120.0
    grace_seconds: float = 5.0
    """How long a session that lost its connection is kept for it to come back."""
    away: int = 1000
    """Sessions that wait for their client to come back; the one that has waited longest goes."""
    away_bytes: int = 256 * 1024 * 1024
    """What those may keep of unacknowledged replies, all together."""
