"""The broker's figures over the last hour: a ring of samples in memory, and a row for each topic.

A sample is a walk over all topics and groups, a little at a time, within what HTTP may take of the
event loop. Nobody looking, there is one each RING_SECONDS; while a console is open they come more
often. However many topics there are, walks take no more than a fiftieth of the time.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from ....engine.dead_letters import REDRIVE, dead_letter_name
from ....engine.figures import GroupFigures, Measured, TopicFigures
from ....observe.metrics import Histogram
from ..collectors import resident_bytes, topic_figures, whole_topic
from ..state import HttpState
from ..turnstile import Turnstile
from .models import GroupRow, Sample, TopicRow

RING_SECONDS = 10.0
SAMPLES_MAX = 360
WATCHED_SECONDS = 2.0
"""How often while a console is open."""
COST_FACTOR = 50
"""So many times as long as a walk took, there is none."""
SLOTS = 30
"""Of a topic's trail, RING_SECONDS each."""
STEP_TOPICS = 16

Watcher = Callable[[Sample], None]


class Trail:
    """What was counted of a topic or group the last time."""

    __slots__ = ("delivered", "next_offset", "slot", "slots")

    def __init__(self, next_offset: int, delivered: int) -> None:
        self.next_offset, self.delivered = next_offset, delivered
        self.slot = 0
        self.slots: list[int] = []

    def add(self, slot: int, count: int) -> list[int]:
        """Count into the newest slot; what the slots hold. Those that were never used take no
        memory."""
        if not self.slots:
            if not count:
                return []
            self.slots = [0] * SLOTS
        elif slot > self.slot:
            passed = min(SLOTS, slot - self.slot)
            self.slots = self.slots[passed:] + [0] * passed
        self.slot = slot
        self.slots[-1] += count
        if not any(self.slots):
            self.slots = []
        return list(self.slots)


class Walked:
    """What one walk has found."""

    def __init__(self) -> None:
        self.topics: list[TopicRow] = []
        self.groups: list[GroupRow] = []
        self.trails: dict[tuple[str, str], Trail] = {}
        self.waiting: dict[str, int] = {}
        """Dead letters by the topic that they wait in."""
        self.published = self.published_bytes = self.delivered = 0
        self.messages = self.bytes = self.lag = self.in_flight = 0
        self.is_led = True


class Sampler:
    def __init__(self, state: HttpState) -> None:
        self._state = state
        self._turnstile: Turnstile | None = None
        self.samples: deque[Sample] = deque(maxlen=SAMPLES_MAX)
        self.topics: list[TopicRow] = []
        self.groups: list[GroupRow] = []
        self.newest: Sample | None = None
        self._trails: dict[tuple[str, str], Trail] = {}
        self._totals = (0.0, 0)
        """When the last walk was, and the bytes that were published until then."""
        self._counts: dict[str, list[int]] = {}
        self._kept_at = float("-inf")
        self._cost = 0.0
        self._disk: tuple[int, int] | None = None
        self._watchers: dict[Watcher, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._walking: asyncio.Task[Sample] | None = None
        self._is_closed = False
        state.starters.append(self.start)
        state.closers.append(self.close)

    # --- when

    def start(self, turnstile: Turnstile) -> None:
        self._turnstile = turnstile
        self._arm()

    def watch(self, watcher: Watcher) -> None:
        """Tell of every sample, and take them more often."""
        self._watchers[watcher] = None
        self._arm()

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.pop(watcher, None)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._turnstile is None or self._is_closed:
            return
        usual = WATCHED_SECONDS if self._watchers else RING_SECONDS
        wait = max(usual, COST_FACTOR * self._cost)
        self._timer = asyncio.get_running_loop().call_later(wait, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self._state.can_be_asked():
            self._begin()
        else:
            self._arm()  # the broker recovers

    async def fresh(self, seconds: float = WATCHED_SECONDS) -> Sample:
        """The newest sample, taken now if that is older. Who asks at the same time shares it."""
        age = float("inf") if self.newest is None else time.time() - self.newest.at
        if self.newest is not None and age < max(seconds, COST_FACTOR * self._cost):
            return self.newest
        return await asyncio.shield(self._begin())

    def _begin(self) -> asyncio.Task[Sample]:
        if self._walking is None:
            walk, turnstile = self._walk(), self._turnstile

            async def metered() -> Sample:
                return await (walk if turnstile is None else turnstile.metered(walk))

            self._walking = asyncio.get_running_loop().create_task(metered())
            self._walking.add_done_callback(self._ended)
        return self._walking

    def _ended(self, task: asyncio.Task[Sample]) -> None:
        self._walking = None
        if not task.cancelled() and task.exception() is None:
            for watcher in list(self._watchers):
                watcher(task.result())
        self._arm()

    async def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._walking is not None:
            self._walking.cancel()
            await asyncio.wait((self._walking,))

    def last_event(self) -> int:
        return 0 if self._state.events is None else self._state.events.last_number

    # --- a walk

    async def _walk(self) -> Sample:
        await self._look_at_disk()
        now = time.time()
        spent = 0.0 if self._turnstile is None else self._turnstile.budget.spent_seconds
        walked = Walked()
        measured = self._measured()
        if measured is not None:
            await self._walk_topics(measured, walked, int(now // RING_SECONDS))
        await self._credit_dead_letters(walked)
        sample = self._sample(walked, measured, now)
        self._trails, self.newest = walked.trails, sample
        self.topics, self.groups = walked.topics, walked.groups
        if now >= self._kept_at + RING_SECONDS - 0.5:
            self._kept_at = now
            self.samples.append(sample)
        if (
            self._turnstile is not None
        ):  # with what others spent meanwhile: that is on the safe side
            self._cost = self._turnstile.budget.spent_seconds - spent
        return sample

    def _measured(self) -> Measured | None:
        broker = self._state.broker
        return broker if isinstance(broker, Measured) else None

    async def _walk_topics(self, broker: Measured, walked: Walked, slot: int) -> None:
        read = 0
        for base, is_partitioned, figures in topic_figures(broker):
            partitions = 0
            if is_partitioned:
                summing = whole_topic(broker, base, figures)
                while True:
                    try:
                        next(summing)
                    except StopIteration as end:
                        figures = end.value
                        break
                    partitions += 1
                    await self._breathe()
            self._add(walked, base, figures, partitions, slot)
            read += 1 + len(figures.groups)
            if read >= STEP_TOPICS:
                read = 0
                await self._breathe()

    async def _credit_dead_letters(self, walked: Walked) -> None:
        """Say of each group how many letters wait in the topic that is its own; so of topics."""
        waiting = walked.waiting
        if not any(waiting.values()):
            return
        by_topic: dict[str, int] = {}
        for number, group in enumerate(walked.groups):
            group.dead_letters = waiting.get(dead_letter_name(group.topic, group.name), 0)
            if group.dead_letters:
                by_topic[group.topic] = by_topic.get(group.topic, 0) + group.dead_letters
            if not number % STEP_TOPICS:
                await self._breathe()
        for number, topic in enumerate(walked.topics):
            topic.dead_letters = by_topic.get(topic.name, 0) or waiting.get(topic.name, 0)
            if not number % STEP_TOPICS:
                await self._breathe()

    async def _breathe(self) -> None:
        if self._turnstile is not None:
            await self._turnstile.breathe()

    def _add(
        self, walked: Walked, name: str, figures: TopicFigures, partitions: int, slot: int
    ) -> None:
        trail, published, delivered = self._trail(
            walked, name, "", figures.next_offset, figures.delivered
        )
        walked.published += published
        walked.delivered += delivered
        walked.published_bytes += figures.published_bytes
        walked.messages += figures.messages
        walked.bytes += figures.bytes
        walked.is_led = walked.is_led and figures.is_led
        elapsed = self._elapsed
        lag = count = 0
        for group in figures.groups:
            if group.name == REDRIVE:
                walked.waiting[name] = group.lag
                continue
            if group.name.startswith("*"):  # a reader without a name
                continue
            count += 1
            lag += group.lag
            walked.lag += group.lag
            walked.in_flight += group.in_flight
            walked.groups.append(self._group_row(walked, name, group, figures))
        walked.topics.append(
            TopicRow(
                name=name,
                messages=figures.messages,
                bytes=figures.bytes,
                published=round(published / elapsed, 1),
                delivered=round(delivered / elapsed, 1) if figures.is_led else None,
                lag=lag,
                dead_letters=0,
                groups=count,
                partitions=partitions,
                trail=trail.add(slot, published),
            )
        )

    def _group_row(
        self, walked: Walked, topic: str, group: GroupFigures, figures: TopicFigures
    ) -> GroupRow:
        is_led, is_reader = figures.is_led, group.kind == "cursor"
        if is_reader:
            delivered = self._advanced(walked, topic, group.name, figures.next_offset - group.lag)
        else:
            _, _, delivered = self._trail(walked, topic, group.name, 0, group.delivered)
        return GroupRow(
            topic=topic,
            name=group.name,
            kind=group.kind,
            lag=group.lag,
            in_flight=group.in_flight if is_led else None,
            delayed=group.delayed if is_led else None,
            members=group.members if is_led else None,
            is_paused=bool(group.paused),
            oldest_age=round(group.oldest_age, 1) if is_led else None,
            delivered=round(delivered / self._elapsed, 1) if is_led or is_reader else None,
            dead_letters=0,
        )

    def _trail(
        self, walked: Walked, topic: str, group: str, next_offset: int, delivered: int
    ) -> tuple[Trail, int, int]:
        """The trail of a topic or group, and what was published and delivered since the last walk.

        The first walk knows no rates; what is there later for the first time is new.
        """
        trail = self._trails.get((topic, group))
        if trail is None:
            is_first = not self._totals[0]
            trail = Trail(next_offset if is_first else 0, delivered if is_first else 0)
        elif next_offset < trail.next_offset:
            trail = Trail(0, 0)  # made anew under the name
        elif delivered < trail.delivered:
            trail.delivered = 0  # that too, or it is another node that counts now
        more = next_offset - trail.next_offset, delivered - trail.delivered
        trail.next_offset, trail.delivered = next_offset, delivered
        walked.trails[topic, group] = trail
        return (trail, *more)

    def _advanced(self, walked: Walked, topic: str, reader: str, position: int) -> int:
        """How far a reader is beyond where it was. What each was given is not counted."""
        trail = self._trails.get((topic, reader)) or Trail(0, position)
        before, trail.delivered = trail.delivered, position
        walked.trails[topic, reader] = trail
        return max(0, position - before)  # it may have gone back

    @property
    def _elapsed(self) -> float:
        return max(0.1, time.time() - self._totals[0]) if self._totals[0] else 1.0

    # --- sums

    def _sample(self, walked: Walked, measured: Measured | None, now: float) -> Sample:
        state, elapsed = self._state, self._elapsed
        bytes_before = self._totals[1]
        is_first = not self._totals[0]
        more_bytes = 0 if is_first else max(0, walked.published_bytes - bytes_before)
        self._totals = (now, walked.published_bytes)
        native = state.native
        journal = None if measured is None else measured.journal_figures()
        turns = state.turns if state.turns is not None and state.turns.is_measuring else None
        return Sample(
            at=now,
            topics=len(walked.topics),
            groups=len(walked.groups),
            messages=walked.messages,
            bytes=walked.bytes,
            published=round(walked.published / elapsed, 2),
            published_bytes=round(more_bytes / elapsed, 1) if walked.is_led else None,
            delivered=round(walked.delivered / elapsed, 2) if walked.is_led else None,
            lag=walked.lag,
            in_flight=walked.in_flight if walked.is_led else None,
            dead_letters=sum(walked.waiting.values()),
            connections=0 if native is None else len(native.connections),
            loop_seconds=self._slow("loop", None if turns is None else turns.seconds),
            sync_seconds=self._slow("sync", None if journal is None else journal.sync_seconds),
            memory=resident_bytes(),
            disk_free=None if self._disk is None else self._disk[0],
            disk_size=None if self._disk is None else self._disk[1],
        )

    def _slow(self, what: str, histogram: Histogram | None) -> float | None:
        """What 99 of 100 since the last sample took at most, as far as the bounds tell."""
        if histogram is None:
            return None
        counts = list(histogram.counts)
        before = self._counts.get(what) or [0] * len(counts)
        self._counts[what] = counts
        return percentile(
            [now - then for now, then in zip(counts, before, strict=True)], histogram.bounds
        )

    async def _look_at_disk(self) -> None:
        """In a thread: a disk that hangs must not hold up the loop."""
        if self._state.data_dir is not None:
            self._disk = await asyncio.to_thread(_room, self._state.data_dir)


def percentile(counts: Sequence[int], bounds: Sequence[float], share: float = 0.99) -> float | None:
    """The bound below which that share of the observations is; None where there are none."""
    wanted, seen = sum(counts) * share, 0
    if not wanted:
        return None
    for bound, count in zip(bounds, counts, strict=False):
        seen += count
        if seen >= wanted:
            return bound
    return bounds[-1]


def _room(place: Path) -> tuple[int, int] | None:
    try:
        found = shutil.disk_usage(place)
    except OSError:
        return None
    return found.free, found.total
