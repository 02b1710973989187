"""The broker in memory: topics by name, live feeds by pattern. Implements BrokerApi.

It belongs to one event loop. Nothing here polls: what time brings about has a timer of its own.
"""

from __future__ import annotations

from typing import Any

from ..batch import BatchBuilder, DecodeCache, RecordBatch
from ..broker_api import Filter
from ..clock import Clock, SystemClock
from ..errors import Closed, InvalidRequest, TopicDeleted, TopicExists, TopicNotFound
from ..model import (
    Overflow,
    Receipt,
    Start,
    TopicInfo,
    TopicOptions,
    TopicStats,
    changed_options,
)
from ..patterns import check_name, check_pattern, is_literal, matches
from .feeds import Feed, FeedBoard
from .readers import Reader
from .topic import Topic

DECODE_CACHE_BYTES = 16 * 1024 * 1024


class Broker:
    def __init__(self, clock: Clock | None = None) -> None:
        self.clock: Clock = clock or SystemClock()
        self._topics: dict[str, Topic] = {}
        self._last_topic_id = 0
        self._board = FeedBoard()
        self._cache = DecodeCache(DECODE_CACHE_BYTES)
        self._closed = False

    # --- publishing

    def publish_nowait(
        self, topic: str, rows: BatchBuilder | RecordBatch, *, qos: int, auto_create: bool
    ) -> Receipt | None:
        found = self._topics.get(topic) or self._topic(topic, auto_create)
        return found.publish(rows, qos)

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
        return receipt

    # --- topics

    async def create_topic(self, name: str, options: dict[str, Any]) -> TopicInfo:
        self._check_open()
        check_name(name)
        wanted = self._options(TopicOptions(), options)
        topic = self._topics.get(name)
        if topic is None:
            return self._create(name, wanted).info()
        differing = {
            option: (getattr(topic.options, option), getattr(wanted, option))
            for option in options
            if getattr(topic.options, option) != getattr(wanted, option)
        }
        if differing:
            raise TopicExists(name, differing)
        return topic.info()

    async def configure_topic(self, name: str, options: dict[str, Any]) -> TopicInfo:
        topic = self._topic(name, auto_create=False)
        topic.configure(self._options(topic.options, options))
        return topic.info()

    async def delete_topic(self, name: str) -> None:
        topic = self._topic(name, auto_create=False)
        del self._topics[name]
        for feed in topic.feeds:
            if is_literal(feed.pattern):
                feed.end(TopicDeleted(name))
        topic.end(TopicDeleted(name))

    async def topics(self, pattern: str) -> list[str]:
        self._check_open()
        check_pattern(pattern)
        return sorted(name for name in self._topics if matches(pattern, name))

    async def topic_info(self, name: str) -> TopicInfo:
        return self._topic(name, auto_create=False).info()

    async def topic_stats(self, name: str) -> TopicStats:
        return self._topic(name, auto_create=False).stats()

    def _topic(self, name: str, auto_create: bool) -> Topic:
        self._check_open()
        topic = self._topics.get(name)
        if topic is None:
            check_name(name)
            if not auto_create:
                raise TopicNotFound(name)
            topic = self._create(name, TopicOptions())
        return topic

    def _create(self, name: str, options: TopicOptions) -> Topic:
        self._last_topic_id += 1
        topic = Topic(
            name,
            self._last_topic_id,
            options,
            clock=self.clock,
            cache=self._cache,
            board=self._board,
        )
        self._topics[name] = topic
        return topic

    def _options(self, options: TopicOptions, changes: dict[str, Any]) -> TopicOptions:
        wanted = changed_options(options, changes)
        if wanted.storage != "memory":
            raise InvalidRequest("storage='durable' needs a durable broker; this one is memory://")
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

    async def open_feed(self, pattern: str, *, capacity: int, overflow: Overflow) -> Feed:
        self._check_open()
        check_pattern(pattern)
        return Feed(pattern, capacity, overflow, self.clock, self._board)

    # --- the end

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        error = Closed("the broker")
        for feed in list(self._board.open):
            feed.end(error)
        for topic in self._topics.values():
            topic.end(error)
        self._topics.clear()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the broker")
