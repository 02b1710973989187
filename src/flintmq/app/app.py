"""App: a registry of handlers, the connection they share, and how it is run."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from contextvars import ContextVar
from inspect import signature
from threading import Lock
from typing import Any, ParamSpec, Protocol, Self, TypeVar, Unpack, overload

from ..api import connect
from ..client.blocking import BlockingClient, connect_sync
from ..client.client import Client
from ..client.keywords import PublishKeywords, check_keywords
from ..client.values import Value
from ..errors import InvalidRequest
from ..model import Seconds, StoredReceipt, seconds
from ..schedule_model import WhenMissed
from .arguments import place_of
from .consumers import ConsumerKeywords, ConsumerSpec, consumer_spec
from .consuming import GRACE_SECONDS
from .desk import TaskDesk
from .handles import BlockingPlace
from .middleware import Around, Middleware
from .running import RunningApp
from .running_task import RunningTask
from .scheduling import ScheduleSpec
from .tasks import Task, TaskKeywords, task_spec

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
R = TypeVar("R")
IMPORTING: ContextVar[str | None] = ContextVar("flintmq_importing", default=None)
"""The module that `flintmq worker` is importing."""
Lifespan = Callable[["App"], AbstractAsyncContextManager[Any]]


class TaskDecorator(Protocol):
    """What `@app.task(...)` is, for type checkers."""

    @overload
    def __call__(self, function: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


class App:
    """Functions that process messages, and their connection.

    app = flintmq.App("flint://localhost:7600")

    @app.consumer("orders", group="billing", retries=4)
    async def bill(order: Order) -> None: ...

    `flintmq worker module:app` runs it; so does `async with app.running()` inside a program.
    `async with app` only connects, to publish. `url` and the other keywords are those of
    `flintmq.connect`; `flintmq worker --server URL` overrides `url`. `lifespan` is an async
    context manager around the run, which gets the app.
    """

    def __init__(
        self, url: str | None = None, *, lifespan: Lifespan | None = None, **connecting: Any
    ) -> None:
        if lifespan is not None and not callable(lifespan):
            raise InvalidRequest(
                "lifespan must be an async context manager function that takes the app, not "
                f"{lifespan!r}"
            )
        if url is not None and not isinstance(url, str):
            raise InvalidRequest(f"the URL of the broker is a str, not {url!r}")
        known = signature(connect).parameters
        unknown = next((name for name in connecting if name not in known), None)
        if unknown is not None:
            raise TypeError(f"App() got an unexpected keyword argument {unknown!r}")
        self.url = url
        self.connecting = connecting
        """Keywords of `flintmq.connect`."""
        self.consumers: list[ConsumerSpec] = []
        self.tasks: dict[str, Task[Any, Any]] = {}
        self.schedules: dict[str, ScheduleSpec] = {}
        """When tasks are due, by their names."""
        self.around = Around()
        self.lifespan = lifespan
        self._mq: Client | None = None
        self._desk: TaskDesk | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._blocking: tuple[BlockingClient, TaskDesk] | None = None
        self._starting_blocking = Lock()
        self._users = 0
        self._opening = asyncio.Lock()
        self._closing = AsyncExitStack()

    # --- handlers

    def consumer(self, topic: str, /, **said: Unpack[ConsumerKeywords]) -> Callable[[F], F]:
        """Register a function that consumes a topic, or all topics that match a pattern.

        The argument gets the value, decoded to its type: a msgspec Struct, dataclass, pydantic
        model, dict, str or bytes. Arguments annotated `flintmq.Message` (or `flintmq.Delivery`) get
        the message, `flintmq.Client` the connection, `Annotated[T, flintmq.Depends(factory)]` the
        result of the factory. The function is `async def`, or `def`, which runs in a thread.

        `group` defaults to the name of the function. Up to `concurrency` messages (8) are processed
        at the same time. After an exception, the message is delivered again after `backoff`
        seconds, which doubles each time; after `retries` retries, or at once for exceptions of the
        types `dead_on`, it becomes a dead letter. So does a value that cannot be decoded.

        With `max` or `linger` the function gets batches: `list[Order]` of up to `max` values (256),
        for which it waits up to `linger` seconds after the first. A return value that is not None
        is published to `publish_to`, and sent as the reply if the message was a request. `order`,
        `filter`, `start`, `lease`, `lease_max` and `prefetch` are those of `mq.subscribe`.
        """
        check_keywords("consumer", said, ConsumerKeywords)
        _check_text(topic, '@app.consumer("orders")')
        names = sys._getframe(1).f_locals

        def decorate(function: F) -> F:
            spec = consumer_spec(function, topic, said, names, (App,))
            self._check_free(spec)
            self.consumers.append(spec)
            return function

        return decorate

    @overload
    def task(self, function: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(self, /, **said: Unpack[TaskKeywords]) -> TaskDecorator: ...
    def task(self, function: Any = None, /, **said: Unpack[TaskKeywords]) -> Any:
        """Register a function that workers call: `@app.task`, then `await resize.send(path)`.

        The arguments of a call are decoded to their annotated types; the others are filled as for
        consumers, and `flintmq.RunningTask` reports progress. The function is `async def`, or
        `def`, which runs in a thread. Up to `concurrency` calls (8) run at the same time.

        After an exception, the task is retried after `backoff` seconds, which doubles each time;
        after `retries` retries (4), or at once for exceptions of the types `dead_on`, it has
        failed. `timeout` limits one attempt, in seconds. The result is kept for `result_ttl`
        seconds (3600), for `handle.get()`; with None it is not kept.

        With `unique`, only one task per key exists at a time, until it is done or for `unique_for`
        seconds. The key is True (all arguments), the name of an argument, or a function of the
        arguments. `name` defaults to that of the function; the messages are in the topic
        `tasks.NAME`. `lease`, `lease_max`, `prefetch` and `order` are those of `mq.subscribe`.
        """
        check_keywords("task", said, TaskKeywords)
        names = sys._getframe(1).f_locals

        def decorate(function: Any) -> Any:
            return self._add_task(function, said, names)

        return decorate if function is None else decorate(function)

    def cron(
        self,
        expression: str,
        *,
        timezone: str = "UTC",
        missed: WhenMissed = "once",
        **said: Unpack[TaskKeywords],
    ) -> TaskDecorator:
        """Register a task that runs on a schedule: `@app.cron("*/5 8-18 * * mon-fri")`.

        The broker keeps the schedule, in `timezone`, and stores one task for each run, however many
        workers there are. `missed` says what to do about times when no broker was running: `skip`
        them, call `once` (the default), or `all`. The other keywords are those of `@app.task`.
        `flintmq.RunningTask.scheduled_at` is the scheduled time.
        """
        check_keywords("cron", said, TaskKeywords)
        _check_text(expression, '@app.cron("*/5 * * * *")')
        when = ScheduleSpec("cron", cron=expression, timezone=timezone, missed=missed)
        names = sys._getframe(1).f_locals
        return lambda function: self._add_scheduled(function, when, said, names)

    def every(
        self, interval: Seconds, *, missed: WhenMissed = "once", **said: Unpack[TaskKeywords]
    ) -> TaskDecorator:
        """Register a task that runs at an interval in seconds: `@app.every(30)`. Otherwise as
        `cron`.

        The interval counts from 1970: every 30 seconds means at :00 and :30, wherever it runs.
        """
        check_keywords("every", said, TaskKeywords)
        when = ScheduleSpec("every", every=seconds(interval, "every"), missed=missed)
        names = sys._getframe(1).f_locals
        return lambda function: self._add_scheduled(function, when, said, names)

    def _add_scheduled(
        self,
        function: Callable[..., Any],
        when: ScheduleSpec,
        said: TaskKeywords,
        names: Mapping[str, Any],
    ) -> Task[Any, Any]:
        when.check(function)
        task = self._add_task(function, said, names)
        if task.spec.required:
            del self.tasks[task.name]
            raise InvalidRequest(
                f"{when.kind} {place_of(function)}: argument {task.spec.required[0]!r} would get "
                "no value: a schedule passes none; give it a default"
            )
        self.schedules[task.name] = when
        return task

    def _add_task(
        self, function: Callable[..., Any], said: TaskKeywords, names: Mapping[str, Any]
    ) -> Task[Any, Any]:
        spec = task_spec(function, said, names, (App, RunningTask))
        known = self.tasks.get(spec.name)
        if known is not None:
            raise InvalidRequest(
                f"tasks {place_of(known.function)} and {place_of(function)} have the same name "
                f"{spec.name!r}; pass another name= to one of them"
            )
        task: Task[Any, Any] = Task(self, function, spec)
        self.tasks[spec.name] = task
        return task

    def _check_free(self, spec: ConsumerSpec) -> None:
        for other in self.consumers:
            if (other.topic, other.group) == (spec.topic, spec.group):
                raise InvalidRequest(
                    f"consumers {other.name!r} and {spec.name!r} both consume {spec.topic!r} as "
                    f"group {spec.group!r}, and each would get some of the messages; pass another "
                    "group= to one of them"
                )

    def add_middleware(self, middleware: Middleware) -> Middleware:
        """Add middleware that runs around every handler."""
        if not isinstance(middleware, Middleware):
            raise InvalidRequest(
                "add_middleware takes an instance of a class derived from flintmq.Middleware, not "
                f"{middleware!r}"
            )
        self.around.all.append(middleware)
        return middleware

    # --- the connection

    @property
    def mq(self) -> Client:
        """The connection, while the app runs or is open."""
        if self._mq is None:
            raise InvalidRequest(
                "the app is not connected: use `async with app:` around it (in FastAPI, in the "
                "lifespan), or run it by `flintmq worker`"
            )
        return self._mq

    @property
    def desk(self) -> TaskDesk:
        """Where tasks are sent from, while the app runs or is open."""
        if self._desk is None:
            assert self.mq is None, "the connection is open and has a desk"
        assert self._desk is not None
        return self._desk

    def blocking_place(self) -> BlockingPlace:
        """Where `send_sync` sends from: the connection of the app, if it is open in another
        thread's loop, else one of its own, which lasts until `close_sync` or the end of the
        process."""
        if self._desk is not None and self._loop is not None:
            with suppress(RuntimeError):
                if asyncio.get_running_loop() is self._loop:
                    raise InvalidRequest(
                        "send_sync would block the event loop of the app: use `await task.send()`"
                    )
            return BlockingPlace(self._desk, self._loop)
        with self._starting_blocking:
            if self._blocking is None or self._blocking[0]._thread.ended is not None:
                blocking = connect_sync(self.url, **self.connecting)
                self._blocking = blocking, TaskDesk(blocking._inner)
            blocking, desk = self._blocking
            return BlockingPlace(desk, blocking._thread)

    def close_sync(self) -> None:
        """Close the connection that `send_sync` opened, if any."""
        with self._starting_blocking:
            if self._blocking is not None:
                blocking, desk = self._blocking
                self._blocking = None
                blocking._thread.wait_for(desk.close)
                blocking.close()

    async def publish(
        self, topic: str, value: Value, **said: Unpack[PublishKeywords]
    ) -> StoredReceipt:
        """Publish a message over the connection of the app, as `mq.publish` does."""
        return await self.mq.publish(topic, value, **said)

    async def open(self, mq: Client | None = None) -> Self:
        """Connect, without running handlers. With `mq`, use that connection, and never close it."""
        async with self._opening:
            if self._users == 0:
                self._closing = AsyncExitStack()
                if mq is None:
                    mq = await self._closing.enter_async_context(
                        connect(self.url, **self.connecting)
                    )
                self._mq, self._desk = mq, TaskDesk(mq)
                self._loop = asyncio.get_running_loop()
                self._closing.push_async_callback(self._desk.close)
            self._users += 1
        return self

    async def close(self) -> None:
        """Close the connection, once everyone who opened it has closed it."""
        async with self._opening:
            self._users -= 1
            if self._users == 0:
                self._mq = self._desk = self._loop = None
                await self._closing.aclose()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --- running

    @asynccontextmanager
    async def running(
        self, mq: Client | None = None, *, grace: Seconds = GRACE_SECONDS
    ) -> AsyncIterator[RunningApp]:
        """Run all handlers inside this program: `async with app.running(): ...`

        Leaving the block drains: no new messages, and those being processed have `grace` seconds
        to be finished. With `mq`, that connection is used.
        """
        patience = seconds(grace, "grace")
        await self.open(mq)
        try:
            async with AsyncExitStack() as until:
                if self.lifespan is not None:
                    await until.enter_async_context(self.lifespan(self))
                run = RunningApp(self, patience)
                until.push_async_callback(run.stop)
                await run.start()
                yield run
        finally:
            await self.close()

    async def run(self) -> None:
        """Run all handlers until the task is cancelled or the process gets SIGTERM."""
        from .serving import until_signalled

        module = IMPORTING.get()
        if module is not None:
            raise InvalidRequest(
                f"module {module!r} runs its app when it is imported, and `flintmq worker` would "
                'run it twice; put that under `if __name__ == "__main__":`'
            )
        async with self.running() as run:
            await until_signalled(run)


def _check_text(said: Any, example: str) -> None:
    """Also refuses a decorator without parentheses, which would swallow its function."""
    if not isinstance(said, str):
        raise InvalidRequest(f"write {example} above the function; {said!r} is not a str")
