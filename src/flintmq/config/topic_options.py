"""What each option of a topic means: one table, for commands and for forms. Pure."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

from ..model import Compact, Overflow, Storage

OptionKind = Literal["count", "bytes", "seconds", "rate", "text", "words", "choice", "yes or no"]


class TopicOptionRow(NamedTuple):
    name: str
    kind: OptionKind
    meaning: str
    choices: tuple[str, ...] = ()
    is_final: bool = False
    """Whether it can only be set when the topic is created."""


TOPIC_OPTIONS = (
    TopicOptionRow("retention_count", "count", "Keep at most N messages."),
    TopicOptionRow("retention_bytes", "bytes", "Keep at most this many bytes."),
    TopicOptionRow("retention_age", "seconds", "Delete messages older than this."),
    TopicOptionRow("ttl", "seconds", "Messages expire after this time."),
    TopicOptionRow("max_message_bytes", "bytes", "Maximum message size."),
    TopicOptionRow("rate_limit", "rate", "Maximum messages per second delivered to groups."),
    TopicOptionRow("rate_burst", "count", "Burst size for rate_limit."),
    TopicOptionRow("max_deliveries", "count", "Deliveries before a message becomes a dead letter."),
    TopicOptionRow("dead_letter_topic", "text", "Topic that receives dead letters."),
    TopicOptionRow(
        "keep_until_settled", "yes or no", "Do not delete messages that a group has not settled."
    ),
    TopicOptionRow("overflow", "choice", "What to do when the topic is full.", get_args(Overflow)),
    TopicOptionRow(
        "storage", "choice", "Store messages in memory or on disk.", get_args(Storage), True
    ),
    TopicOptionRow("partitions", "count", "Number of partitions. They can be added, not removed."),
    TopicOptionRow(
        "compact", "choice", "Keep only the newest message of each key.", get_args(Compact)
    ),
    TopicOptionRow(
        "format", "choice", "Format of the values.", ("json", "msgpack", "avro", "text", "raw")
    ),
    TopicOptionRow("compression", "text", "Compression of the values: gzip, zstd, lz4."),
    TopicOptionRow("pre_hooks", "words", "Hooks that values pass before they are encoded."),
    TopicOptionRow("post_hooks", "words", "Hooks that values pass after they are decoded."),
    TopicOptionRow("magic_header", "text", "Prefix of stored values: flint, tmq, none."),
    TopicOptionRow("tier", "text", "Copy sealed segments to object storage at this URL."),
    TopicOptionRow(
        "local_retention_bytes", "bytes", "With tier: keep at most this many bytes on this disk."
    ),
    TopicOptionRow("local_retention_age", "seconds", "With tier: keep nothing older on this disk."),
    TopicOptionRow("schema", "text", "Avro schema of the values."),
)
