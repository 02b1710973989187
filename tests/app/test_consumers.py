"""Consumers: functions that work on the messages of a topic."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import pydantic
import pytest

import flintmq
from flintmq import App, Depends, InvalidRequest, Middleware
from flintmq.app.figures import prometheus_text
from flintmq.testing import ManualClock, run, settle


class Order(msgspec.Struct):
    id: int


@dataclass
class Parcel:
    id: int


class Invoice(pydantic.BaseModel):
    id: int


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Order, Order(7)),
        (Parcel, Parcel(7)),
        (Invoice, Invoice(id=7)),
        (dict, {"id": 7}),
        (dict[str, int], {"id": 7}),
        (bytes, b'{"id":7}'),
        (Any, {"id": 7}),
    ],
)
async def test_a_consumer_gets_the_value_as_the_type_it_names(kind: Any, expected: Any) -> None:
    app, got = App(), []

    @app.consumer("orders")
    async def bill(order: kind) -> None:
        got.append(order)

    async with run(app) as t:
        await t.publish("orders", {"id": 7})
        await t.idle()

    assert got == [expected]


@pytest.mark.parametrize("value", [b'{"id": 7}', '{"id": 7}', {"id": 7}])
async def test_json_that_was_published_as_plain_bytes_or_text_is_decoded(value: Any) -> None:
    app, got = App(), []

    @app.consumer("orders")
    async def bill(order: Order) -> None:
        got.append(order)

    async with run(app) as t:
        await t.publish("orders", value)
        await t.idle()

    assert got == [Order(7)]


async def test_a_consumer_gets_its_message_and_the_connection_where_it_asks_for_them() -> None:
    app, got = App(), []

    @app.consumer("orders", group="billing")
    async def bill(message: flintmq.Message, mq: flintmq.Client, order: Order) -> None:
        got.append((message.key, mq is app.mq, order.id))

    async with run(app) as t:
        await t.publish("orders", {"id": 7}, key="ann")
        await t.idle()
        assert [one.name for one in await t.mq.groups("orders")] == ["billing"]

    assert got == [("ann", True, 7)]


async def test_a_plain_function_runs_in_a_thread() -> None:
    app, threads = App(), []

    @app.consumer("orders")
    def bill(order: Order) -> None:
        threads.append(threading.current_thread())

    async with run(app) as t:
        await t.publish("orders", {"id": 7})
        await t.idle()

    assert threads
    assert threading.main_thread() not in threads


async def test_what_a_handler_raises_is_raised_in_the_test() -> None:
    app = App()

    @app.consumer("orders")
    async def bill(order: Order) -> None:
        raise KeyError("no such customer")

    async with run(app) as t:
        await t.publish("orders", {"id": 7})
        with pytest.raises(KeyError, match="no such customer"):
            await t.idle()


async def test_a_message_is_retried_and_then_becomes_a_dead_letter() -> None:
    app, attempts = App(), []

    @app.consumer("orders", group="billing", retries=2, backoff=10, jitter=0)
    async def bill(order: Order, message: flintmq.Delivery) -> None:
        attempts.append(message.delivery_count)
        raise RuntimeError("the bank is closed")

    async with run(app, raises=False) as t:
        await t.publish("orders", {"id": 7})
        await t.idle()
        assert attempts == [1]
        await t.advance(10)
        await t.advance(20)
        (letter,) = await t.mq.dead_letters("orders", "billing")

    assert attempts == [1, 2, 3]
    assert letter.reason == "RuntimeError: the bank is closed"


async def test_an_error_named_by_dead_on_is_not_retried() -> None:
    app = App()

    @app.consumer("orders", group="billing", retries=9, dead_on=KeyError)
    async def bill(order: Order) -> None:
        raise KeyError("no such customer")

    async with run(app, raises=False) as t:
        await t.publish("orders", {"id": 7})
        await t.idle()
        assert len(await t.mq.dead_letters("orders", "billing")) == 1


async def test_a_value_of_another_type_is_a_dead_letter_that_names_the_field() -> None:
    app = App()

    @app.consumer("orders", group="billing")
    async def bill(order: Order) -> None: ...

    async with run(app, raises=False) as t:
        await t.publish("orders", {"id": "seven"})
        await t.idle()
        (letter,) = await t.mq.dead_letters("orders", "billing")

    assert "Expected `int`, got `str` - at `$.id`" in letter.reason


async def test_a_return_value_is_published() -> None:
    app, got = App(), []

    @app.consumer("orders", publish_to="invoices")
    async def bill(order: Order) -> Parcel:
        return Parcel(order.id + 1)

    @app.consumer("invoices")
    async def send(parcel: Parcel, message: flintmq.Message) -> None:
        got.append((parcel, message.key))

    async with run(app) as t:
        await t.publish("orders", {"id": 7}, key="ann")
        await t.idle()

    assert got == [(Parcel(8), "ann")]


async def test_a_return_value_is_the_reply_to_a_request() -> None:
    app = App()

    @app.consumer("rates")
    async def quote(pair: str) -> dict[str, Any]:
        return {"pair": pair, "rate": 1.08}

    async with run(app) as t:
        reply = await t.mq.request("rates", "EURUSD", timeout=5)

    assert reply.decode() == {"pair": "EURUSD", "rate": 1.08}


async def test_a_batch_is_as_many_as_are_there() -> None:
    app, got = App(), []

    @app.consumer("orders", max=3)
    async def bill(orders: list[Order]) -> None:
        got.append([order.id for order in orders])

    async with run(app) as t:
        await t.mq.publish_batch("orders", [{"id": number} for number in range(7)])
        await t.idle()

    assert [number for batch in got for number in batch] == list(range(7))
    assert max(map(len, got)) == 3


async def test_a_batch_waits_for_more_as_long_as_linger_says() -> None:
    app, got = App(), []

    @app.consumer("orders", max=10, linger=5)
    async def bill(orders: list[Order]) -> None:
        got.append(len(orders))

    async with run(app) as t:
        await t.publish("orders", {"id": 1})
        await t.clock.advance(4)
        await t.publish("orders", {"id": 2})
        await t.clock.settle()
        assert got == []
        await t.advance(1)

    assert got == [2]


async def test_a_batch_that_fails_is_retried_and_what_cannot_be_decoded_is_a_dead_letter() -> None:
    app, got = App(), []

    @app.consumer("orders", group="billing", max=10, retries=1, backoff=10, jitter=0)
    async def bill(orders: list[Order]) -> None:
        got.append([order.id for order in orders])
        if len(got) == 1:
            raise RuntimeError("the bank is closed")

    async with run(app, raises=False) as t:
        await t.mq.publish_batch("orders", [{"id": 1}, {"id": "two"}, {"id": 3}])
        await t.idle()
        await t.advance(10)
        (letter,) = await t.mq.dead_letters("orders", "billing")
        assert (await t.mq.group_stats("orders", "billing")).lag == 0

    assert got == [[1, 3], [1, 3]]
    assert letter.message.decode() == {"id": "two"}


async def test_a_batch_of_messages_can_be_settled_one_by_one() -> None:
    app = App()

    @app.consumer("orders", group="billing", max=10)
    async def bill(messages: list[flintmq.Delivery]) -> None:
        await messages[0].reject("not this one")

    async with run(app) as t:
        await t.mq.publish_batch("orders", [b"1", b"2"])
        await t.idle()
        assert len(await t.mq.dead_letters("orders", "billing")) == 1
        assert (await t.mq.group_stats("orders", "billing")).lag == 0


async def test_a_pattern_joins_topics_as_they_appear_and_leaves_dead_letters_alone() -> None:
    app, got = App(), []

    @app.consumer(">", group="audit", retries=0)
    async def audit(message: flintmq.Message) -> None:
        got.append(message.topic)
        if message.value == b"bad":
            raise ValueError("bad")

    async with run(app, raises=False) as t:
        await t.publish("orders.eu", b"1")
        await t.advance(2)
        await t.publish("orders.us", b"bad")
        await t.advance(2)
        await t.advance(2)
        assert "dead.orders.us.audit" in await t.mq.topics()

    assert got == ["orders.eu", "orders.us"]


async def test_a_dependency_is_made_for_each_call_and_closed_after_it() -> None:
    app, story = App(), []

    async def session(message: flintmq.Message) -> AsyncIterator[str]:
        story.append("open")
        yield f"session of {message.key!s}"
        story.append("close")

    @app.consumer("orders", concurrency=1)
    async def bill(order: Order, db: Annotated[str, Depends(session)]) -> None:
        story.append(db)

    async with run(app) as t:
        await t.publish("orders", {"id": 7}, key="ann")
        await t.publish("orders", {"id": 8}, key="bob")
        await t.idle()

    assert story == [
        *("open", "session of ann", "close"),
        *("open", "session of bob", "close"),
    ]


async def test_a_dependency_of_the_app_is_made_once_and_closed_with_it() -> None:
    app, story = App(), []

    def pool() -> Iterator[str]:
        story.append("open")
        yield "pool"
        story.append("close")

    def session(pool: Annotated[str, Depends(pool, scope="app")]) -> str:
        return f"session of {pool}"

    @app.consumer("orders")
    async def bill(order: Order, db: Annotated[str, Depends(session)]) -> None:
        story.append(db)

    async with run(app) as t:
        await t.mq.publish_batch("orders", [{"id": 7}, {"id": 8}])
        await t.idle()
        assert story == ["open", "session of pool", "session of pool"]

    assert story[-1] == "close"


async def test_middleware_runs_around_every_handler() -> None:
    app, story = App(), []

    class Telling(Middleware):
        def __init__(self, name: str) -> None:
            self.name = name

        async def before(self, call: flintmq.Invocation) -> None:
            story.append(f"{self.name} before {call.handler}")

        async def after(self, call: flintmq.Invocation, result: Any) -> None:
            story.append(f"{self.name} after {result}")

        async def error(self, call: flintmq.Invocation, error: Exception) -> None:
            story.append(f"{self.name} error {error} {call.attempt}")

    app.add_middleware(Telling("outer"))
    app.add_middleware(Telling("inner"))

    @app.consumer("orders", concurrency=1)
    async def bill(order: Order) -> str:
        if order.id == 8:
            raise ValueError("eight")
        return "fine"

    async with run(app, raises=False) as t:
        await t.mq.publish_batch("orders", [{"id": 7}, {"id": 8}])
        await t.idle()

    assert story == [
        *("outer before bill", "inner before bill", "inner after fine", "outer after fine"),
        *("outer before bill", "inner before bill", "inner error eight 1", "outer error eight 1"),
    ]


async def test_the_lifespan_is_around_the_run() -> None:
    story = []

    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[None]:
        story.append(f"connected {app.mq.is_connected}")
        yield
        story.append("end")

    app = App(lifespan=lifespan)

    @app.consumer("orders")
    async def bill(order: Order) -> None:
        story.append("order")

    async with run(app) as t:
        await t.publish("orders", {"id": 7})
        await t.idle()

    assert story == ["connected True", "order", "end"]


async def test_stopping_waits_for_the_message_that_is_being_worked_on() -> None:
    app, story = App(), []
    begun, go_on = asyncio.Event(), asyncio.Event()

    @app.consumer("orders", group="billing", concurrency=1)
    async def bill(order: Order) -> None:
        begun.set()
        await go_on.wait()
        story.append(order.id)

    async def finish() -> None:
        await settle()  # by then, it is stopping
        go_on.set()

    async with flintmq.connect("memory://") as mq:
        await mq.publish_batch("orders", [{"id": 7}, {"id": 8}])
        async with app.running(mq):
            await begun.wait()
            later = asyncio.create_task(finish())
        await later
        assert story == [7]
        (left,) = await mq.poll("orders", "billing")
        assert (left.decode(), left.delivery_count) == ({"id": 8}, 1)


@pytest.mark.parametrize(("said", "grace"), [({}, 30), ({"grace": 120}, 120)])
async def test_what_is_worked_on_too_long_when_it_stops_goes_back(
    said: dict[str, Any], grace: int
) -> None:
    app, clock, begun = App(), ManualClock(), asyncio.Event()

    @app.consumer("orders", group="billing")
    async def bill(order: Order) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with flintmq.connect("memory://", clock=clock) as mq:
        await mq.publish("orders", {"id": 7})
        running = AsyncExitStack()
        await running.enter_async_context(app.running(mq, **said))
        await begun.wait()
        stopped = asyncio.create_task(running.aclose())
        await clock.advance(grace - 1)
        assert not stopped.done()
        await clock.advance(1.1)
        await stopped
        (back,) = await mq.poll("orders", "billing")

    assert back.delivery_count == 1, "it was not tried to its end"


async def test_handlers_are_counted() -> None:
    app = App()

    @app.consumer("orders", group="billing", retries=0)
    async def bill(order: Order) -> None:
        if order.id == 8:
            raise ValueError("eight")

    async with run(app, raises=False) as t:
        await t.mq.publish_batch("orders", [{"id": 7}, {"id": 8}])
        await t.idle()
        (figures,) = t.running.figures()

    assert (figures.done, figures.failed, figures.dead, figures.running) == (1, 1, 1, 0)
    assert sum(figures.buckets) == 2
    text = prometheus_text([figures], processes=1, restarts=0)
    assert 'flintmq_handler_done_total{handler="bill",kind="consumer",topic="orders"} 1' in text
    assert 'le="+Inf"} 2' in text


# --- mistakes, found when a function is decorated


def mistake(decorate: Any, function: Any) -> str:
    with pytest.raises(InvalidRequest) as caught:
        decorate(function)
    return str(caught.value)


def test_two_arguments_cannot_both_get_the_value() -> None:
    def bill(order: Order, parcel: Parcel) -> None: ...

    text = mistake(App().consumer("orders"), bill)

    assert text.startswith("consumer test_two_arguments_cannot_both_get_the_value.<locals>.bill (")
    assert "both 'order' and 'parcel' would get the value" in text
    assert "Depends" in text


def test_a_type_that_nothing_decodes_to_is_refused() -> None:
    def bill(order: threading.Thread | int | Order | Parcel) -> None: ...

    assert "argument 'order' cannot be decoded to" in mistake(App().consumer("orders"), bill)


def test_an_annotation_that_is_not_there_at_run_time_is_refused() -> None:
    def bill(order: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    assert "names 'Missing', which is not defined" in mistake(App().consumer("orders"), bill)


def test_batches_need_a_list() -> None:
    def bill(order: Order) -> None: ...

    text = mistake(App().consumer("orders", max=9), bill)
    assert "max= asks for batches: annotate argument 'order' as list[T]" in text


def test_a_list_of_messages_needs_batches() -> None:
    def bill(orders: list[flintmq.Delivery]) -> None: ...

    assert "pass max= or linger= to get batches" in mistake(App().consumer("orders"), bill)


async def yields(order: dict[str, int]) -> Any:
    yield order


@pytest.mark.parametrize(
    ("decorated", "text"),
    [
        (42, "decorates a def or async def, not 42"),
        (App, "decorates a def or async def, not <class"),
        (yields, "has a yield, so calling it would do nothing"),
    ],
)
def test_what_can_never_be_called_as_a_handler_is_refused(decorated: Any, text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        App().consumer("orders")(decorated)
    with pytest.raises(InvalidRequest, match=text):
        App().task()(decorated)


def test_a_decorator_without_its_parentheses_says_how_it_is_written() -> None:
    """It would swallow the function, which then consumed nothing."""
    wrong: Any = lambda order: None  # noqa: E731
    with pytest.raises(
        InvalidRequest, match=r'write @app\.consumer\("orders"\) above the function'
    ):
        App().consumer(wrong)
    with pytest.raises(InvalidRequest, match=r"write @app\.cron"):
        App().cron(wrong)


def test_a_wrong_way_to_connect_is_seen_where_the_app_is_made() -> None:
    with pytest.raises(TypeError, match=r"App\(\) got an unexpected keyword argument 'api_kee'"):
        App("flint://localhost", api_kee="k")
    with pytest.raises(InvalidRequest, match="the URL of the broker is a str, not 42"):
        App(42)  # type: ignore[arg-type]


def test_variable_arguments_are_refused() -> None:
    def bill(*orders: Order) -> None: ...

    assert "*orders cannot be filled" in mistake(App().consumer("orders"), bill)


def test_dependencies_in_a_circle_are_refused() -> None:
    def one(other: Annotated[int, Depends(lambda: 1)]) -> int:
        return 1

    def two(it: Annotated[int, Depends(one)]) -> int:
        return 2

    one.__annotations__["other"] = Annotated[int, Depends(two)]

    def bill(order: Order, it: Annotated[int, Depends(one)]) -> None: ...

    assert "circular" in mistake(App().consumer("orders"), bill)


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ({"concurrency": 0}, "concurrency must be a whole number of at least 1"),
        ({"retries": -1}, "retries must be a whole number"),
        ({"dead_on": "KeyError"}, "dead_on must be an exception class"),
        ({"publish_to": "orders"}, "a loop"),
        ({"group": "a/b"}, "group name"),
    ],
)
def test_a_wrong_option_names_the_function(said: Any, text: str) -> None:
    def bill(order: Order) -> None: ...

    found = mistake(App().consumer("orders", **said), bill)
    assert text in found
    assert "bill (" in found


def test_an_unknown_option_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'retry'"):
        App().consumer("orders", retry=3)  # type: ignore[call-arg]


def test_two_consumers_of_one_group_are_refused() -> None:
    app = App()

    @app.consumer("orders", group="billing")
    def bill(order: Order) -> None: ...

    def send(order: Order) -> None: ...

    assert "pass another group=" in mistake(app.consumer("orders", group="billing"), send)


async def test_an_app_that_is_not_connected_says_how_to_connect_it() -> None:
    with pytest.raises(InvalidRequest, match="async with app:"):
        await App().publish("orders", b"")
