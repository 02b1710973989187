"""How the front end serves BlipMQ's clients."""

from __future__ import annotations

import msgspec

from ...model import Overflow

PUSH_LEASE_SECONDS = 30.0
"""How long a pushed message may take to be acknowledged before it is pushed again, doubled each
time. A client has no way to say how long it takes, and may have many in its buffers."""

WINDOW = 65_536
"""Messages that one pushed subscription may have unacknowledged; beyond that it waits."""

TAKE_LIVE = 512
"""Messages that are taken out of a live queue before others have their turn, if they are small."""

LOGIN_FAILURES_MAX = 5
"""A connection that shows so many wrong keys is closed."""

UNKNOWN_BYTES_MAX = 66_000
"""The longest frame of who has not said who they are: a key has up to 65,535 bytes."""


class BlipOptions(msgspec.Struct, frozen=True, kw_only=True):
    retry_backoff: float = 0.1
    """Seconds until a polled message that was not acknowledged may be polled again, doubled each
    time."""
    subscription_seconds: float = 3600.0
    """A subscription of version 1 that nobody has polled for so long is dropped."""
    adopt: bool = True
    """Whether the next subscription of version 1 to a topic, at QoS 1, goes on with one whose
    connections are all gone."""
    queue_capacity: int = 16_384
    """Messages of QoS 0 that may wait for one subscription."""
    overflow: Overflow = "drop_oldest"
    max_command_bytes: int = 1024 * 1024
    """The longest command of the first protocol."""
