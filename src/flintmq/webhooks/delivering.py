"""One webhook: its messages are polled, posted, and settled by what the target answers.

While the target is up, `concurrency` workers deliver side by side; with a `rate`, they take their
messages one after the other. While it is down, one of them tries from time to time, and the others
put back what they have taken: what waits keeps its deliveries.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from random import uniform
from time import perf_counter
from typing import Any

from ..client.client import Client
from ..client.delivery import Deliveries, Delivery
from ..client.grips import RELEASE
from ..client.retrying import Retrying
from ..clock import pause
from ..errors import Closed, FlintError, GroupNotFound, LeaseLost, NotLeader, TopicNotFound
from ..model import TopicOptions
from ..observe.logs import event, limited
from ..observe.metrics import Meter
from ..rows import Message
from ..webhook_model import Webhook, WebhookAnswer, WebhookState
from .addresses import AddressRefused, IpNetwork
from .judging import Fate, Verdict, judged
from .posting import NoHttpAnswer, PostTarget, TargetUnreachable
from .request import headers_of, id_of

_log = logging.getLogger(__name__)

POLL_SECONDS = 20.0
LEASE_EXTRA_SECONDS = 30.0
"""Beyond the timeout: for connecting, and for the broker to hear of the end."""
PROBE_SECONDS = (1.0, 60.0)
"""How long a target that is down is left alone: at first, and at most."""
AGAIN_SECONDS = 1.0
REASON_MAX = 1000


class WebhookDelivery:
    def __init__(
        self,
        mq: Client,
        webhook: Webhook,
        allowed: Sequence[IpNetwork],
        tls: ssl.SSLContext,
        on_gone: Callable[[Webhook, str], object],
    ) -> None:
        """`on_gone` is told when the target wants no more requests."""
        self.webhook, self._mq, self._on_gone = webhook, mq, on_gone
        self._target = PostTarget(webhook.url, allowed, tls)
        self._retrying = Retrying(webhook.retries, webhook.backoff, webhook.backoff_max)
        self._topic_id = 0
        self._options: TopicOptions | None = None
        self._probing, self._pacing = asyncio.Lock(), asyncio.Lock()
        self._failures = 0
        """Attempts in a row that found the target down."""
        self._probe_at = self._send_at = 0.0
        self._delivered = Meter()
        self.retried = self.dead = self.in_flight = 0
        self._last: Verdict | None = None
        self._last_delivery_ms: int | None = None
        self._last_error = ""
        self._tasks = [asyncio.create_task(self._work()) for _ in range(webhook.concurrency)]

    async def stop(self) -> None:
        """What is in flight goes back to the group, and does not count as delivered."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._target.close()

    def topic_changed(self, options: TopicOptions | None) -> None:
        self._options = options

    def state(self) -> WebhookState:
        webhook, last = self.webhook, self._last
        left = max(0.0, self._probe_at - self._mq.clock.monotonic())
        return WebhookState(
            topic=webhook.topic,
            group=webhook.group,
            url=webhook.url,
            condition="down" if self._failures else "delivering",
            delivered=self._delivered.total,
            per_second=round(self._delivered.per_second(self._mq.clock.now_ms()), 1),
            retried=self.retried,
            dead=self.dead,
            in_flight=self.in_flight,
            last_status=None if last is None else last.status,
            last_error=self._last_error,
            last_delivery_ms=self._last_delivery_ms,
            next_attempt_seconds=left if self._failures else None,
        )

    # --- the work

    async def _work(self) -> None:
        while True:
            try:
                async with self._turn() as may_take:
                    for message in await self._take():
                        if may_take():
                            await self._deliver(message)
                        else:
                            await message._grip.settle(message.offset, RELEASE)
            except (TopicNotFound, GroupNotFound, NotLeader, Closed) as error:
                self._last_error = str(error)
                await pause(self._mq.clock, AGAIN_SECONDS)  # until whoever runs us has heard, too
            except Exception as error:  # also for an internal one: messages must not wait for ever
                self._last_error = str(error) or type(error).__name__
                limited(
                    _log,
                    logging.WARNING,
                    "webhook_failed",
                    self._name,
                    f"webhook {self._name} failed: {self._last_error}",
                    exc_info=None if isinstance(error, FlintError) else error,
                    **self._facts,
                )
                await pause(self._mq.clock, AGAIN_SECONDS)

    @property
    def _name(self) -> str:
        return f"{self.webhook.topic}/{self.webhook.group}"

    @property
    def _facts(self) -> dict[str, Any]:
        return {"topic": self.webhook.topic, "group": self.webhook.group}

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[Callable[[], bool]]:
        """Wait until a message may be taken: at once while the target is up. What is yielded says
        whether it may still be sent once it is there."""
        if not self._failures:
            yield lambda: not self._failures
            return
        async with self._probing:
            if self._failures and (wait := self._probe_at - self._mq.clock.monotonic()) > 0:
                await pause(self._mq.clock, wait)
            yield lambda: True

    async def _take(self) -> Deliveries:
        """The next message, when there is one and the rate allows it."""
        rate, clock = self.webhook.rate, self._mq.clock
        if rate is None:
            return await self._poll()
        async with self._pacing:
            if (wait := self._send_at - clock.monotonic()) > 0:
                await pause(clock, wait)
            found = await self._poll()
            if found:
                self._send_at = clock.monotonic() + 1 / rate
            return found

    async def _poll(self) -> Deliveries:
        webhook = self.webhook
        if not self._topic_id:
            info = await self._mq.topic_info(webhook.topic)
            self._topic_id, self._options = info.id, info.options
        return await self._mq.poll(
            webhook.topic,
            webhook.group,
            max=1,
            lease=webhook.timeout + LEASE_EXTRA_SECONDS,
            wait=POLL_SECONDS,
        )

    async def _deliver(self, message: Delivery) -> None:
        self.in_flight += 1
        try:
            verdict = await self.post(message, message.delivery_count)
            await self._settle(message, verdict)
        except LeaseLost:
            pass  # it is another's by now, who settles it
        except asyncio.CancelledError:
            message._grip.settle_nowait(message.offset, RELEASE)
            raise
        finally:
            self.in_flight -= 1

    async def post(self, message: Message, deliveries: int) -> Verdict:
        id = id_of(self._topic_id, message.partition, message.offset)
        now_ms = self._mq.clock.now_ms()
        headers = headers_of(self.webhook, message, id, now_ms // 1000, deliveries)
        return await self._posted(headers, bytes(message.value), now_ms)

    async def _posted(self, headers: list[tuple[str, str]], body: bytes, now_ms: int) -> Verdict:
        timeout = self.webhook.timeout
        try:
            return judged(await self._target.post(headers, body, timeout), now_ms)
        except TimeoutError:
            return Verdict(Fate.FAILED, f"no answer within {timeout:g} s")
        except (EOFError, OSError):
            return Verdict(Fate.FAILED, "the target closed the connection without an answer")
        except NoHttpAnswer:
            return Verdict(Fate.FAILED, "the target did not answer in HTTP")
        except (TargetUnreachable, AddressRefused) as error:
            return Verdict(Fate.DOWN, str(error))

    async def test(self, message: Message) -> WebhookAnswer:
        """Post something that is no message of the topic."""
        began = perf_counter()
        verdict = await self.post(message, 1)
        return WebhookAnswer(
            ok=verdict.fate is Fate.DELIVERED,
            status=verdict.status,
            error=verdict.error,
            seconds=round(perf_counter() - began, 6),
        )

    # --- what follows

    async def _settle(self, message: Delivery, verdict: Verdict) -> None:
        self._last = verdict
        if verdict.error:
            self._last_error = verdict.error
        if verdict.fate is Fate.DELIVERED:
            await message.ack()
            self._last_delivery_ms = self._mq.clock.now_ms()
            self._delivered.add(1, self._last_delivery_ms)
            self._is_up()
        elif verdict.fate is Fate.FAILED:
            self._is_up()
            await self._again_or_dead(message, verdict)
        else:
            await message._grip.settle(message.offset, RELEASE)
            self._is_down(verdict)
            if verdict.fate is Fate.GONE:
                self._on_gone(self.webhook, verdict.error)

    async def _again_or_dead(self, message: Delivery, verdict: Verdict) -> None:
        count = message.delivery_count
        most = self._deliveries_max()
        if most is not None and count >= most:
            await message.reject(verdict.error[:REASON_MAX])
            self.dead += 1
            event(
                _log,
                logging.WARNING,
                "webhook_dead_letter",
                f"webhook {self._name}: offset {message.offset} becomes a dead letter after "
                f"{count} deliveries: {verdict.error}",
                offset=message.offset,
                **self._facts,
            )
        else:
            await message.nack(delay=max(self._retrying.delay(count), verdict.retry_after or 0.0))
            self.retried += 1

    def _deliveries_max(self) -> int | None:
        if self.webhook.retries is not None:
            return self.webhook.retries + 1
        return None if self._options is None else self._options.max_deliveries

    def _is_up(self) -> None:
        if self._failures:
            self._failures = 0
            event(
                _log,
                logging.INFO,
                "webhook_up",
                f"webhook {self._name}: the target answers again",
                **self._facts,
            )

    def _is_down(self, verdict: Verdict) -> None:
        least, most = PROBE_SECONDS
        pause = verdict.retry_after
        if pause is None:
            pause = min(most, least * 2 ** min(self._failures, 10)) * uniform(0.8, 1.2)
        self._probe_at = self._mq.clock.monotonic() + pause
        self._failures += 1
        if self._failures == 1:
            event(
                _log,
                logging.WARNING,
                "webhook_down",
                f"webhook {self._name}: the target is down, messages wait: {verdict.error}",
                **self._facts,
            )
