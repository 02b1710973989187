"""FlintMQ: a message broker you can import.

async with flintmq.connect("memory://") as mq:
    await mq.publish("orders", b"...", key="42")
    async with mq.reader("orders") as reader:
        message = await reader.read()
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import connect
    from .batch import BatchBuilder, RecordBatch
    from .client.blocking import (
        BlockingClient,
        BlockingDeliveries,
        BlockingDelivery,
        BlockingFeed,
        BlockingPublisher,
        BlockingReader,
        BlockingSubscription,
        connect_sync,
    )
    from .client.client import Client
    from .client.dead_letters import DeadLetter
    from .client.delivery import Deliveries, Delivery
    from .client.feed import Feed
    from .client.publisher import Publisher
    from .client.reader import Reader
    from .client.subscription import Subscription
    from .errors import (
        BrokerFailed,
        Closed,
        Corrupt,
        DataDirectoryInUse,
        DecodeFailed,
        Disconnected,
        EncodeFailed,
        FilterFailed,
        FlintError,
        GroupExists,
        GroupNotFound,
        InvalidRequest,
        LeaseLost,
        MalformedFrame,
        MessagesLost,
        MessageTooLarge,
        MissingExtra,
        NotAuthenticated,
        NotStaged,
        OutcomeUnknown,
        PermissionDenied,
        QueueFull,
        RoutingFailed,
        SparkUnavailable,
        StorageFailed,
        StorageFull,
        TlsFailed,
        TopicDeleted,
        TopicExists,
        TopicFull,
        TopicNotFound,
        TopicReplaced,
        UnsupportedFormat,
    )
    from .group_model import GroupInfo, GroupStats, InFlight
    from .model import Missed, Receipt, TopicInfo, TopicKeywords, TopicOptions, TopicStats
    from .rows import Message, Metadata, Rows

__version__ = "0.1.0"

__all__ = [
    "connect",
    "connect_sync",
    "Client",
    "Publisher",
    "Reader",
    "Feed",
    "Subscription",
    "BlockingClient",
    "BlockingPublisher",
    "BlockingReader",
    "BlockingFeed",
    "BlockingSubscription",
    "Message",
    "Rows",
    "Delivery",
    "Deliveries",
    "BlockingDelivery",
    "BlockingDeliveries",
    "Metadata",
    "Missed",
    "Receipt",
    "TopicInfo",
    "TopicOptions",
    "TopicKeywords",
    "TopicStats",
    "GroupInfo",
    "GroupStats",
    "InFlight",
    "DeadLetter",
    "RecordBatch",
    "BatchBuilder",
    "FlintError",
    "InvalidRequest",
    "MessageTooLarge",
    "EncodeFailed",
    "DecodeFailed",
    "RoutingFailed",
    "MissingExtra",
    "NotStaged",
    "TopicNotFound",
    "TopicReplaced",
    "MessagesLost",
    "NotAuthenticated",
    "PermissionDenied",
    "TopicDeleted",
    "TopicExists",
    "TopicFull",
    "QueueFull",
    "GroupNotFound",
    "GroupExists",
    "LeaseLost",
    "FilterFailed",
    "Closed",
    "Disconnected",
    "TlsFailed",
    "MalformedFrame",
    "OutcomeUnknown",
    "Corrupt",
    "UnsupportedFormat",
    "StorageFull",
    "StorageFailed",
    "BrokerFailed",
    "DataDirectoryInUse",
    "SparkUnavailable",
    "__version__",
]

if not TYPE_CHECKING:  # type checkers see the imports above, and still find misspelt names
    _HOMES = {
        "api": "connect",
        "batch": "BatchBuilder RecordBatch",
        "client.client": "Client",
        "client.dead_letters": "DeadLetter",
        "client.delivery": "Deliveries Delivery",
        "client.feed": "Feed",
        "client.publisher": "Publisher",
        "client.reader": "Reader",
        "client.subscription": "Subscription",
        "group_model": "GroupInfo GroupStats InFlight",
        "model": "Missed Receipt TopicInfo TopicKeywords TopicOptions TopicStats",
        "rows": "Message Metadata Rows",
    }
    _HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

    def __getattr__(name: str) -> Any:
        """A part is loaded when it is first asked for: `flintmq --help` waits for none of them."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        is_blocking = name == "connect_sync" or name.startswith("Blocking")
        home = _HOME_OF.get(name, "client.blocking" if is_blocking else "errors")
        found = globals()[name] = getattr(import_module(f".{home}", __name__), name)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
