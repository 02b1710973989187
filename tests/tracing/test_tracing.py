"""Traces: from whoever publishes, by way of the headers, to whoever processes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

import flintmq
from flintmq.client.delivery import Delivery
from flintmq.client.traced import TracedClient
from flintmq.engine.broker import Broker
from flintmq.net.server.native import NativeServer
from flintmq.observe.tracing import context_of, tracing_for
from flintmq.serde.codec import Codec

OWN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """OpenTelemetry as it is set up by an application, for the length of a test."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield exporter
    provider.shutdown()


@pytest.fixture
def meters(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemoryMetricReader]:
    from opentelemetry.metrics import _internal

    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    monkeypatch.setattr(_internal, "_METER_PROVIDER", provider)
    yield reader
    provider.shutdown()


@asynccontextmanager
async def served() -> AsyncIterator[str]:
    broker = Broker(None, Codec())
    server = NativeServer(broker)
    host, port = await server.start("127.0.0.1", 0)
    try:
        yield f"flint://{host}:{port}"
    finally:
        await server.close()
        await broker.close()


@pytest.fixture(params=["memory", "flint"])
async def url(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    if request.param == "memory":
        yield "memory://"
    else:
        async with served() as url:
            yield url


def named(spans: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.name == name]


def of(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def test_processing_is_a_child_of_the_publish(url: str, spans: InMemorySpanExporter) -> None:
    async with flintmq.connect(url) as mq:
        with trace.get_tracer("app").start_as_current_span("request"):
            receipt = await mq.publish("orders", b"x")
        async with mq.subscribe("orders", "billing") as deliveries:
            message = await deliveries.read(timeout=60)
            assert message is not None
            async with message.process():
                inside = trace.get_current_span()
                trace.get_tracer("app").start_span("work").end()
        assert trace.get_current_span() is trace.INVALID_SPAN

    (request,), (publish,), (process,), (work,) = (
        named(spans, name) for name in ("request", "publish orders", "process orders", "work")
    )
    assert request.context is not None
    assert publish.parent is not None
    assert publish.parent.span_id == request.context.span_id
    assert publish.kind is SpanKind.PRODUCER
    assert process.parent is not None
    assert publish.context is not None
    assert process.parent.span_id == publish.context.span_id
    assert process.kind is SpanKind.CONSUMER
    assert work.parent is not None
    assert inside.get_span_context().span_id == work.parent.span_id
    assert of(publish) == {
        "messaging.system": "flintmq",
        "messaging.destination.name": "orders",
        "messaging.operation.name": "publish",
        "messaging.operation.type": "send",
        "messaging.message.id": str(receipt.offset),
    }
    assert of(process) == {
        "messaging.system": "flintmq",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "0",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.consumer.group.name": "billing",
        "messaging.message.id": str(receipt.offset),
        "flintmq.message.delivery_count": 1,
    }


async def test_a_batch_has_one_span_and_one_traceparent(
    url: str, spans: InMemorySpanExporter
) -> None:
    async with flintmq.connect(url) as mq:
        await mq.publish_batch("orders", [b"a", b"b", b"c"])
        await mq.publish_batch("orders", [b"d", b"e"], headers=[{"n": "1"}, None])
        async with mq.reader("orders", start="earliest") as reader:
            found = [message.headers for message in await reader.read_batch(10, timeout=60)]

    first, second = named(spans, "publish orders")
    assert of(first)["messaging.batch.message_count"] == 3
    assert first.context is not None
    assert second.context is not None
    ids = [str(headers["traceparent"]).split("-")[2] for headers in found]
    assert ids == [f"{first.context.span_id:016x}"] * 3 + [f"{second.context.span_id:016x}"] * 2
    assert [headers.get("n") for headers in found] == [None, None, None, "1", None]


async def test_a_publisher_has_a_span_for_each_flush(url: str, spans: InMemorySpanExporter) -> None:
    async with flintmq.connect(url) as mq, mq.publisher("orders") as publisher:
        for _ in range(2):
            for _ in range(5):
                publisher.send(b"x")
            await publisher.flush()
        async with mq.reader("orders", start="earliest") as reader:
            rows = await reader.read_batch(100, timeout=60)
            found = {message.headers["traceparent"] for message in rows}

    published = named(spans, "publish orders")
    assert [of(span)["messaging.batch.message_count"] for span in published] == [5, 5]
    assert len(found) == 2


async def test_a_request_is_traced_to_whoever_replies(
    url: str, spans: InMemorySpanExporter
) -> None:
    async with flintmq.connect(url) as mq, mq.subscribe("rates", "quotes") as requests:

        async def reply() -> None:
            request = await requests.read(timeout=60)
            assert request is not None
            async with request.process():
                await request.reply(b"1.08")

        replying = asyncio.create_task(reply())
        with trace.get_tracer("app").start_as_current_span("ask"):
            assert (await mq.request("rates", b"EURUSD", timeout=60)).value == b"1.08"
        await replying
    (ask,), (sent,), (done,) = (
        named(spans, name) for name in ("ask", "publish rates", "process rates")
    )
    assert sent.parent is not None
    assert done.parent is not None
    assert ask.context is not None
    assert sent.context is not None
    assert sent.parent.span_id == ask.context.span_id
    assert done.parent.span_id == sent.context.span_id


async def test_publish_many_is_one_span(url: str, spans: InMemorySpanExporter) -> None:
    async with flintmq.connect(url) as mq:
        await mq.publish_many([("a", b"1"), ("b", b"2")])
        for topic in ("a", "b"):
            (message,) = await mq.poll(topic, "g")
            assert "traceparent" in message.headers
            await message.ack()

    assert len(named(spans, "publish (several)")) == 1


async def test_a_traceparent_of_the_users_own_is_left_alone(
    url: str, spans: InMemorySpanExporter
) -> None:
    async with flintmq.connect(url) as mq:
        await mq.publish("orders", b"x", headers={"traceparent": OWN})
        await mq.publish_batch("orders", [b"x"], headers={"traceparent": OWN})
        async with mq.publisher("orders") as publisher:
            publisher.send(b"x", headers={"traceparent": OWN})
        for message in await mq.poll("orders", "g", max=3):
            assert message.headers == {"traceparent": OWN}
            context = trace.get_current_span(context_of(message)).get_span_context()
            assert f"{context.span_id:016x}" == OWN.split("-")[2]
            async with message.process():
                pass

    for span in named(spans, "process orders"):
        assert span.parent is not None
        assert f"{span.parent.trace_id:032x}" == OWN.split("-")[1]


async def test_without_tracing_a_traceparent_travels_all_the_same(url: str) -> None:
    async with flintmq.connect(url, tracing=False) as mq:
        assert type(mq) is flintmq.Client
        headers = {"traceparent": OWN, "tracestate": "vendor=1"}
        await mq.publish("orders", b"x", headers=headers)
        (message,) = await mq.poll("orders", "g")
        assert message.headers == headers


async def test_a_handler_that_fails_is_an_error_on_its_span(spans: InMemorySpanExporter) -> None:
    async with flintmq.connect("memory://") as mq:
        await mq.publish("orders", b"x")
        (message,) = await mq.poll("orders", "g")
        async with message.process(backoff=0):
            raise ValueError("no good")

    (process,) = named(spans, "process orders")
    assert not process.status.is_ok
    assert of(process)["error.type"] == "ValueError"
    assert [one.name for one in process.events] == ["exception"]


async def test_a_handler_of_batches_has_a_span_that_is_linked_to_each_publish(
    spans: InMemorySpanExporter,
) -> None:
    app, seen, done = flintmq.App(), [], asyncio.Event()

    @app.consumer("orders", max=2, linger=60, start="earliest")
    async def book(numbers: list[int]) -> None:
        seen.append(trace.get_current_span().get_span_context().span_id)
        done.set()

    async with flintmq.connect("memory://") as mq:
        await mq.publish("orders", 1)
        await mq.publish("orders", 2)
        async with app.running(mq):
            await done.wait()

    (handled,) = [one for one in spans.get_finished_spans() if one.name == "process orders"]
    published = {one.context.span_id for one in spans.get_finished_spans() if one is not handled}
    assert handled.attributes is not None
    assert handled.attributes["messaging.batch.message_count"] == 2
    assert {one.context.span_id for one in handled.links} <= published
    assert len(handled.links) == 2
    assert seen == [handled.context.span_id]


async def test_a_publish_that_fails_is_an_error_on_its_span(spans: InMemorySpanExporter) -> None:
    async with flintmq.connect("memory://", auto_create=False) as mq:
        with pytest.raises(flintmq.TopicNotFound):
            await mq.publish("orders", b"x")

    (publish,) = named(spans, "publish orders")
    assert of(publish)["error.type"] == "TopicNotFound"


async def test_within_another_span_processing_is_its_child_and_linked_to_the_publish(
    spans: InMemorySpanExporter,
) -> None:
    async with flintmq.connect("memory://") as mq:
        await mq.publish("orders", b"x")
        (message,) = await mq.poll("orders", "g")
        with trace.get_tracer("app").start_as_current_span("batch job") as job:
            async with message.process():
                pass

    (publish,), (process,) = named(spans, "publish orders"), named(spans, "process orders")
    assert process.parent is not None
    assert process.parent.span_id == job.get_span_context().span_id
    assert publish.context is not None
    assert [link.context.span_id for link in process.links] == [publish.context.span_id]


async def test_handlers_see_their_span_in_tasks_and_in_threads(spans: InMemorySpanExporter) -> None:
    seen: list[int] = []
    done = asyncio.Event()

    async def asynchronous(message: Delivery) -> None:
        seen.append(trace.get_current_span().get_span_context().span_id)
        done.set()

    loop = asyncio.get_running_loop()

    def plain(message: Delivery) -> None:
        seen.append(trace.get_current_span().get_span_context().span_id)
        loop.call_soon_threadsafe(done.set)

    async with flintmq.connect("memory://") as mq:
        for topic, handler in (("a", asynchronous), ("b", plain)):
            done.clear()
            await mq.publish(topic, b"x")
            async with mq.subscribe(topic, "g") as deliveries:
                running = asyncio.ensure_future(deliveries.run(handler, concurrency=1))
                await done.wait()
                await asyncio.sleep(0)
                await deliveries.close()
                await running

    processed = [*named(spans, "process a"), *named(spans, "process b")]
    assert seen == [span.context.span_id for span in processed if span.context]
    assert len(seen) == 2


def test_blocking_calls_carry_the_trace_of_their_thread(spans: InMemorySpanExporter) -> None:
    tracer = trace.get_tracer("app")
    with flintmq.connect_sync("memory://") as mq:

        def request(name: str) -> None:
            with tracer.start_as_current_span(name):
                mq.publish("orders", name)

        threads = [threading.Thread(target=request, args=(f"request {n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with tracer.start_as_current_span("sending"), mq.publisher("sent") as publisher:
            publisher.send(b"x")
        for message in mq.poll("orders", "g", max=4):
            with message.process():
                name = message.value.decode()
                tracer.start_span(f"work of {name}").end()
        assert trace.get_current_span() is trace.INVALID_SPAN

    for number in range(4):
        (asked,) = named(spans, f"request {number}")
        (worked,) = named(spans, f"work of request {number}")
        assert asked.context is not None
        assert worked.context is not None
        assert worked.context.trace_id == asked.context.trace_id
    (sending,), (sent,) = named(spans, "sending"), named(spans, "publish sent")
    assert sent.parent is not None
    assert sent.parent == sending.context


async def test_metrics_count_and_time_what_is_published_and_processed(
    spans: InMemorySpanExporter, meters: InMemoryMetricReader
) -> None:
    async with flintmq.connect("memory://") as mq:
        await mq.publish_batch("orders", [b"x"] * 3)
        for message in await mq.poll("orders", "g", max=3):
            async with message.process():
                pass

    data = meters.get_metrics_data()
    assert data is not None
    found = {
        metric.name: metric.data.data_points[0]
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert found["messaging.client.sent.messages"].value == 3  # type: ignore[union-attr]
    assert found["messaging.client.consumed.messages"].value == 3  # type: ignore[union-attr]
    assert found["messaging.client.operation.duration"].count == 1  # type: ignore[union-attr]
    assert found["messaging.process.duration"].count == 3  # type: ignore[union-attr]
    assert dict(found["messaging.process.duration"].attributes or {}) == {
        "messaging.system": "flintmq",
        "messaging.destination.name": "orders",
        "messaging.consumer.group.name": "g",
        "messaging.operation.name": "process",
    }


def test_it_is_on_only_where_opentelemetry_is_set_up(
    spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tracing_for(None) is not None
    assert tracing_for(False) is None
    assert type(flintmq.connect("memory://")) is TracedClient
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    assert tracing_for(None) is None
    assert tracing_for(True) is not None
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(flintmq.MissingExtra, match=r"\[otel\]"):
        tracing_for(True)


@pytest.mark.slow
def test_nothing_of_opentelemetry_is_imported_by_itself() -> None:
    script = (
        "import asyncio, sys, flintmq\n"
        "async def main():\n"
        "    async with flintmq.connect() as mq:\n"
        "        await mq.publish('a', b'x')\n"
        "asyncio.run(main())\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
