"""The same verbs for code without an event loop: blocking, and safe to use from many threads.

One implementation underneath: the async client runs on an event loop in a background thread, one
per connection, and a call hands it a function and waits for the answer.
"""

from __future__ import annotations

from .client import BlockingClient as BlockingClient
from .client import connect_sync as connect_sync
from .consuming import BlockingFeed as BlockingFeed
from .consuming import BlockingReader as BlockingReader
from .delivery import BlockingDeliveries as BlockingDeliveries
from .delivery import BlockingDelivery as BlockingDelivery
from .publisher import BlockingPublisher as BlockingPublisher
from .subscription import BlockingSubscription as BlockingSubscription
from .table import BlockingTable as BlockingTable
from .table import BlockingTableWatch as BlockingTableWatch
