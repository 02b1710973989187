"""A shard: what is applied, what is decided beyond it, and who leads, over the log of its group.

    closed ---- open ----> following ---- take_lead ----> leading ---- give_up_lead ----> following

Following, it applies what its log brings, and refuses every verb. Topics in memory belong to who
leads: their changes go over an instant log, and they are empty when somebody else begins to lead.
Making, changing and deleting any topic goes over the log of the group.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from ..clock import Clock
from ..errors import (
    BrokerFailed,
    Closed,
    FlintError,
    InvalidRequest,
    NotLeader,
    StorageFailed,
    TopicDeleted,
)
from ..model import TopicOptions
from ..observe.logs import event
from ..patterns import is_literal
from ..rows import Decoder
from .command_log import InstantLog
from .commands import Command
from .leading.feeds import FeedBoard
from .leading.topic import LeadingTopic, ShardContext
from .proposer import Done, Proposer, wait_for
from .state.shard import ShardState
from .state.staging import Staging
from .state.topic import TopicState
from .waiting import again

_log = logging.getLogger(__name__)


def _refuse(*_: object) -> Awaitable[None]:
    raise AssertionError("a shard of its own has no verbs")


async def at_once() -> None:
    """Do not let others go on meanwhile."""


class Shard:
    def __init__(
        self,
        state: ShardState,
        clock: Clock,
        defaults: TopicOptions,
        decoder: Decoder | None = None,
        *,
        refusal: FlintError | None = None,
    ) -> None:
        """`refusal` is what its verbs raise until somebody leads."""
        self.state, self.clock, self.defaults = state, clock, defaults
        self.instant = Proposer(InstantLog(), state.apply, "memory", self.fault)
        self.proposer = self.instant
        """Over the log of the group. A broker that keeps nothing has an instant one."""
        self.topics: dict[str, LeadingTopic] = {}
        self.by_id: dict[int, LeadingTopic] = {}
        self.staging: Staging = state.staging
        """What is staged, with what is on its way."""
        self.board = FeedBoard(self.guarded)
        self.around = ShardContext(
            clock, self.board, decoder, self.guarded, _refuse, lambda group: None
        )
        self.on_topic: list[Callable[[str, TopicOptions | None], None]] = []
        """Told of topics that are made or changed, and deleted (None)."""
        self.on_end: list[Callable[[], None]] = []
        """Told when nobody leads any more: timers of the verbs end."""
        self.on_fault: Callable[[FlintError], None] | None = None
        self.check_tier: Callable[[str], None] = lambda url: None
        """Raises where topics may not have their objects there."""
        self.refusal = refusal
        self.failure: FlintError | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changing = asyncio.Lock()
        self._last_change: Done = None

    # --- leading

    async def take_lead(
        self,
        *,
        reclaim_seconds: float = 0.0,
        step_aside: Callable[[], Awaitable[None]] = at_once,
    ) -> None:
        """Begin to decide, with what is applied."""
        await self.proposer.wait_applied()
        last_term = max(self.term, self.state.epoch)
        self.proposer.begin_term(self.state.epoch)
        self.state.observer = self
        for topic in list(self.state.by_id.values()):
            self._lead(topic).take_up(reclaim_seconds, last_term)
            await step_aside()
        self.staging = self.state.staging
        if not self.proposer.is_instant:
            self.staging = self.staging.copy()
        self.refusal = None

    def give_up_lead(self) -> None:
        """Another leads, or nobody: everybody who is here hears NotLeader. What was gathered is
        surely not done; what was proposed waits for its fate."""
        self.end(NotLeader(0, 0))
        self.state.follow()

    def close(self) -> None:
        if not isinstance(self.refusal, Closed):
            self.end(Closed("the broker"))

    def end(self, error: FlintError) -> None:
        """Everybody who is here hears `error`, and so does everybody who comes."""
        self.refusal = error
        self.proposer.give_up(error)
        for tell in self.on_end:
            tell()
        for feed in list(self.board.open):
            feed.end(error)
        for topic in self.topics.values():
            topic.end(error)
        self.topics.clear()
        self.by_id.clear()
        self.state.observer = None

    def check_open(self) -> None:
        if self.refusal is not None:
            raise again(self.refusal)
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

    @property
    def term(self) -> int:
        """Under which this shard leads, or led."""
        return self.proposer.log.term

    async def wait_term(self) -> int:
        """The term, once it is durable. Lease tokens begin with it: nobody who led before has used
        it, and nobody who leads later will."""
        self.check_open()
        await self.proposer.wait_term()
        self.check_open()
        return self.term

    # --- changes of topics

    @asynccontextmanager
    async def deciding(self) -> AsyncIterator[None]:
        """One change at a time is decided, each knowing the outcome of the one before, also if
        whoever asked for that did not wait for it."""
        async with self._changing:
            if self._last_change is not None and not self._last_change.done():
                await asyncio.wait([self._last_change])
            yield

    async def change(self, command: Command) -> None:
        """Carry out what was decided, alone."""
        self._last_change = self.proposer.change(command)
        await wait_for(self._last_change)
        self.check_open()

    def proposer_of(self, options: TopicOptions) -> Proposer:
        return self.instant if options.storage == "memory" else self.proposer

    # --- what was applied

    def _lead(self, state: TopicState) -> LeadingTopic:
        topic = LeadingTopic(state, self.proposer_of(state.options), self.around)
        self.topics[state.name] = self.by_id[state.id] = topic
        self._share_bucket(topic)
        return topic

    def _share_bucket(self, topic: LeadingTopic) -> None:
        """The partitions of a topic have one rate limit together."""
        first = self.topics.get(f"{topic.base}/0")
        if first is not None and topic.options.partitions is not None:
            topic.bucket = first.bucket

    def topic_made(self, topic: TopicState) -> None:
        self._lead(topic)
        self._tell_of(topic.name, topic.options)

    def topic_configured(self, topic: TopicState) -> None:
        self._share_bucket(self.by_id[topic.id])
        self._tell_of(topic.name, topic.options)

    def topics_gone(self, topics: list[TopicState]) -> None:
        gone = [self.by_id.pop(topic.id) for topic in topics]
        base = gone[0].base
        for topic in gone:
            del self.topics[topic.name]
        for feed in gone[0].feeds:
            if is_literal(feed.pattern):
                feed.end(TopicDeleted(base))
        for topic in gone:
            topic.intake.propose_gathered()  # it was let in before: it was in the old topic
            topic.end(TopicDeleted(base))
        self._tell_of(base, None)

    def _tell_of(self, name: str, options: TopicOptions | None) -> None:
        base, _, partition = name.partition("/")
        if partition in ("", "0"):
            for listener in self.on_topic:
                listener(base, options)

    # --- faults

    def guarded(self, callback: Callable[[], object]) -> Callable[[], None]:
        """For timers and what else nobody waits for: a fault there stops the broker. Else it would
        go on without what the timer was for, and nobody would know."""

        def guarded() -> None:
            try:
                callback()
            except Exception as error:
                name = getattr(callback, "__qualname__", type(callback).__name__)
                self.fault(f"running the timer {name}", error)

        return guarded

    def fault(self, where: str, error: Exception) -> None:
        """Stop: what is in memory can no longer be trusted. Everybody is told, now and later."""
        if self.failure is not None:
            return
        failure: FlintError
        if isinstance(error, StorageFailed | BrokerFailed):
            failure = error
        else:  # also one of ours: nobody asked for anything, so nobody can be blamed
            failure = BrokerFailed(where, f"{type(error).__name__}: {error}")
            failure.__cause__ = error
        self.failure = failure
        event(
            _log,
            logging.ERROR,
            "broker_failed",
            f"internal error while {where}: the broker stops",
            exc_info=error,
            where=where,
        )
        self.proposer.fail(failure)
        self.end(failure)
        if self.on_fault is not None:
            self.on_fault(failure)
