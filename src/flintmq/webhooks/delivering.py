"""One webhook: its messages are polled, posted, and settled by what the target answers.

While the target is up, `concurrency` workers deliver side by side. While it is down, one of them
tries from time to time, and none of the others takes a message: what waits keeps its deliveries.
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

import httptools

from ..client.client import Client
from ..client.delivery import Delivery
from ..client.grips import RELEASE
from ..client.retrying import Retrying
from ..errors import Closed, FlintError, GroupNotFound, LeaseLost, NotLeader, TopicNotFound
from ..observe.logs import event, limited
from ..rows import Message
from ..webhook_model import Webhook, WebhookAnswer, WebhookState
from .addresses import AddressRefused, IpNetwork
from .judging import Fate, Verdict, judged
from .posting import AnswerTooLong, PostTarget, TargetUnreachable
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
        self._probing = asyncio.Lock()
        self._failures = 0
        """Attempts in a row that found the target down."""
        self._probe_at = self._send_at = 0.0
        self.delivered = self.retried = self.dead = self.in_flight = 0
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

    def state(self) -> WebhookState:
        webhook, last = self.webhook, self._last
        left = max(0.0, self._probe_at - self._mq.clock.monotonic())
        return WebhookState(
            topic=webhook.topic,
            group=webhook.group,
            url=webhook.url,
            condition="down" if self._failures else "delivering",
            delivered=self.delivered,
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
                async with self._turn():
                    await self._deliver_next()
            except (TopicNotFound, GroupNotFound, NotLeader, Closed) as error:
                self._last_error = str(error)
                await asyncio.sleep(AGAIN_SECONDS)  # until whoever runs us has heard of it, too
            except FlintError as error:
                self._last_error = str(error)
                limited(
                    _log,
                    logging.WARNING,
                    "webhook_failed",
                    self._name,
                    f"webhook {self._name} cannot go on: {error}",
                    **self._facts,
                )
                await asyncio.sleep(AGAIN_SECONDS)

    @property
    def _name(self) -> str:
        return f"{self.webhook.topic}/{self.webhook.group}"

    @property
    def _facts(self) -> dict[str, Any]:
        return {"topic": self.webhook.topic, "group": self.webhook.group}

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Wait until a message may be taken: at once while the target is up and the rate allows."""
        clock = self._mq.clock
        if self.webhook.rate is not None:
            now = clock.monotonic()
            self._send_at = max(self._send_at, now)
            wait, self._send_at = self._send_at - now, self._send_at + 1 / self.webhook.rate
            if wait > 0:
                await asyncio.sleep(wait)
        if not self._failures:
            yield
            return
        async with self._probing:
            if self._failures and (wait := self._probe_at - clock.monotonic()) > 0:
                await asyncio.sleep(wait)
            yield

    async def _deliver_next(self) -> None:
        webhook = self.webhook
        if not self._topic_id:
            self._topic_id = (await self._mq.topic_info(webhook.topic)).id
        found = await self._mq.poll(
            webhook.topic,
            webhook.group,
            max=1,
            lease=webhook.timeout + LEASE_EXTRA_SECONDS,
            wait=POLL_SECONDS,
        )
        for message in found:
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
        id = id_of(self._topic_id, message.partition, message.offset or 0)
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
        except (httptools.HttpParserError, AnswerTooLong):
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
            self.delivered += 1
            self._last_delivery_ms = self._mq.clock.now_ms()
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
        retries, count = self.webhook.retries, message.delivery_count
        most = (await self._mq.topic_info(self.webhook.topic)).options.max_deliveries
        is_last = count > retries if retries is not None else most is not None and count >= most
        if is_last:
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
