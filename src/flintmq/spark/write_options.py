"""Options of a write: `df.write.format("flintmq").option(name, value)`. Pure.

`WRITE_OPTIONS` is the table; docs/spark-writing.md has the same one, and a test compares them. As
everywhere in Spark, case does not matter. An unknown name is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from ..batch import check_compression
from ..errors import InvalidRequest
from ..patterns import check_name
from .connecting import BrokerSettings
from .options import TO_THE_BROKER, lowered, settings_of, truth, unknown_option

DeliveryMode = Literal["exactly_once", "idempotent", "at_least_once"]
DELIVERIES: tuple[DeliveryMode, ...] = get_args(DeliveryMode)

WRITE_OPTIONS = {
    **{one.name: "; ".join(filter(None, (one.meaning, one.default))) for one in TO_THE_BROKER},
    "topic": "topic for all rows; wins over a column `topic`",
    "delivery": "`exactly_once` (the default), `idempotent` or `at_least_once`",
    "compression": "of the record batches: `none` (the default), `lz4` or `zstd`",
    "autoCreate": "create missing topics; `true`",
    "transaction": "name of a series of batch writes that can be repeated ...",
    "transactionVersion": "... and the number of this write; a committed one is not written again",
}

# Options that Spark adds itself.
SPARKS_OWN = frozenset({"checkpointlocation", "path", "queryname"})

_BY_NAME = {name.lower(): name for name in WRITE_OPTIONS}
VERSION_MAX = 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """The options of a write, checked."""

    settings: BrokerSettings = field(default_factory=BrokerSettings)
    topic: str | None = None
    delivery: DeliveryMode = "exactly_once"
    compression: str = "none"
    auto_create: bool = True
    transaction: str | None = None
    version: int = 0


def write_options(given: Mapping[str, str], *, streams: bool) -> WriteOptions:
    said = lowered(given)
    for name in said:
        if name not in _BY_NAME and name not in SPARKS_OWN:
            raise unknown_option(name, WRITE_OPTIONS)
    if "path" in said:
        raise InvalidRequest(
            "a topic has no path: call save() without one, and set the option topic"
        )
    delivery = said.get("delivery", "exactly_once").lower()
    if delivery not in DELIVERIES:
        raise InvalidRequest(f"delivery must be one of {', '.join(DELIVERIES)}, not {delivery!r}")
    compression = said.get("compression", "none").lower()
    check_compression(compression)
    topic = said.get("topic")
    if topic is not None:
        check_name(topic.partition("/")[0])
    transaction, version = _transaction(said, delivery, streams=streams)
    return WriteOptions(
        settings=settings_of(said),
        topic=topic,
        delivery=delivery,
        compression=compression,
        auto_create=truth("autoCreate", said.get("autocreate", "true")),
        transaction=transaction,
        version=version,
    )


def _transaction(
    said: Mapping[str, str], delivery: str, *, streams: bool
) -> tuple[str | None, int]:
    name, version = said.get("transaction"), said.get("transactionversion")
    if name is None and version is None:
        return None, 0
    if streams:
        raise InvalidRequest(
            "transaction is for batch writes: a stream has its own name and batch numbers"
        )
    if not name or version is None or delivery != "exactly_once":
        raise InvalidRequest(
            "set transaction and transactionVersion together, with delivery=exactly_once"
        )
    if not version.strip().isdecimal() or int(version) > VERSION_MAX:
        raise InvalidRequest(
            f"transactionVersion must be a whole number of at least 0, not {version!r}"
        )
    return name, int(version)
