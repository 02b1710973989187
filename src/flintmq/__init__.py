"""FlintMQ: a message broker you can import.

async with flintmq.connect("memory://") as mq:
    await mq.publish("orders", b"...", key="42")
    async with mq.reader("orders") as reader:
        message = await reader.read()
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if os.environ.get("FLINTMQ_PURE", "0") not in ("", "0"):
    from .sources_only import prefer_sources

    prefer_sources()

if TYPE_CHECKING:
    from .api import connect as connect
    from .app.app import App as App
    from .app.dependencies import Depends as Depends
    from .app.handles import BlockingTaskGroupHandle as BlockingTaskGroupHandle
    from .app.handles import BlockingTaskHandle as BlockingTaskHandle
    from .app.handles import TaskGroupHandle as TaskGroupHandle
    from .app.handles import TaskHandle as TaskHandle
    from .app.handles import TaskState as TaskState
    from .app.middleware import Invocation as Invocation
    from .app.middleware import Middleware as Middleware
    from .app.running_task import RunningTask as RunningTask
    from .app.running_task import current_task as current_task
    from .app.tasks import Task as Task
    from .app.workflows import chain as chain
    from .app.workflows import group as group
    from .batch import BatchBuilder as BatchBuilder
    from .batch import RecordBatch as RecordBatch
    from .client.background import NotSettled as NotSettled
    from .client.blocking import BlockingClient as BlockingClient
    from .client.blocking import BlockingDeliveries as BlockingDeliveries
    from .client.blocking import BlockingDelivery as BlockingDelivery
    from .client.blocking import BlockingFeed as BlockingFeed
    from .client.blocking import BlockingPublisher as BlockingPublisher
    from .client.blocking import BlockingReader as BlockingReader
    from .client.blocking import BlockingSubscription as BlockingSubscription
    from .client.blocking import BlockingTable as BlockingTable
    from .client.blocking import BlockingTableWatch as BlockingTableWatch
    from .client.blocking import connect_sync as connect_sync
    from .client.client import Client as Client
    from .client.dead_letters import DeadLetter as DeadLetter
    from .client.delivery import Deliveries as Deliveries
    from .client.delivery import Delivery as Delivery
    from .client.feed import Feed as Feed
    from .client.publisher import Publisher as Publisher
    from .client.reader import Reader as Reader
    from .client.subscription import Subscription as Subscription
    from .client.table import Table as Table
    from .client.table import TableChange as TableChange
    from .client.table import TableWatch as TableWatch
    from .compiled import __compiled__ as __compiled__
    from .errors import BrokerFailed as BrokerFailed
    from .errors import Closed as Closed
    from .errors import Corrupt as Corrupt
    from .errors import DataDirectoryInUse as DataDirectoryInUse
    from .errors import DecodeFailed as DecodeFailed
    from .errors import DefinitionChanged as DefinitionChanged
    from .errors import Disconnected as Disconnected
    from .errors import EncodeFailed as EncodeFailed
    from .errors import FilterFailed as FilterFailed
    from .errors import FlintError as FlintError
    from .errors import GroupExists as GroupExists
    from .errors import GroupNotFound as GroupNotFound
    from .errors import InvalidRequest as InvalidRequest
    from .errors import LeaseLost as LeaseLost
    from .errors import MalformedFrame as MalformedFrame
    from .errors import MessagesLost as MessagesLost
    from .errors import MessageTooLarge as MessageTooLarge
    from .errors import MissingExtra as MissingExtra
    from .errors import NoReply as NoReply
    from .errors import NoResponders as NoResponders
    from .errors import NoResult as NoResult
    from .errors import NotAuthenticated as NotAuthenticated
    from .errors import NotStaged as NotStaged
    from .errors import ObjectStorageFailed as ObjectStorageFailed
    from .errors import OutboxFull as OutboxFull
    from .errors import OutcomeUnknown as OutcomeUnknown
    from .errors import PermissionDenied as PermissionDenied
    from .errors import QueueFull as QueueFull
    from .errors import RoutingFailed as RoutingFailed
    from .errors import ScheduleNotFound as ScheduleNotFound
    from .errors import SparkUnavailable as SparkUnavailable
    from .errors import StorageFailed as StorageFailed
    from .errors import StorageFull as StorageFull
    from .errors import TaskCancelled as TaskCancelled
    from .errors import TaskFailed as TaskFailed
    from .errors import TlsFailed as TlsFailed
    from .errors import TopicDeleted as TopicDeleted
    from .errors import TopicExists as TopicExists
    from .errors import TopicFull as TopicFull
    from .errors import TopicNotFound as TopicNotFound
    from .errors import TopicReplaced as TopicReplaced
    from .errors import UnsupportedFormat as UnsupportedFormat
    from .errors import WebhookNotFound as WebhookNotFound
    from .group_model import GroupInfo as GroupInfo
    from .group_model import GroupStats as GroupStats
    from .group_model import InFlight as InFlight
    from .model import Missed as Missed
    from .model import OutboxStats as OutboxStats
    from .model import Receipt as Receipt
    from .model import TopicInfo as TopicInfo
    from .model import TopicKeywords as TopicKeywords
    from .model import TopicOptions as TopicOptions
    from .model import TopicStats as TopicStats
    from .rows import Message as Message
    from .rows import Metadata as Metadata
    from .rows import Rows as Rows
    from .schedule_model import Schedule as Schedule
    from .schedule_model import ScheduleState as ScheduleState
    from .schema_model import TopicSchema as TopicSchema
    from .webhook_model import Webhook as Webhook
    from .webhook_model import WebhookAnswer as WebhookAnswer
    from .webhook_model import WebhookState as WebhookState

__version__ = "0.1.0"


if not TYPE_CHECKING:  # type checkers see the imports above, and still find misspelt names
    _HOMES = {
        "api": "connect",
        "app.app": "App",
        "app.dependencies": "Depends",
        "app.middleware": "Invocation Middleware",
        "app.handles": (
            "TaskHandle TaskGroupHandle TaskState BlockingTaskHandle BlockingTaskGroupHandle"
        ),
        "app.running_task": "RunningTask current_task",
        "app.tasks": "Task",
        "app.workflows": "chain group",
        "client.blocking": (
            "connect_sync BlockingClient BlockingPublisher BlockingReader BlockingFeed "
            "BlockingSubscription BlockingDelivery BlockingDeliveries BlockingTable "
            "BlockingTableWatch"
        ),
        "client.client": "Client",
        "client.background": "NotSettled",
        "client.publisher": "Publisher",
        "client.reader": "Reader",
        "client.feed": "Feed",
        "client.subscription": "Subscription",
        "client.table": "Table TableChange TableWatch",
        "rows": "Message Rows Metadata",
        "client.delivery": "Delivery Deliveries",
        "model": "Missed OutboxStats Receipt TopicInfo TopicOptions TopicKeywords TopicStats",
        "group_model": "GroupInfo GroupStats InFlight",
        "schedule_model": "Schedule ScheduleState",
        "schema_model": "TopicSchema",
        "webhook_model": "Webhook WebhookAnswer WebhookState",
        "client.dead_letters": "DeadLetter",
        "batch": "RecordBatch BatchBuilder",
        "compiled": "__compiled__",
        "errors": (
            "FlintError InvalidRequest MessageTooLarge EncodeFailed DecodeFailed "
            "RoutingFailed MissingExtra NotStaged TopicNotFound TopicReplaced MessagesLost "
            "NotAuthenticated PermissionDenied TopicDeleted TopicExists TopicFull QueueFull "
            "GroupNotFound GroupExists WebhookNotFound DefinitionChanged NoResponders NoReply "
            "NoResult TaskFailed TaskCancelled ScheduleNotFound "
            "LeaseLost FilterFailed Closed OutboxFull "
            "Disconnected TlsFailed MalformedFrame OutcomeUnknown Corrupt UnsupportedFormat "
            "StorageFull StorageFailed ObjectStorageFailed BrokerFailed DataDirectoryInUse "
            "SparkUnavailable"
        ),
    }
    _HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}
    __all__ = [*_HOME_OF, "__version__"]

    def __getattr__(name: str) -> Any:
        """A part is loaded when it is first asked for: `flintmq --help` waits for none of them."""
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(f".{_HOME_OF[name]}", __name__), name)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
