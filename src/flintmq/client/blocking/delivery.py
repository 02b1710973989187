"""Messages of queues for code without an event loop: the same verbs, each done when it returns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

from ...model import Missed
from ...rows import Run
from ..delivery import Deliveries, Delivery, GrantedMessage, GrantedRows, Process
from .derived import blocking, in_loop, like
from .loop_thread import LoopThread


class BlockingProcess:
    """Made by `BlockingDelivery.process`; use it as `with`."""

    def __init__(self, message: BlockingDelivery, thread: LoopThread, inner: Process) -> None:
        self._message = message
        self._thread = thread
        self._inner = inner

    def __enter__(self) -> BlockingDelivery:
        self._inner._begin()
        return self._message

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        try:
            return self._thread.wait_for(self._inner._settle_by, error)
        finally:
            self._inner._end(error)


class BlockingDelivery(GrantedMessage, frozen=True, gc=False, eq=False):
    """A message from a queue, yours under a lease until it is settled; any thread may settle it."""

    _thread: LoopThread

    ack = blocking(Delivery.ack)
    nack = blocking(Delivery.nack)
    reject = blocking(Delivery.reject)
    ack_nowait = in_loop(Delivery.ack_nowait)
    nack_nowait = in_loop(Delivery.nack_nowait)
    extend = blocking(Delivery.extend)

    @like(Delivery.process)
    def process(self, *arguments: Any, **named: Any) -> BlockingProcess:
        return BlockingProcess(self, self._thread, self._inner.process(*arguments, **named))

    @property
    def _inner(self) -> Delivery:
        return Delivery(self._source, self._row, self._origin, self._grip)


class BlockingDeliveries(GrantedRows[BlockingDelivery]):
    """Messages from a queue: a sequence that equals the list of them, with `values` as the fast way
    through it. `ack` and `nack` settle at once what was not settled one by one."""

    __slots__ = ("_thread",)

    def __init__(self, thread: LoopThread, runs: Sequence[Run] = ()) -> None:
        super().__init__(runs)
        self._thread = thread

    ack = blocking(Deliveries.ack)
    nack = blocking(Deliveries.nack)
    ack_nowait = in_loop(Deliveries.ack_nowait)
    nack_nowait = in_loop(Deliveries.nack_nowait)

    @property
    def _inner(self) -> Deliveries:
        return Deliveries(self._runs)

    def with_runs(self, runs: Sequence[Run], gap: Missed | None = None) -> Self:
        """Deliveries of these runs."""
        return type(self)(self._thread, runs)

    def __iter__(self) -> Iterator[BlockingDelivery]:
        for source, start, stop, origin, picks, grip in self._runs:
            for row in range(start, stop) if picks is None else picks:
                yield BlockingDelivery(source, row, origin, grip, self._thread)

    def _made(self, run: Run, row: int) -> BlockingDelivery:
        return BlockingDelivery(run.source, row, run.origin, run.grip, self._thread)
