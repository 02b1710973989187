"""An event loop in a thread of its own, and how other threads have it do something and wait.

A call is cheap: its first step runs straight in the loop's next turn, and it becomes a task only
if it has to wait. Calls made while the loop is busy share one wake-up. The thread that waits
sleeps on a bare lock, which a signal interrupts.

What a call does and what becomes of its result happen in one step of the loop. A caller that is
interrupted (Ctrl-C) and a result that arrives race for one claim: the call is either withdrawn
before it took anything, or its result goes to `put_back`. Nothing falls between the two.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from _thread import allocate_lock, get_ident
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from types import CoroutineType, coroutine
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

from ...errors import Closed, FlintError, InvalidRequest

P = ParamSpec("P")
T = TypeVar("T")

FAREWELL_SECONDS = 5.0
"""How long a connection that nobody closed may take to flush, at exit or when it is collected."""

_living: weakref.WeakSet[LoopThread] = weakref.WeakSet()
_main_thread = threading.main_thread().ident


class ThreadGatherer(Protocol):
    def take_open(self) -> None: ...


class ThreadCall(Generic[T]):
    """One call of another thread, from its start to its end."""

    __slots__ = ("_claim", "_done", "_function", "_put_back", "context", "error", "result", "task")

    result: T
    """Not there before the call has succeeded."""

    def __init__(
        self, function: Callable[[], Any], put_back: Callable[[T], object] | None = None
    ) -> None:
        self.error: BaseException | None = None
        self.task: asyncio.Task[None] | None = None
        self.context: Context | None = None
        """Of the caller, where the first step is to see it."""
        self._function = function
        self._put_back = put_back
        # Whoever pops the one entry decides the outcome: the loop delivers, or the caller leaves.
        self._claim = [True]
        self._done = allocate_lock()
        self._done.acquire()

    # --- the caller's side

    def wait(self) -> T:
        self._done.acquire()
        error = self.error
        if error is not None:
            try:
                raise error
            finally:
                self.error = error = None  # no circle of error, traceback and this frame
        return self.result

    def leave(self) -> bool:
        """Stop waiting. True if the call had not ended and has to be cancelled."""
        try:
            self._claim.pop()
        except IndexError:
            if self.error is None and self._put_back is not None and hasattr(self, "result"):
                self._put_back(self.result)
            return False
        return True

    # --- the loop's side

    @property
    def is_withdrawn(self) -> bool:
        return not self._claim

    def start(self) -> Any:
        return self._function()

    def succeed(self, result: T) -> None:
        # Before the claim: a caller that leaves and finds none has to find the result, or what was
        # taken would be nobody's.
        self.result = result
        try:
            self._claim.pop()
        except IndexError:
            if self._put_back is not None:
                self._put_back(result)
            return
        self._done.release()

    def fail(self, error: BaseException) -> None:
        try:
            self._claim.pop()
        except IndexError:
            return
        self.error = error
        self._done.release()


class LoopThread:
    """The thread, its loop, and the calls that wait for it.

    `ended` is None while it runs, and afterwards what every further call raises.
    """

    def __init__(self) -> None:
        self.loop = asyncio.SelectorEventLoop()
        self.ended: FlintError | None = None
        self.farewell: Callable[[], Coroutine[Any, Any, None]] | None = None
        """What has to happen before the loop stops."""
        self.carries_context = False
        """Whether calls begin in the context of their callers: a trace begins there."""
        self.gatherings: set[ThreadGatherer] = set()
        """Publishers that may hold messages which the loop has not seen yet."""
        self._calls: deque[ThreadCall[Any]] = deque()
        self._waiting: set[ThreadCall[Any]] = set()
        self._is_awake = False
        self._stopping = False
        self._saying_farewell: asyncio.Task[None] | None = None
        self._closing = allocate_lock()
        self._errands: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._main, name="flintmq-loop", daemon=True)
        self._thread.start()
        _living.add(self)

    # --- from any thread

    def wait_for(
        self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Have the loop run a coroutine function; its result, or its error."""
        call: ThreadCall[T] = ThreadCall(lambda: function(*args, **kwargs))
        if self.carries_context:
            call.context = copy_context()
        return self._wait(call)

    def wait_for_taken(
        self, function: Callable[[], Coroutine[Any, Any, T]], put_back: Callable[[T], object]
    ) -> T:
        """The same for a call that takes something: `put_back` gets it if nobody waits any more."""
        return self._wait(ThreadCall(function, put_back))

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Have the loop run a plain function; its result, or its error."""
        return self._wait(ThreadCall(lambda: function(*args, **kwargs)))

    def soon(self, function: Callable[[], object]) -> None:
        """Have the loop run a plain function without waiting for it; a loop that ended does not."""
        try:
            self.loop.call_soon_threadsafe(function)
        except RuntimeError:
            if self.ended is None and not self._stopping:
                raise

    def send_off(self, errand: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Have the loop run a coroutine function without waiting for it."""

        def begin() -> None:
            task = self.loop.create_task(errand())
            self._errands.add(task)
            task.add_done_callback(self._errands.discard)

        self.soon(begin)

    def check_usable(self) -> None:
        if self.ended is not None:
            raise self._why_ended()
        if get_ident() == self._thread.ident:
            raise InvalidRequest(
                "a blocking call inside a filter or hook of the same connection would "
                "deadlock: run it in another thread, or open another connection"
            )

    def _wait(self, call: ThreadCall[T]) -> T:
        self.check_usable()
        try:
            self._submit(call)
            return call.wait()
        except BaseException:
            # An error of the call itself, or this thread was interrupted while it waited.
            if call.leave():
                self.soon(lambda: self._cancel(call))
            raise

    def _submit(self, call: ThreadCall[Any]) -> None:
        self._calls.append(call)
        # The main thread can be interrupted by a signal between any two steps, so it never leaves
        # a promise to wake the loop behind: it wakes it itself.
        if get_ident() == _main_thread:
            self.soon(self._begin_calls)
        elif not self._is_awake:
            self._is_awake = True
            self.soon(self._begin_calls)
        if self.ended is not None:
            self._fail_calls()

    # --- in the loop's thread

    def _begin_calls(self) -> None:
        self._is_awake = False  # before looking: who comes after this wakes the loop again
        calls = self._calls
        while calls:
            self._begin(calls.popleft())

    def _begin(self, call: ThreadCall[Any]) -> None:
        """Run a call up to its end, or to where it has to wait; only then it becomes a task."""
        if call.is_withdrawn:
            return
        if self.ended is not None:
            call.fail(self._why_ended())
            return
        try:
            started = call.start()
            if type(started) is not CoroutineType:
                call.succeed(started)
                return
            if call.context is None:
                awaited = started.send(None)
            else:
                awaited = call.context.run(started.send, None)
        except StopIteration as stop:
            call.succeed(stop.value)
        except BaseException as error:
            call.fail(error)
        else:
            self._waiting.add(call)
            self.loop.create_task(self._finish(call, started, awaited))

    async def _finish(
        self, call: ThreadCall[Any], started: Coroutine[Any, Any, Any], awaited: Any
    ) -> None:
        call.task = asyncio.current_task()
        try:
            call.succeed(await _rest_of(call, started, awaited))
        except asyncio.CancelledError:
            call.fail(self._why_ended() if self.ended or self._stopping else Closed("the call"))
        except BaseException as error:
            call.fail(error)
        finally:
            self._waiting.discard(call)
            call.task = None

    def _cancel(self, call: ThreadCall[Any]) -> None:
        # A task that has not begun is left alone: cancelled now, it would never clean up. Once it
        # begins, it sees that its call was withdrawn.
        if call.task is not None:
            call.task.cancel()

    @property
    def waiting_calls(self) -> int:
        """How many calls have begun and wait for something."""
        return len(self._waiting)

    # --- the end

    def close(self) -> None:
        """Say farewell, then end the thread and wait for it. Of two callers, the second waits."""
        if self.ended is not None:
            return
        self.check_usable()
        with self._closing:
            try:
                self.wait_for(self._bid)
            except Closed:
                if self.is_alive():  # else another thread was faster
                    raise
            finally:
                self.soon(self._stop)
                self._thread.join(FAREWELL_SECONDS)

    def say_farewell(self) -> None:
        """Begin to end without anybody waiting. Never blocks: the garbage collector may call it."""
        if self.ended is None:
            self.soon(self._begin_farewell)

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def _begin_farewell(self) -> None:
        if not self._stopping:
            self._stopping = True
            self._saying_farewell = self.loop.create_task(self._say_farewell())

    async def _say_farewell(self) -> None:
        try:
            async with asyncio.timeout(FAREWELL_SECONDS):
                await self._bid()
        except (FlintError, TimeoutError):
            pass  # there is nobody left to hear of it
        finally:
            self._stop()

    async def _bid(self) -> None:
        for gathering in list(self.gatherings):
            gathering.take_open()
        if self.farewell is not None:
            await self.farewell()

    def _stop(self) -> None:
        self._stopping = True
        self.loop.stop()

    def _main(self) -> None:
        loop = self.loop
        died: BaseException | None = None
        try:
            loop.run_forever()
        except BaseException as error:
            died = error
        finally:
            self._end(died)
            loop.close()

    def _end(self, died: BaseException | None) -> None:
        self.farewell = None
        self.gatherings.clear()
        if self._stopping:
            self.ended = Closed("the connection")
        else:
            self.ended = Closed(f"the connection, whose thread ended unexpectedly ({died!r}),")
            self.ended.__cause__ = died
        try:
            if tasks := asyncio.all_tasks(self.loop):
                for task in tasks:
                    task.cancel()
                self.loop.run_until_complete(asyncio.wait(tasks, timeout=1.0))
        finally:
            self._fail_calls()
            for call in list(self._waiting):
                call.fail(self._why_ended())

    def _fail_calls(self) -> None:
        """Whoever comes late, or was still in line, hears that it is over."""
        while self._calls:
            try:
                call = self._calls.popleft()
            except IndexError:
                return
            call.fail(self._why_ended())

    def _why_ended(self) -> FlintError:
        """A fresh error each time: many threads may raise it at once."""
        ended = self.ended
        if not isinstance(ended, Closed):
            return Closed("the connection")
        error = Closed(ended.what)
        error.__cause__ = ended.__cause__
        return error

    def belongs_to_parent(self) -> None:
        """This is a forked child: the thread is not here."""
        if self.ended is None:
            self.ended = Closed(
                f"the connection of the parent process ({os.getppid()}) cannot be used "
                "after a fork: connect again in the child; here it"
            )


@coroutine
def _rest_of(
    call: ThreadCall[T], started: Coroutine[Any, Any, T], awaited: Any
) -> Generator[Any, Any, T]:
    """Go on with a coroutine whose first step has been made, and has yielded `awaited`."""
    is_told = False
    try:
        while True:
            try:
                if call.is_withdrawn and not is_told:
                    raise asyncio.CancelledError
                sent = yield awaited
                if call.is_withdrawn and not is_told:  # it is to take nothing any more
                    raise asyncio.CancelledError
            except GeneratorExit:
                started.close()
                raise
            except BaseException as error:
                is_told = True
                awaited = started.throw(error)
            else:
                awaited = started.send(sent)
    except StopIteration as stop:
        result: T = stop.value
        return result


def _after_fork() -> None:
    for thread in list(_living):
        thread.belongs_to_parent()
    _living.clear()


def _at_exit() -> None:
    """Flush and end what was never closed. All threads that are not daemons have ended by now."""
    threads = [thread for thread in list(_living) if thread.ended is None]
    for thread in threads:
        thread.say_farewell()
    for thread in threads:
        thread.join(FAREWELL_SECONDS + 1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)


class Opened(Protocol):
    """What is opened by awaiting it, and closed for a thread."""

    def __await__(self) -> Generator[Any, None, Any]: ...
    async def close(self) -> None: ...
    async def _close_for(self, closer: Any) -> None: ...


def enter(thread: LoopThread, inner: Opened) -> None:
    """Open it; closed again if nobody waits for that any more."""

    async def work() -> None:
        await inner

    thread.wait_for_taken(work, lambda _: thread.send_off(inner.close))


def leave(thread: LoopThread, inner: Opened) -> None:
    """Close it for this thread; nothing is left to do once the connection has ended."""
    if thread.ended is None:
        try:
            thread.wait_for(inner._close_for, threading.current_thread())
        except Closed:
            if thread.ended is None:
                raise
