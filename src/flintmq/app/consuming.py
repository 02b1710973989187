"""Running a consumer: its subscriptions, its calls, and how each ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from ..client.delivery import Delivery
from ..client.retrying import Retrying, reason_of
from ..client.subscription import Subscription
from ..clock import Clock
from ..errors import (
    Closed,
    DecodeFailed,
    FlintError,
    InvalidRequest,
    PermissionDenied,
    TopicNotFound,
)
from ..model import REPLY_TO
from ..observe.logs import event
from .arguments import decoded
from .calling import Call, CallContext
from .consumers import ConsumerSpec
from .figures import HandlerMeter
from .middleware import Around, Invocation

log = logging.getLogger(__name__)

DISCOVER_SECONDS = 2.0
"""How often a consumer of a pattern looks for new topics."""
AGAIN_SECONDS = (1.0, 30.0)
"""How long a consumer whose subscription failed waits before it subscribes again."""
GRACE_SECONDS = 30.0
"""How long a handler may go on with what it has when it is stopped."""
DEAD_LETTERS = "dead."

OnError = Callable[[Exception], None]


async def pause(clock: Clock, seconds: float) -> None:
    """Sleep on the clock of the connection."""
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    timer = clock.call_later(seconds, over.cancel)
    try:
        await asyncio.wait([over])
    finally:
        timer.cancel()
        over.cancel()


def is_last(retrying: Retrying, message: Delivery, error: Exception) -> bool:
    """Whether this failure makes a dead letter of the message."""
    retries = retrying.retries
    return retrying.is_hopeless(error, message) or (
        retries is not None and message.delivery_count > retries
    )


class Work(Protocol):
    """What is done with a message: a consumer calls its function, a task does more."""

    @property
    def kind(self) -> str: ...
    def called(self, name: str, message: Delivery) -> Invocation:
        """The call that a message is for."""
        ...

    async def perform(self, call: Invocation) -> Any: ...
    async def failed(self, call: Invocation, error: Exception, is_dead: bool) -> None:
        """Told of an error before the message is tried again, or becomes a dead letter."""
        ...


class ConsumerWork:
    """Calls the function of a consumer with the value of the message."""

    kind = "consumer"

    def __init__(self, spec: ConsumerSpec, context: CallContext) -> None:
        self._caller, self._context = spec.caller, context

    def called(self, name: str, message: Delivery) -> Invocation:
        return Invocation(name, self.kind, (message,))

    async def perform(self, call: Invocation) -> Any:
        caller, message = self._caller, call.message
        value = decoded(message, caller.value_type) if caller.wants_value else None
        return await caller.call(self._context, Call(message, value))

    async def failed(self, call: Invocation, error: Exception, is_dead: bool) -> None:
        """Nobody else wants to know."""


class ConsumerRun:
    """One consumer of a running app: a subscription for each topic it consumes."""

    def __init__(
        self,
        spec: ConsumerSpec,
        context: CallContext,
        around: Around,
        on_error: OnError,
        work: Work | None = None,
        *,
        grace: float = GRACE_SECONDS,
    ) -> None:
        self.spec, self._grace = spec, grace
        self.work: Work = work or ConsumerWork(spec, context)
        self.meter = HandlerMeter(spec.name, self.work.kind, spec.topic, spec.group)
        self._context, self._around, self._on_error = context, around, on_error
        self._mq = context.mq
        self.topics: dict[str, asyncio.Task[None]] = {}
        """What is consumed right now."""
        self._open: dict[str, Subscription] = {}
        self._watch: asyncio.Task[None] | None = None
        self._shared = asyncio.Semaphore(spec.concurrency) if spec.is_pattern else None
        self.trouble: str | None = None
        """Why it consumes nothing at the moment, where that is so."""

    # --- starting and stopping

    async def start(self) -> None:
        spec = self.spec
        if spec.is_pattern:
            await self._discover()
            self._watch = asyncio.create_task(self._keep_discovering())
        else:
            await self._join(spec.topic)
        event(
            log,
            logging.INFO,
            "consumer_started",
            f"{spec.name} consumes {spec.topic!r} as group {spec.group!r}, "
            + (f"batches of up to {spec.batch.max}, " if spec.batch is not None else "")
            + f"{spec.concurrency} at once",
            handler=spec.name,
            topic=spec.topic,
            group=spec.group,
        )

    def hurry(self) -> None:
        """What is being worked on need not be waited for when it is stopped."""
        for one in self._open.values():
            one._grace = 0.0

    async def stop(self) -> None:
        """Take no new messages, and wait for those being worked on as long as `grace` allows."""
        if self._watch is not None:
            self._watch.cancel()
        await asyncio.gather(*(one.close() for one in self._open.values()), return_exceptions=True)
        for task in self.topics.values():
            task.cancel()
        await asyncio.gather(*self.topics.values(), return_exceptions=True)

    async def _keep_discovering(self) -> None:
        while True:
            await pause(self._mq.clock, DISCOVER_SECONDS)
            with suppress(FlintError):  # while the connection is lost, for example
                await self._discover()

    async def _discover(self) -> None:
        pattern = self.spec.topic
        for topic in await self._mq.topics(pattern):
            # Its own dead letters would come back to it for ever.
            is_dead = topic.startswith(DEAD_LETTERS) and not pattern.startswith(DEAD_LETTERS)
            if topic not in self.topics and not is_dead:
                await self._join(topic)

    async def _join(self, topic: str) -> None:
        subscription = await self._subscribe(topic)
        await self._check_limit(topic)
        self.topics[topic] = asyncio.create_task(self._keep(topic, subscription))

    async def _subscribe(self, topic: str) -> Subscription:
        spec = self.spec
        opened = self._mq.subscribe(topic, spec.group, grace=self._grace, **spec.subscribing)
        # As `run` does, but before it is opened: groups exist, and errors show, when this returns.
        opened._in_turn = spec.concurrency == 1
        opened._prefetch_max = spec.ahead_max
        self._open[topic] = opened
        return await opened

    async def _check_limit(self, topic: str) -> None:
        retries = self.spec.retrying.retries
        if not retries:
            return
        with suppress(TopicNotFound, PermissionDenied):
            most = (await self._mq.topic_info(topic)).options.max_deliveries
            if most is not None and retries >= most:
                event(
                    log,
                    logging.WARNING,
                    "retries_over_limit",
                    f"{self.spec.name} asks for {retries} retries, but topic {topic!r} makes a "
                    f"dead letter after {most} deliveries; run `flintmq topic edit {topic} "
                    f"--max-deliveries {retries + 1}`",
                    handler=self.spec.name,
                    topic=topic,
                )

    async def _keep(self, topic: str, subscription: Subscription) -> None:
        """Consume until stopped; subscribe again where a subscription ends by itself."""
        least, most = AGAIN_SECONDS
        wait = least
        while True:
            try:
                await self._consume(subscription)
                return  # it was closed
            except Exception as error:
                self._say_failed(topic, error, wait)
            self.trouble = f"{topic}: the subscription failed"
            while True:
                await pause(self._mq.clock, wait)
                wait = min(most, wait * 2)
                try:
                    subscription = await self._subscribe(topic)
                except Closed:
                    return
                except FlintError as error:
                    self._say_failed(topic, error, wait)
                else:
                    break
            self.trouble = None

    def _say_failed(self, topic: str, error: Exception, wait: float) -> None:
        event(
            log,
            logging.ERROR,
            "consumer_failed",
            f"{self.spec.name} cannot consume {topic!r}: {reason_of(error)}; trying again in "
            f"{wait:g} s",
            exc_info=None if isinstance(error, FlintError) else error,
            handler=self.spec.name,
            topic=topic,
        )

    async def _consume(self, subscription: Subscription) -> None:
        spec = self.spec
        if spec.batch is None:
            options: Any = spec.retrying._asdict()
            await subscription.run(self._one, concurrency=spec.concurrency, **options)
            return
        workers = [
            asyncio.create_task(self._batches(subscription)) for _ in range(spec.concurrency)
        ]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    # --- one message

    async def _one(self, message: Delivery) -> None:
        if self._shared is None:
            await self._handle(message)
        else:
            async with self._shared:
                await self._handle(message)

    async def _handle(self, message: Delivery) -> None:
        work = self.work
        call = work.called(self.spec.name, message)
        await self._around_call(call, lambda: work.perform(call))

    async def _around_call(self, call: Invocation, work: Callable[[], Awaitable[Any]]) -> None:
        """Call the handler with all that goes with it, count it, and pass on its error."""
        meter, clock = self.meter, self._mq.clock
        began = clock.monotonic()
        meter.now.running += 1
        try:
            await self._around.before(call)
            result = await work()
            await self._publish_result(call, result)
            await self._around.after(call, result)
        except Exception as error:
            dead = is_last(self.spec.retrying, call.message, error)
            meter.fell(clock.monotonic() - began, is_dead=dead, count=len(call.messages))
            await self._around.error(call, error)
            await self.work.failed(call, error, dead)
            self._on_error(error)
            raise
        else:
            meter.ended(clock.monotonic() - began, len(call.messages))
        finally:
            meter.now.running -= 1

    async def _publish_result(self, call: Invocation, result: Any) -> None:
        if result is None:
            return
        if self.spec.publish_to is not None:
            await self._mq.publish(self.spec.publish_to, result, key=call.message.key)
        if self.spec.batch is None and REPLY_TO in call.message.headers:
            await self._mq.reply(call.message, result)

    # --- batches

    async def _batches(self, subscription: Subscription) -> None:
        assert self.spec.batch is not None
        most, linger = self.spec.batch
        clock = self._mq.clock
        with suppress(Closed):
            while True:
                messages = list(await subscription.read_batch(most))
                until = clock.monotonic() + linger
                while len(messages) < most and (left := until - clock.monotonic()) > 0:
                    try:
                        more = await subscription.read_batch(most - len(messages), left)
                    except Closed:
                        break  # what was taken is worked on
                    messages += more
                await self._batch(messages)

    async def _batch(self, messages: list[Delivery]) -> None:
        """Work on a batch. What cannot be decoded is a dead letter; the rest goes together."""
        caller, readable, values = self.spec.caller, messages, []
        if caller.wants_value:
            readable = []
            for message in messages:
                try:
                    values.append(decoded(message, caller.value_type))
                    readable.append(message)
                except DecodeFailed as error:
                    self.meter.fell(0.0, is_dead=True)
                    self._on_error(error)
                    await self._settle_failed([message], error)
        if not readable:
            return
        call = Invocation(self.spec.name, "consumer", readable)
        tracing = self._mq._tracing
        span = None if tracing is None else tracing.processing_batch(readable, self.spec.group)
        failed: BaseException | None = None
        try:
            await self._around_call(
                call, lambda: caller.call(self._context, Call(readable, values))
            )
        except Exception as error:
            failed = error
            await self._settle_failed(readable, error)
            event(
                log,
                logging.WARNING,
                "batch_failed",
                f"{self.spec.name} failed with a batch of {len(readable)}: {error!r}",
                exc_info=error,
                handler=self.spec.name,
                count=len(readable),
            )
        except asyncio.CancelledError as error:
            failed = error
            raise  # closing gives them back
        else:
            _each(readable, Delivery.ack_nowait)
        finally:
            if span is not None:
                span.end(failed)

    async def _settle_failed(self, messages: Sequence[Delivery], error: Exception) -> None:
        retrying = self.spec.retrying
        for message in messages:
            with suppress(InvalidRequest, FlintError):  # the handler has settled it itself
                if is_last(retrying, message, error):
                    await message.reject(reason_of(error))
                else:
                    message.nack_nowait(retrying.delay(message.delivery_count))


def _each(messages: Sequence[Delivery], settle: Callable[[Delivery], None]) -> None:
    for message in messages:
        with suppress(InvalidRequest, FlintError):  # the handler has settled it itself
            settle(message)
