"""Sealed segments go to object storage. Only who leads does it, one object at a time, in threads.

    1  PlanObject     a command names the object before a byte of it is written
    2  upload         sections of the topic become one segment, each batch checked on the way
    3  verify         it is read back whole and compared with what was written
    4  TierSection    a command says what the object has: from here on it may be read there
    5  leave          with its next checkpoint, each node removes its own files, beyond the limits
    6  DropObjects    what retention has passed, or a deleted topic had, is loose again
    7  remove         what is loose is removed; then ForgetObjects

Whoever is killed at any step leaves an object that is loose or whole: who leads next removes what
is loose, before it uploads anything. URLs are never used again, so nobody's upload is taken for
another's, and nobody else ever makes a TierSection of it. Files are removed only by a
checkpoint that has the object. So a message is on this disk or in a verified object, always.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote
from uuid import uuid4

from ..batch import DELIVER_AT, RecordBatch
from ..clock import Timer
from ..errors import Corrupt, FlintError, ObjectStorageFailed
from ..observe.logs import event, limited
from ..storage.objects import Objects
from ..storage.segments import Section, Segment, SegmentWriter, is_damage, sections
from ..storage.tiered import run_to_upload
from ..storage.topic_log import TopicLog
from .checkpoints import aside, topics_to_relieve
from .commands import Command, DropObjects, ForgetObjects, PlanObject, TierSection
from .proposer import wait_for
from .state.topic import TopicState

if TYPE_CHECKING:
    from .kept import KeptShard

_log = logging.getLogger(__name__)

OBJECT_BYTES = 64 << 20
"""How much becomes one object where nothing is in a hurry."""

RETRY_SECONDS = 10.0
"""How soon what has failed is tried again."""


class Due(NamedTuple):
    """What is to be uploaded next."""

    topic: TopicState
    log: TopicLog
    run: list[Section]


class Tiering:
    def __init__(self, kept: KeptShard) -> None:
        self._kept = kept
        self._task: asyncio.Task[None] | None = None
        self._timer: Timer | None = None
        self._is_closed = False
        self.object_bytes = OBJECT_BYTES
        self.uploaded_bytes = self.failures = 0
        kept.shard.on_end.append(self._end_timer)

    def look(self) -> None:
        """There may be something to do: a checkpoint has sealed segments, or we lead now."""
        if self._task is None and self._timer is None and self._leads() and self._is_due():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def settled(self) -> None:
        """Wait until nothing is under way."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def close(self) -> None:
        """What is being uploaded is given up: it is loose, and removed after the next start."""
        self._is_closed = True
        self._end_timer()
        await self.settled()

    def _leads(self) -> bool:
        shard = self._kept.shard
        return not self._is_closed and shard.refusal is None and shard.failure is None

    def _end_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- what is due

    def _topics(self) -> Iterator[tuple[TopicState, TopicLog]]:
        for topic in self._kept.shard.state.by_id.values():
            log = topic.log
            if isinstance(log, TopicLog) and (topic.options.tier is not None or log.far):
                yield topic, log

    def _is_due(self) -> bool:
        if self._kept.shard.state.loose:
            return True
        return any(_passed(log) or self._due_of(topic, log) for topic, log in self._topics())

    def _due_of(self, topic: TopicState, log: TopicLog) -> Due | None:
        options = topic.options
        if options.tier is None:
            return None
        whole = []
        for section in log.sections:
            if section.next > log.far.end and log.is_damaged(section):
                break  # a cluster mends it; else it stays here until retention drops it
            whole.append(section)
        age = options.local_retention_age
        before_ms = None
        if age is not None:
            before_ms = self._kept.shard.clock.now_ms() - round(age * 1000)
        run = run_to_upload(
            log.far,
            whole,
            log.first_offset,
            self.object_bytes,
            options.local_retention_bytes,
            before_ms,
        )
        return Due(topic, log, run) if run else None

    def _next(self, skipped: set[int]) -> Due | None:
        known = (pair for pair in self._topics() if pair[0].id not in skipped)
        found = (self._due_of(topic, log) for topic, log in known)
        return next(filter(None, found), None)

    # --- working

    async def _run(self) -> None:
        kept, is_done = self._kept, False
        try:
            if self._leads():
                failures = await self._remove_passed()
                failures += await self._upload_all()
                if failures:
                    raise failures[0]
            is_done = True
        except FlintError as error:
            if self._leads():
                self._tell_failed(error)
                shard = kept.shard
                self._timer = shard.clock.call_later(RETRY_SECONDS, shard.guarded(self._again))
        except Exception as error:
            kept.shard.fault("copying segments to object storage", error)
        finally:
            self._task = None
        if is_done and self._leads() and any(topics_to_relieve(kept.shard)):
            kept.checkpoints.begin()

    def _again(self) -> None:
        self._timer = None
        self.look()

    def _tell_failed(self, error: FlintError) -> None:
        self.failures += 1
        limited(
            _log,
            logging.WARNING,
            "tier_failed",
            str(self._kept.group),
            "segments are not copied to object storage for now; they stay on this disk, and it is "
            f"tried again: {error}",
            group=self._kept.group,
        )

    async def _change(self, command: Command) -> None:
        shard = self._kept.shard
        shard.check_open()
        await wait_for(shard.proposer.change(command))

    async def _remove_passed(self) -> list[FlintError]:
        """Remove what nothing refers to. Whatever is loose here while we lead is of an upload that
        has failed, or was dropped: nobody else can make it part of a topic any more."""
        state, objects = self._kept.shard.state, self._kept.host.objects
        for topic, log in list(self._topics()):
            if _passed(log):
                await self._change(DropObjects(topic.id, log.first_offset))
        removed, failures = [], list[FlintError]()
        for url in list(state.loose):
            try:
                await aside(self._kept.host, objects.remove, url)
                removed.append(url)
            except FlintError as error:
                failures.append(error)
        if removed:
            await self._change(ForgetObjects(removed))
        return failures

    async def _upload_all(self) -> list[FlintError]:
        """One store that cannot be reached keeps no topic of another from its own."""
        skipped, failures = set[int](), list[FlintError]()
        while self._leads() and (due := self._next(skipped)) is not None:
            try:
                await self._upload(*due)
            except FlintError as error:
                if not self._leads():
                    raise
                skipped.add(due.topic.id)
                failures.append(error)
        return failures

    async def _upload(self, topic: TopicState, log: TopicLog, run: list[Section]) -> None:
        kept, host = self._kept, self._kept.host
        assert topic.options.tier is not None
        pinned = {section.file for section in run}
        name = f"{quote(topic.name, safe='')}-{topic.id}/{run[0].base:020d}-{uuid4().hex}.seg"
        url = f"{topic.options.tier}/{name}"
        kept.checkpoints.copied.append(pinned)  # no checkpoint removes these files meanwhile
        try:
            await self._change(PlanObject(url))
            start = max(log.far.end, log.first_offset)
            uploading = Uploading(self, kept, topic, start, run)
            section, due_ms = await aside(host, uploading.write, url)
            await aside(host, verify_object, host.objects, url, topic.id, section)
            if topic.discarded is not None:  # what compaction has left there may lack both ends
                first = min(section.base, max(start, run[0].base))
                section = section._replace(base=first, next=run[-1].next)
            await self._change(TierSection(topic.id, section, due_ms))
        finally:
            copied = kept.checkpoints.copied
            copied[:] = [one for one in copied if one is not pinned]
        self.uploaded_bytes += section.size
        event(
            _log,
            logging.INFO,
            "tier_uploaded",
            "a segment is in object storage",
            topic=topic.name,
            first_offset=section.base,
            next_offset=section.next,
            bytes=section.size,
            url=url,
        )

    @property
    def is_closed(self) -> bool:
        return self._is_closed


def _passed(log: TopicLog) -> bool:
    """Whether retention has dropped all of an object."""
    return bool(log.far) and log.far.all[0].section.next <= log.first_offset


class Uploading:
    """What a thread reads of some sections, and writes to an object."""

    def __init__(
        self, tiering: Tiering, kept: KeptShard, topic: TopicState, start: int, run: list[Section]
    ) -> None:
        self._tiering, self._files, self._objects = tiering, kept.files, kept.host.objects
        self._topic, self._start, self._run = topic.id, start, run
        self._has_holes = topic.discarded is not None

    def write(self, url: str) -> tuple[Section, int]:
        """The section that the object has, and when the last of its delayed messages is due."""
        writer, due_ms = SegmentWriter(self._objects, url), 0
        try:
            for batch in self._batches():
                if self._tiering.is_closed:
                    raise ObjectStorageFailed("write", url, "the broker is closing")
                writer.add(self._topic, batch)
                if batch.columns & DELIVER_AT:
                    due_ms = max(due_ms, *map(batch.deliver_at, range(batch.row_count)))
            ((_, section),) = writer.seal()
        finally:
            writer.abandon()
        return section, due_ms

    def _batches(self) -> Iterator[RecordBatch]:
        """From the start on, without a gap. Each is checked: what is damaged is not uploaded."""
        offset = 0
        for section in self._run:
            with closing(Segment(self._files, section.file)) as segment:
                for entry in segment.entries(self._topic):
                    is_ours = section.base <= entry.base < section.next
                    if not is_ours or entry.next <= max(self._start, offset):
                        continue
                    if offset and entry.base != offset and not self._has_holes:
                        raise Corrupt(f"segment {section.file} lacks offset {offset}")
                    yield segment.read(entry)
                    offset = entry.next


def verify_object(objects: Objects, url: str, topic: int, wanted: Section) -> None:
    """Read a whole object and compare it with what was written. Raises ObjectStorageFailed."""
    try:
        with closing(Segment(objects, url)) as segment:
            segment.verify()
            found = sections(url, segment.entries(topic)).get(topic)
    except FlintError as error:
        if not is_damage(error):
            raise
        raise ObjectStorageFailed("verify", url, error) from error
    if found != wanted:
        raise ObjectStorageFailed("verify", url, "it is not what was written")
