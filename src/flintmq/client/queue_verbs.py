"""The verbs of queues: subscribe, poll, settle, and what is done to groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Unpack

from ..broker_api import Filter
from ..errors import InvalidRequest
from ..group_model import LEASE_SECONDS, TAKE_MAX, GroupInfo, GroupStats, InFlight
from ..model import Receipt, Seconds, Start, seconds
from ..patterns import check_name
from ..rows import Rows
from .background import OnNotSettled
from .context import ClientContext
from .dead_letters import DeadLetter, Which, dead_letter_ids, dead_letters
from .delivery import Deliveries, Messages, settle_messages
from .grips import ACK, checked_lease, nacking
from .keywords import GroupKeywords, takes
from .membership import GroupMembership, JoinOptions, checked_filter
from .polling import Asked, Pollers
from .routing import partition_name
from .sending import partitions_of
from .subscription import GRACE_SECONDS, LEASE_MAX_SECONDS, Subscription

Ack = Literal["manual", "auto"]


class QueueVerbs:
    """The part of a client that deals with queues."""

    def __init__(self, context: ClientContext, pollers: Pollers) -> None:
        self._context = context
        self._broker = context.broker
        self._turns = context.turns
        self._pollers = pollers

    @takes(GroupKeywords)
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
        **said: Unpack[GroupKeywords],
    ) -> Subscription:
        """Get a group's messages as they come: `async with mq.subscribe(...) as deliveries`.

        Each message goes to one member of the group, under a lease of `lease` seconds, which is
        renewed until the message is settled, for `lease_max` seconds at most. Up to `prefetch`
        messages (16) are held at once. With `ack="auto"` a message is settled before it is handed
        out: at most once. `grace` is how long work in progress may go on when the subscription is
        closed or the process gets SIGTERM.

        The first subscribe or poll makes the group. `order` is 'priority' (the default), 'key' (the
        messages of a key in order, by one member at a time) or 'log'; `filter` and `start` are as
        for readers, and a new group starts at 'earliest'. They belong to the group: leave them out
        to take its own.
        """
        self._context.check_open()
        if prefetch is not None and (type(prefetch) is not int or not 1 <= prefetch <= TAKE_MAX):
            raise InvalidRequest(
                f"prefetch must be a whole number from 1 to {TAKE_MAX:,}, not {prefetch!r}"
            )
        return Subscription(
            self._context,
            GroupMembership(
                self._broker,
                topic,
                check_name(group, "group"),
                JoinOptions.checked("subscribe", said, self._context),
            ),
            lease=checked_lease(lease),
            lease_max=seconds(lease_max, "lease_max"),
            prefetch=prefetch,
            grace=seconds(grace, "grace"),
            auto=_is_auto(ack),
        )

    @takes(GroupKeywords)
    async def poll(
        self,
        topic: str,
        group: str,
        max: int = 256,
        lease: Seconds = LEASE_SECONDS,
        wait: Seconds = 0,
        ack: Ack = "manual",
        **said: Unpack[GroupKeywords],
    ) -> Deliveries:
        """Up to `max` messages of a group, under leases of `lease` seconds.

        Waits up to `wait` seconds for the first, never for more; empty when there is none. With
        `ack="auto"` they are settled before they are handed out: at most once. Leases of polled
        messages are not renewed: `extend` them, or subscribe. The rest is as for `subscribe`.
        """
        self._turns.left -= 1
        if self._turns.left <= 0:
            await self._turns.pause()
        self._context.check_open()
        asked = Asked(
            topic,
            check_name(group, "group"),
            _checked_max(max),
            checked_lease(lease),
            seconds(wait, "wait"),
            _is_auto(ack),
            JoinOptions.checked("poll", said, self._context),
        )
        return await self._pollers.poll(asked)

    async def ack(self, messages: Messages) -> None:
        """Messages are done: one, what a poll returned, or a list, of any topics and groups.

        One call to the broker for all of a group. LeaseLost names all that were lost, after the
        rest was settled.
        """
        await settle_messages(messages, ACK)

    async def nack(self, messages: Messages, delay: Seconds = 0) -> None:
        """Messages are not done: they are delivered again, in `delay` seconds; as `ack` else."""
        await settle_messages(messages, nacking(delay))

    def on_not_settled(self, callback: OnNotSettled) -> OnNotSettled:
        """Call a function, with a `NotSettled`, whenever messages could not be settled in the
        background: their leases were lost, or the broker did not answer in time.

        It runs in the connection's loop, and must not block. Works as a decorator.
        """
        self._context.settler.on_failed.add(callback)
        return callback

    # --- groups

    async def _told(self) -> None:
        """Who asks about a group has told it of everything before."""
        if self._context.settler.pending:
            await self._context.settler.flush()

    async def groups(self, topic: str) -> list[GroupInfo]:
        """The groups of a topic, queues and cursors (names of readers)."""
        return await self._broker.groups(topic)

    async def group_stats(self, topic: str, group: str) -> GroupStats:
        """A group's figures right now."""
        await self._told()
        return await self._broker.group_stats(topic, group)

    async def pause_group(self, topic: str, group: str) -> None:
        """Have a group hand out nothing until it is resumed. What is in flight can be settled."""
        await self._told()
        await self._broker.pause_group(topic, group, True)

    async def resume_group(self, topic: str, group: str) -> None:
        """Have a paused group go on."""
        await self._broker.pause_group(topic, group, False)

    async def reset_group(self, topic: str, group: str, to: Start | Mapping[int, int]) -> None:
        """Have a group go on from an offset, a time, 'earliest' or 'latest'.

        What it settled behind that is delivered again, what lies before it is not; leases end. Over
        several partitions an offset is given for each: `{partition: offset}`.
        """
        await self._told()
        await self._broker.reset_group(topic, group, to)

    async def delete_group(self, topic: str, group: str) -> None:
        """Forget a group and all it has settled. The topic's messages are not touched."""
        await self._told()
        await self._broker.delete_group(topic, group)
        await self._pollers.forget(topic, group)

    async def peek(self, topic: str, group: str, max: int = 10) -> Rows:
        """What would be handed out next, without leasing it."""
        await self._told()
        return await self._broker.peek(topic, group, _checked_max(max))

    async def in_flight(self, topic: str, group: str, max: int = 1000) -> list[InFlight]:
        """What is out under leases: since when, who has it, for the how many-th time."""
        await self._told()
        return await self._broker.in_flight(topic, group, _checked_max(max))

    async def dead_letters(
        self, topic: str, group: str, max: int = 100, *, first: int = 0
    ) -> list[DeadLetter]:
        """The messages a group gave up on, oldest first; those whose id is `first` or above."""
        if type(first) is not int or not 0 <= first < 2**63:
            raise InvalidRequest(f"first must be the id of a dead letter, not {first!r}")
        await self._told()
        rows = await self._broker.dead_letters(topic, group, _checked_max(max), first)
        return dead_letters(rows, self._broker)

    async def redrive(
        self, topic: str, group: str, which: Which = None, filter: str | Filter | None = None
    ) -> int:
        """Put dead letters back for their group; how many there were.

        `which` is one or several, by themselves or by id; else those that pass `filter`, or all.
        """
        ids = dead_letter_ids(which, filter, "redrive")
        await self._told()
        return await self._broker.redrive(topic, group, ids, checked_filter(filter))

    async def discard(
        self, topic: str, group: str, which: Which = None, filter: str | Filter | None = None
    ) -> int:
        """Let dead letters go for good; how many there were. They are chosen as for `redrive`."""
        ids = dead_letter_ids(which, filter, "discard")
        await self._told()
        return await self._broker.discard(topic, group, ids, checked_filter(filter))

    async def cancel(self, receipt: Receipt) -> int:
        """Withdraw delayed messages that are not due yet, by their receipt; how many there were."""
        if not isinstance(receipt, Receipt):
            raise InvalidRequest(f"cancel takes the receipt of a publish, not {receipt!r}")
        count = 0
        for part in receipt.parts or (receipt,):
            if part.offset is None or not part.count:
                continue  # nothing was stored
            name = part.topic
            if partitions_of(name, self._broker.known_options(name)) is not None:
                name = partition_name(name, part.partition)
            count += await self._broker.cancel(name, [(part.offset, part.offset + part.count)])
        return count


def _is_auto(ack: Any) -> bool:
    if ack not in ("manual", "auto"):
        raise InvalidRequest(f"ack must be 'manual' or 'auto', not {ack!r}")
    return bool(ack == "auto")


def _checked_max(max: int) -> int:
    if type(max) is not int or not 1 <= max <= TAKE_MAX:
        raise InvalidRequest(f"max must be a whole number from 1 to {TAKE_MAX:,}, not {max!r}")
    return max
