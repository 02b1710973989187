"""Waiting in tests: until a reader has got everything, and no longer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ..clock import SteadyClock
from ..errors import InvalidRequest, TopicNotFound
from .manual_clock import ManualClock, settle

if TYPE_CHECKING:
    from ..client.blocking import BlockingClient
    from ..client.client import Client

QUICK_LOOKS = 1000
"""How often it is looked once per turn of the loop, before it is looked once per millisecond."""


async def wait_consumed(
    mq: Client, topic: str, *, name: str | None = None, timeout: float = 5.0
) -> None:
    """Wait until the readers called `name` have been handed everything the topic holds.

    Without a name: until everybody who reads the topic has. A name that nobody has used yet is
    waited for. Then everybody gets their turns, so that what a consumer does with its last message
    without waiting is done too. `timeout` is in real seconds, whatever the connection's clock: a
    TimeoutError says who still has how much to read.
    """
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + timeout
    looks = 0
    while (left := await _left(mq, topic, name)) != "":
        if loop.time() >= give_up_at:
            raise TimeoutError(f"after {timeout:g} s, {left}")
        looks += 1
        # What happens in this process needs turns only; what others do for it needs time.
        await asyncio.sleep(0 if looks <= QUICK_LOOKS else 0.001)
    await settle()


async def _left(mq: Client, topic: str, name: str | None) -> str:
    """What there is still to read, in words; empty when there is nothing."""
    try:
        stats = await mq.topic_stats(topic)
    except TopicNotFound as error:
        return str(error)
    lags = stats.lag
    if name is not None:
        if name not in lags:
            return f"nobody has read {topic!r} as {name!r}; readers are {sorted(lags) or 'none'}"
        lags = {name: lags[name]}
    if not lags:
        return f"nobody reads {topic!r}"
    behind = [f"{label!r} has {lag:,}" for label, lag in sorted(lags.items()) if lag]
    return f"of {topic!r} {', '.join(behind)} still to read" if behind else ""


def wait_consumed_sync(
    mq: BlockingClient, topic: str, *, name: str | None = None, timeout: float = 5.0
) -> None:
    """The same for a blocking connection, whose consumers are other threads."""
    client: Any = mq._inner
    mq._thread.wait_for(lambda: wait_consumed(client, topic, name=name, timeout=timeout))


def advance_sync(mq: BlockingClient, seconds: float) -> None:
    """Move the manual clock of a blocking connection, in the thread the clock belongs to."""
    clock = mq.clock
    if isinstance(clock, SteadyClock):
        clock = clock.source
    if not isinstance(clock, ManualClock):
        raise InvalidRequest("this connection's time is real: connect_sync(clock=ManualClock())")
    mq._thread.wait_for(clock.advance, seconds)
