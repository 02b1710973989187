"""The verbs of queues, blocking; see `flintmq.Client` for the whole story of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ..broker_api import Filter
from ..client.client import Client
from ..client.dead_letters import DeadLetter
from ..client.delivery import Deliveries, Messages
from ..client.queue_verbs import Ack
from ..client.subscription import GRACE_SECONDS, LEASE_MAX_SECONDS
from ..group_model import LEASE_SECONDS, GroupInfo, GroupStats, InFlight, Order
from ..model import Receipt, Seconds, Start
from ..rows import Rows
from .consuming import Views
from .delivery import BlockingDeliveries
from .loop_thread import LoopThread
from .subscription import BlockingSubscription


class BlockingQueueVerbs:
    """The part of a blocking connection that deals with queues."""

    _thread: LoopThread
    _client: Client

    def subscribe(
        self,
        topic: str,
        group: str,
        *,
        lease: Seconds = LEASE_SECONDS,
        lease_max: Seconds = LEASE_MAX_SECONDS,
        prefetch: int | None = None,
        grace: Seconds = GRACE_SECONDS,
        ack: Ack = "manual",
        start: Start | None = None,
        order: Order | None = None,
        filter: str | Filter | None = None,
        auto_create: bool | None = None,
    ) -> BlockingSubscription:
        """Get a group's messages as they come: `with mq.subscribe(...) as deliveries`."""
        subscription = self._thread.run(
            self._client.subscribe,
            topic,
            group,
            lease=lease,
            lease_max=lease_max,
            prefetch=prefetch,
            grace=grace,
            ack=ack,
            start=start,
            order=order,
            filter=filter,
            auto_create=auto_create,
        )
        return BlockingSubscription(self, self._thread, subscription)

    def poll(
        self,
        topic: str,
        group: str,
        max: int = 256,
        lease: Seconds = LEASE_SECONDS,
        wait: Seconds = 0,
        ack: Ack = "manual",
        *,
        start: Start | None = None,
        order: Order | None = None,
        filter: str | Filter | None = None,
        auto_create: bool | None = None,
    ) -> BlockingDeliveries:
        """Up to `max` messages of a group, under leases of `lease` seconds.

        Waits up to `wait` seconds for the first, never for more; empty when there is none. What a
        poll that is interrupted (Ctrl-C) had taken is given back; with `ack="auto"` the next poll
        of the group here returns it.
        """

        async def take() -> BlockingDeliveries:
            found = await self._client.poll(
                topic,
                group,
                max,
                lease,
                wait,
                ack,
                start=start,
                order=order,
                filter=filter,
                auto_create=auto_create,
            )
            return BlockingDeliveries(self._thread, Views().of(found).runs)

        def put_back(taken: BlockingDeliveries) -> None:
            found = Deliveries(taken.runs)
            self._thread.send_off(lambda: self._client._pollers.put_back(topic, group, found))

        return self._thread.wait_for_taken(take, put_back)

    def ack(self, messages: Messages) -> None:
        """Messages are done: one, what a poll returned, or a list, of any topics and groups."""
        return self._thread.wait_for(self._client.ack, _made_here(messages))

    def nack(self, messages: Messages, delay: Seconds = 0) -> None:
        """Messages are not done: they are delivered again, in `delay` seconds; as `ack` else."""
        return self._thread.wait_for(self._client.nack, _made_here(messages), delay)

    # --- groups

    def groups(self, topic: str) -> list[GroupInfo]:
        """The groups of a topic, queues and cursors (names of readers)."""
        return self._thread.wait_for(self._client.groups, topic)

    def group_stats(self, topic: str, group: str) -> GroupStats:
        """A group's figures right now."""
        return self._thread.wait_for(self._client.group_stats, topic, group)

    def pause_group(self, topic: str, group: str) -> None:
        """Have a group hand out nothing until it is resumed. What is in flight can be settled."""
        return self._thread.wait_for(self._client.pause_group, topic, group)

    def resume_group(self, topic: str, group: str) -> None:
        """Have a paused group go on."""
        return self._thread.wait_for(self._client.resume_group, topic, group)

    def reset_group(self, topic: str, group: str, to: Start | Mapping[int, int]) -> None:
        """Have a group go on from an offset, a time, 'earliest' or 'latest'."""
        return self._thread.wait_for(self._client.reset_group, topic, group, to)

    def delete_group(self, topic: str, group: str) -> None:
        """Forget a group and all it has settled. The topic's messages are not touched."""
        return self._thread.wait_for(self._client.delete_group, topic, group)

    def peek(self, topic: str, group: str, max: int = 10) -> Rows:
        """What would be handed out next, without leasing it."""

        async def look() -> Rows:
            return Views().of(await self._client.peek(topic, group, max))

        return self._thread.wait_for(look)

    def in_flight(self, topic: str, group: str, max: int = 1000) -> list[InFlight]:
        """What is out under leases: since when, who has it, for the how many-th time."""
        return self._thread.wait_for(self._client.in_flight, topic, group, max)

    def dead_letters(
        self, topic: str, group: str, max: int = 100, *, first: int = 0
    ) -> list[DeadLetter]:
        """The messages a group gave up on, oldest first; those whose id is `first` or above."""
        return self._thread.wait_for(self._client.dead_letters, topic, group, max, first=first)

    def redrive(
        self,
        topic: str,
        group: str,
        which: DeadLetter | int | Iterable[DeadLetter | int] | None = None,
        filter: str | Filter | None = None,
    ) -> int:
        """Put dead letters back for their group; how many there were."""
        which = list(which) if isinstance(which, Iterator) else which
        return self._thread.wait_for(self._client.redrive, topic, group, which, filter)

    def discard(
        self,
        topic: str,
        group: str,
        which: DeadLetter | int | Iterable[DeadLetter | int] | None = None,
        filter: str | Filter | None = None,
    ) -> int:
        """Let dead letters go for good; how many there were."""
        which = list(which) if isinstance(which, Iterator) else which
        return self._thread.wait_for(self._client.discard, topic, group, which, filter)

    def cancel(self, receipt: Receipt) -> int:
        """Withdraw delayed messages that are not due yet, by their receipt; how many there were."""
        return self._thread.wait_for(self._client.cancel, receipt)


def _made_here(messages: Messages) -> Messages:
    """A generator runs in the thread of who wrote it, not in the connection's."""
    return list(messages) if isinstance(messages, Iterator) else messages
