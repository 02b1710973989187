"""Traces from publish to delivery: W3C `traceparent` in the headers, spans and metrics of
OpenTelemetry.

OpenTelemetry is imported only if tracing is requested, or if this process has set it up already.
Names follow its semantic conventions for messaging.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ..errors import MissingExtra
from ..rows import Message

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span


TRACEPARENT = "traceparent"
SYSTEM = "flintmq"
SPANS_MAX = 64
"""How many batches of a publisher may wait for their answer with a span of their own."""


def tracing_for(wanted: bool | None) -> Tracing | None:
    """Traces a connection; None if tracing is off.

    By default (None) it is on where OpenTelemetry is set up: its API is loaded, and has a provider
    of tracers that is more than its stand-in.
    """
    if wanted is False:
        return None
    if wanted is None:
        api = sys.modules.get("opentelemetry.trace")
        if api is None:
            return None
        provider = api.get_tracer_provider()
        if isinstance(provider, api.ProxyTracerProvider | api.NoOpTracerProvider):
            return None
    try:
        return Tracing()
    except ImportError:
        raise MissingExtra("tracing", "otel") from None


def context_of(message: Message) -> Context:
    """The OpenTelemetry context a message was published in, for code that makes its own spans:
    `tracer.start_as_current_span("work", context=context_of(message))`."""
    from opentelemetry import propagate

    return propagate.extract(_texts(message))


class Tracing:
    """The tracer and the instruments of a connection."""

    def __init__(self) -> None:
        from opentelemetry import context, metrics, propagate, trace

        self._trace, self._context, self._propagate = trace, context, propagate
        ours = _version()
        self._tracer = trace.get_tracer("flintmq", ours)
        meter = metrics.get_meter("flintmq", ours)
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Messages that were to be published."
        )
        self._operations = meter.create_histogram(
            "messaging.client.operation.duration", "s", "How long a publish took."
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Messages handed to be processed."
        )
        self._processing = meter.create_histogram(
            "messaging.process.duration", "s", "How long processing a message took."
        )

    def publishing(self, topic: str, count: int = 1) -> Publishing:
        """Begin a publish of so many messages, in the context of whoever calls."""
        span = self._tracer.start_span(
            f"publish {topic}",
            kind=self._trace.SpanKind.PRODUCER,
            attributes={
                "messaging.system": SYSTEM,
                "messaging.destination.name": topic,
                "messaging.operation.name": "publish",
                "messaging.operation.type": "send",
            },
        )
        carrier: dict[str, str] = {}
        self._propagate.inject(carrier, self._trace.set_span_in_context(span))
        return Publishing(self, span, topic, carrier, count)

    def _published(self, publishing: Publishing, error: BaseException | None) -> None:
        span, count = publishing.span, publishing.count
        attributes: dict[str, str] = {
            "messaging.system": SYSTEM,
            "messaging.destination.name": publishing.topic,
            "messaging.operation.name": "publish",
        }
        if count != 1:
            span.set_attribute("messaging.batch.message_count", count)
        if publishing.message_id is not None:
            span.set_attribute("messaging.message.id", publishing.message_id)
        if error is not None:
            attributes["error.type"] = type(error).__name__
            self._failed(span, error)
        span.end()
        self._sent.add(count, attributes)
        self._operations.record(perf_counter() - publishing.began, attributes)

    def processing(self, message: Message, group: str) -> Processing:
        """Begin to process a message, as the current span from here on.

        It is a child of the publish; where another span is current already, of that one, with a
        link to the publish.
        """
        trace = self._trace
        published_in = self._propagate.extract(_texts(message))
        published = trace.get_current_span(published_in).get_span_context()
        ambient = trace.get_current_span().get_span_context()
        is_within = ambient.is_valid
        attributes: dict[str, Any] = {
            "messaging.system": SYSTEM,
            "messaging.destination.name": message.topic,
            "messaging.destination.partition.id": str(message.partition),
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.consumer.group.name": group,
            "messaging.message.id": str(message.offset),
            "flintmq.message.delivery_count": message.delivery_count,
        }
        span = self._tracer.start_span(
            f"process {message.topic}",
            context=None if is_within else published_in,
            kind=trace.SpanKind.CONSUMER,
            links=[trace.Link(published)] if is_within and published.is_valid else None,
            attributes=attributes,
        )
        base = None if is_within else published_in  # with the baggage of the publish
        token = self._context.attach(trace.set_span_in_context(span, base))
        return Processing(self, span, message.topic, group, token)

    def processing_batch(self, messages: Sequence[Message], group: str) -> Processing:
        """Begin to process messages together: a span of their own, linked to each publish."""
        trace = self._trace
        published = {}
        for message in messages:
            context = trace.get_current_span(self._propagate.extract(_texts(message)))
            one = context.get_span_context()
            published[one.trace_id, one.span_id] = one
        topic = messages[0].topic
        span = self._tracer.start_span(
            f"process {topic}",
            kind=trace.SpanKind.CONSUMER,
            links=[trace.Link(one) for one in published.values() if one.is_valid],
            attributes={
                "messaging.system": SYSTEM,
                "messaging.destination.name": topic,
                "messaging.operation.name": "process",
                "messaging.operation.type": "process",
                "messaging.consumer.group.name": group,
                "messaging.batch.message_count": len(messages),
            },
        )
        token = self._context.attach(trace.set_span_in_context(span))
        return Processing(self, span, topic, group, token, len(messages))

    def _processed(self, processing: Processing, error: BaseException | None) -> None:
        attributes: dict[str, str] = {
            "messaging.system": SYSTEM,
            "messaging.destination.name": processing.topic,
            "messaging.consumer.group.name": processing.group,
            "messaging.operation.name": "process",
        }
        if error is not None:
            attributes["error.type"] = type(error).__name__
            self._failed(processing.span, error)
        self._context.detach(processing.token)
        processing.span.end()
        self._consumed.add(processing.count, attributes)
        self._processing.record(perf_counter() - processing.began, attributes)

    def _failed(self, span: Span, error: BaseException) -> None:
        span.set_attribute("error.type", type(error).__name__)
        span.record_exception(error)
        span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, type(error).__name__))


class Publishing:
    """A publish that is under way: `end` it once, with the error if there was one."""

    __slots__ = ("_carrier", "_tracing", "began", "count", "message_id", "span", "topic")

    def __init__(
        self, tracing: Tracing, span: Span, topic: str, carrier: dict[str, str], count: int
    ) -> None:
        self._tracing, self.span, self.topic = tracing, span, topic
        self._carrier = carrier
        self.count = count
        self.message_id: str | None = None
        self.began = perf_counter()

    def headers(self, given: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """Headers of a message with the trace it belongs to. One that has its own keeps it."""
        if given is None:
            return self._carrier
        if not isinstance(given, Mapping) or TRACEPARENT in given:
            return given  # what is no mapping is rejected elsewhere
        return {**self._carrier, **given}

    def headers_of_many(self, given: Any) -> Any:
        """The same for what a batch takes: one for all, or a list with one for each."""
        if isinstance(given, list):
            return [self.headers(one) for one in given]
        return self.headers(given)

    def end(self, error: BaseException | None = None) -> None:
        self._tracing._published(self, error)


class Processing:
    """A message that is being processed, or several together."""

    __slots__ = ("_tracing", "began", "count", "group", "span", "token", "topic")

    def __init__(
        self, tracing: Tracing, span: Span, topic: str, group: str, token: Any, count: int = 1
    ) -> None:
        self._tracing, self.span, self.topic, self.group = tracing, span, topic, group
        self.token, self.count = token, count
        self.began = perf_counter()

    def end(self, error: BaseException | None = None) -> None:
        """In the context, and so in the thread or task, in which it began."""
        self._tracing._processed(self, error)


class PublisherTracing:
    """The spans of a publisher: one for each batch, from its first message to its answer."""

    def __init__(self, tracing: Tracing, topic: str) -> None:
        self._tracing, self._topic = tracing, topic
        self._open: Publishing | None = None
        self._sent: deque[Publishing] = deque()
        self._answered = 0

    def headers(self, given: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """Headers of the next message."""
        publishing = self._open
        if publishing is None:
            publishing = self._open = self._tracing.publishing(self._topic, 0)
        publishing.count += 1
        return publishing.headers(given)

    def dispatched(self) -> None:
        """A batch goes out; the next message begins another span."""
        publishing, self._open = self._open, None
        if publishing is not None:
            self._sent.append(publishing)
            if len(self._sent) > SPANS_MAX:
                self._answered = 0
                self._sent.popleft().end()

    def answered(self, count: int) -> None:
        """So many messages are acknowledged; batches are in the order in which they were sent."""
        self._answered += count
        while self._sent and self._answered >= self._sent[0].count:
            publishing = self._sent.popleft()
            self._answered -= publishing.count
            publishing.end()

    def flushed(self, error: BaseException | None) -> None:
        """Everything sent has had its answer, or there is none."""
        self._answered = 0
        while self._sent:
            self._sent.popleft().end(error)


def _texts(message: Message) -> dict[str, str]:
    return {name: value for name, value in message.headers.items() if isinstance(value, str)}


def _version() -> str:
    try:
        return version("flintmq")
    except PackageNotFoundError:  # run from its source
        return "0"
