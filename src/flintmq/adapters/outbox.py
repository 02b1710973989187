"""A transactional outbox: messages are rows of your database until a relay has published them.

Who adds a row says which message it is: a producer and a sequence, new in each process. So a relay
that ends between publishing and deleting publishes again, and the broker knows the message.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any, Protocol
from uuid import uuid4

import msgspec

from ..batch import HeaderValue
from ..client.client import Client
from ..client.values import Value
from ..errors import Closed, EncodeFailed, FlintError, InvalidRequest
from ..model import check_priority
from ..observe.logs import event
from ..patterns import check_name

log = logging.getLogger(__name__)

AT_ONCE = 256
"""How many rows a relay publishes before it deletes them."""
IDLE_SECONDS = 0.2
"""How often a relay looks for rows while there are none."""
AFTER_FAILURE_SECONDS = 1.0


class OutboxRow(msgspec.Struct, frozen=True):
    """A message that waits in a database."""

    producer: str
    sequence: int
    topic: str
    format: str
    value: bytes
    key: str | None = None
    headers: str | None = None
    """A JSON object."""
    priority: int = 0

    def said(self) -> tuple[Any, dict[str, Any]]:
        """The value, and the keywords of its publish."""
        value: Any = bytes(self.value)
        if self.format == "text":
            value = value.decode()
        elif self.format == "json":
            value = msgspec.json.decode(value)
        return value, {
            "key": self.key,
            "headers": None if self.headers is None else msgspec.json.decode(self.headers),
            "priority": self.priority,
            "producer": f"outbox-{self.producer}",
            "sequence": self.sequence,
        }


class RowMaker:
    """Makes rows that no other process makes."""

    def __init__(self) -> None:
        self._pid, self._producer, self._numbers = 0, "", count(1)

    def row(
        self,
        topic: str,
        value: Value,
        key: str | None,
        headers: Mapping[str, HeaderValue] | None,
        priority: int,
    ) -> OutboxRow:
        if self._pid != os.getpid():  # a child that was forked off is another producer
            self._producer, self._numbers, self._pid = uuid4().hex, count(1), os.getpid()
        if key is not None and not isinstance(key, str):
            raise InvalidRequest(f"the key of a message in an outbox must be a str, not {key!r}")
        return OutboxRow(
            self._producer,
            next(self._numbers),
            check_name(topic),
            *_encoded(value),
            key,
            None if headers is None else msgspec.json.encode(dict(headers)).decode(),
            check_priority(priority),
        )


def _encoded(value: Value) -> tuple[str, bytes]:
    if isinstance(value, bytes | bytearray | memoryview):
        return "raw", bytes(value)
    if isinstance(value, str):
        return "text", value.encode()
    try:
        return "json", msgspec.json.encode(value)
    except (TypeError, msgspec.MsgspecError) as error:
        raise EncodeFailed(type(value).__name__, "json", str(error)) from error


async def publish_rows(mq: Client, rows: Sequence[OutboxRow]) -> list[int]:
    """Publish rows in their order; the places of those that are published now."""
    outcomes = await asyncio.gather(*(_publish(mq, row) for row in rows))
    return [place for place, is_published in enumerate(outcomes) if is_published]


async def _publish(mq: Client, row: OutboxRow) -> bool:
    try:
        value, said = row.said()
        await mq.publish(row.topic, value, **said)
    except Closed:
        raise
    except (FlintError, msgspec.MsgspecError) as error:
        event(
            log,
            logging.WARNING,
            "outbox_not_published",
            f"a message of the outbox to {row.topic} was not published; trying again: {error}",
            topic=row.topic,
        )
        return False
    return True


Row = tuple[Any, OutboxRow]
"""A row with its id in the database."""


class OutboxDatabase(Protocol):
    """Where rows wait. It is used in one thread, which is its own."""

    def oldest(self) -> Sequence[Row]:
        """Up to `AT_ONCE` rows."""
        ...

    def delete(self, ids: list[Any]) -> None: ...
    def close(self) -> None: ...


async def relay_rows(mq: Client, database: OutboxDatabase, *, once: bool) -> int:
    """Publish what the database has, and delete it there, for ever or `once`; how many rows."""
    loop, published = asyncio.get_running_loop(), 0
    with ThreadPoolExecutor(1, thread_name_prefix="flintmq-outbox") as thread:
        try:
            while True:
                try:
                    found = await loop.run_in_executor(thread, database.oldest)
                    places = await publish_rows(mq, [row for _, row in found])
                    if places:
                        ids = [found[place][0] for place in places]
                        await loop.run_in_executor(thread, database.delete, ids)
                except Closed:
                    raise
                except Exception as error:
                    if once:
                        raise
                    event(
                        log,
                        logging.WARNING,
                        "outbox_failed",
                        f"the database of the outbox failed; trying again: {error}",
                    )
                    await asyncio.sleep(AFTER_FAILURE_SECONDS)
                    continue
                published += len(places)
                left = len(found) - len(places)
                if once and left:
                    raise InvalidRequest(
                        f"{left} messages of the outbox could not be published; the log says why"
                    )
                if once and not found:
                    return published
                if left:
                    await asyncio.sleep(AFTER_FAILURE_SECONDS)
                elif not found:
                    await asyncio.sleep(IDLE_SECONDS)
        finally:
            thread.submit(database.close)
