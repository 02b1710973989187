"""The broker in memory: topics by name, live feeds by pattern. Implements BrokerApi.

It belongs to one event loop. Nothing here polls: what time brings about has a timer of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import Any

from ..batch import BatchBuilder, DecodeCache, RecordBatch
from ..broker_api import Fetched, Filter
from ..clock import Clock, SteadyClock, SystemClock, Timer
from ..errors import (
    BrokerFailed,
    Closed,
    FlintError,
    InvalidRequest,
    StorageFailed,
    TopicDeleted,
    TopicExists,
    TopicNotFound,
)
from ..logs import event
from ..model import (
    OBJECT_RETENTION_COUNT,
    Durability,
    Extent,
    Overflow,
    Receipt,
    Start,
    TopicInfo,
    TopicOptions,
    TopicStats,
    changed_options,
)
from ..patterns import check_name, check_pattern, is_literal, matches
from ..rows import Decoder
from .commands import (
    AbortStages,
    AdvanceFirstOffset,
    Attempts,
    Cancel,
    Change,
    Command,
    CommitStage,
    ConfigureTopics,
    CreateGroup,
    CreateTopics,
    DeleteGroup,
    DeleteTopics,
    Move,
    PauseGroup,
    Place,
    ResetGroup,
    Settle,
    Stage,
    StagedBatch,
)
from .dedup import Remembered
from .feeds import Feed, FeedBoard
from .fetching import extent, fetch, wait_beyond
from .figures import JournalFigures, TopicFigures
from .pending import Pending
from .queue_verbs import QueueVerbs
from .readers import Reader
from .row_stats import merged_stats
from .staging import STAGED_SECONDS, Staging, check_writer, part_name, part_names
from .topic import Topic
from .waiting import again

_log = logging.getLogger(__name__)

DECODE_CACHE_BYTES = 4 * 1024 * 1024
PARTITIONS_MAX = 1024


def _tell_step(seconds: float) -> None:
    event(
        _log,
        logging.WARNING,
        "clock_stepped",
        f"the clock of this machine was set {'forward' if seconds > 0 else 'back'} by "
        f"{abs(seconds):,.0f} s; the broker's time follows by 1 %, a restart takes a step forward "
        "over at once",
        seconds=round(seconds, 3),
    )


class Broker(QueueVerbs):
    def __init__(
        self,
        clock: Clock | None = None,
        decoder: Decoder | None = None,
        *,
        staging: Staging | None = None,
        staged_seconds: float = STAGED_SECONDS,
    ) -> None:
        super().__init__()
        self.clock: SteadyClock = SteadyClock(clock or SystemClock())
        self.clock.on_step = _tell_step
        self._decoder = decoder
        self._topics: dict[str, Topic] = {}
        self._by_id: dict[int, Topic] = {}
        self._defaults = TopicOptions()
        self._topic_defaults: dict[str, Any] = {}
        self.auto_create = True
        """Whether topics may be made on the fly by anybody; what a caller allows comes second."""
        self._last_topic_id = 0
        self._board = FeedBoard(self.guarded)
        self._cache = DecodeCache(DECODE_CACHE_BYTES)
        self._remembered = Remembered()
        self._staging = staging or Staging()
        self._staging_view = self._staging  # what is decided; here, that is what is applied
        self._staged_ms = round(staged_seconds * 1000)
        self._staging_timer: Timer | None = None
        self._topic_listeners: list[Callable[[str, TopicOptions | None], None]] = []
        self._closed = False
        self._failure: FlintError | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def open(self) -> None:
        """In memory there is nothing to recover."""

    # --- publishing

    def publish_nowait(
        self,
        topic: str,
        rows: BatchBuilder | RecordBatch,
        *,
        qos: int,
        auto_create: bool,
        timeout: float | None = None,
    ) -> Receipt | Pending | None:
        found = self._topics.get(topic) or self._topic(topic, auto_create)
        return found.publish(rows, qos)

    def on_topic_changed(self, callback: Callable[[str, TopicOptions | None], None]) -> None:
        self._topic_listeners.append(callback)

    def _tell_of(self, name: str, options: TopicOptions | None) -> None:
        base, _, partition = name.partition("/")
        if self._topic_listeners and partition in ("", "0"):
            for listener in self._topic_listeners:
                listener(base, options)

    def may_gather(self, topic: str) -> bool:
        found = self._topics.get(topic)
        return found is not None and found.may_gather()

    def publish_value_nowait(self, topic: str, value: bytes) -> Receipt | Pending | None:
        found = self._topics.get(topic)
        return None if found is None else found.publish_value(value)

    async def publish(
        self,
        topic: str,
        rows: BatchBuilder | RecordBatch,
        *,
        qos: int,
        auto_create: bool,
        timeout: float | None,
    ) -> Receipt:
        found = self._topic(topic, auto_create)
        receipt = found.publish(rows, qos)
        if receipt is None:
            receipt = await found.publish_when_possible(rows, qos, timeout)
        return await receipt if isinstance(receipt, Pending) else receipt

    def known_options(self, topic: str) -> TopicOptions | None:
        try:
            found = self._topics.get(topic)
        except TypeError:
            raise InvalidRequest(f"a topic name is a str, not {topic!r}") from None
        if found is None:
            found = self._topics.get(f"{topic}/0")
            if found is None:
                return None
        return found.origin.options

    # --- staged writes

    async def stage(
        self,
        writer: str,
        number: int,
        part: str | int,
        batches: Sequence[tuple[str, BatchBuilder | RecordBatch]],
        *,
        auto_create: bool,
    ) -> None:
        check_writer(writer, number)
        name = part_name(part)
        found = [(await self._obtain(topic, auto_create), rows) for topic, rows in batches]
        for topic, _ in found:
            if topic.options.storage != self._defaults.storage:
                raise InvalidRequest(
                    f"topic {topic.name!r} is one in memory; a durable broker stages for durable "
                    "topics only"
                )
        sealed = [
            StagedBatch(
                topic.id, topic.name, copy(rows) if isinstance(rows, RecordBatch) else rows.seal()
            )
            for topic, rows in found
        ]
        await self._ready_to_stage()
        self._check_open()
        view = self._staging_view
        if view.is_done(writer, number):
            await self._caught_up()
            return
        view.check_room(writer, number, name, sum(staged.batch.byte_length for staged in sealed))
        now_ms, offset = self.clock.now_ms(), view.next_offset
        for staged in sealed:
            staged.batch.stamp(offset, now_ms)
            offset += staged.batch.row_count
        await self._change_staging(Stage(writer, number, name, now_ms, sealed))
        self._arm_staging()

    async def commit(self, writer: str, number: int, parts: Sequence[str | int]) -> list[Receipt]:
        check_writer(writer, number)
        names = part_names(parts)
        await self._topics_at_rest()
        self._check_open()
        view = self._staging_view
        if view.is_done(writer, number):
            await self._caught_up()
            return [self._receipt(place, True) for place in view.places(writer, number)]
        by_topic: dict[int, list[RecordBatch]] = {}
        for staged in view.find(writer, number, names):
            if staged.topic not in self._by_id:
                raise TopicDeleted(staged.name.partition("/")[0])
            by_topic.setdefault(staged.topic, []).append(staged.batch)
        for id, batches in by_topic.items():
            self._by_id[id].check_fits(batches)
        now_ms = self.clock.now_ms()
        places = []
        for id, batches in by_topic.items():
            topic = self._by_id[id]
            offset, time = topic.place(batches, now_ms)
            count = sum(batch.row_count for batch in batches)
            places.append(Place(id, topic.name, offset, count, time))
        await self._change_staging(CommitStage(writer, number, names, places))
        return [self._receipt(place, False) for place in places]

    async def abort(self, writer: str, number: int) -> None:
        check_writer(writer, number)
        self._check_open()
        if self._staging_view.is_done(writer, number):
            await self._caught_up()
            return
        await self._change_staging(AbortStages([(writer, number)], self.clock.now_ms()))

    def writer_topics(self, writer: str) -> set[str]:
        return self._staging_view.topics_of(writer)

    def _receipt(self, place: Place, is_repeat: bool) -> Receipt:
        base, _, partition = place.name.partition("/")
        return Receipt(
            base, place.offset, place.rows, int(partition or 0), 0, is_repeat, self._durability()
        )

    def _durability(self) -> Durability:
        return "memory"

    async def _obtain(self, name: str, auto_create: bool) -> Topic:
        return self._topic(name, auto_create)

    async def _obtain_with(self, name: str, options: TopicOptions) -> Topic:
        """A topic, made with these options if need be."""
        if name not in self._topics:
            self._check_open()
            self.apply(CreateTopics(self._numbered([name]), options))
        return self._topics[name]

    async def _ready_to_stage(self) -> None:
        """Wait until more may be staged."""

    async def _topics_at_rest(self) -> None:
        """Wait until no topic is about to be deleted."""

    async def _caught_up(self) -> None:
        """Wait until what was decided has been done."""

    async def _change_staging(self, command: Stage | CommitStage | AbortStages) -> None:
        self.apply(command)

    def _apply_commit(self, command: CommitStage) -> None:
        offsets = {place.topic: place.offset for place in command.places}
        times = {place.topic: place.time for place in command.places}
        for staged in self._staging.apply(command):
            topic = self._by_id.get(staged.topic)
            if topic is not None:  # else deleted since it was decided
                batch = copy(staged.batch)  # a checkpoint may be writing the staged one
                batch.stamp(offsets[topic.id], times[topic.id])
                offsets[topic.id] += batch.row_count
                if staged.damage:
                    self._note_lost(topic, batch, staged)
                topic.apply_append(batch)

    def _note_lost(self, topic: Topic, batch: RecordBatch, staged: StagedBatch) -> None:
        """What is about to be appended stands for rows that the disk has damaged."""
        raise NotImplementedError("what is in memory is not damaged")

    def set_staged_seconds(self, seconds: float) -> None:
        """Also for what is staged now."""
        self._staged_ms = round(seconds * 1000)
        if self._staging_timer is not None:
            self._staging_timer.cancel()
            self._staging_timer = None
            self._arm_staging()

    def _arm_staging(self) -> None:
        due_ms = self._staging_view.due(self._staged_ms)
        if due_ms is not None and self._staging_timer is None and not self._closed:
            wait_ms = max(0, due_ms - self.clock.now_ms())
            self._staging_timer = self.clock.call_later(
                wait_ms / 1000, self.guarded(self._drop_rested)
            )

    def _drop_rested(self) -> None:
        """Drop what was staged and never committed, once its time is up."""
        self._staging_timer = None
        now_ms = self.clock.now_ms()
        rested = self._staging_view.rested_since(now_ms - self._staged_ms)
        if rested:
            self._begin_abort(AbortStages(rested, now_ms))
        self._arm_staging()

    def _begin_abort(self, command: AbortStages) -> None:
        self.apply(command)

    # --- topics

    def set_topic_defaults(self, options: dict[str, Any]) -> None:
        """What topics made from now on have where nobody says otherwise.

        Dead letters are kept in topics with the defaults of the broker all the same.
        """
        self._options(self._defaults, options)  # they have to go together
        self._topic_defaults = dict(options)

    def _defaults_of(self, name: str) -> dict[str, Any]:
        defaults = self._topic_defaults
        if defaults.get("dead_letter_topic") == name:
            # What it gives up itself goes where it would without this default.
            defaults = {**defaults, "dead_letter_topic": None}
        return defaults

    def _fresh_options(self, name: str) -> TopicOptions:
        """The options of a topic that is made on the fly."""
        if not self._topic_defaults:
            return self._defaults
        return self._options(self._defaults, self._defaults_of(name))

    async def create_topic(self, name: str, options: dict[str, Any]) -> TopicInfo:
        self._check_open()
        check_name(name)
        wanted = self._options(self._defaults, {**self._defaults_of(name), **options})
        _check_dead_letters(name, wanted)
        row = self._row(name)
        if not row:
            if wanted.format == "object" and "retention_count" not in options:
                wanted = changed_options(wanted, {"retention_count": OBJECT_RETENTION_COUNT})
            made = await self._create_row(name, wanted)
            event(
                _log,
                logging.INFO,
                "topic_created",
                "a topic was made",
                topic=name,
                storage=wanted.storage,
                partitions=wanted.partitions,
            )
            return made
        ours = row[0].options
        differing = {
            option: (getattr(ours, option), getattr(wanted, option))
            for option in options
            if getattr(ours, option) != getattr(wanted, option)
        }
        if differing:
            raise TopicExists(name, differing)
        return self._info(name, row)

    async def configure_topic(self, name: str, options: dict[str, Any]) -> TopicInfo:
        row = self._whole_row(name)
        ours = row[0].options
        wanted = self._options(ours, options)
        _check_dead_letters(name, wanted)
        if (ours.format == "object") != (wanted.format == "object"):
            raise InvalidRequest("a topic of objects cannot become one of bytes, nor the other way")
        added: list[tuple[int, str]] = []
        names: set[str] = set()
        if wanted.partitions != ours.partitions:
            self._check_growth(name, ours.partitions, wanted.partitions)
            names = set.intersection(*(topic.reader_names() for topic in row))
            added = self._numbered(
                f"{name}/{n}" for n in range(ours.partitions or 0, wanted.partitions or 0)
            )
        await self._change(ConfigureTopics([topic.id for topic in row], wanted, added))
        for _, added_name in added:
            await self._introduce(names, self._topics[added_name])
            await self._introduce_groups(row, self._topics[added_name])
        for topic in self._row(name):
            topic.bell.ring()  # readers of all partitions look whether there are more
            for group in topic.queues.values() if added else ():
                group.recall()  # and so do members
        return self._info(name, self._row(name))

    def _check_growth(self, name: str, ours: int | None, wanted: int | None) -> None:
        if ours is None:
            raise InvalidRequest(f"topic {name!r} was made without partitions; it stays so")
        if wanted is None or wanted < ours:
            raise InvalidRequest(
                f"topic {name!r} has {ours} partitions; they can be added, not taken away"
            )

    async def _introduce(self, names: set[str], topic: Topic) -> None:
        """Have names that read the whole row begin at the start of an added partition.

        One that rests meanwhile would else begin there by the `start` it comes back with.
        """
        for name in names:
            await topic.open_reader(name, "earliest", None).close()

    async def _introduce_groups(self, row: list[Topic], topic: Topic) -> None:
        """Groups of the whole row miss nothing of an added partition."""
        groups = list(row[0].queues.values())
        topic.claimed.update(group.name for group in groups)
        for group in groups:
            command = CreateGroup(
                topic.id, group.name, group.order, group.filter_text, group.start, 0
            )
            done = topic.keeper.change(command)
            if done is not None:
                await asyncio.shield(done)
            made = topic.queues.get(group.name)
            if made is None:  # a reader of that name was faster
                continue
            made.filter = group.filter
            if group.paused:
                await self.pause_group(topic.name, group.name, True)

    async def delete_topic(self, name: str) -> None:
        row = self._whole_row(name)
        await self._change(DeleteTopics([topic.id for topic in row]))
        event(_log, logging.INFO, "topic_deleted", "a topic was deleted", topic=name)

    async def purge_topic(self, name: str, before: int | None) -> int:
        row = self._existing_row(name)
        if before is not None:
            if type(before) is not int or not 0 <= before < 2**63:
                raise InvalidRequest(f"before is an offset, or None for all; not {before!r}")
            if len(row) > 1:
                raise InvalidRequest(
                    f"each partition of {name!r} has offsets of its own; purge one, as in "
                    f"'{name}/0', or all of them without an offset"
                )
        # Each decides before any of them is waited for: all go as of one moment.
        begun = [topic.purge(before) for topic in row]
        for _, done in begun:
            if done is not None:
                await asyncio.shield(done)
        return sum(count for count, _ in begun)

    async def topics(self, pattern: str) -> list[str]:
        self._check_open()
        check_pattern(pattern)
        names = {topic.partition("/")[0] for topic in self._topics}
        return sorted(name for name in names if matches(pattern, name))

    async def topic_info(self, name: str) -> TopicInfo:
        return self._info(name, self._existing_row(name))

    async def topic_stats(self, name: str) -> TopicStats:
        row = self._existing_row(name)
        return row[0].stats() if row[0].name == name else merged_stats(name, row)

    # --- figures

    def plain_topics(self) -> list[str]:
        return list(self._topics)

    def topic_figures(self, name: str) -> TopicFigures | None:
        topic = self._topics.get(name)
        return None if topic is None else topic.figures()

    def feed_count(self) -> int:
        return len(self._board.open)

    def journal_figures(self) -> JournalFigures | None:
        return None

    def _row(self, name: str) -> list[Topic]:
        """The plain topics behind a name: one, or its partitions in order, or none."""
        self._check_open()
        if not isinstance(name, str):
            raise InvalidRequest(f"a topic name is a str, not {name!r}")
        topic = self._topics.get(name)
        if topic is not None:
            return [topic]
        first = self._topics.get(f"{name}/0")
        if first is None:
            return []
        return [self._topics[f"{name}/{number}"] for number in range(first.options.partitions or 1)]

    def _existing_row(self, name: str) -> list[Topic]:
        row = self._row(name)
        if not row:
            self._check_name(name)
            raise TopicNotFound(name)
        return row

    def _whole_row(self, name: str) -> list[Topic]:
        row = self._existing_row(name)
        if "/" in name:
            raise InvalidRequest(
                f"{name!r} is one partition of {name.partition('/')[0]!r}; options and deletion "
                "concern the topic as a whole"
            )
        return row

    def _check_name(self, name: str) -> None:
        if isinstance(name, str) and "/" in name:
            base, _, number = name.partition("/")
            if row := self._row(base):
                count = row[0].options.partitions
                has = "none" if count is None else f"{count}, 0 to {count - 1}"
                raise InvalidRequest(f"partition {number} of {base!r}: it has {has}")
        check_name(name)

    def _info(self, name: str, row: list[Topic]) -> TopicInfo:
        return TopicInfo(name, row[0].id, row[0].options)

    def _topic(self, name: str, auto_create: bool) -> Topic:
        self._check_open()
        topic = self._topics.get(name)
        if topic is None:
            if f"{name}/0" in self._topics:
                raise InvalidRequest(f"topic {name!r} is partitioned; name one as in '{name}/0'")
            self._check_name(name)
            if not (auto_create and self.auto_create):
                raise TopicNotFound(name)
            self.apply(CreateTopics(self._numbered([name]), self._fresh_options(name)))
            topic = self._topics[name]
        return topic

    async def _create_row(self, name: str, options: TopicOptions) -> TopicInfo:
        names = [name]
        if options.partitions is not None:
            names = [f"{name}/{number}" for number in range(options.partitions)]
        await self._change(CreateTopics(self._numbered(names), options))
        return self._info(name, self._row(name))

    def _numbered(self, names: Iterable[str]) -> list[tuple[int, str]]:
        """New topics with ids that were never used."""
        return list(enumerate(names, self._last_topic_id + 1))

    # --- changes

    async def _change(self, command: Change) -> None:
        """Carry a decided change out. In memory there is nothing to wait for."""
        self.apply(command)

    def apply(self, command: Command) -> None:
        """Make a change that was decided. Refuses nothing."""
        match command:
            case CreateTopics(topics, options):
                self._create(topics, options)
            case ConfigureTopics(ids, options, added):
                for id in ids:
                    self._configure(self._by_id[id], options)
                    self._tell_of(self._by_id[id].name, options)
                self._create(added, options)
            case DeleteTopics(ids):
                self._delete([self._by_id[id] for id in ids])
            case AdvanceFirstOffset(id, offset, reason):
                topic = self._by_id.get(id)
                if topic is not None:  # else deleted since it was decided
                    topic.apply_advance(offset, reason)
            case CommitStage():
                self._apply_commit(command)
            case Move():
                self._apply_move(command)
            case (
                CreateGroup() | DeleteGroup() | Settle() | Attempts() | ResetGroup() | PauseGroup()
                | Cancel()
            ):  # fmt: skip
                topic = self._by_id.get(command.topic)
                if topic is not None:  # else deleted since it was decided
                    topic.apply_group_change(command)
            case Stage() | AbortStages():
                self._staging.apply(command)
            case _:
                raise AssertionError(f"{type(command).__name__} concerns durable topics")

    def _create(self, topics: list[tuple[int, str]], options: TopicOptions) -> None:
        for id, name in topics:
            self._last_topic_id = max(self._last_topic_id, id)
            self._topics[name] = self._by_id[id] = self._new_topic(id, name, options)
            self._share_bucket(self._topics[name])
            self._tell_of(name, options)

    def _configure(self, topic: Topic, options: TopicOptions) -> None:
        topic.configure(options)
        self._share_bucket(topic)

    def _share_bucket(self, topic: Topic) -> None:
        """The partitions of a topic have one rate limit together."""
        first = self._topics.get(f"{topic.origin.topic}/0")
        if first is not None and topic.options.partitions is not None:
            topic.bucket = first.bucket

    def _new_topic(self, id: int, name: str, options: TopicOptions) -> Topic:
        return Topic(
            name,
            id,
            options,
            clock=self.clock,
            cache=self._cache,
            board=self._board,
            decoder=self._decoder,
            apply=self.apply,
            bury=self.bury,
            compile=self._compile,
            guarded=self.guarded,
            remembered=self._remembered,
        )

    def _delete(self, row: list[Topic]) -> None:
        name = row[0].name.partition("/")[0]
        for topic in row:
            del self._topics[topic.name], self._by_id[topic.id]
            topic.producers.forget()
        for feed in row[0].feeds:
            if is_literal(feed.pattern):
                feed.end(TopicDeleted(name))
        for topic in row:
            topic.end(TopicDeleted(name))
            topic.log.let_go()
        self._tell_of(name, None)

    def _options(self, options: TopicOptions, changes: dict[str, Any]) -> TopicOptions:
        wanted = changed_options(options, changes)
        if wanted.storage != "memory" and self._defaults.storage == "memory":
            raise InvalidRequest("storage='durable' needs a durable broker; this one is memory://")
        if wanted.partitions is not None and wanted.partitions > PARTITIONS_MAX:
            raise InvalidRequest(f"a topic has at most {PARTITIONS_MAX:,} partitions")
        return wanted

    # --- readers and feeds

    async def open_reader(
        self,
        topic: str,
        *,
        name: str | None,
        start: Start | None,
        filter: Filter | None,
        auto_create: bool,
    ) -> Reader:
        if name is not None:
            check_name(name, "reader")
        return self._topic(topic, auto_create).open_reader(name, start, filter)

    async def fetch(
        self,
        topic: str,
        offset: int,
        *,
        end: int | None,
        max_rows: int,
        max_bytes: int,
        filter: Filter | None,
        with_expired: bool,
    ) -> Fetched:
        found = self._topic(topic, False)
        return fetch(found, offset, end, max_rows, max_bytes, filter, with_expired)

    async def extents(self, topic: str, at: Start | None) -> list[Extent]:
        return [extent(one, at) for one in self._existing_row(topic)]

    async def wait_beyond(self, offsets: Mapping[str, int], timeout: float | None) -> bool:
        self._check_open()
        return await wait_beyond(self._topics, offsets, self.clock, timeout)

    async def open_feed(
        self, pattern: str, *, capacity: int, overflow: Overflow, filter: Filter | None
    ) -> Feed:
        self._check_open()
        check_pattern(pattern)
        return Feed(pattern, capacity, overflow, self.clock, self._board, filter)

    # --- the end

    async def backup(self, directory: str) -> None:
        raise InvalidRequest("memory:// keeps nothing that could be backed up; file:// does")

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._end_all(Closed("the broker"))

    def _end_all(self, error: FlintError) -> None:
        """Everybody who is here hears `error`."""
        if self._staging_timer is not None:
            self._staging_timer.cancel()
        for feed in list(self._board.open):
            feed.end(error)
        for topic in self._topics.values():
            topic.end(error)
        self._topics.clear()

    # --- faults

    def guarded(self, callback: Callable[[], object]) -> Callable[[], None]:
        """For timers and what else nobody waits for: a fault there stops the broker. Else it would
        go on without what the timer was for, and nobody would know."""

        def guarded() -> None:
            try:
                callback()
            except Exception as error:
                name = getattr(callback, "__qualname__", type(callback).__name__)
                self._fault(f"running the timer {name}", error)

        return guarded

    def _fault(self, where: str, error: Exception) -> None:
        """Stop: what is in memory can no longer be trusted. Everybody is told, now and later."""
        if self._failure is not None:
            return
        failure: FlintError
        if isinstance(error, StorageFailed | BrokerFailed):
            failure = error
        else:  # also one of ours: nobody asked for anything, so nobody can be blamed
            failure = BrokerFailed(where, f"{type(error).__name__}: {error}")
            failure.__cause__ = error
        self._failure = failure
        event(
            _log,
            logging.ERROR,
            "broker_failed",
            f"a fault while {where}: the broker stops",
            exc_info=error,
            where=where,
        )
        self._stop_for(failure)

    def _stop_for(self, failure: FlintError) -> None:
        self._end_all(failure)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the broker")
        if self._failure is not None:
            raise again(self._failure)
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # a thread of our own, which waits for nothing here
        if self._loop is None:
            self._loop = loop
        elif loop is not self._loop:
            # Timers and waiting readers are on the other loop, which would never hear of this.
            raise InvalidRequest(
                "this connection belongs to another event loop; connect in each of them, or use "
                "connect_sync, which serves every thread"
            )


def _check_dead_letters(name: str, options: TopicOptions) -> None:
    if options.dead_letter_topic == name:
        raise InvalidRequest(
            f"dead_letter_topic={name!r}: what {name!r} gives up would come back to it for ever; "
            "name another topic"
        )
