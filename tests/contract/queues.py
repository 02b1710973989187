"""What tests of queues say often."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import flintmq

GraceEnds = Callable[[], Awaitable[None]]
"""Let the time pass for which another leader keeps what was handed out. See conftest.py."""


async def polled(
    mq: flintmq.Client, group: str = "g", max: int = 256, topic: str = "orders", **options: Any
) -> list[Any]:
    """The values of one poll."""
    return list((await mq.poll(topic, group, max, **options)).values)


async def one(
    mq: flintmq.Client, group: str = "g", topic: str = "orders", **options: Any
) -> flintmq.Delivery:
    """The next message, which is there."""
    found = await mq.poll(topic, group, 1, **options)
    assert len(found) == 1, "there was to be a message"
    return found[0]


async def numbered(mq: flintmq.Client, count: int, topic: str = "orders", **options: Any) -> None:
    """Messages b"0", b"1" and so on, in one batch."""
    await mq.publish_batch(topic, [b"%d" % n for n in range(count)], **options)


async def deleted(mq: flintmq.Client, topic: str = "orders") -> None:
    """Delete a topic, and be sure: where it is not known whether it is gone, ask again."""
    try:
        await mq.delete_topic(topic)
    except flintmq.OutcomeUnknown:
        with suppress(flintmq.TopicNotFound):
            await mq.delete_topic(topic)
