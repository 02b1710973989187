"""Messages of queues for code without an event loop: the same verbs, each done when it returns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self

from ..client.delivery import Deliveries, Delivery, Errors, Granted, GrantedRows, Process
from ..model import Missed, Seconds
from ..rows import Run
from .loop_thread import LoopThread


class BlockingDelivery(Granted, frozen=True, gc=False, eq=False):
    """A message from a queue, yours under a lease until it is settled; any thread may settle it."""

    _thread: LoopThread

    def ack(self) -> None:
        """It is done: nobody of this group gets it again."""
        self._thread.wait_for(self._inner().ack)

    def nack(self, delay: Seconds = 0) -> None:
        """It is not done: it is delivered again, in `delay` seconds.

        Where that was the last of the topic's `max_deliveries`, it goes to the dead letters.
        """
        self._thread.wait_for(self._inner().nack, delay)

    def reject(self, reason: str) -> None:
        """It cannot be done: straight to the dead letters, with the reason."""
        self._thread.wait_for(self._inner().reject, reason)

    def extend(self, seconds: Seconds) -> None:
        """Have the lease end that many seconds from now."""
        self._thread.wait_for(self._inner().extend, seconds)

    def process(
        self,
        retries: int | None = None,
        backoff: Seconds = 1.0,
        backoff_max: Seconds = 60.0,
        jitter: float = 0.2,
        *,
        dead_on: Errors = (),
        retry_on: Errors | None = None,
    ) -> BlockingProcess:
        """Work on it: `with message.process(): ...` settles it by how the block ends.

        Without an error it is acked. An exception is logged and goes no further: the message is
        delivered again later, and in the end goes to the dead letters. See `Delivery.process`.
        """
        process = self._inner().process(
            retries, backoff, backoff_max, jitter, dead_on=dead_on, retry_on=retry_on
        )
        return BlockingProcess(self, self._thread, process)

    def _inner(self) -> Delivery:
        return Delivery(self._source, self._row, self._origin, self._grip)


class BlockingProcess:
    """Made by `BlockingDelivery.process`; use it as `with`."""

    def __init__(self, message: BlockingDelivery, thread: LoopThread, inner: Process) -> None:
        self._message = message
        self._thread = thread
        self._inner = inner

    def __enter__(self) -> BlockingDelivery:
        self._inner._begin()
        return self._message

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        try:
            return self._thread.wait_for(self._inner._settle_by, error)
        finally:
            self._inner._end(error)


class BlockingDeliveries(GrantedRows[BlockingDelivery]):
    """Messages from a queue: a sequence that equals the list of them, with `values` as the fast way
    through it. `ack` and `nack` settle at once what was not settled one by one."""

    __slots__ = ("_thread",)

    def __init__(self, thread: LoopThread, runs: Sequence[Run] = ()) -> None:
        super().__init__(runs)
        self._thread = thread

    def ack(self) -> None:
        """All of these are done, but for those that were settled otherwise."""
        self._thread.wait_for(Deliveries(self._runs).ack)

    def nack(self, delay: Seconds = 0) -> None:
        """All of these that are not settled yet are delivered again, in `delay` seconds."""
        self._thread.wait_for(Deliveries(self._runs).nack, delay)

    def with_runs(self, runs: Sequence[Run], gap: Missed | None = None) -> Self:
        """Deliveries of these runs."""
        return type(self)(self._thread, runs)

    def __iter__(self) -> Iterator[BlockingDelivery]:
        for source, start, stop, origin, picks, grip in self._runs:
            for row in range(start, stop) if picks is None else picks:
                yield BlockingDelivery(source, row, origin, grip, self._thread)

    def _made(self, run: Run, row: int) -> BlockingDelivery:
        return BlockingDelivery(run.source, row, run.origin, run.grip, self._thread)
