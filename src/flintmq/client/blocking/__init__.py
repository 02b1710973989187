"""The same verbs for code without an event loop: blocking, and safe to use from many threads.

One implementation underneath: the async client runs on an event loop in a background thread, one
per connection, and a call hands it a function and waits for the answer.
"""

from __future__ import annotations

from .client import BlockingClient, connect_sync
from .consuming import BlockingFeed, BlockingReader
from .delivery import BlockingDeliveries, BlockingDelivery
from .publisher import BlockingPublisher
from .subscription import BlockingSubscription

__all__ = [
    "BlockingClient",
    "BlockingDeliveries",
    "BlockingDelivery",
    "BlockingFeed",
    "BlockingPublisher",
    "BlockingReader",
    "BlockingSubscription",
    "connect_sync",
]
