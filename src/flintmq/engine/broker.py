"""The broker of this process: BrokerApi over one shard, in memory or with a host that keeps it.

It belongs to one event loop. Nothing here polls: what time brings about has a timer of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from ..batch import DecodeCache
from ..broker_api import Batch, Fetch, Fetched, Filter, Placed, ReaderOpening
from ..clock import Clock, SteadyClock, SystemClock
from ..errors import InvalidRequest
from ..model import Extent, FarObjects, Overflow, Receipt, Start, TopicOptions
from ..observe.logs import event
from ..patterns import check_name, check_pattern
from ..rows import Decoder
from ..storage.loading import when_loaded
from .definition_verbs import DefinitionVerbs
from .figures import JournalFigures, TopicFigures
from .group_verbs import GroupVerbs
from .in_turn import InTurn
from .leading.cursor import start_is_loaded
from .leading.feeds import LiveFeed
from .leading.fetching import extent, fetch, objects, wait_beyond
from .leading.readers import LeadingReader
from .leading.state_rows import StateRows
from .leading.topic import LeadingTopic
from .leading.topic_figures import figures_of, figures_of_state
from .letter_verbs import LetterVerbs
from .pending import Pending
from .requests import OpenRequests
from .shard import Shard
from .staged_writes import StagedWrites
from .state.memory_log import MemoryLog, TopicLogApi
from .state.shard import ShardState
from .state.staging import STAGED_BYTES_MAX, STAGED_SECONDS, WRITER_BYTES_MAX, Staging
from .topic_verbs import TopicVerbs

if TYPE_CHECKING:
    from .host import Host

_log = logging.getLogger(__name__)

DECODE_CACHE_BYTES = 4 * 1024 * 1024


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


class Broker:
    """Without a host it keeps nothing, and needs not be opened."""

    def __init__(
        self,
        clock: Clock | None = None,
        decoder: Decoder | None = None,
        *,
        host: Host | None = None,
        group: int = 0,
        staging: Staging | None = None,
        staged_seconds: float = STAGED_SECONDS,
    ) -> None:
        self.clock = SteadyClock(clock or SystemClock())
        self.clock.on_step = _tell_step
        self._host = host
        cache = DecodeCache(DECODE_CACHE_BYTES)

        def new_log(id: int, name: str, options: TopicOptions) -> TopicLogApi:
            if host is None or options.storage == "memory":
                return MemoryLog(cache)
            return kept.new_log(id, name, cache)

        defaults = TopicOptions()
        refusal = None
        if host is not None:
            defaults = TopicOptions(storage="durable", retention_bytes=None)
            refusal = InvalidRequest(
                "the connection was not opened: `async with` it, or `await` it, before its use"
            )
        if staging is None and host is None:
            limits = {"writer_bytes_max": WRITER_BYTES_MAX, "staged_bytes_max": STAGED_BYTES_MAX}
            staging = Staging(**limits)
        state = ShardState(new_log, staging or Staging())
        self.shard = shard = Shard(state, self.clock, defaults, decoder, refusal=refusal)
        self._leading = shard.topics
        if host is None:
            state.observer = shard
        else:
            kept = host.keep(shard, self.clock, group)
        self._making = InTurn()
        self._being_made = self._making.lines
        self._closing: asyncio.Task[None] | None = None

        # The verbs, by what they are about.
        topics = self._topic_verbs = TopicVerbs(shard)
        self.create_topic, self.configure_topic = topics.create, topics.configure
        self.delete_topic, self.purge_topic = topics.delete, topics.purge
        self.topics, self.topic_info, self.topic_stats = topics.names, topics.info, topics.stats
        self.stats_of, self.set_topic_defaults = topics.stats_of, topics.set_defaults

        staged = self._staged = StagedWrites(shard, topics, staged_seconds)
        self.stage, self.commit, self.abort = staged.stage, staged.commit, staged.abort
        self.writer_topics, self.set_staged_seconds = staged.writer_topics, staged.set_seconds

        requests = OpenRequests(shard, self.publish_nowait, self.publish)
        self.request, self.reply = requests.request, requests.reply

        letters = LetterVerbs(shard, topics)
        self.dead_letters, self.redrive = letters.dead_letters, letters.redrive
        self.discard, self.redrive_edited = letters.discard, letters.redrive_edited

        defining = self.defining = DefinitionVerbs(shard)
        self.definitions, self.define = defining.definitions, defining.define
        self.webhook_states, self.test_webhook = defining.webhook_states, defining.test_webhook
        self.deliver_webhooks_by = defining.deliver_webhooks_by

        groups = GroupVerbs(shard, topics, letters)
        self.join_group, self.groups = groups.join_group, groups.groups
        self.group_stats, self.peek, self.in_flight = (
            groups.group_stats,
            groups.peek,
            groups.in_flight,
        )
        self.pause_group, self.reset_group = groups.pause_group, groups.reset_group
        self.delete_group, self.settle_before = groups.delete_group, groups.settle_before
        self.cancel = groups.cancel
        self.end_deliveries, self.is_worked_for = groups.end_deliveries, groups.is_worked_for

    @property
    def host(self) -> Host:
        """Of a broker that keeps what it has."""
        assert self._host is not None, "this broker is one in memory"
        return self._host

    @property
    def auto_create(self) -> bool:
        return self._topic_verbs.auto_create

    @auto_create.setter
    def auto_create(self, allowed: bool) -> None:
        self._topic_verbs.auto_create = allowed

    async def open(self, *, threaded: bool = True) -> None:
        """Recover, and begin to write. In memory there is nothing to do."""
        if self._host is not None:
            await self._host.open(threaded=threaded)
            self._staged.arm()

    def begins_to_lead(self) -> None:
        """Its shard leads from now on: what time brings about is waited for."""
        self._staged.arm()
        for kept in self.host.kept.values():
            kept.limit_producers(self.host.producer_limits)

    # --- publishing

    def publish_nowait(
        self, topic: str, rows: Batch, *, qos: int, auto_create: bool, timeout: float | None = None
    ) -> Receipt | Pending | None:
        found = self._leading.get(topic)
        if found is None or topic in self._being_made:
            if not self.shard.proposer.is_instant:
                self.shard.check_open()
                return None
            found = self._topic_verbs.obtain_now(topic, auto_create)
        return found.publish(rows, qos)

    def may_gather(self, topic: str) -> bool:
        found = self._leading.get(topic)
        return found is not None and found.may_gather()

    def publish_value_nowait(self, topic: str, value: bytes) -> Receipt | Pending | None:
        found = self._leading.get(topic)
        if found is None or topic in self._being_made:
            return None
        return found.publish_value(value)

    def publish_rows_nowait(
        self,
        topic: str,
        values: list[bytes],
        content_type: str | None,
        producer: str,
        sequence: int,
    ) -> Receipt | Placed | Pending | None:
        found = self._leading.get(topic)
        if found is None or topic in self._being_made:
            return None
        return found.publish_rows(values, content_type, producer, sequence)

    async def publish(
        self, topic: str, rows: Batch, *, qos: int, auto_create: bool, timeout: float | None
    ) -> Receipt:
        found = self._leading.get(topic)
        if found is None or topic in self._being_made:
            # The topic is there before whoever had it made goes on: others must not overtake them.
            async with self._making.turn(topic):
                found = await self._topic_verbs.obtain(topic, auto_create)
                receipt = found.publish(rows, qos)
        else:
            receipt = found.publish(rows, qos)
        if receipt is None:
            receipt = await found.line.publish(rows, qos, timeout)
        return await receipt if isinstance(receipt, Pending) else receipt

    def known_options(self, topic: str) -> TopicOptions | None:
        try:
            found = self._leading.get(topic)
        except TypeError:
            raise InvalidRequest(f"a topic name is a str, not {topic!r}") from None
        if found is None:
            found = self._leading.get(f"{topic}/0")
            if found is None:
                return None
        return found.origin.options

    def on_topic_changed(self, callback: Callable[[str, TopicOptions | None], None]) -> None:
        self.shard.on_topic.append(callback)

    # --- readers and feeds

    async def open_reader(self, reading: ReaderOpening) -> LeadingReader:
        name, topic, auto_create = reading.name, reading.topic, reading.auto_create
        if name is None:
            found = await self._topic_verbs.obtain(topic, auto_create)
            if reading.start == "last_per_key":
                return await self._open_state(found, reading)
            await start_is_loaded(found, reading.start)
            return self._topic_verbs.find(found.name).cursors.open(
                None, reading.start, reading.filter
            )
        check_name(name, "reader")
        found = await self._topic_verbs.obtain_for(name, topic, auto_create)
        if isinstance(reading.start, datetime):
            await start_is_loaded(found, reading.start)
            found = await self._topic_verbs.obtain_for(name, topic, auto_create)
        reader = found.cursors.open(name, reading.start, reading.filter)
        if name not in found.state.names:
            try:
                await reader.begin()
            except BaseException:
                await reader.close()
                raise
        return reader

    async def _open_state(self, topic: LeadingTopic, reading: ReaderOpening) -> LeadingReader:
        """A reader that is handed the last message of every key, then what follows."""
        if not topic.compacting.is_on:
            raise InvalidRequest(
                f"start='last_per_key' needs a topic with compact='key', but {topic.base!r} keeps "
                f"all messages: set that first (`flintmq topic edit {topic.base} --compact key`)"
            )
        state, end = await topic.compacting.state()
        self.shard.check_open()
        first = 0
        if topic.partition in reading.resume:
            first, end = reading.resume[topic.partition]
        state.discard_before(first)
        state.remove_range(end, 1 << 62)
        rows = StateRows(state, end)
        found = self._topic_verbs.find(topic.name)
        reader = found.cursors.open(None, rows.next(first), reading.filter)
        reader.state_rows = rows
        return reader

    async def fetch(self, wanted: Fetch) -> Fetched:
        find = self._topic_verbs.find

        def attempt() -> Fetched:  # the topic may be gone meanwhile
            return fetch(find(wanted.topic), wanted)

        return await when_loaded(attempt, find(wanted.topic).log.at_once)

    async def extents(self, topic: str, at: Start | None) -> list[Extent]:
        if at is not None:
            for one in self._topic_verbs.existing_row(topic):
                await start_is_loaded(one, at)
        return [extent(one, at) for one in self._topic_verbs.existing_row(topic)]

    async def objects(self, topic: str, start: int, end: int) -> FarObjects:
        return objects(self._topic_verbs.find(topic), start, end)

    async def wait_beyond(self, offsets: Mapping[str, int], timeout: float | None) -> bool:
        self.shard.check_open()
        return await wait_beyond(self._leading, offsets, self.clock, timeout)

    async def open_feed(
        self, pattern: str, *, capacity: int, overflow: Overflow, filter: Filter | None
    ) -> LiveFeed:
        self.shard.check_open()
        check_pattern(pattern)
        return LiveFeed(pattern, capacity, overflow, self.clock, self.shard.board, filter)

    # --- figures

    def plain_topics(self) -> list[str]:
        return list(self.shard.state.topics)

    def topic_figures(self, name: str) -> TopicFigures | None:
        topic = self._leading.get(name)
        if topic is not None:
            return figures_of(topic)
        state = self.shard.state.topics.get(name)
        return None if state is None else figures_of_state(state)

    def feed_count(self) -> int:
        return len(self.shard.board.open)

    def journal_figures(self) -> JournalFigures | None:
        return None if self._host is None else self._host.figures()

    async def settled(self) -> bool:
        """Wait until nothing is on its way to the disk; whether there was anything to wait for."""
        return self._host is not None and await self._host.settled()

    # --- the end

    async def backup(self, directory: str) -> None:
        if self._host is None:
            raise InvalidRequest("memory:// keeps nothing that could be backed up; file:// does")
        self.shard.check_open()
        await self._host.back_up(directory)

    async def close(self) -> None:
        if self._host is None:
            self.shard.close()
            return
        # Whoever waits for it may leave; the directory is let go only when all is written.
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._host.close())
        await asyncio.shield(self._closing)
