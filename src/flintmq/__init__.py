"""FlintMQ: a message broker you can import.

async with flintmq.connect("memory://") as mq:
    await mq.publish("orders", b"...", key="42")
    async with mq.reader("orders") as reader:
        message = await reader.read()
"""

from __future__ import annotations

from .api import connect
from .batch import BatchBuilder, RecordBatch
from .client.client import Client
from .client.feed import Feed
from .client.publisher import Publisher
from .client.reader import Reader
from .errors import (
    Closed,
    Corrupt,
    DecodeFailed,
    EncodeFailed,
    FilterFailed,
    FlintError,
    InvalidRequest,
    MessageTooLarge,
    MissingExtra,
    QueueFull,
    RoutingFailed,
    TopicDeleted,
    TopicExists,
    TopicFull,
    TopicNotFound,
    UnsupportedFormat,
)
from .model import Missed, Receipt, TopicInfo, TopicOptions, TopicStats
from .rows import Message, Metadata, Rows

__version__ = "0.1.0"

__all__ = [
    "connect",
    "Client",
    "Publisher",
    "Reader",
    "Feed",
    "Message",
    "Rows",
    "Metadata",
    "Missed",
    "Receipt",
    "TopicInfo",
    "TopicOptions",
    "TopicStats",
    "RecordBatch",
    "BatchBuilder",
    "FlintError",
    "InvalidRequest",
    "MessageTooLarge",
    "EncodeFailed",
    "DecodeFailed",
    "RoutingFailed",
    "MissingExtra",
    "TopicNotFound",
    "TopicDeleted",
    "TopicExists",
    "TopicFull",
    "QueueFull",
    "FilterFailed",
    "Closed",
    "Corrupt",
    "UnsupportedFormat",
    "__version__",
]
