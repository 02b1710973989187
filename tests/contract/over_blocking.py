"""The blocking API as a way of running: each async call of a test is a blocking one in a thread.

Threads come in no order by themselves, so everything that could be a matter of luck is not:

- A call returns to the test only after its thread has handed it to the connection, so calls begin
  in the order in which the test makes them.
- `settle` goes on until every call that is under way waits inside the connection's own loop.
- Time moves in the loops of the connections, and only while everything is settled.
- To cancel a call interrupts its thread as Ctrl-C does the main thread: what it had taken is
  put back.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from types import TracebackType
from typing import Any, Self, cast
from unittest.mock import patch

import flintmq
from flintmq.broker_api import BrokerApi
from flintmq.client.blocking import BlockingClient, connect_sync
from flintmq.client.blocking.delivery import BlockingProcess
from flintmq.client.blocking.loop_thread import LoopThread, ThreadCall
from flintmq.client.delivery import Process
from flintmq.engine.broker import Broker
from flintmq.testing import ManualClock
from flintmq.testing.manual_clock import _ManualTimer, settle

from .over_network import Served

PATIENCE_SECONDS = 60.0
ASYNC_OF: dict[type, type] = {
    flintmq.BlockingClient: flintmq.Client,
    flintmq.BlockingReader: flintmq.Reader,
    flintmq.BlockingFeed: flintmq.Feed,
    flintmq.BlockingPublisher: flintmq.Publisher,
    flintmq.BlockingSubscription: flintmq.Subscription,
    flintmq.BlockingDelivery: flintmq.Delivery,
    flintmq.BlockingDeliveries: flintmq.Deliveries,
    flintmq.BlockingTable: flintmq.Table,
    flintmq.BlockingTableWatch: flintmq.TableWatch,
    BlockingProcess: Process,
}
ENDED = object()

_TURNS = "there are no turns: the connection's thread takes what was sent as soon as it gets to it"
_INTERRUPTED = "an interrupt may come after the call was done: then it was, and the reader has it"
NOT_OF_THREADS = {
    "test_what_was_sent_is_published_once_flush_returns": _TURNS,
    "test_what_is_sent_in_one_turn_goes_out_at_the_end_of_it_as_one_batch": _TURNS,
    "test_a_full_batch_does_not_wait_for_the_linger": _TURNS,
    "test_flush_raises_for_what_was_not_published_and_says_how_many": _TURNS,
    "test_a_full_partition_holds_up_its_own_publishers_only": _TURNS,
    "test_a_cancelled_blocked_publish_publishes_nothing_and_lets_the_next_go_on": _INTERRUPTED,
    "test_publishes_that_are_cancelled_are_either_there_once_or_not_at_all": _INTERRUPTED,
    "test_tasks_that_are_cancelled_at_any_turn_share_every_message_once": _INTERRUPTED,
    "test_a_message_meant_for_a_cancelled_reader_goes_to_another_of_its_name": _INTERRUPTED,
    "test_a_cancelled_read_has_taken_nothing": _INTERRUPTED,
    "test_a_reader_that_was_not_opened_says_so": "it names `with` where the async one differs",
}
"""Promises that speak of turns of an event loop or of cancelling at one of them, and why they are
not made by threads. `tests/blocking` has what is promised instead."""


class BlockingClock(ManualClock):
    """A clock that is moved in the test's loop and rings in the loops of the connections."""

    def __init__(self) -> None:
        super().__init__()
        self.under_way: set[Operation] = set()
        self.threads: dict[LoopThread, Callable[[], Coroutine[Any, Any, None]]] = {}
        self.changes = 0

    def call_later(self, seconds: float, callback: Callable[[], object]) -> _ManualTimer:
        loop = asyncio.get_running_loop()
        return super().call_later(seconds, lambda: loop.call_soon_threadsafe(callback))

    async def settle(self) -> None:
        """Until every call under way waits in a loop, and nothing has moved meanwhile."""
        while True:
            before = self.changes
            await settle()
            for thread, settled in self.threads.items():
                if thread.is_alive() and thread.ended is None:
                    turns = asyncio.run_coroutine_threadsafe(settled(), thread.loop)
                    await asyncio.wrap_future(turns)
            if before == self.changes and all(op.is_parked() for op in self.under_way):
                return


async def _settled(broker: BrokerApi) -> None:
    """In the connection's loop: until every task waits, and nothing is on its way to the disk."""
    await settle()
    served = getattr(getattr(broker, "open", None), "__self__", None)
    while (isinstance(broker, Broker) and await broker.settled()) or (
        isinstance(served, Served) and await served.settled()
    ):
        await settle()


class Interrupted(BaseException):
    """What Ctrl-C is to the main thread."""


_current = threading.local()


def connect_over_blocking(
    url: str,
    *,
    clock: BlockingClock,
    make: Callable[..., flintmq.Client] = flintmq.connect,
    **options: Any,
) -> flintmq.Client:
    with patch("flintmq.client.blocking.client.connect", make):
        client = connect_sync(url, clock=clock, **options)
    thread = client._thread
    clock.threads[thread] = lambda: _settled(client._inner._broker)
    submit = thread._submit

    def tell(call: ThreadCall[Any]) -> None:
        """Let the operation know its call, as soon as it is in the loop's hands."""
        operation: Operation | None = getattr(_current, "operation", None)
        if operation is not None:
            operation.call = call
        submit(call)
        if operation is not None:
            operation.is_handed_over.set()

    thread._submit = tell  # type: ignore[method-assign]
    return cast(flintmq.Client, OverBlocking(client, client, clock))


class Operation:
    """One blocking call in a thread of its own, and the future of its outcome."""

    def __init__(self, clock: BlockingClock, thread: LoopThread, work: Callable[[], Any]) -> None:
        self.call: ThreadCall[Any] | None = None
        self.is_handed_over = threading.Event()
        self.has_returned = threading.Event()
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._clock, self._thread, self._work = clock, thread, work
        clock.under_way.add(self)
        clock.changes += 1
        loop = self.future.get_loop()
        self._caller = threading.Thread(target=self._run, args=[loop], daemon=True)
        self._caller.start()
        assert self.is_handed_over.wait(PATIENCE_SECONDS)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        _current.operation = self
        result, error = None, None
        try:
            result = self._work()
        except BaseException as raised:
            error = raised
        self.has_returned.set()
        self.is_handed_over.set()
        loop.call_soon_threadsafe(self._finish, result, error)

    def _finish(self, result: Any, error: BaseException | None) -> None:
        self._clock.under_way.discard(self)
        self._clock.changes += 1
        self._caller.join()  # it has nothing left to do: nobody is to see it alive
        if self.future.done():
            return
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(result)

    def is_parked(self) -> bool:
        return self.call is not None and self.call in self._thread._waiting

    def interrupt(self) -> None:
        """Have the thread's wait end as a signal would end it; then it has let go of its call."""
        self._thread.soon(self._ring)
        assert self.has_returned.wait(PATIENCE_SECONDS)
        call = self.call
        if call is not None and call._put_back is not None and hasattr(call, "result"):
            returned, call._put_back = call._put_back, None
            if not self.was_interrupted:
                returned(call.result)

    was_interrupted = False

    def _ring(self) -> None:
        call = self.call
        if call is None or call.is_withdrawn or self.has_returned.is_set():
            return
        self.was_interrupted = True
        call.error = Interrupted()
        call._done.release()
        while not call.is_withdrawn:
            time.sleep(0)


class OverBlocking:
    """A blocking object with async signatures, after the async class it stands for."""

    def __init__(self, blocking: Any, client: BlockingClient, clock: BlockingClock) -> None:
        self._blocking, self._client, self._clock = blocking, client, clock
        self._async = ASYNC_OF[type(blocking)]

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._blocking, name)
        ours = getattr(self._async, name, None)
        if inspect.isasyncgenfunction(ours):
            return lambda: self._iterate(found())
        if inspect.iscoroutinefunction(ours):

            async def run(*args: Any, **kwargs: Any) -> Any:
                return self._wrapped(
                    await self._run(lambda: found(*map(_unwrapped, args), **kwargs))
                )

            return run
        if inspect.isfunction(ours):
            return lambda *args, **kwargs: self._wrapped(found(*args, **kwargs))
        return found

    def _wrapped(self, made: Any) -> Any:
        if isinstance(made, flintmq.BlockingDeliveries):
            return OverDeliveries(made, self._client, self._clock)
        if isinstance(made, flintmq.BlockingTable):
            return OverTable(made, self._client, self._clock)
        return OverBlocking(made, self._client, self._clock) if type(made) in ASYNC_OF else made

    def run(
        self, handler: Callable[[Any], Coroutine[Any, Any, Any]], **options: Any
    ) -> Coroutine[Any, Any, Any]:
        """The handler form: the handler is a coroutine of the test's, called by threads."""
        loop = asyncio.get_running_loop()

        def handle(message: Any) -> None:
            asyncio.run_coroutine_threadsafe(handler(self._wrapped(message)), loop).result()

        return self._run(lambda: self._blocking.run(handle, **options))

    async def _run(self, work: Callable[[], Any]) -> Any:
        operation = Operation(self._clock, self._client._thread, work)
        try:
            return await operation.future
        except asyncio.CancelledError:
            operation.interrupt()
            raise

    async def _iterate(self, iterator: Iterator[Any]) -> AsyncIterator[Any]:
        while (item := await self._run(lambda: next(iterator, ENDED))) is not ENDED:
            yield item

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        item = await self._run(lambda: next(self._blocking, ENDED))
        if item is ENDED:
            raise StopAsyncIteration
        return self._wrapped(item)

    async def __aenter__(self) -> Any:
        entered = await self._run(self._blocking.__enter__)
        return self if entered is self._blocking else self._wrapped(entered)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> Any:
        return await self._run(lambda: self._blocking.__exit__(kind, error, trace))

    def __await__(self) -> Generator[Any, None, Any]:
        return self.__aenter__().__await__()

    def __eq__(self, other: object) -> bool:
        return bool(self._blocking == _unwrapped(other))

    def __hash__(self) -> int:
        return hash(self._blocking)

    def __repr__(self) -> str:
        return f"over {self._blocking!r}"


class OverDeliveries(OverBlocking):
    """The same for what a poll returns: a sequence of messages."""

    def __len__(self) -> int:
        return len(self._blocking)

    def __iter__(self) -> Iterator[Any]:
        return map(self._wrapped, self._blocking)

    def __getitem__(self, index: int | slice) -> Any:
        found = self._blocking[index]
        return [*map(self._wrapped, found)] if isinstance(index, slice) else self._wrapped(found)


class OverTable(OverBlocking):
    """The same for a table, which is read like a dict."""

    def keys(self) -> Any:
        return self._blocking.keys()

    def __len__(self) -> int:
        return len(self._blocking)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._blocking)

    def __contains__(self, key: object) -> bool:
        return key in self._blocking

    def __getitem__(self, key: Any) -> Any:
        return self._blocking[key]


def async_side(thing: Any) -> Any:
    """What does the work: of a blocking connection or reader, the async one inside."""
    if not isinstance(thing, OverBlocking):
        return thing
    inside = vars(thing._blocking)
    return inside.get("_client") or inside["_inner"]


def _unwrapped(thing: Any) -> Any:
    if isinstance(thing, OverBlocking):
        return thing._blocking
    if type(thing) in (list, tuple) and any(isinstance(one, OverBlocking) for one in thing):
        return type(thing)(map(_unwrapped, thing))
    if isinstance(thing, Iterator):
        return map(_unwrapped, thing)
    return thing
