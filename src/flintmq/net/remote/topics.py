"""What a client knows of a broker's topics and of its time."""

from __future__ import annotations

import msgspec

from ...batch import EXPIRY
from ...clock import Clock
from ...model import TopicOptions
from ...rows import Decoder, Origin, Run
from ..wire.operations import KnownTopic, OpenedReply

ORIGINS_MAX = 10_000


class KnownTopics:
    def __init__(self, clock: Clock, decoder: Decoder | None) -> None:
        self._clock, self._decoder = clock, decoder
        self.by_name: dict[str, KnownTopic] = {}
        """Topics that are not like any other for those who publish or read there."""
        self.options: dict[str, TopicOptions] = {}
        self.has_ttl = False
        self._origins: dict[tuple[str, int], Origin] = {}
        self._their_ms, self._met_at = 0, 0.0

    def opened(self, opened: OpenedReply) -> None:
        self._their_ms, self._met_at = opened.now_ms, self._clock.monotonic()
        known = {topic.name for topic in opened.topics}
        for name in [name for name in self.by_name if name not in known]:
            self.learn(KnownTopic(name, None))
        for topic in opened.topics:
            self.learn(topic)

    def learn(self, topic: KnownTopic) -> None:
        name = topic.name
        if topic == self.by_name.get(name):
            return
        self._origins.clear()
        self.options.pop(name, None)
        if topic.options is None and not topic.careful and topic.ttl_ms is None:
            self.by_name.pop(name, None)
        else:
            self.by_name[name] = topic
            if topic.options is not None:
                self.options[name] = msgspec.convert(topic.options, TopicOptions)
        self.has_ttl = any(known.ttl_ms is not None for known in self.by_name.values())

    def is_careful(self, topic: str) -> bool:
        """Whether publishing there may have to wait, or be refused for want of room."""
        if not self.by_name:
            return False
        known = self.by_name.get(topic.partition("/")[0])
        return known is not None and known.careful

    def origin(self, topic: str, partition: int) -> Origin:
        found = self._origins.get((topic, partition))
        if found is None:
            found = Origin(topic, partition, self._decoder, self.options.get(topic))
            if len(self._origins) > ORIGINS_MAX:
                self._origins.clear()
            self._origins[topic, partition] = found
        return found

    def alive(self, run: Run) -> Run | None:
        """What of a run that was held here has not expired meanwhile."""
        source = run.source
        known = self.by_name.get(run.origin.topic) if self.has_ttl else None
        ttl_ms = None if known is None else known.ttl_ms
        if not source.columns & EXPIRY and ttl_ms is None:
            return run
        now_ms = self._broker_ms()
        rows = run.rows()
        picks = [row for row in rows if _end_of_life(run, row, ttl_ms) > now_ms]
        if len(picks) == len(rows):
            return run
        return run._replace(picks=picks) if picks else None

    def _broker_ms(self) -> int:
        """The broker's time, late by the time its word took to us. One that does not tell it is
        believed to have ours."""
        if not self._their_ms:
            return self._clock.now_ms()
        return self._their_ms + round((self._clock.monotonic() - self._met_at) * 1000)


def _end_of_life(run: Run, row: int, ttl_ms: int | None) -> float:
    expiry = run.source.expiry(row)
    if expiry:
        return expiry
    return float("inf") if ttl_ms is None else run.source.time(row) + ttl_ms
