"""A subscription: messages of a group as they come, each under a lease until it is settled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from threading import Thread
from typing import Any, Unpack, cast

from ..clock import done_within
from ..errors import InvalidRequest
from ..group_model import TAKE_MAX
from ..observe.logs import event
from .consuming import Consumer
from .context import ClientContext, Closer
from .delivery import Deliveries, Delivery, Process
from .grips import log
from .intake import MessageIntake
from .keywords import DEFAULTS, RunKeywords, takes
from .membership import GroupMembership
from .retrying import Retrying
from .sigterm import on_sigterm
from .take_ahead import TakeAhead

PREFETCH = 16
"""Default maximum of unsettled messages per subscription."""

LEASE_MAX_SECONDS = 3600.0
"""Default time for which a subscription renews the leases of a message."""

GRACE_SECONDS = 8.0
"""How long work on messages may go on once a subscription is closed: within the ten seconds that
container runtimes wait before they kill."""

Handler = Callable[[Delivery], Awaitable[object]] | Callable[[Delivery], object]
"""An async function of a message, or a plain one, which runs in a thread."""

CANCEL_SECONDS = 1.0
"""How long a loop that was cancelled may take to give back its message."""

HandlerCall = Callable[[Delivery], Awaitable[object]]


class Subscription(Consumer[MessageIntake, Delivery, Deliveries]):
    """Created by `Client.subscribe`. Open it with `async with`, iterate over it, settle each
    message.

    It prefetches up to `prefetch` messages and renews their leases until they are settled, for at
    most `lease_max` seconds each. When `prefetch` messages are unsettled, reading blocks until you
    settle some.

    Closing it takes no new messages and returns prefetched ones at once. Handlers and other tasks
    that read from it have `grace` seconds to finish; then unsettled messages return to the group.
    SIGTERM does the same, in a program that does not handle the signal itself.
    """

    def __init__(
        self,
        context: ClientContext,
        membership: GroupMembership,
        *,
        lease: float,
        lease_max: float,
        prefetch: int | None,
        grace: float,
        auto: bool,
    ) -> None:
        self.topic, self.group = membership.topic, membership.group
        super().__init__(context, f"subscription of {self.group!r} to {self.topic!r}")
        self._membership = membership
        self._lease, self._lease_max = lease, lease_max
        self._prefetch = prefetch
        self._prefetch_max = 0
        """More is taken ahead, up to so many, while messages are settled quickly."""
        self._grace = grace
        self._auto = auto
        self._in_turn = True
        """Whether messages may be worked on one after the other."""
        self._reading_threads: dict[int, Thread] = {}
        """Of a blocking subscription: the threads that read from it, by their numbers, which are
        used again once a thread has ended; and those of handlers."""
        self._handler_threads: set[Thread] = set()
        self._draining: asyncio.Task[None] | None = None
        self._forget_sigterm: Callable[[], None] | None = None
        self._workers: set[asyncio.Task[Any]] = set()
        self._is_closed_by_handler = False
        """By one in a thread, which waits for the closing: then closing does not wait for it."""

    async def _open(self) -> MessageIntake:
        intake = await self._take_in(self._prefetch or PREFETCH)
        if not self._closed:  # meanwhile
            loop = asyncio.get_running_loop()

            def heard() -> bool:
                if not loop.is_closed():
                    loop.call_soon_threadsafe(self._end_soon)
                return not loop.is_closed()

            self._forget_sigterm = on_sigterm(heard, self._grace)
        return intake

    def _end_soon(self) -> None:
        """The process was asked to end."""
        if self._draining is not None:
            return
        event(
            log,
            logging.INFO,
            "draining",
            f"SIGTERM: the {self._what} takes no new messages; running handlers have "
            f"{self._grace:g} seconds",
            topic=self.topic,
            group=self.group,
        )
        self._drain_once(is_worked_on=True, is_the_end=True)

    async def _take_in(self, prefetch: int) -> MessageIntake:
        membership = self._membership
        partitions = membership.partitions()
        intake = MessageIntake(
            self._clock,
            self.group,
            lease=self._lease,
            lease_max=self._lease_max,
            window=TakeAhead(self._clock, prefetch, self._prefetch_max),
            auto=self._auto,
            join=membership.join,
            count=None if partitions is None else membership.partition_count,
            settler=self._context.settler,
            tracing=self._context.tracing,
            in_turn=self._in_turn,
        )
        await intake.open(range(partitions or 1))
        return intake

    def read_batch_nowait(self, max: int = 1000) -> Deliveries:
        """Up to `max` messages that were taken ahead. Not with ack="auto", which has to wait."""
        self._check_manual()
        return super().read_batch_nowait(max)

    def _no_rows(self) -> Deliveries:
        return Deliveries()

    def _check_manual(self) -> None:
        if self._auto:
            raise InvalidRequest(
                "with ack='auto' a message is settled before delivery, which needs to "
                "wait: use read or read_batch"
            )

    # --- the handler form

    @takes(RunKeywords)
    async def run(self, handler: Handler, **said: Unpack[RunKeywords]) -> None:
        """Call `handler` for each message, up to `concurrency` at the same time, until it is
        closed.

        The handler is an async function of a message, or a plain function, which runs in a thread.
        Each message is settled as by `message.process(retries, backoff, ...)`: acknowledged on
        return; after an exception, it is delivered again later and finally becomes a dead letter.
        An exception never ends the run. Cancelling it cancels async handlers and returns their
        messages; plain functions cannot be stopped and are waited for. If the subscription is not
        open, it is opened for the run.
        """
        concurrency, retrying = run_options(said)
        if not callable(handler):
            raise InvalidRequest(
                f"a handler must be a function that takes a message, not {handler!r}"
            )
        if _is_async(handler):
            await self._run(cast(HandlerCall, handler), concurrency, retrying)
            return
        pool = ThreadPoolExecutor(concurrency, thread_name_prefix="flintmq-handler")
        try:
            await self._run(in_threads(pool, handler), concurrency, retrying)
        finally:
            pool.shutdown(wait=False)

    async def _run(self, call: HandlerCall, concurrency: int, retrying: Retrying) -> None:
        if self._prefetch is None:
            self._prefetch = max(PREFETCH, min(2 * concurrency, TAKE_MAX))
        self._in_turn = concurrency == 1
        was_open = self._opened is not None
        await self
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(concurrency):
                    worker = group.create_task(self._work(call, retrying))
                    self._workers.add(worker)
                    worker.add_done_callback(self._workers.discard)
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        except asyncio.CancelledError:
            if not was_open or self._draining is not None:
                await self._leave(None)  # at once: who cancels does not wait for anybody
            was_open = True
            raise
        finally:
            if not was_open:
                await self.close()

    async def _work(self, call: HandlerCall, retrying: Retrying) -> None:
        task = asyncio.current_task()
        assert task is not None
        async for message in self:
            async with Process(message, retrying):
                await call(message)
            if task.cancelling():  # while a plain handler ran, which could not be stopped
                raise asyncio.CancelledError

    async def close(self) -> None:
        """Take no new messages, wait up to `grace` seconds for work in other tasks, and leave the
        group. Then handlers are cancelled (plain functions cannot be, and are waited for) and
        unsettled messages return to the group. Iterators end. Closing twice is fine.
        """
        await self._close_for(asyncio.current_task())

    async def _close_for(self, closer: Closer) -> None:
        if closer in self._workers or closer in self._handler_threads:
            # A handler that waited for itself would wait in vain.
            self._is_closed_by_handler = closer in self._handler_threads
            await self._leave(closer)
        else:
            await asyncio.shield(self._drain_once(is_worked_on=self._is_read_by_others(closer)))

    def _is_read_by_others(self, closer: Closer) -> bool:
        if isinstance(closer, Thread):
            others = {*self._reading_threads.values()} - {closer}
            return any(thread.is_alive() for thread in others)
        return self._opened is not None and bool(self._opened.readers() - {closer})

    def _drain_once(self, *, is_worked_on: bool, is_the_end: bool = False) -> asyncio.Task[None]:
        if self._draining is None:
            self._closed = True
            self._draining = asyncio.ensure_future(self._drain(is_worked_on, is_the_end))
        return self._draining

    async def _drain(self, is_worked_on: bool, is_the_end: bool) -> None:
        intake = self._opened
        if intake is not None:
            intake.stop()
            if not await self._is_work_done(intake, is_worked_on):
                self._say_that_time_is_up(intake)
                readers = intake.readers() - self._workers if is_the_end else set()
                for reader in readers:
                    reader.cancel()
                if readers:
                    await asyncio.wait(readers, timeout=CANCEL_SECONDS)
        await self._leave(None)

    async def _is_work_done(self, intake: MessageIntake, is_worked_on: bool) -> bool:
        """Wait for messages and handlers, up to `grace` seconds; whether that was enough."""
        until = self._clock.monotonic() + self._grace
        # With ack="auto", what is unsettled now is about to be handed out.
        if (self._workers or is_worked_on or self._auto) and not await intake.wait_settled(
            self._grace
        ):
            return False
        if not self._workers:
            return True
        # They may have settled their messages, and still be at work.
        at_work = asyncio.ensure_future(asyncio.wait(set(self._workers)))
        return await done_within(self._clock, at_work, max(0.0, until - self._clock.monotonic()))

    def _say_that_time_is_up(self, intake: MessageIntake) -> None:
        count = max(intake.unsettled, len(self._workers))
        event(
            log,
            logging.WARNING,
            "grace_is_over",
            f"the {self._what} ends with {count} {'message' if count == 1 else 'messages'} "
            f"still being processed after {self._grace:g} seconds; unsettled messages are "
            "returned to the group",
            topic=self.topic,
            group=self.group,
            count=count,
        )

    async def _leave(self, here: Closer) -> None:
        self._closed = True
        if self._forget_sigterm is not None:
            self._forget_sigterm()
        workers = [worker for worker in self._workers if worker is not here]
        for worker in workers:
            worker.cancel()
        try:
            if workers and not self._is_closed_by_handler:
                await asyncio.wait(workers)  # they settle what they have done, or give it back
        finally:
            await super().close()


def _is_async(handler: Any) -> bool:
    return iscoroutinefunction(handler) or iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004
    )


def in_threads(
    pool: ThreadPoolExecutor,
    handler: Callable[[Any], object],
    seen_there: Callable[[Delivery], Any] = lambda message: message,
) -> HandlerCall:
    """Call a plain handler in a thread. It is waited for to its end, even when cancelled."""

    async def call(message: Delivery) -> None:
        loop = asyncio.get_running_loop()
        # With the span of the message, and whatever else is of this task.
        work: Any = partial(copy_context().run, handler, seen_there(message))
        future = loop.run_in_executor(pool, work)
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError:
                continue  # the caller sees that the task is being cancelled
        result = future.result()
        if isawaitable(result):
            await result

    return call


def run_options(said: RunKeywords) -> tuple[int, Retrying]:
    """How many messages are worked on at once, and how those that failed are tried again."""
    concurrency = said.pop("concurrency", DEFAULTS["concurrency"])
    retrying = Retrying.checked("run", said)
    if type(concurrency) is not int or concurrency < 1:
        raise InvalidRequest(
            f"concurrency must be a whole number of at least 1, not {concurrency!r}"
        )
    return concurrency, retrying
