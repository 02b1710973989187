"""What the disk of this node has damaged is got from the node that leads.

Sealed segments are known by checksums, so damage is found: by who reads, by a checkpoint, by the
thread that looks for it. A section with damage in it is fetched anew, by its offsets, and written
to a segment of its own; the next checkpoint puts that in its place. Meanwhile who reads there hears
Corrupt; a node that leads has another lead first, if one is ready to.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from ..batch import RecordBatch, slice_batch, thin_batch
from ..broker_api import BrokerApi, Fetch
from ..engine.checkpoints import aside
from ..engine.kept import KeptShard
from ..engine.rewriting import Rewritten
from ..engine.state.topic import TopicState
from ..errors import Corrupt, FlintError
from ..observe.logs import event
from ..rows import Run
from ..storage.segments import Section
from ..storage.topic_log import TopicLog

_log = logging.getLogger(__name__)

LOOK_TICKS = 10
"""Between two looks whether there is any damage: a second."""
AGAIN_TICKS = 600
"""How long a section is left alone that could not be mended, and the lead where it is."""
FETCH_BYTES = 1 << 20


class MendingNode(Protocol):
    """A node, as far as this needs it."""

    def is_leading(self) -> bool: ...
    def leader(self) -> int: ...
    def hand_over(self, to: int = 0) -> None: ...


class SectionMender:
    def __init__(
        self,
        node: MendingNode,
        kept: KeptShard,
        broker_of: Callable[[int], BrokerApi | None] | None,
    ) -> None:
        self._node, self._kept, self._broker_of = node, kept, broker_of
        self._ticks = 0
        self._not_before: dict[tuple[int, int], int] = {}
        """Of sections, by topic and first offset: which tick has to come."""
        self._handed_over_at = -AGAIN_TICKS
        self._task: asyncio.Task[None] | None = None
        self.mended = 0
        """Messages that were damaged here, and are not any more."""

    def tick(self) -> None:
        self._ticks += 1
        damages = self._kept.host.damages
        if self._ticks % LOOK_TICKS or self._task is not None or not damages.are_noted:
            return
        found = self._next()
        if found is None:
            return
        if self._node.is_leading():
            if self._ticks - self._handed_over_at >= AGAIN_TICKS:
                self._handed_over_at = self._ticks
                self._node.hand_over()
            return
        leader = self._node.leader()
        broker = self._broker_of(leader) if leader and self._broker_of is not None else None
        if broker is not None:
            work = self._mend(*found, broker, leader)
            self._task = asyncio.get_running_loop().create_task(work)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _next(self) -> tuple[TopicState, TopicLog, Section] | None:
        for topic in self._kept.host.damages.topics(self._kept):
            log = topic.log
            if isinstance(log, TopicLog):
                for section in log.sections:
                    due = self._not_before.get((topic.id, section.base), 0)
                    is_needed = section.next > log.first_offset
                    if is_needed and due <= self._ticks and log.is_damaged(section):
                        return topic, log, section
        return None

    async def _mend(
        self, topic: TopicState, log: TopicLog, section: Section, broker: BrokerApi, leader: int
    ) -> None:
        kept = self._kept
        self._not_before[topic.id, section.base] = self._ticks + AGAIN_TICKS
        damaged = sum(
            one.next - one.first for one in log.damaged if section.base <= one.first < section.next
        )
        batches: list[RecordBatch] = []
        try:
            offset = max(section.base, log.first_offset)
            while offset < section.next:
                wanted = Fetch(
                    topic.name, offset, section.next, max_bytes=FETCH_BYTES, with_expired=True
                )
                fetched = await broker.fetch(wanted)
                if fetched.position <= offset:
                    raise Corrupt(f"node {leader} has nothing of {topic.name} at offset {offset}")
                for run in fetched.rows.runs:
                    batches.append(batch_of(run))
                offset = fetched.position
            if batches:
                error = await kept.checkpoints.replace(self._write(topic, log, section, batches))
                if error is not None:
                    raise error
                await kept.checkpoints.checkpoint()
        except FlintError as error:
            event(
                _log,
                logging.WARNING,
                "messages_not_mended",
                f"damaged messages could not be fetched from node {leader}; trying again: {error}",
                topic=topic.name,
                first_offset=section.base,
                next_offset=section.next,
            )
            return
        finally:
            self._task = None
        if not log.is_damaged(section):
            self.mended += damaged
            self._not_before.pop((topic.id, section.base), None)
            kept.host.damages.on_noted()
            event(
                _log,
                logging.WARNING,
                "messages_mended",
                f"damaged messages were replaced by copies from node {leader}",
                topic=topic.name,
                first_offset=section.base,
                next_offset=section.next,
                amount=damaged,
            )

    async def _write(
        self, topic: TopicState, log: TopicLog, section: Section, batches: list[RecordBatch]
    ) -> FlintError | None:
        """While no checkpoint is written: a segment, for the next one to put in place."""
        checkpoints = self._kept.checkpoints

        def write() -> Section:
            writer = checkpoints.new_segment()
            try:
                for batch in batches:
                    writer.add(topic.id, batch)
                ((_, new),) = writer.seal()
            except FlintError:
                with suppress(FlintError):
                    self._kept.files.remove(writer.name)
                raise
            finally:
                writer.abandon()
            checkpoints.sync_segments()
            return new

        try:
            new = await aside(self._kept.host, write)
        except FlintError as error:
            return error
        new = new._replace(
            base=section.base,
            next=section.next,
            first_time=section.first_time,
            last_time=section.last_time,
        )
        checkpoints.mend(Rewritten(topic.id, [section], new))
        return None


def batch_of(run: Run) -> RecordBatch:
    """The rows of a run as a batch; what lies between them, and nobody is to get, is empty."""
    if run.picks is None and isinstance(run.source, RecordBatch):
        return slice_batch(run.source, run.start, run.stop)
    return thin_batch(run.source, run.rows())
