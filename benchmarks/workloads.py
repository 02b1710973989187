"""What scenarios have in common: values, producers, consumers, and the bare loops beside them.

Values are made before the clock starts, as making them is not the broker's work. Every consumer
looks at every value and adds up the bytes; a run that lost some is an error, not a figure.
"""

from __future__ import annotations

import asyncio
import gc
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from itertools import cycle, islice
from time import perf_counter
from typing import Any, NamedTuple

import flintmq
from flintmq.batch import BatchBuilder, RecordBatch

STALL_SECONDS = 10.0
TURNS = 128
"""How often a bare loop lets others run; the same as FlintMQ's own."""

KIB, MIB = 1024, 1024 * 1024
SIZES = {"100 B": 100, "1 KiB": KIB, "1 MiB": MIB}
_POOL_BYTES = 4 * MIB
_KEPT_BYTES = 256 * MIB

Work = Coroutine[Any, Any, None]
Consume = Callable[[flintmq.Reader, int, int], Work]


class WrongResult(Exception):
    """A consumer did not get what was published: the figure would mean nothing."""


class Flow(NamedTuple):
    """Seconds from the start until all was published, and until all was delivered."""

    published: float
    delivered: float


async def flow(producers: Iterable[Work], consumers: Iterable[Work]) -> Flow:
    """Let consumers and producers run side by side; the consumers wait before anything comes."""
    gc.collect()
    async with asyncio.TaskGroup() as consuming:
        for consumer in consumers:
            consuming.create_task(consumer)
        await asyncio.sleep(0)
        start = perf_counter()
        async with asyncio.TaskGroup() as producing:
            for producer in producers:
                producing.create_task(producer)
        published = perf_counter() - start
    return Flow(published, perf_counter() - start)


def distinct_values(size: int, count: int) -> list[bytes]:
    return [b"%0*d" % (size, number) for number in range(count)]


def batches_of(size: int, rows: int) -> list[list[bytes]]:
    """A few MiB of batches of distinct values, at least one; producers go round and round."""
    count = max(1, min(100, _POOL_BYTES // (size * rows)))
    values = distinct_values(size, count * rows)
    return [values[start : start + rows] for start in range(0, len(values), rows)]


# --- producers


async def publish_batches(
    mq: flintmq.Client, topic: str, batches: Sequence[list[bytes]], count: int
) -> None:
    for batch in islice(cycle(batches), count):
        await mq.publish_batch(topic, batch)


async def publish_singly(
    mq: flintmq.Client, topic: str, values: Sequence[bytes], count: int
) -> None:
    for value in islice(cycle(values), count):
        await mq.publish(topic, value)


# --- consumers: each takes `count` messages of `size` bytes


async def read_values(reader: flintmq.Reader, count: int, size: int, rows_max: int = 100) -> None:
    """Batches, looping over the values."""
    seen = total = 0
    while seen < count:
        values = (await reader.read_batch(rows_max, STALL_SECONDS)).values
        for value in values:
            total += len(value)
        seen += len(values)
        if not values:
            break
    _check(seen, total, count, size)


async def read_messages(reader: flintmq.Reader, count: int, size: int, rows_max: int = 100) -> None:
    """Batches, looping over message objects."""
    seen = total = 0
    while seen < count:
        before = seen
        for message in await reader.read_batch(rows_max, STALL_SECONDS):
            total += len(message.value)
            seen += 1
        if seen == before:
            break
    _check(seen, total, count, size)


async def read_singly(reader: flintmq.Reader, count: int, size: int) -> None:
    """One message for each await."""
    seen = total = 0
    while seen < count:
        message = await reader.read(STALL_SECONDS)
        if message is None:
            break
        total += len(message.value)
        seen += 1
    _check(seen, total, count, size)


def _check(seen: int, total: int, count: int, size: int) -> None:
    if (seen, total) != (count, count * size):
        raise WrongResult(
            f"{seen:,} messages of {total:,} bytes, not {count:,} of {count * size:,}"
        )


# --- the same shapes without a broker


class BareMessage:
    """The least a message object can be."""

    __slots__ = ("offset", "value")

    def __init__(self, offset: int, value: bytes) -> None:
        self.offset, self.value = offset, value


def bare_codec(batches: Sequence[list[bytes]], count: int, *, readers: int, objects: bool) -> float:
    """Lay `count` batches out as columns, keep them, take them apart once per reader: seconds.

    As in a topic of default options, at most 256 MiB are kept.
    """
    kept: deque[RecordBatch] = deque(maxlen=_KEPT_BYTES // sum(map(len, batches[0])))
    gc.collect()
    start = perf_counter()
    total = 0
    for batch in islice(cycle(batches), count):
        sealed = BatchBuilder.of(list(batch)).seal()
        kept.append(sealed)
        for _ in range(readers):
            if objects:
                for offset, value in enumerate(sealed.values()):
                    total += len(BareMessage(offset, value).value)
            else:
                for value in sealed.values():
                    total += len(value)
    return perf_counter() - start


async def bare_queues(
    make: Callable[[], bytes], count: int, *, producers: int = 1, consumers: int = 1
) -> Flow:
    """An asyncio.Queue per consumer; what is published is kept, as a topic would."""
    queues: list[asyncio.Queue[bytes]] = [asyncio.Queue() for _ in range(consumers)]
    kept: list[bytes] = []

    async def produce() -> None:
        for number in range(1, count + 1):
            value = make()
            kept.append(value)
            for queue in queues:
                queue.put_nowait(value)
            if not number % TURNS:
                await asyncio.sleep(0)

    async def consume(queue: asyncio.Queue[bytes]) -> None:
        total = 0
        for _ in range(count * producers):
            total += len(await queue.get())

    return await flow([produce() for _ in range(producers)], [consume(q) for q in queues])


# --- waiting


def is_parked(task: asyncio.Task[Any]) -> bool:
    """Whether a task waits for a future, and not just for its next turn."""
    awaited: Any = task.get_coro()
    while awaited is not None:
        if type(awaited).__name__ == "FutureIter":
            return True
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    return False
