"""A subscription for code without an event loop; handlers run in threads of a bounded pool."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from inspect import iscoroutinefunction
from threading import current_thread
from typing import Any, Self, TypeVar, Unpack

from ...errors import InvalidRequest
from ...rows import Rows, Run
from ..delivery import Deliveries, Delivery
from ..keywords import RunKeywords, takes
from ..sigterm import on_sigterm
from ..subscription import Subscription, in_threads, run_options
from .consuming import BlockingConsumer
from .delivery import BlockingDeliveries, BlockingDelivery
from .derived import like
from .loop_thread import LoopThread

T = TypeVar("T")

BlockingHandler = Callable[[BlockingDelivery], object]


class BlockingSubscription(BlockingConsumer[Subscription, BlockingDelivery, BlockingDeliveries]):
    """Made by `BlockingClient.subscribe`. Open it with `with`, iterate, settle each message.

    It takes up to `prefetch` messages ahead and renews their leases while they are unsettled, up to
    `lease_max` seconds each. Several threads may read from one.

    Closing it drains it: no new messages, those taken ahead are given back at once, handlers and
    other threads that read from it get `grace` seconds to finish theirs, and then what is unsettled
    is given back. SIGTERM does the same, in a program that does not handle the signal itself.
    """

    def __init__(self, owner: object, thread: LoopThread, inner: Subscription) -> None:
        super().__init__(owner, thread, inner)
        self.topic, self.group = inner.topic, inner.group
        self._forget_sigterm: Callable[[], None] = lambda: None

    @like(Subscription.read_batch_nowait)
    def read_batch_nowait(self, max: int = 1000) -> BlockingDeliveries:
        return super().read_batch_nowait(max)

    @takes(RunKeywords)
    def run(self, handler: BlockingHandler, **said: Unpack[RunKeywords]) -> None:
        """Have `handler` work on each message, in up to `concurrency` threads, until it is closed.

        Each message is settled as by `message.process(retries, backoff, ...)`: done is acked, an
        exception means another delivery later and in the end the dead letters, and never ends the
        run. Another thread closes the subscription to end it, or SIGTERM does; handlers that run
        then are waited for. A subscription that is not open is opened for the run.
        """
        concurrency, retrying = run_options(said)
        if not callable(handler) or iscoroutinefunction(handler):
            raise InvalidRequest(
                f"a handler must be a plain function that takes a message, not {handler!r}"
            )

        def from_here(message: Delivery) -> BlockingDelivery:
            """In the loop: the message as a handler's thread may look at it."""
            run = Run(message._source, message._row, message._row + 1, message._origin)
            (seen,) = self._views.of(Rows([run])).runs
            return BlockingDelivery(
                seen.source, seen.start, seen.origin, message._grip, self._thread
            )

        def work(message: BlockingDelivery) -> object:
            here = current_thread()
            self._inner._handler_threads.add(here)
            try:
                return handler(message)
            finally:
                self._inner._handler_threads.discard(here)

        pool = ThreadPoolExecutor(concurrency, thread_name_prefix="flintmq-handler")
        call = in_threads(pool, work, from_here)

        async def run() -> None:
            try:  # as a task: the first step of a blocking call is none
                await asyncio.ensure_future(self._inner._run(call, concurrency, retrying))
            finally:
                pool.shutdown(wait=False)  # when the run has ended, also if nobody waits for it

        forget = on_sigterm(self._end_soon, self._inner._grace)
        try:
            self._thread.wait_for(run)
        finally:
            forget()

    def open(self) -> Self:
        """Begin to read; what `with` does. Closing it is up to you then."""
        super().open()
        this = weakref.ref(self)  # who is forgotten while open is not kept for this
        forget = on_sigterm(
            lambda: (me := this()) is not None and me._end_soon(), self._inner._grace
        )
        weakref.finalize(self, forget).atexit = False
        self._forget_sigterm = self._inner._forget_sigterm = forget
        return self

    def _end_soon(self) -> bool:
        """SIGTERM: whether there is anything to end."""
        is_open = self._inner._opened is not None  # asked first: the loop does not wait for us
        self._thread.soon(self._inner._end_soon)
        return is_open

    def _take(
        self, take: Callable[[], Coroutine[Any, Any, tuple[BlockingDeliveries, T]]]
    ) -> tuple[BlockingDeliveries, T]:
        here = current_thread()
        self._inner._reading_threads[here.ident or 0] = here
        return super()._take(take)

    def close(self) -> None:
        """Take no new messages, wait up to `grace` seconds for work in other threads, and leave the
        group. Handlers that run are waited for, unless one of them calls this. Then what is not
        settled is given back. Iterators end; closing twice is fine."""
        super().close()
        self._forget_sigterm()

    def _no_rows(self) -> BlockingDeliveries:
        return BlockingDeliveries(self._thread)

    def _seen_from_here(self, rows: Deliveries) -> BlockingDeliveries:
        return BlockingDeliveries(self._thread, self._views.of(rows).runs)
