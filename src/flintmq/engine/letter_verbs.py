"""Dead letters: the verbs. Messages that a group gives up go to another topic, and come back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ..batch import BatchBuilder, RecordBatch
from ..broker_api import Filter
from ..errors import Corrupt, MessageTooLarge
from ..group_model import Ranges
from ..groups.ranges import ranges_of
from ..loop.pace import pace
from ..model import VALUE_OPTIONS, TopicOptions
from ..observe.logs import limited
from ..patterns import NAME_BYTES_MAX
from ..rows import Message, Rows, Run
from .commands import CreateGroup, Move
from .dead_letters import (
    REDRIVE,
    checked_edit,
    dead_letter_name,
    dead_rows,
    is_of,
    living_rows,
    partition_of,
)
from .leading.burying import Dead
from .leading.queue_group import QueueGroup
from .leading.rows_of_groups import rows_of_loaded
from .leading.topic import LeadingTopic
from .proposer import wait_for
from .shard import Shard
from .state.group import DISCARDED
from .topic_verbs import TopicVerbs
from .waiting import again

_log = logging.getLogger(__name__)

_REDRIVE_ROWS = 256
"""How many dead letters go back in one step."""

_LOOK_ROWS = 256
"""How many dead letters are looked at before others have their turn."""


class LetterVerbs:
    def __init__(self, shard: Shard, topics: TopicVerbs) -> None:
        self._shard, self._topics = shard, topics
        self._redriving = asyncio.Lock()
        shard.around.bury = self.bury

    async def bury(self, topic: LeadingTopic, group: QueueGroup, dead: list[Dead]) -> None:
        """Move messages to the dead letters: one command, so nothing is lost or doubled."""
        try:
            target = await self._dead_letter_topic(topic, group.name)
            first = topic.log.first_offset
            offsets = sorted(one.offset for one in dead if one.offset >= first)
            await rows_of_loaded(topic, ranges_of(offsets))  # so that they are in memory
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
                await wait_for(group.picking.pass_damaged(ranges_of(damaged)))
            if gone:
                await wait_for(
                    topic.proposer.settle(topic.id, group.name, ranges_of(gone), "retention")
                )
            if found:
                rows = dead_rows(found, topic.origin, group.name, self._shard.clock.now_ms())
                settled = ranges_of([one.offset for _, _, one in found])
                await self._move(topic, group.name, settled, target, None, rows)
                # Not why: that is a text of whoever rejected it, and may quote the message.
                limited(
                    _log,
                    logging.WARNING,
                    "dead_letters",
                    f"{topic.name} {group.name}",
                    "messages became dead letters",
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
        source: LeadingTopic,
        group: str,
        ranges: Ranges,
        target: LeadingTopic,
        only_for: str | None,
        rows: BatchBuilder,
    ) -> None:
        batch: BatchBuilder | RecordBatch = rows
        if target.proposer.is_instant:
            rows.append_time = self._shard.clock.now_ms()
        else:
            batch = rows.seal()
            batch.stamp(*target.commits.place([batch], self._shard.clock.now_ms()))
        await wait_for(
            target.proposer.change(Move(source.id, group, ranges, target.id, only_for, batch))
        )

    async def _dead_letter_topic(self, topic: LeadingTopic, group: str) -> LeadingTopic:
        """Where dead letters go, made if need be, with the group that knows what went back."""
        options = topic.options
        own = self._own_letters(topic, group)
        name = options.dead_letter_topic or own
        if f"{name}/0" in self._shard.topics:
            _tell_unfit(topic, name, own, "is partitioned, which dead letters are not")
            name = own
        wanted = {
            option: getattr(options, option)
            for option in (*VALUE_OPTIONS, "storage")
            if getattr(options, option) is not None
        }
        defaults = self._shard.defaults
        if options.storage == "memory" != defaults.storage:
            wanted["retention_bytes"] = TopicOptions().retention_bytes
        made = msgspec.structs.replace(defaults, **wanted)
        found = await self._topics.obtain_with(name, made)
        if found.options.storage != options.storage:
            _tell_unfit(topic, name, own, "has another storage than its topic")
            found = await self._topics.obtain_with(own, made)
        if REDRIVE not in found.queues:
            command = CreateGroup(
                found.id, REDRIVE, "log", None, "earliest", found.log.first_offset
            )
            await wait_for(found.proposer.change(command))
        return found

    def _own_letters(self, topic: LeadingTopic, group: str) -> str:
        name = dead_letter_name(topic.origin.topic, group)
        return name if len(name.encode()) <= NAME_BYTES_MAX else f"dead.{topic.id}.{group}"

    def _letters_topic(self, row: list[LeadingTopic], group: str) -> LeadingTopic | None:
        for name in (row[0].options.dead_letter_topic, self._own_letters(row[0], group)):
            found = self._shard.topics.get(name) if name is not None else None
            if found is not None and REDRIVE in found.queues:
                return found
        return None

    async def count(self, row: list[LeadingTopic], group: str) -> int:
        letters = self._letters_topic(row, group)
        if letters is None:
            return 0
        if letters.name == self._own_letters(row[0], group):
            return letters.queues[REDRIVE].unsettled()
        return len(await self._letters(letters, row[0].origin.topic, group))

    async def _letters(
        self,
        letters: LeadingTopic,
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
        if wanted is not None:  # what lies around them is not looked at
            offset = max(offset, min(wanted, default=end))
            end = min(end, max(wanted, default=-1) + 1)
        while offset < end:
            offset = max(offset, queue.floor, letters.log.first_offset)
            upto = min(end, offset + _LOOK_ROWS)
            found_here = await rows_of_loaded(letters, queue.settled.missing(offset, upto))
            allowance = pace().begin()
            for run in found_here:
                for row in run.rows():
                    if filter is not None and allowance.is_over():
                        await asyncio.sleep(0)
                        self._shard.check_open()
                        allowance = pace().begin()
                    letter = Message(run.source, row, run.origin)
                    if wanted is not None and letter.offset not in wanted:
                        continue
                    if not is_of(letter, topic, group):
                        continue
                    if filter is not None and not letters.sieve.pick(filter, run.source, [row]):
                        continue
                    if len(found) == max_rows:
                        return found
                    found.append(letter)
            offset = upto
            if offset < end:
                await asyncio.sleep(0)  # others have their turn
                self._shard.check_open()
        return found

    async def dead_letters(self, topic: str, group: str, max_rows: int, first: int = 0) -> Rows:
        row = self._topics.existing_row(topic)
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
            self._topics.queues(topic, group)  # or there is nobody to get them
            row = self._topics.existing_row(topic)
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

    async def redrive_edited(
        self, topic: str, group: str, id: int, changes: Mapping[str, Any]
    ) -> int:
        edit = checked_edit(changes)
        async with self._redriving:  # of two who edit one letter, the second finds it gone
            self._topics.queues(topic, group)
            row = self._topics.existing_row(topic)
            letters = self._letters_topic(row, group)
            if letters is None:
                return 0
            found = await self._letters(letters, row[0].origin.topic, group, offsets=[id])
            if found:
                limit = row[0].options.max_message_bytes
                value = edit.get("value", b"")
                if limit is not None and len(value) > limit:
                    raise MessageTooLarge(
                        "the edited dead letter", len(value), limit, "max_message_bytes"
                    )
                number = partition_of(found[0])
                rows = living_rows(found, edit)
                await self._put_back(row, group, letters, number, found, rows)
            return len(found)

    async def discard(
        self, topic: str, group: str, offsets: Sequence[int] | None, filter: Filter | None
    ) -> int:
        async with self._redriving:  # so that none goes back that was let go, nor the other way
            row = self._topics.existing_row(topic)
            letters = self._letters_topic(row, group)
            if letters is None:
                return 0
            found = await self._letters(
                letters, row[0].origin.topic, group, offsets=offsets, filter=filter
            )
            if found:
                gone = ranges_of([letter.offset or 0 for letter in found])
                await wait_for(letters.proposer.settle(letters.id, REDRIVE, gone, DISCARDED))
                await self._drop_front(letters)
            return len(found)

    async def _drop_front(self, letters: LeadingTopic) -> None:
        """What is discarded at the front of a topic takes no room any more."""
        first = letters.log.first_offset
        end = (
            first
            if letters.state.discarded is None
            else letters.state.discarded.first_missing(first)
        )
        if end > first:
            _, done = letters.purge(end)
            await wait_for(done)

    async def _put_back(
        self,
        row: list[LeadingTopic],
        group: str,
        letters: LeadingTopic,
        partition: int,
        back: list[Message],
        rows: BatchBuilder | None = None,
    ) -> None:
        self._shard.check_open()
        by_number = {part.origin.partition: part for part in row}
        target = by_number.get(partition, row[0])
        ranges = ranges_of([letter.offset or 0 for letter in back])
        rows = living_rows(back) if rows is None else rows
        await self._move(letters, REDRIVE, ranges, target, group, rows)


def _tell_unfit(topic: LeadingTopic, name: str, used: str, why: str) -> None:
    limited(
        _log,
        logging.WARNING,
        "dead_letter_topic_unfit",
        topic.name,
        f"a dead_letter_topic {why}: another is used",
        topic=topic.name,
        dead_letter_topic=name,
        used=used,
    )
