"""The verbs of groups: joining, looking, pausing, resetting, deleting, cancelling."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from ..broker_api import Filter, Joining
from ..errors import (
    FlintError,
    GroupExists,
    GroupNotFound,
    InvalidRequest,
    ObjectStorageFailed,
    TopicNotFound,
)
from ..group_model import GroupInfo, GroupStats, InFlight, Ranges, start_text
from ..groups.ranges import ranges_of
from ..model import Start
from ..patterns import check_name
from ..rows import Rows, Run
from .commands import Cancel, CreateGroup, PauseGroup, ResetGroup
from .leading.cursor import resolve_start, start_is_loaded
from .leading.group_figures import in_flight, looked, peek, stats_of
from .leading.member import GroupMember
from .leading.queue_group import QueueGroup
from .leading.topic import LeadingTopic
from .letter_verbs import LetterVerbs
from .proposer import wait_for
from .row_stats import merged_group_stats
from .shard import Shard
from .state.group import GroupState
from .topic_verbs import TopicVerbs

_FUNCTION = "a function"


class GroupVerbs:
    def __init__(self, shard: Shard, topics: TopicVerbs, letters: LetterVerbs) -> None:
        self._shard, self._topics, self._letters = shard, topics, letters
        self._holders = 0
        self._is_ending = False
        self._unfinished: list[QueueGroup] = []
        self._functions: dict[tuple[int, str], Filter] = {}
        shard.around.filter_of = self.filter_of

    # --- joining

    async def join_group(self, joining: Joining) -> GroupMember:
        group, holder = joining.group, joining.holder
        check_name(group, "group")
        if joining.start == "committed":
            raise InvalidRequest(
                "start='committed' is not needed: an existing group continues at its position; a "
                "new one starts at 'earliest', 'latest', an offset or a datetime"
            )
        term = await self._shard.wait_term()
        found = await self._topics.obtain_for(group, joining.topic, joining.auto_create)
        known = found.queues.get(group)
        if known is None:
            known = await self._create_group(found, joining)
        _check_same(found, known, joining)
        known.is_ending |= self._is_ending
        known.queue.begin_tokens(term << 40)
        self._holders += 1
        label = holder if holder not in known.members else f"{holder}#{self._holders}"
        return GroupMember(known, label)

    async def _create_group(self, topic: LeadingTopic, joining: Joining) -> QueueGroup:
        name, filter = joining.group, joining.filter
        if topic.cursors.has_name(name):
            raise GroupExists(topic.origin.topic, name, {"kind": ("cursor", "queue")})
        text = _text_of(filter)
        if text == _FUNCTION and not topic.proposer.is_instant:
            raise InvalidRequest(
                "the filter of a durable group is an expression: a function would be gone with "
                "this process"
            )
        if text == _FUNCTION and filter is not None:
            self._functions[topic.id, name] = filter
        begin: Start = "earliest" if joining.start is None else joining.start
        await start_is_loaded(topic, begin)
        floor = max(topic.log.first_offset, resolve_start(topic, begin))
        command = CreateGroup(
            topic.id,
            name,
            joining.order or "priority",
            text,
            start_text(begin),
            min(floor, topic.log.next_offset),
            self._shard.term,
        )
        known = await topic.make_group(command)
        if known is None:  # somebody was faster, with a reader of that name; or the topic is gone
            self._shard.check_open()
            if topic.id not in self._shard.by_id:
                raise TopicNotFound(topic.origin.topic)
            raise GroupExists(topic.origin.topic, name, {"kind": ("cursor", "queue")})
        return known

    def filter_of(self, group: GroupState) -> Filter | None:
        """The filter of a group, from its text; a function is known here alone."""
        if group.filter_text is None:
            return None
        if group.filter_text == _FUNCTION:
            return self._functions.get((group.topic.id, group.name), _always)
        from ..serde.filters import compile_filter

        wants: Filter = compile_filter(group.filter_text)
        return wants

    def end_deliveries(self) -> None:
        """The broker is about to stop: hand out nothing any more, and let everybody keep what it
        holds."""
        self._is_ending = True
        for topic in self._shard.by_id.values():
            for group in topic.queues.values():
                group.is_ending = True
                if len(group.queue.places.leased):
                    self._unfinished.append(group)

    def is_worked_for(self) -> bool:
        """Whether members have something that they have not settled since deliveries ended."""
        self._unfinished = [group for group in self._unfinished if group.is_worked_on()]
        return bool(self._unfinished)

    # --- looking

    async def groups(self, topic: str) -> list[GroupInfo]:
        known: dict[str, GroupInfo] = {}
        for part in self._topics.existing_row(topic):
            groups = [group.info for group in part.queues.values()]
            for info in (*part.cursors.infos(), *groups):
                known.setdefault(info.name, info)
        return [known[name] for name in sorted(known)]

    async def group_stats(self, topic: str, group: str) -> GroupStats:
        row = self._topics.existing_row(topic)
        parts: list[GroupStats] = []
        for part in row:
            queue = part.queues.get(group)
            if queue is not None:
                with suppress(ObjectStorageFailed):  # then as of the last look
                    await looked(queue)
            stats = stats_of(queue) if queue is not None else part.cursors.stats(group)
            if stats is not None:
                parts.append(stats)
        if not parts:
            raise GroupNotFound(topic, group)
        stats = parts[0] if row[0].name == topic else merged_group_stats(parts)
        letters = await self._letters.count(row, group)
        return msgspec.structs.replace(stats, dead_letters=letters)

    async def peek(self, topic: str, group: str, max_rows: int) -> Rows:
        runs: list[Run] = []
        left = max_rows
        for queue in self._topics.queues(topic, group):
            if left > 0:
                found = await peek(queue, left)
                left -= sum(run.row_count for run in found)
                runs += found
        return Rows(runs)

    async def in_flight(self, topic: str, group: str, max_rows: int) -> list[InFlight]:
        found: list[InFlight] = []
        for queue in self._topics.queues(topic, group):
            found += in_flight(queue, max_rows - len(found))
        return found

    # --- changing

    async def pause_group(self, topic: str, group: str, paused: bool) -> None:
        for queue in self._topics.queues(topic, group):
            await wait_for(queue.topic.proposer.change(PauseGroup(queue.topic.id, group, paused)))

    async def reset_group(self, topic: str, group: str, to: Start | Mapping[int, int]) -> None:
        queues = self._topics.queues(topic, group)
        wanted: list[tuple[QueueGroup, int]] = []
        by_partition = {queue.topic.origin.partition: queue for queue in queues}
        if isinstance(to, Mapping):
            for partition, offset in to.items():
                queue = by_partition.get(partition)
                if queue is None:
                    raise InvalidRequest(
                        f"topic {topic!r} has no partition {partition!r} with group {group!r}"
                    )
                wanted.append((queue, resolve_start(queue.topic, offset)))
        else:
            if to == "committed":
                raise InvalidRequest("pass earliest, latest, an offset or a time, not committed")
            if isinstance(to, int) and len(queues) > 1:
                raise InvalidRequest(
                    "each partition has its own offsets; reset_group(..., {partition: offset})"
                )
            for queue in queues:
                await start_is_loaded(queue.topic, to)
            wanted = [(queue, resolve_start(queue.topic, to)) for queue in queues]
        for queue, offset in wanted:
            log = queue.topic.log
            floor = min(max(offset, log.first_offset), log.next_offset)
            command = ResetGroup(queue.topic.id, group, floor, self._shard.term)
            done = queue.topic.proposer.change(command)
            if done is not None:
                queue.begin_reset()
                await asyncio.shield(done)

    async def settle_before(self, topic: str, group: str, offset: int) -> None:
        queues = self._topics.queues(topic, group)
        if len(queues) > 1:
            raise InvalidRequest("each partition has its own offsets: name one")
        await queues[0].settling.settle_before(offset)

    async def delete_group(self, topic: str, group: str) -> None:
        known = False
        for part in self._topics.existing_row(topic):
            if part.cursors.is_open(group):
                raise InvalidRequest(f"reader name {group!r} of {topic!r} is open; close it first")
            if part.cursors.has_name(group) or group in part.queues:
                known = True
                await wait_for(part.delete_group(group))
                self._functions.pop((part.id, group), None)
        if not known:
            raise GroupNotFound(topic, group)

    async def cancel(self, topic: str, ranges: Ranges) -> int:
        found = await self._topics.obtain(topic, auto_create=False)
        waiting = found.delaying.waiting(ranges)
        if waiting:
            chosen = ranges_of(waiting)
            found.delaying.cancels(chosen)
            try:
                await wait_for(found.proposer.change(Cancel(found.id, chosen)))
            except FlintError:
                found.delaying.cancels_not(chosen)
                raise
        return len(waiting)


def _check_same(topic: LeadingTopic, group: QueueGroup, joining: Joining) -> None:
    order, filter, start = joining.order, joining.filter, joining.start
    differing: dict[str, tuple[Any, Any]] = {}
    if order is not None and order != group.order:
        differing["order"] = (group.order, order)
    if filter is not None and _text_of(filter) != group.state.filter_text:
        differing["filter"] = (group.state.filter_text, _text_of(filter))
    if filter is not None and callable(filter) and filter != group.filter:
        differing["filter"] = (group.state.filter_text, "another function")
    if start is not None and start_text(start) != group.state.start:
        differing["start"] = (group.state.start, start_text(start))
    if differing:
        raise GroupExists(topic.origin.topic, group.name, differing)


def _always(message: object) -> bool:
    return True


def _text_of(filter: Filter | None) -> str | None:
    if filter is None:
        return None
    return _FUNCTION if callable(filter) else filter.text
