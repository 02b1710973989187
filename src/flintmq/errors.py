"""Every error FlintMQ raises, ordered by what the caller can do next.

    FlintError
      InvalidRequest (ValueError)     fix the call
        MessageTooLarge
        EncodeFailed                  the format cannot encode this value
        RoutingFailed                 the caller's routing function failed
        MissingExtra (ImportError)    install the named extra
      TopicNotFound                   create the topic, or allow auto_create
        TopicDeleted                  it was deleted while in use; open it again if expected
      TopicReplaced                   deleted and created again; start again in the new one
      MessagesLost                    deleted before they were read; allow that, or raise retention
      NotAuthenticated                pass an API key that the broker knows
      PermissionDenied                ask the administrator for a grant
      TopicExists                     use the same options, or call configure_topic
      TopicFull                       wait for readers, or choose another overflow policy
      QueueFull                       the same for a live queue or a publisher's own buffer
      OutboxFull                      reconnect to send it, or raise its limit
      NotStaged                       stage the parts again, then commit
      GroupNotFound                   subscribe or poll creates it
      GroupExists                     pass the group's own options, none, or another name
      NoResponders                    start a responder, then send the request again
      NoReply (TimeoutError)          no reply in time; the request may have been processed
      TaskFailed                      the task itself failed; its text is the task's
      TaskCancelled                   the task was cancelled
      NoResult (TimeoutError)         the task has not ended in time; wait for it again
      ScheduleNotFound                create it with create_schedule
      WebhookNotFound                 create it with create_webhook
      DefinitionChanged               read it again, then repeat the change
      LeaseLost                       drop the work: another consumer has the message
      DecodeFailed                    the value cannot be decoded; the reader can continue
      FilterFailed                    fix the filter; the reader continues after the message
      Closed                          open it again
      Disconnected                    no connection to the broker; nothing was done
        TlsFailed                     no secure connection: retrying does not help
      MalformedFrame                  invalid bytes on the wire: another protocol, or a bug
      Corrupt                         the bytes are damaged; never served as data
        UnsupportedFormat             not damaged: written by a newer FlintMQ
      StorageFull                     free disk space; publishing then resumes by itself
      StorageFailed                   the disk failed a read, write or sync; check it, restart
      ObjectStorageFailed             an object cannot be reached; nothing is lost, repeat it later
      BrokerFailed                    a bug in the broker; restart it, and report the bug
      OutcomeUnknown                  it may or may not have been done; the text says how to retry
      DataDirectoryInUse              another process uses it; stop it, or use another
      SparkUnavailable                install or start what it names: Java, PySpark, a session

    of the Raft core (flintmq.raft):
      ProposalRefused                 nothing was appended; try again later, or on another node
        NotLeader                     ask the node named in it
        TooMuchUncommitted            slow down until the quorum has caught up
        LeadershipMoving              a transfer is under way; ask the next leader
        MembershipChangeRefused       wait for the change before it, or change the change
      LogCompacted                    the entry was compacted; use the snapshot
      LogUnavailable                  not there (yet)
      MalformedRaftMessage            drop the connection it came from
      SnapshotDamaged                 ask for the chunk again, or for a new snapshot
      RaftInvariantBroken             stop the node: continuing could lose acknowledged data

Each error carries its facts as attributes.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

from .installing import remedy


class FlintError(Exception):
    """Base class of all FlintMQ errors."""

    receipts: Sequence[Any] = ()
    """For a publish in several parts that failed: the receipts of the parts that were published."""

    def __reduce__(self) -> tuple[Any, ...]:
        # The texts are made from facts by __init__; another process gets both as they are.
        return _rebuilt, (type(self), self.args, self.__dict__)


def _rebuilt(kind: type[FlintError], args: tuple[Any, ...], facts: dict[str, Any]) -> FlintError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(facts)
    return error


class InvalidRequest(FlintError, ValueError):
    """The call is invalid; the text says what is allowed."""


class MessageTooLarge(InvalidRequest):
    """A message or a batch exceeds a size limit. Nothing was published."""

    def __init__(self, what: str, size: int, limit: int, limit_name: str) -> None:
        super().__init__(f"{what} is {size:,} bytes; {limit_name} allows {limit:,}")
        self.size, self.limit, self.limit_name = size, limit, limit_name


class EncodeFailed(InvalidRequest):
    """The format cannot encode this value. Nothing was published."""

    def __init__(self, type_name: str, format: str, why: str) -> None:
        super().__init__(f"cannot encode {type_name} as {format}: {why}")
        self.format = format


class RoutingFailed(InvalidRequest):
    """A routing function raised, or did not return a partition. Nothing was published."""

    def __init__(self, topic: str, why: str) -> None:
        super().__init__(f"the routing function for {topic!r} {why}")
        self.topic = topic


class MissingExtra(InvalidRequest, ImportError):
    """This feature needs an optional dependency that is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an extra package: {remedy(extra)}")
        self.extra = extra


def extra_module(what: str, extra: str, *names: str) -> Any:
    """The first of these modules that is installed; MissingExtra says how to install one."""
    for name in names:
        with suppress(ImportError):
            return import_module(name)
    raise MissingExtra(what, extra)


class TopicNotFound(FlintError, LookupError):
    """The topic does not exist, and may not be created automatically."""

    def __init__(self, topic: str, hint: str = "create it with create_topic") -> None:
        super().__init__(f"topic {topic!r} does not exist; {hint}")
        self.topic = topic


class TopicDeleted(TopicNotFound):
    """The topic was deleted while it was in use. Its messages are gone."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            topic, "it was deleted while in use; open it again if it was created again"
        )


class TopicReplaced(FlintError):
    """A topic was deleted and created again: offsets of the old one are not valid in the new one.
    Start again in the new topic."""

    def __init__(self, topic: str, known_id: int, found_id: int) -> None:
        super().__init__(
            f"topic {topic!r} was deleted and created again (old id {known_id}, new id "
            f"{found_id}); offsets of the old topic are not valid in the new one"
        )
        self.topic, self.known_id, self.found_id = topic, known_id, found_id


class MessagesLost(FlintError):
    """Messages were deleted before they were read, by retention or because of a damaged disk."""

    def __init__(self, topic: str, first: int, next: int, count: int, remedy: str) -> None:
        super().__init__(
            f"{count:,} messages of topic {topic!r} from offset {first} on were deleted "
            f"before they were read; the next available offset is {next}. {remedy}"
        )
        self.topic, self.first, self.next, self.count = topic, first, next, count


class NotAuthenticated(FlintError):
    """The broker requires an API key, and it is missing or not valid."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"{why}; pass it as api_key= or in FLINTMQ_API_KEY, or create one with "
            "`flintmq key add`"
        )


class PermissionDenied(FlintError, PermissionError):
    """Your key does not allow this. The topic may or may not exist."""

    def __init__(self, permission: str, topic: str, where: str = "on topic") -> None:
        super().__init__(f"this key may not {permission} {where} {topic!r}")
        self.permission, self.topic = permission, topic


class TopicExists(FlintError):
    """The topic already exists, with different options."""

    def __init__(self, topic: str, differing: dict[str, tuple[Any, Any]]) -> None:
        differences = ", ".join(
            f"{name} is {ours!r}, not {theirs!r}" for name, (ours, theirs) in differing.items()
        )
        super().__init__(
            f"topic {topic!r} already exists: {differences}; change options with configure_topic"
        )
        self.topic, self.differing = topic, differing


class TopicFull(FlintError):
    """The topic is full of messages that are still needed. Nothing was published."""

    def __init__(self, topic: str, limit: str, why: str, *, never_fits: bool = False) -> None:
        super().__init__(f"topic {topic!r} is full ({limit}): {why}")
        self.topic, self.limit = topic, limit
        self.never_fits = never_fits
        """The batch is larger than the topic's limit: split it; waiting does not help."""


class QueueFull(FlintError):
    """A bounded queue is full: a live subscriber's, or a publisher's own. Nothing was added."""

    def __init__(self, queue: str, capacity: int, remedy: str) -> None:
        super().__init__(f"{queue} is full ({capacity:,}); {remedy}")
        self.queue, self.capacity = queue, capacity


class OutboxFull(FlintError):
    """The outbox on this device is full. Nothing was added."""

    def __init__(self, directory: str, bytes: int, bytes_max: int, why: str | None) -> None:
        waits = f", and cannot be sent for now ({why})" if why else ""
        super().__init__(
            f"the outbox in {directory} is full ({bytes:,} of {bytes_max:,} bytes){waits}; "
            "publish again when some of it was sent, or connect with a larger outbox_bytes_max"
        )
        self.directory, self.bytes, self.bytes_max = directory, bytes, bytes_max


class NotStaged(FlintError, LookupError):
    """A commit names parts that are not staged. Nothing was committed."""

    def __init__(self, writer: str, number: int, parts: Sequence[str]) -> None:
        names = ", ".join(map(repr, parts))
        super().__init__(
            f"writer {writer!r} has not staged {names} under number {number}, or it was "
            "aborted, or discarded because it was not committed in time; stage it again"
        )
        self.writer, self.number, self.parts = writer, number, list(parts)


class GroupNotFound(FlintError, LookupError):
    """The topic has no such group."""

    def __init__(self, topic: str, group: str) -> None:
        super().__init__(
            f"topic {topic!r} has no group {group!r}; the first subscribe or poll creates it"
        )
        self.topic, self.group = topic, group


class GroupExists(FlintError):
    """The name is in use by a group of the other kind, or by one with different options.

    `order`, `filter` and `start` are set when the group is created.
    """

    def __init__(self, topic: str, group: str, differing: dict[str, tuple[Any, Any]]) -> None:
        differences = ", ".join(
            f"{name} is {ours!r}, not {theirs!r}" for name, (ours, theirs) in differing.items()
        )
        remedy = "leave it out to use the group's own, or use another group name"
        if "kind" in differing:
            remedy = (
                "named readers (cursors) and queue groups share one namespace: use another name"
            )
        super().__init__(f"group {group!r} of {topic!r} already exists: {differences}; {remedy}")
        self.topic, self.group, self.differing = topic, group, differing


class WebhookNotFound(FlintError):
    """The group has no webhook."""

    def __init__(self, topic: str, group: str) -> None:
        super().__init__(f"group {group!r} of topic {topic!r} has no webhook; create one")
        self.topic, self.group = topic, group


class DefinitionChanged(FlintError):
    """It was changed since you read it. Nothing was done."""

    def __init__(self, kind: str, topic: str, name: str) -> None:
        super().__init__(
            f"the {kind} {name!r} of topic {topic!r} was changed since you read it; read it again"
        )
        self.kind, self.topic, self.name = kind, topic, name


class LeaseLost(FlintError):
    """You no longer hold these messages: another consumer has them, or they were already settled.
    Discard the work. Other messages in the same call were settled."""

    def __init__(self, topic: str, group: str, offsets: Sequence[int]) -> None:
        named = ", ".join(map(str, offsets[:8])) + (" ..." if len(offsets) > 8 else "")
        super().__init__(
            f"the lease of group {group!r} on {topic!r} offset {named} is lost: it expired "
            "and the message was delivered to another consumer, or it was already "
            "settled; use a longer lease, or extend it"
        )
        self.topic, self.group, self.offsets = topic, group, list(offsets)


class DecodeFailed(FlintError):
    """The value of a message cannot be decoded. Its bytes are in `message.value`."""

    def __init__(
        self, topic: str, partition: int, offset: int | None, expected: str, why: str
    ) -> None:
        place = f"{topic!r}" + (f" partition {partition}" if partition else "")
        super().__init__(f"{place} offset {offset} cannot be decoded as {expected}: {why}")
        self.topic, self.partition, self.offset = topic, partition, offset
        self.expected = expected


class FilterFailed(FlintError):
    """A filter raised an error on a message, which is skipped; the next read continues after it."""

    def __init__(self, topic: str, offset: int | None, cause: BaseException) -> None:
        place = f"{topic!r}" if offset is None else f"{topic!r} offset {offset}"
        super().__init__(f"the filter raised {type(cause).__name__} on {place}: {cause}")
        self.topic, self.offset = topic, offset


class Closed(FlintError):
    """This connection, reader, feed or publisher was closed; open a new one."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is closed")
        self.what = what


class Disconnected(FlintError):
    """There is no connection to the broker. The call was not executed."""

    def __init__(self, servers: str, cause: str) -> None:
        super().__init__(f"no connection to {servers}: {cause}")
        self.servers, self.cause = servers, cause


class TlsFailed(Disconnected):
    """TLS failed: one side does not accept the other's certificate, or only one side uses TLS.
    The client does not retry until the next call."""


class MalformedFrame(FlintError):
    """The bytes are not a valid frame, or the frame is too large. The connection is closed."""


class Corrupt(FlintError):
    """Stored bytes are damaged. They are never served as data.

    For damaged messages of a topic, `topic`, `partition`, `first_offset` and `next_offset` say
    which: `seek(error.next_offset)` skips them.
    """

    topic: str | None = None
    partition: int = 0
    first_offset: int | None = None
    next_offset: int | None = None
    is_proven: bool = True
    """True: a checksum failed. False: the disk could not read the bytes; a retry may succeed."""


class UnsupportedFormat(Corrupt):
    """The data seems intact, but this version of FlintMQ does not know its format."""


class StorageFull(FlintError):
    """The disk is full. Nothing was stored; reading and deleting still work."""

    def __init__(self, file: str, cause: str) -> None:
        super().__init__(
            f"no space left on the disk for {file}: {cause}; free some space, or move the "
            "data directory to a larger disk"
        )
        self.file, self.cause = file, cause


class StorageFailed(FlintError):
    """The disk failed. Whether pending writes are stored is unknown until the next start."""

    def __init__(self, operation: str, file: str, cause: str) -> None:
        super().__init__(
            f"the disk failed to {operation} {file}: {cause}; check the disk and its "
            "permissions, then restart: stored data is recovered"
        )
        self.operation, self.file, self.cause = operation, file, cause


class ObjectStorageFailed(FlintError):
    """Object storage did not do what was asked. What is there stays there; the broker goes on."""

    def __init__(self, verb: str, url: str, cause: object, remedy: str = "") -> None:
        remedy = remedy or (
            "check that the broker (of a direct read, the task) reaches the storage, and has its "
            "credentials and endpoint in the environment; it is tried again when asked again"
        )
        text = str(cause).strip().partition("\n")[0] or type(cause).__name__
        super().__init__(f"cannot {verb} the object {url}: {text}; {remedy}")
        self.verb, self.url = verb, url


class BrokerFailed(FlintError):
    """A bug in the broker. It has stopped: it acknowledges and delivers nothing more."""

    def __init__(self, where: str, cause: str) -> None:
        super().__init__(
            f"the broker stopped because of an internal error while {where}: {cause}; "
            "restart it: acknowledged messages are kept. Report this error with the "
            "broker's log"
        )
        self.where, self.cause = where, cause


class NoResponders(FlintError):
    """The topic of a request has no subscribers. Nothing was published."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"no responders on topic {topic!r}: start one with subscribe or live, or run "
            f"`flintmq reply {topic}`"
        )
        self.topic = topic


class NoReply(FlintError, TimeoutError):
    """No reply arrived in time. The request may have been processed."""

    def __init__(self, topic: str, seconds: float) -> None:
        super().__init__(f"no reply to a request on topic {topic!r} within {seconds:g} s")
        self.topic, self.seconds = topic, seconds


class TaskFailed(FlintError):
    """The task, or one it depends on, failed and will not be retried: it is a dead letter."""

    def __init__(self, task_id: str, why: str) -> None:
        super().__init__(f"task {task_id} failed: {why}")
        self.task_id, self.why = task_id, why


class TaskCancelled(FlintError):
    """The task was cancelled before it was done."""

    def __init__(self, task_id: str) -> None:
        super().__init__(f"task {task_id} was cancelled")
        self.task_id = task_id


class NoResult(FlintError, TimeoutError):
    """The task has not finished in time. It may still finish: wait again."""

    def __init__(self, task_id: str, seconds: float, status: str) -> None:
        super().__init__(f"task {task_id} has not ended within {seconds:g} s ({status})")
        self.task_id, self.seconds, self.status = task_id, seconds, status


class ScheduleNotFound(FlintError):
    """There is no schedule of that name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no schedule {name!r}; `flintmq schedule ls` lists them")
        self.name = name


class DataDirectoryInUse(FlintError):
    """Only one process at a time can use a data directory."""

    def __init__(self, directory: str, pid: int | None) -> None:
        holder = f"process {pid}" if pid is not None else "another process"
        super().__init__(
            f"{directory} is in use by {holder}; stop it, or choose another data directory"
        )
        self.directory, self.pid = directory, pid


class SparkUnavailable(FlintError):
    """Spark cannot be started or used; the text says what is missing and how to get it."""


class OutcomeUnknown(FlintError):
    """The call may or may not have been executed. To repeat a publish safely, pass producer and
    sequence; without them it may be stored twice."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the outcome is unknown: {why}")


class ProposalRefused(FlintError):
    """Nothing was appended. The same proposal may be made again."""


class NotLeader(ProposalRefused):
    """Only the leader decides this, and it is someone else, or nobody yet."""

    addresses: Sequence[str] = ()
    """Where clients of the leader connect, if that is known."""

    def __init__(self, node: int, leader: int, addresses: Sequence[str] = ()) -> None:
        known = f"node {leader} leads" if leader else "no leader is known"
        super().__init__(f"{f'node {node}' if node else 'this node'} does not lead; {known}")
        self.node, self.leader = node, leader
        self.addresses = list(addresses)


class TooMuchUncommitted(ProposalRefused):
    """The leader holds as many unconfirmed bytes as it may. Let the quorum catch up first."""

    def __init__(self, uncommitted_bytes: int, uncommitted_bytes_max: int) -> None:
        super().__init__(
            f"{uncommitted_bytes} uncommitted bytes would exceed the limit of "
            f"{uncommitted_bytes_max}"
        )
        self.uncommitted_bytes = uncommitted_bytes
        self.uncommitted_bytes_max = uncommitted_bytes_max


class LeadershipMoving(ProposalRefused):
    """The leader is handing over; the node it hands over to will take the proposal."""

    def __init__(self, successor: int) -> None:
        super().__init__(f"leadership is moving to node {successor}")
        self.successor = successor


class MembershipChangeRefused(ProposalRefused):
    """The change may not be made now, or not in this form; the text says which."""


class LogCompacted(FlintError):
    """The entry was compacted away; only the snapshot still contains it."""

    def __init__(self, index: int, first_index: int) -> None:
        super().__init__(f"entry {index} is compacted; the log starts at {first_index}")
        self.index, self.first_index = index, first_index


class LogUnavailable(FlintError):
    """The storage cannot give this entry or snapshot now."""


class MalformedRaftMessage(FlintError):
    """The bytes are no raft message, or one beyond our limits."""


class SnapshotDamaged(FlintError):
    """A chunk or the whole snapshot does not match its checksum."""


class RaftInvariantBroken(FlintError):
    """Something that cannot happen did. Stop the node; do not repair by guessing."""
