"""The verbs of queues, blocking."""

from __future__ import annotations

from typing import Any

from ...rows import Rows
from ..client import Client
from ..delivery import Deliveries
from ..queue_verbs import QueueVerbs
from .consuming import Views
from .delivery import BlockingDeliveries
from .derived import blocking, blocking_over_lists, like, opening
from .loop_thread import LoopThread
from .subscription import BlockingSubscription


class BlockingQueueVerbs:
    """The part of a blocking connection that deals with queues."""

    _thread: LoopThread
    _inner: Client

    subscribe = opening(QueueVerbs.subscribe, BlockingSubscription)

    @like(
        QueueVerbs.poll,
        'What a poll that is interrupted (Ctrl-C) had taken is given back; with `ack="auto"` the\n'
        "next poll of the group here returns it.",
    )
    def poll(self, topic: str, group: str, *arguments: Any, **named: Any) -> BlockingDeliveries:
        async def take() -> BlockingDeliveries:
            found = await self._inner.poll(topic, group, *arguments, **named)
            return BlockingDeliveries(self._thread, Views().of(found).runs)

        def put_back(taken: BlockingDeliveries) -> None:
            found = Deliveries(taken.runs)
            self._thread.send_off(lambda: self._inner._pollers.put_back(topic, group, found))

        return self._thread.wait_for_taken(take, put_back)

    @like(QueueVerbs.peek)
    def peek(self, *arguments: Any, **named: Any) -> Rows:
        async def look() -> Rows:
            return Views().of(await self._inner.peek(*arguments, **named))

        return self._thread.wait_for(look)

    ack = blocking_over_lists(QueueVerbs.ack)
    nack = blocking_over_lists(QueueVerbs.nack)
    groups = blocking(QueueVerbs.groups)
    group_stats = blocking(QueueVerbs.group_stats)
    pause_group = blocking(QueueVerbs.pause_group)
    resume_group = blocking(QueueVerbs.resume_group)
    reset_group = blocking(QueueVerbs.reset_group)
    delete_group = blocking(QueueVerbs.delete_group)
    in_flight = blocking(QueueVerbs.in_flight)
    dead_letters = blocking(QueueVerbs.dead_letters)
    redrive = blocking_over_lists(QueueVerbs.redrive)
    discard = blocking_over_lists(QueueVerbs.discard)
    cancel = blocking(QueueVerbs.cancel)
