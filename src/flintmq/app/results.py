"""What came of tasks: where it is kept, and how it is waited for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from ..client.client import Client
from ..client.reader import Reader
from ..clock import done_within
from ..errors import Closed, FlintError, PermissionDenied, TopicExists
from ..model import TopicKeywords
from ..observe.logs import event
from ..patterns import check_name
from .task_model import KEPT_SECONDS, RESULTS, TaskOutcome

log = logging.getLogger(__name__)

SLACK_MS = 60_000
"""How far the clocks of a client and of the broker may differ."""
READ_MAX = 1000
AGAIN_SECONDS = 1.0
LOOK_SECONDS = 0.2
"""After this a search looks whether it has come to its end."""

KEPT_BY_KEY: TopicKeywords = {"compact": "key", "retention_age": KEPT_SECONDS}

_outcome = msgspec.json.Decoder(TaskOutcome)


async def ensure_topic(mq: Client, name: str, options: TopicKeywords) -> None:
    """Make a topic that is not there yet. One that is there with other options is left alone."""
    check_name(name)
    with suppress(TopicExists, PermissionDenied):
        await mq.create_topic(name, **options)


def moment(ms: int) -> datetime:
    return datetime.fromtimestamp(max(0, ms) / 1000, UTC)


class Awaited:
    """The outcome of one task, as far as it is known here."""

    __slots__ = ("__weakref__", "final", "id", "is_followed", "latest", "since_ms")

    def __init__(self, task_id: str, since_ms: int | None) -> None:
        self.id, self.since_ms = task_id, since_ms
        """The id, and since when there may be something to find."""
        self.latest: TaskOutcome | None = None
        self.final: asyncio.Future[TaskOutcome] = asyncio.get_running_loop().create_future()
        self.is_followed = False
        """Whether all there was of it, and all that comes, is told here."""

    def tell(self, outcome: TaskOutcome) -> None:
        self.latest = outcome
        if outcome.is_final and not self.final.done():
            self.final.set_result(outcome)


class ResultBook:
    """Writes outcomes, and tells those who wait for them.

    One reader follows the topic for all tasks that are sent from here while it is open. A task that
    was sent before, or by somebody else, is looked for from the time it was sent.
    """

    def __init__(self, mq: Client) -> None:
        self._mq = mq
        self._awaited: WeakValueDictionary[str, Awaited] = WeakValueDictionary()
        self._following: asyncio.Task[None] | None = None
        self._is_open = asyncio.Event()
        self._searches: set[asyncio.Task[None]] = set()
        self._is_made = False

    async def make_topic(self) -> None:
        if not self._is_made:
            await ensure_topic(self._mq, RESULTS, KEPT_BY_KEY)
            self._is_made = True

    # --- writing

    async def put(self, task_id: str, outcome: TaskOutcome, ttl: float) -> None:
        """Keep what is known of a task. What was kept before is superseded."""
        if ttl <= 0:
            return
        await self.make_topic()
        await self._mq.publish(
            RESULTS,
            msgspec.json.encode(outcome),
            key=task_id,
            ttl=ttl,
            content_type="application/json",
        )

    # --- waiting

    def expect(self, task_id: str, since_ms: int | None) -> Awaited:
        """Somebody has this task: remember what comes of it, while they do."""
        known = self._awaited.get(task_id)
        if known is None:
            known = self._awaited[task_id] = Awaited(task_id, since_ms)
        return known

    def expect_new(self, task_id: str, now_ms: int) -> Awaited:
        """The same for a task that is about to be sent for the first time."""
        awaited = self.expect(task_id, now_ms)
        awaited.is_followed = self._is_open.is_set()
        return awaited

    async def wait(self, awaited: Awaited, timeout: float | None) -> TaskOutcome | None:
        """Its outcome; None where there is none in time."""
        return (await self.wait_all([awaited], timeout))[0]

    async def wait_all(
        self, awaited: Iterable[Awaited], timeout: float | None
    ) -> list[TaskOutcome | None]:
        awaited = list(awaited)
        await self._follow_all([one for one in awaited if not one.final.done()])
        all_done = asyncio.create_task(asyncio.wait([one.final for one in awaited]))
        try:
            if timeout is None:
                await all_done
            else:
                await done_within(self._mq.clock, all_done, timeout)
        finally:
            all_done.cancel()
        return [one.final.result() if one.final.done() else None for one in awaited]

    async def look(self, awaited: Awaited) -> TaskOutcome | None:
        """What is known of a task right now."""
        if not awaited.final.done():
            await self.make_topic()
            await self._search(awaited.since_ms, {awaited.id: awaited}, until_end=True)
        return awaited.latest

    async def _follow_all(self, open: list[Awaited]) -> None:
        await self._follow()
        late = {one.id: one for one in open if not one.is_followed}
        if not late:
            return
        times = [one.since_ms for one in late.values()]
        since = None if None in times else min(one for one in times if one is not None)
        for one in late.values():
            one.is_followed = True
        # The reader that follows is open: this one has to come to where it began, and no further.
        search = asyncio.create_task(self._search_again(since, late))
        self._searches.add(search)
        search.add_done_callback(self._searches.discard)

    async def _search_again(self, since_ms: int | None, wanted: dict[str, Awaited]) -> None:
        while True:
            try:
                return await self._search(since_ms, wanted, until_end=True)
            except Closed:
                return None
            except FlintError as error:
                self._say_failed(error)
                await asyncio.sleep(AGAIN_SECONDS)

    async def _search(
        self, since_ms: int | None, wanted: dict[str, Awaited], *, until_end: bool
    ) -> None:
        """Read what there is of these tasks."""
        start: Any = "earliest" if since_ms is None else moment(since_ms - SLACK_MS)
        end = (await self._mq.topic_stats(RESULTS)).next_offset
        filter = f"key == {next(iter(wanted))!r}" if len(wanted) == 1 else None
        async with self._mq.reader(RESULTS, start=start, filter=filter) as reader:
            while await reader.position() < end:
                self._tell(await reader.read_batch(READ_MAX, timeout=LOOK_SECONDS), wanted)

    def _tell(self, rows: Any, wanted: Any) -> None:
        for message in rows:
            awaited = wanted.get(message.key)
            if awaited is not None:
                with suppress(msgspec.DecodeError):
                    awaited.tell(_outcome.decode(message.unpacked()))

    # --- following

    async def _follow(self) -> None:
        if self._following is None:
            await self.make_topic()
            self._following = asyncio.create_task(self._keep_following())
        if not self._is_open.is_set():
            await self._is_open.wait()

    async def _keep_following(self) -> None:
        start: Any = "latest"
        while True:
            try:
                async with self._mq.reader(RESULTS, start=start) as reader:
                    self._is_open.set()
                    start = await self._read(reader)
            except Closed:
                return
            except FlintError as error:
                self._say_failed(error)
                start = moment(self._mq.clock.now_ms() - SLACK_MS)
                await asyncio.sleep(AGAIN_SECONDS)

    async def _read(self, reader: Reader) -> Any:
        while True:
            self._tell(await reader.read_batch(READ_MAX), self._awaited)

    def _say_failed(self, error: FlintError) -> None:
        event(
            log,
            logging.WARNING,
            "results_unread",
            f"results of tasks cannot be read: {error}; trying again",
        )

    async def close(self) -> None:
        tasks = [*self._searches, *([self._following] if self._following else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
