"""A subscription for code without an event loop; handlers run in threads of a bounded pool."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from inspect import iscoroutinefunction
from threading import get_ident

from ..client.delivery import Deliveries, Delivery, Retrying
from ..client.subscription import CONCURRENCY, Subscription, check_concurrency, in_threads
from ..errors import InvalidRequest
from ..model import Seconds
from ..rows import Rows, Run
from .consuming import BlockingConsumer
from .delivery import BlockingDeliveries, BlockingDelivery
from .loop_thread import LoopThread

BlockingHandler = Callable[[BlockingDelivery], object]


class BlockingSubscription(BlockingConsumer[Subscription, BlockingDelivery, BlockingDeliveries]):
    """Made by `BlockingClient.subscribe`. Open it with `with`, iterate, settle each message.

    It takes up to `prefetch` messages ahead and renews their leases while they are unsettled, up to
    `lease_max` seconds each. Several threads may read from one. Closing it gives back at once what
    is not settled.
    """

    def __init__(self, owner: object, thread: LoopThread, inner: Subscription) -> None:
        super().__init__(owner, thread, inner)
        self._handlers: set[int] = set()  # the threads they are in

    @property
    def topic(self) -> str:
        return self._inner.topic

    @property
    def group(self) -> str:
        return self._inner.group

    def read_batch_nowait(self, max: int = 1000) -> BlockingDeliveries:
        """Up to `max` messages that were taken ahead. Not with ack="auto", which has to wait."""
        return super().read_batch_nowait(max)

    def run(
        self,
        handler: BlockingHandler,
        *,
        concurrency: int = CONCURRENCY,
        retries: int | None = None,
        backoff: Seconds = 1.0,
        backoff_max: Seconds = 60.0,
        jitter: float = 0.2,
    ) -> None:
        """Have `handler` work on each message, in up to `concurrency` threads, until it is closed.

        Each message is settled as by `message.process(retries, backoff, ...)`: done is acked, an
        exception means another delivery later and in the end the dead letters, and never ends the
        run. Another thread closes the subscription to end it; handlers that run then are waited
        for. A subscription that is not open is opened for the run.
        """
        retrying = Retrying.checked(retries, backoff, backoff_max, jitter)
        check_concurrency(concurrency)
        if not callable(handler) or iscoroutinefunction(handler):
            raise InvalidRequest(f"a handler is a plain function of a message, not {handler!r}")

        def from_here(message: Delivery) -> BlockingDelivery:
            """In the loop: the message as a handler's thread may look at it."""
            run = Run(message._source, message._row, message._row + 1, message._origin)
            (seen,) = self._views.of(Rows([run])).runs
            return BlockingDelivery(
                seen.source, seen.start, seen.origin, message._grip, self._thread
            )

        def work(message: BlockingDelivery) -> object:
            here = get_ident()
            self._handlers.add(here)
            try:
                return handler(message)
            finally:
                self._handlers.discard(here)

        pool = ThreadPoolExecutor(concurrency, thread_name_prefix="flintmq-handler")
        call = in_threads(pool, work, from_here)

        async def run() -> None:
            try:  # as a task: the first step of a blocking call is none
                await asyncio.ensure_future(self._inner._run(call, concurrency, retrying))
            finally:
                pool.shutdown(wait=False)  # when the run has ended, also if nobody waits for it

        self._thread.wait_for(run)

    def close(self) -> None:
        """Leave the group. What is not settled is given back at once; handlers that run are waited
        for, unless it is one of them that calls this. Iterators end; closing twice is fine."""
        if get_ident() in self._handlers:
            self._inner._is_closed_by_handler = True
        super().close()

    def _no_rows(self) -> BlockingDeliveries:
        return BlockingDeliveries(self._thread)

    def _seen_from_here(self, rows: Deliveries) -> BlockingDeliveries:
        return BlockingDeliveries(self._thread, self._views.of(rows).runs)
