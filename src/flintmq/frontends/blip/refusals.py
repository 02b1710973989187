"""What BlipMQ's clients hear where something is refused: its codes, its texts where it has some."""

from __future__ import annotations

from ...errors import (
    BrokerFailed,
    Closed,
    FlintError,
    InvalidRequest,
    MessageTooLarge,
    PermissionDenied,
    QueueFull,
    StorageFailed,
    TooMuchUncommitted,
    TopicFull,
)

BAD_REQUEST, UNAUTHENTICATED, FORBIDDEN, NOT_FOUND = 400, 401, 403, 404
VERSION_UNKNOWN, FAILED, BUSY = 426, 500, 503

Refusal = tuple[int, str]

HELLO_TWICE: Refusal = (BAD_REQUEST, "HELLO already performed")
HELLO_INVALID: Refusal = (BAD_REQUEST, "invalid HELLO payload")
HELLO_VERSION: Refusal = (VERSION_UNKNOWN, "unsupported protocol version")
AUTH_EARLY: Refusal = (BAD_REQUEST, "HELLO not performed")
AUTH_TWICE: Refusal = (BAD_REQUEST, "already authenticated")
AUTH_INVALID: Refusal = (BAD_REQUEST, "invalid AUTH payload")
AUTH_WRONG: Refusal = (UNAUTHENTICATED, "invalid API key")
NO_AUTH: Refusal = (UNAUTHENTICATED, "unauthenticated")
PUBLISH_INVALID: Refusal = (BAD_REQUEST, "invalid PUBLISH payload")
SUBSCRIBE_INVALID: Refusal = (BAD_REQUEST, "invalid SUBSCRIBE payload")
POLL_INVALID: Refusal = (BAD_REQUEST, "invalid POLL payload")
ACK_INVALID: Refusal = (BAD_REQUEST, "invalid ACK payload")
TOPIC_EMPTY: Refusal = (BAD_REQUEST, "empty topic")
TOPIC_NUL: Refusal = (BAD_REQUEST, "topic contains NUL byte")
QOS_INVALID: Refusal = (BAD_REQUEST, "invalid QoS value")
KEY_EMPTY: Refusal = (BAD_REQUEST, "empty message key")
GROUP_EMPTY: Refusal = (BAD_REQUEST, "empty consumer group name")
GROUP_RESERVED: Refusal = (BAD_REQUEST, "reserved consumer group name")
SUBSCRIPTION_ZERO: Refusal = (BAD_REQUEST, "subscription_id must be non-zero")
TAG_UNKNOWN: Refusal = (NOT_FOUND, "unknown subscription or delivery tag")


def publish_refusal(error: BaseException, version: int) -> Refusal:
    """Why a message of QoS 1 is not stored."""
    if isinstance(error, PermissionDenied):
        return FORBIDDEN, str(error)
    if version == 1:
        return FAILED, f"durable publish failed: {_as_theirs(error)}"
    if isinstance(error, QueueFull | TopicFull | TooMuchUncommitted):
        return BUSY, f"wal_busy: {error}"
    if isinstance(error, StorageFailed | BrokerFailed | Closed | ShuttingDown):
        return BUSY, f"wal_writer_stopped: {error}"
    return FAILED, f"durable_publish_failed: {error}"


def _as_theirs(error: BaseException) -> str:
    if isinstance(error, QueueFull | TooMuchUncommitted):
        return "wal overload: wal channel full"
    if isinstance(error, ShuttingDown | Closed):
        return "log corruption: write-ahead log not available: broker shutting down"
    if isinstance(error, StorageFailed):
        return "wal writer stopped"
    if isinstance(error, MessageTooLarge):
        return "log corruption: record too large"
    return str(error) if isinstance(error, FlintError) else f"I/O error: {error}"


def name_too_long(version: int) -> Refusal:
    """Of a topic that has to be escaped, and then is longer than a name may be."""
    begins = "durable publish failed" if version == 1 else "durable_publish_failed"
    return FAILED, f"{begins}: log corruption: topic name too long for WAL record"


def subscribe_refusal(error: FlintError) -> Refusal:
    if isinstance(error, PermissionDenied):
        return FORBIDDEN, str(error)
    return (BAD_REQUEST if isinstance(error, InvalidRequest) else FAILED), str(error)


class ShuttingDown(FlintError):
    """The broker is about to stop; nothing was published."""
