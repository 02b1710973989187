"""The verbs of groups: joining, figures, pausing, dead letters and back. A part of the broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ..batch import BatchBuilder, RecordBatch
from ..broker_api import Filter
from ..clock import Clock
from ..errors import Corrupt, FlintError, GroupExists, GroupNotFound, InvalidRequest, TopicNotFound
from ..group_model import (
    GroupInfo,
    GroupStats,
    InFlight,
    Order,
    Ranges,
    start_text,
)
from ..logs import limited
from ..model import VALUE_OPTIONS, Start, TopicOptions
from ..pace import pace
from ..patterns import NAME_BYTES_MAX, check_name
from ..rows import Message, Rows, Run
from .commands import (
    Cancel,
    CreateGroup,
    Move,
    PauseGroup,
    ResetGroup,
)
from .dead_letters import (
    REDRIVE,
    dead_letter_name,
    dead_rows,
    is_of,
    living_rows,
    partition_of,
)
from .group_stats import merged_group_stats
from .keeping import Done
from .member import Member
from .queue_group import DISCARDED, Dead, QueueGroup, merged, rows_of
from .readers import resolve_start
from .topic import Topic
from .waiting import again

_log = logging.getLogger(__name__)

_REDRIVE_ROWS = 256
"""How many dead letters go back in one step."""

_LOOK_ROWS = 256
"""How many dead letters are looked at before others have their turn."""

_FUNCTION = "a function"


class QueueVerbs:
    """What the broker does about groups. The broker brings topics and the carrying out."""

    clock: Clock
    _topics: dict[str, Topic]
    _by_id: dict[int, Topic]
    _defaults: TopicOptions

    def __init__(self) -> None:
        self._holders = 0
        self._is_ending = False
        self._unfinished: list[QueueGroup] = []
        self._redriving = asyncio.Lock()
        self._functions: dict[tuple[int, str], Filter] = {}

    # What the broker brings:

    async def _obtain(self, name: str, auto_create: bool) -> Topic:
        raise NotImplementedError

    async def _obtain_with(self, name: str, options: TopicOptions) -> Topic:
        raise NotImplementedError

    def _existing_row(self, name: str) -> list[Topic]:
        raise NotImplementedError

    def _check_open(self) -> None:
        raise NotImplementedError

    async def _epoch(self) -> int:
        """What lease tokens begin with."""
        return 0

    # --- joining

    async def join_group(
        self,
        topic: str,
        group: str,
        *,
        order: Order | None,
        filter: Filter | None,
        start: Start | None,
        holder: str,
        auto_create: bool,
    ) -> Member:
        check_name(group, "group")
        if start == "committed":
            raise InvalidRequest(
                "start='committed' is what a known group does anyway; a new one begins at "
                "'earliest', 'latest', an offset or a datetime"
            )
        epoch = await self._epoch()
        found = await self._obtain_for(group, topic, auto_create)
        known = found.queues.get(group)
        if known is None:
            known = await self._create_group(found, group, order, filter, start)
        _check_same(found, known, order, filter, start)
        known.is_ending |= self._is_ending
        known.queue.begin_tokens(epoch << 40)
        self._holders += 1
        label = holder if holder not in known.members else f"{holder}#{self._holders}"
        return Member(known, label)

    async def _obtain_for(self, name: str, topic: str, auto_create: bool) -> Topic:
        """A topic, once none of this name is about to be deleted there."""
        found = await self._obtain(topic, auto_create)
        while (leaving := found.leaving.get(name)) is not None:
            await asyncio.wait([leaving])
            found = await self._obtain(topic, auto_create)
        return found

    async def _create_group(
        self,
        topic: Topic,
        name: str,
        order: Order | None,
        filter: Filter | None,
        start: Start | None,
    ) -> QueueGroup:
        if topic.has_reader_name(name):
            raise GroupExists(topic.origin.topic, name, {"kind": ("cursor", "queue")})
        text = _text_of(filter)
        if text == _FUNCTION and topic.keeper.keeps_counts:
            raise InvalidRequest(
                "the filter of a durable group is an expression: a function would be gone with "
                "this process"
            )
        if text == _FUNCTION and filter is not None:
            self._functions[topic.id, name] = filter
        topic.claimed.add(name)
        begin: Start = "earliest" if start is None else start
        floor = max(topic.log.first_offset, resolve_start(topic, begin))
        command = CreateGroup(
            topic.id,
            name,
            order or "priority",
            text,
            start_text(begin),
            min(floor, topic.log.next_offset),
        )
        await _done(topic.keeper.change(command))
        known = topic.queues.get(name)
        if known is None:  # somebody was faster, with a reader of that name; or the topic is gone
            self._check_open()
            if topic.id not in self._by_id:
                raise TopicNotFound(topic.origin.topic)
            raise GroupExists(topic.origin.topic, name, {"kind": ("cursor", "queue")})
        if text == _FUNCTION:
            known.filter = filter
        return known

    def _compile(self, text: str) -> Filter:
        """The filter of a group, from its text."""
        if text == _FUNCTION:
            return lambda message: True  # the function itself follows
        from ..serde.filters import compile_filter

        return compile_filter(text)

    def end_deliveries(self) -> None:
        """The broker is about to stop: hand out nothing any more, and let everybody keep what it
        holds."""
        self._is_ending = True
        for topic in self._by_id.values():
            for group in topic.queues.values():
                group.is_ending = True
                if group.queue.in_flight_count:
                    self._unfinished.append(group)

    def is_worked_for(self) -> bool:
        """Whether members have something that they have not settled since deliveries ended."""
        self._unfinished = [group for group in self._unfinished if group.is_worked_on()]
        return bool(self._unfinished)

    # --- looking

    async def groups(self, topic: str) -> list[GroupInfo]:
        known: dict[str, GroupInfo] = {}
        for part in self._existing_row(topic):
            for info in part.group_infos():
                known.setdefault(info.name, info)
        return [known[name] for name in sorted(known)]

    async def group_stats(self, topic: str, group: str) -> GroupStats:
        row = self._existing_row(topic)
        parts: list[GroupStats] = []
        for part in row:
            queue = part.queues.get(group)
            stats = queue.stats(0) if queue is not None else part.cursor_stats(group)
            if stats is not None:
                parts.append(stats)
        if not parts:
            raise GroupNotFound(topic, group)
        letters = await self._count_letters(row, group)
        return merged_group_stats(parts, letters, is_row=row[0].name != topic)

    async def peek(self, topic: str, group: str, max_rows: int) -> Rows:
        runs: list[Run] = []
        left = max_rows
        for queue in self._queues(topic, group):
            if left > 0:
                found = await queue.peek(left)
                left -= sum(run.row_count for run in found)
                runs += found
        return Rows(runs)

    async def in_flight(self, topic: str, group: str, max_rows: int) -> list[InFlight]:
        found: list[InFlight] = []
        for queue in self._queues(topic, group):
            found += queue.in_flight(max_rows - len(found))
        return found

    def _queues(self, topic: str, group: str) -> list[QueueGroup]:
        row = self._existing_row(topic)
        found = [part.queues[group] for part in row if group in part.queues]
        if not found:
            if any(part.has_reader_name(group) for part in row):
                raise GroupExists(topic, group, {"kind": ("cursor", "queue")})
            raise GroupNotFound(topic, group)
        return found

    # --- changing

    async def pause_group(self, topic: str, group: str, paused: bool) -> None:
        for queue in self._queues(topic, group):
            await _done(queue.topic.keeper.change(PauseGroup(queue.topic.id, group, paused)))

    async def reset_group(self, topic: str, group: str, to: Start | Mapping[int, int]) -> None:
        queues = self._queues(topic, group)
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
                raise InvalidRequest("a queue has settled what it has settled: name a place")
            if isinstance(to, int) and len(queues) > 1:
                raise InvalidRequest(
                    "each partition has offsets of its own; reset_group(..., {partition: offset})"
                )
            wanted = [(queue, resolve_start(queue.topic, to)) for queue in queues]
        for queue, offset in wanted:
            log = queue.topic.log
            floor = min(max(offset, log.first_offset), log.next_offset)
            done = queue.topic.keeper.change(ResetGroup(queue.topic.id, group, floor))
            if done is not None:
                queue.begin_reset()
                await asyncio.shield(done)

    async def settle_before(self, topic: str, group: str, offset: int) -> None:
        queues = self._queues(topic, group)
        if len(queues) > 1:
            raise InvalidRequest("each partition has offsets of its own: name one")
        await queues[0].settle_before(offset)

    async def delete_group(self, topic: str, group: str) -> None:
        known = False
        for part in self._existing_row(topic):
            if part.is_open(group):
                raise InvalidRequest(f"reader name {group!r} of {topic!r} is open; close it first")
            if part.has_reader_name(group) or group in part.queues:
                known = True
                await _done(part.delete_group(group))
                self._functions.pop((part.id, group), None)
        if not known:
            raise GroupNotFound(topic, group)

    async def cancel(self, topic: str, ranges: Ranges) -> int:
        found = await self._obtain(topic, auto_create=False)
        cancelled, cancelling = found.lanes.cancelled, found.lanes.cancelling
        waiting = [
            offset
            for start, stop in ranges
            for offset in found.due_after(start, stop, found.clock.now_ms())
            if offset not in cancelled and offset not in cancelling
        ]
        if waiting:
            chosen = merged(waiting)
            found.cancels(chosen)
            try:
                await _done(found.keeper.change(Cancel(found.id, chosen)))
            except FlintError:
                found.cancels_not(chosen)
                raise
        return len(waiting)

    # --- dead letters

    async def bury(self, topic: Topic, group: QueueGroup, dead: list[Dead]) -> None:
        """Move messages to the dead letters: one command, so nothing is lost or doubled."""
        try:
            target = await self._dead_letter_topic(topic, group.name)
            if group.ended is not None:  # and one of its name may have been made anew
                raise again(group.ended)
            found = []
            gone: list[int] = []
            damaged: list[int] = []
            for one in dead:
                if one.offset < topic.log.first_offset:
                    gone.append(one.offset)  # retention was faster
                    continue
                try:
                    source, row, _ = topic.log.locate(one.offset)
                except Corrupt as error:
                    if error.is_proven:
                        damaged.append(one.offset)  # else it stays where it is until a start
                else:
                    found.append((source, row, one))
            if damaged:
                await _done(group.pass_damaged(merged(damaged)))
            if gone:
                await _done(topic.keeper.settle(group.name, merged(gone), "retention"))
            if found:
                rows = dead_rows(found, topic.origin, group.name, self.clock.now_ms())
                settled = merged([one.offset for _, _, one in found])
                await self._move(topic, group.name, settled, target, None, rows)
                # Not why: that is a text of whoever rejected it, and may quote the message.
                limited(
                    _log,
                    logging.WARNING,
                    "dead_letters",
                    f"{topic.name} {group.name}",
                    "messages could not be processed and are dead letters now",
                    amount=len(found),
                    topic=topic.name,
                    group=group.name,
                    count=len(found),
                    first_offset=found[0][2].offset,
                    dead_letter_topic=target.name,
                )
        except Exception as error:
            limited(
                _log,
                logging.WARNING,
                "dead_letters_not_moved",
                f"{topic.name} {group.name}",
                f"dead letters could not be moved and will be delivered again: {error}",
                amount=len(dead),
                topic=topic.name,
                group=group.name,
                count=len(dead),
            )
            raise

    async def _move(
        self,
        source: Topic,
        group: str,
        ranges: Ranges,
        target: Topic,
        only_for: str | None,
        rows: BatchBuilder,
    ) -> None:
        batch: BatchBuilder | RecordBatch = rows
        if target.keeper.keeps_counts:
            batch = rows.seal()
            offset, time = target.place([batch], self.clock.now_ms())
            batch.stamp(offset, time)
        await _done(
            target.keeper.change(Move(source.id, group, ranges, target.id, only_for, batch))
        )

    def _apply_move(self, move: Move) -> None:
        target, source = self._by_id.get(move.target), self._by_id.get(move.source)
        if target is not None:
            start = target.log.next_offset
            if isinstance(move.batch, RecordBatch):
                target.apply_append(move.batch)
            else:
                target.append_rows(move.batch)
            target.only_for(move.only_for, start, start + move.batch.row_count)
        if source is not None and move.group in source.queues:
            source.queues[move.group].apply_settle(move.ranges, "")
            source.group_moved()

    async def _dead_letter_topic(self, topic: Topic, group: str) -> Topic:
        """Where dead letters go, made if need be, with the group that knows what went back."""
        options = topic.options
        name = options.dead_letter_topic or self._own_letters(topic, group)
        if f"{name}/0" in self._topics:
            limited(
                _log,
                logging.WARNING,
                "dead_letter_topic_unfit",
                topic.name,
                "a dead_letter_topic is partitioned, which dead letters are not: another is used",
                topic=topic.name,
                dead_letter_topic=name,
                used=self._own_letters(topic, group),
            )
            name = self._own_letters(topic, group)
        wanted = {
            option: getattr(options, option)
            for option in (*VALUE_OPTIONS, "storage")
            if getattr(options, option) is not None
        }
        defaults = self._defaults
        if options.storage == "memory" != defaults.storage:
            wanted["retention_bytes"] = TopicOptions().retention_bytes
        made = msgspec.structs.replace(defaults, **wanted)
        found = await self._obtain_with(name, made)
        if found.options.storage != options.storage:
            fallback = self._own_letters(topic, group)
            limited(
                _log,
                logging.WARNING,
                "dead_letter_topic_unfit",
                topic.name,
                "a dead_letter_topic has another storage than its topic: another is used",
                topic=topic.name,
                dead_letter_topic=name,
                storage=found.options.storage,
                used=fallback,
            )
            found = await self._obtain_with(fallback, made)
        if REDRIVE not in found.queues:
            command = CreateGroup(
                found.id, REDRIVE, "log", None, "earliest", found.log.first_offset
            )
            await _done(found.keeper.change(command))
        return found

    def _own_letters(self, topic: Topic, group: str) -> str:
        name = dead_letter_name(topic.origin.topic, group)
        return name if len(name.encode()) <= NAME_BYTES_MAX else f"dead.{topic.id}.{group}"

    def _letters_topic(self, row: list[Topic], group: str) -> Topic | None:
        for name in (row[0].options.dead_letter_topic, self._own_letters(row[0], group)):
            found = self._topics.get(name) if name is not None else None
            if found is not None and REDRIVE in found.queues:
                return found
        return None

    async def _count_letters(self, row: list[Topic], group: str) -> int:
        letters = self._letters_topic(row, group)
        if letters is None:
            return 0
        if letters.name == self._own_letters(row[0], group):
            return letters.queues[REDRIVE].unsettled()
        return len(await self._letters(letters, row[0].origin.topic, group))

    async def _letters(
        self,
        letters: Topic,
        topic: str,
        group: str,
        *,
        first: int = 0,
        max_rows: int | None = None,
        offsets: Sequence[int] | None = None,
        filter: Filter | None = None,
    ) -> list[Message]:
        """The dead letters of one group, oldest first: all, or these, or those that pass."""
        wanted = None if offsets is None else set(offsets)
        found: list[Message] = []
        queue = letters.queues[REDRIVE].queue
        offset, end = first, letters.log.next_offset
        while True:
            offset = max(offset, queue.floor, letters.log.first_offset)
            upto = min(end, offset + _LOOK_ROWS)
            allowance = pace().begin()
            for run in rows_of(letters, queue.settled.missing(offset, upto)):
                for row in run.rows():
                    if filter is not None and allowance.is_over():
                        await asyncio.sleep(0)
                        self._check_open()
                        allowance = pace().begin()
                    letter = Message(run.source, row, run.origin)
                    if wanted is not None and letter.offset not in wanted:
                        continue
                    if not is_of(letter, topic, group):
                        continue
                    if filter is not None and not letters.pick(filter, run.source, [row]):
                        continue
                    if len(found) == max_rows:
                        return found
                    found.append(letter)
            offset = upto
            if offset >= end:
                return found
            await asyncio.sleep(0)  # others have their turn
            self._check_open()

    async def dead_letters(self, topic: str, group: str, max_rows: int, first: int = 0) -> Rows:
        row = self._existing_row(topic)
        letters = self._letters_topic(row, group)
        if letters is None:
            return Rows()
        found = await self._letters(
            letters, row[0].origin.topic, group, first=first, max_rows=max_rows
        )
        return Rows([Run(one._source, one._row, one._row + 1, letters.origin) for one in found])

    async def redrive(
        self, topic: str, group: str, offsets: Sequence[int] | None, filter: Filter | None
    ) -> int:
        async with self._redriving:  # so that none goes back twice
            self._queues(topic, group)  # or there is nobody to get them
            row = self._existing_row(topic)
            letters = self._letters_topic(row, group)
            if letters is None:
                return 0
            chosen: dict[int, list[Message]] = {}
            found = await self._letters(
                letters, row[0].origin.topic, group, offsets=offsets, filter=filter
            )
            for letter in found:
                partition = partition_of(letter)
                chosen.setdefault(partition, []).append(letter)
                if len(chosen[partition]) == _REDRIVE_ROWS:
                    await self._put_back(row, group, letters, partition, chosen.pop(partition))
                    await asyncio.sleep(0)
            for partition, rest in chosen.items():
                await self._put_back(row, group, letters, partition, rest)
            return len(found)

    async def discard(
        self, topic: str, group: str, offsets: Sequence[int] | None, filter: Filter | None
    ) -> int:
        async with self._redriving:  # so that none goes back that was let go, nor the other way
            row = self._existing_row(topic)
            letters = self._letters_topic(row, group)
            if letters is None:
                return 0
            found = await self._letters(
                letters, row[0].origin.topic, group, offsets=offsets, filter=filter
            )
            if found:
                gone = merged([letter.offset or 0 for letter in found])
                await _done(letters.keeper.settle(REDRIVE, gone, DISCARDED))
                await self._drop_front(letters)
            return len(found)

    async def _drop_front(self, letters: Topic) -> None:
        """What is discarded at the front of a topic takes no room any more."""
        first = letters.log.first_offset
        end = first if letters.discarded is None else letters.discarded.first_missing(first)
        if end > first:
            _, done = letters.purge(end)
            await _done(done)

    async def _put_back(
        self, row: list[Topic], group: str, letters: Topic, partition: int, back: list[Message]
    ) -> None:
        self._check_open()
        by_number = {part.origin.partition: part for part in row}
        target = by_number.get(partition, row[0])
        ranges = merged([letter.offset or 0 for letter in back])
        await self._move(letters, REDRIVE, ranges, target, group, living_rows(back))


def _check_same(
    topic: Topic,
    group: QueueGroup,
    order: Order | None,
    filter: Filter | None,
    start: Start | None,
) -> None:
    differing: dict[str, tuple[Any, Any]] = {}
    if order is not None and order != group.order:
        differing["order"] = (group.order, order)
    if filter is not None and _text_of(filter) != group.filter_text:
        differing["filter"] = (group.filter_text, _text_of(filter))
    if filter is not None and callable(filter) and filter != group.filter:
        differing["filter"] = (group.filter_text, "another function")
    if start is not None and start_text(start) != group.start:
        differing["start"] = (group.start, start_text(start))
    if differing:
        raise GroupExists(topic.origin.topic, group.name, differing)


def _text_of(filter: Filter | None) -> str | None:
    if filter is None:
        return None
    return _FUNCTION if callable(filter) else filter.text


async def _done(done: Done) -> None:
    """Wait for a change; it is carried out also if whoever asked for it leaves."""
    if done is not None:
        await asyncio.shield(done)
