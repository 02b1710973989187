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
        """Receive the messages of a group: `async with mq.subscribe(...) as deliveries`.

        Each message goes to one member of the group, with a lease of `lease` seconds. The lease is
        renewed until the message is settled, for at most `lease_max` seconds. Up to `prefetch`
        messages (16) are held at a time. With `ack="auto"` a message is settled before you get it:
        at most once. `grace` is how long work in progress may take when the subscription is closed
        or the process gets SIGTERM.

        The first subscribe or poll creates the group. `order` is 'priority' (the default), 'key'
        (messages with the same key in order, by one member at a time) or 'log'; `filter` and
        `start` are as for readers, and a new group starts at 'earliest'. They are set when the
        group is created: leave them out to use those of an existing group.
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
        """Return up to `max` messages of a group, with leases of `lease` seconds.

        Waits up to `wait` seconds for the first message; the result is empty if there is none. With
        `ack="auto"` they are settled before you get them: at most once. Leases of polled messages
        are not renewed: `extend` them, or subscribe. The other arguments are as for `subscribe`.
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
        """Acknowledge messages: one, the result of a poll, or a list, from any topics and groups.

        This is one request per group. LeaseLost lists all lost messages; the others are settled.
        """
        await settle_messages(messages, ACK)

    async def nack(self, messages: Messages, delay: Seconds = 0) -> None:
        """Return messages for redelivery, after `delay` seconds. Otherwise as `ack`."""
        await settle_messages(messages, nacking(delay))

    def on_not_settled(self, callback: OnNotSettled) -> OnNotSettled:
        """Call a function with a `NotSettled` when messages could not be settled in the background:
        their leases were lost, or the broker did not answer in time.

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
        """List the groups of a topic: queue groups and cursors (named readers)."""
        return await self._broker.groups(topic)

    async def group_stats(self, topic: str, group: str) -> GroupStats:
        """Return the current statistics of a group."""
        await self._told()
        return await self._broker.group_stats(topic, group)

    async def pause_group(self, topic: str, group: str) -> None:
        """Pause a group: it delivers nothing until resumed. Messages in flight can be settled."""
        await self._told()
        await self._broker.pause_group(topic, group, True)

    async def resume_group(self, topic: str, group: str) -> None:
        """Resume a paused group."""
        await self._broker.pause_group(topic, group, False)

    async def reset_group(self, topic: str, group: str, to: Start | Mapping[int, int]) -> None:
        """Move a group to an offset, a time, 'earliest' or 'latest'.

        Messages after that position are delivered again, those before it are not, and leases end.
        For a topic with partitions, pass `{partition: offset}`.
        """
        await self._told()
        await self._broker.reset_group(topic, group, to)

    async def delete_group(self, topic: str, group: str) -> None:
        """Delete a group and its progress. The messages of the topic stay."""
        await self._told()
        await self._broker.delete_group(topic, group)
        await self._pollers.forget(topic, group)

    async def peek(self, topic: str, group: str, max: int = 10) -> Rows:
        """Return the messages that would be delivered next, without leasing them."""
        await self._told()
        return await self._broker.peek(topic, group, _checked_max(max))

    async def in_flight(self, topic: str, group: str, max: int = 1000) -> list[InFlight]:
        """List the leased messages: since when, by which consumer, and their delivery count."""
        await self._told()
        return await self._broker.in_flight(topic, group, _checked_max(max))

    async def dead_letters(
        self, topic: str, group: str, max: int = 100, *, first: int = 0
    ) -> list[DeadLetter]:
        """List the dead letters of a group, oldest first, from the id `first` on."""
        if type(first) is not int or not 0 <= first < 2**63:
            raise InvalidRequest(f"first must be the id of a dead letter, not {first!r}")
        await self._told()
        rows = await self._broker.dead_letters(topic, group, _checked_max(max), first)
        return dead_letters(rows, self._broker)

    async def redrive(
        self, topic: str, group: str, which: Which = None, filter: str | Filter | None = None
    ) -> int:
        """Return dead letters to their group; returns how many.

        `which` is one dead letter or several, or their ids. Without it, all that match `filter` are
        redriven, or all.
        """
        ids = dead_letter_ids(which, filter, "redrive")
        await self._told()
        return await self._broker.redrive(topic, group, ids, checked_filter(filter))

    async def discard(
        self, topic: str, group: str, which: Which = None, filter: str | Filter | None = None
    ) -> int:
        """Delete dead letters; returns how many. They are selected as for `redrive`."""
        ids = dead_letter_ids(which, filter, "discard")
        await self._told()
        return await self._broker.discard(topic, group, ids, checked_filter(filter))

    async def cancel(self, receipt: Receipt) -> int:
        """Cancel delayed messages that are not due yet, by their receipt; returns how many."""
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
