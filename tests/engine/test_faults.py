"""A fault in the engine itself: the broker stops, and everybody is told, now and later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from flintmq.batch import BatchBuilder
from flintmq.broker_api import Joining, ReaderOpening
from flintmq.engine.broker import Broker
from flintmq.engine.checkpoints import Checkpoints
from flintmq.engine.host import durable_broker
from flintmq.engine.leading.delaying import Delaying
from flintmq.engine.leading.feeds import Unsifted
from flintmq.engine.leading.intake import PublishIntake
from flintmq.engine.leading.queue_group import QueueGroup
from flintmq.engine.leading.sweeping import Sweeping
from flintmq.errors import BrokerFailed, FlintError, InvalidRequest, OutcomeUnknown
from flintmq.loop.pace import Allowance
from flintmq.rows import Origin, Run
from flintmq.storage.topic_log import TopicLog
from flintmq.testing import ManualClock, SimulatedFileSystem
from tests.engine.stepping import Life, small_sizes


@pytest.fixture(autouse=True, scope="module")
def sizes() -> Iterator[None]:
    with small_sizes():
        yield


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[type, str], None]:
    """Have a method raise what nobody expects."""

    def fail(owner: type, name: str) -> None:
        def broken(*_: object, **__: object) -> None:
            raise KeyError("a fault")

        monkeypatch.setattr(owner, name, broken)

    return fail


@pytest.fixture
async def life() -> Life:
    return await Life(SimulatedFileSystem()).open()


def all_verbs(broker: Broker) -> list[Coroutine[Any, Any, Any]]:
    rows = BatchBuilder()
    rows.append(b"late")
    reader: dict[str, Any] = {"name": "r", "start": None, "filter": None, "auto_create": True}
    member: dict[str, Any] = {**reader, "order": None, "holder": "me"}
    del member["name"]
    return [
        broker.publish("orders", rows, qos=1, auto_create=True, timeout=None),
        broker.publish("new", rows, qos=0, auto_create=True, timeout=None),
        broker.create_topic("another", {}),
        broker.delete_topic("orders"),
        broker.purge_topic("orders", None),
        broker.topics("*"),
        broker.topic_stats("orders"),
        broker.open_reader(ReaderOpening("orders", **reader)),
        broker.join_group(Joining("orders", "g", **member)),
        broker.stage("job", 1, "0", [("orders", rows)], auto_create=True),
        broker.extents("orders", None),
    ]


async def check_stopped(life: Life) -> None:
    for outcome in await life.do(*all_verbs(life.broker)):
        assert isinstance(outcome, BrokerFailed), outcome
        assert "restart it" in str(outcome)


async def test_what_cannot_be_applied_stops_the_broker_and_everybody_hears_of_it(
    life: Life, failing: Callable[[type, str], None]
) -> None:
    told: list[FlintError] = []
    life.broker.host.on_failed = told.append
    await life.run(life.broker.create_topic("orders", {}))
    await life.publish("orders", b"safe")
    reader = await life.run(
        life.broker.open_reader(
            ReaderOpening("orders", name=None, start="latest", auto_create=False)
        )
    )
    member = await life.run(
        life.broker.join_group(
            Joining(
                "orders",
                "g",
                order=None,
                filter=None,
                start="latest",
                holder="me",
                auto_create=False,
            )
        )
    )
    failing(TopicLog, "append")

    first, second, waiting, taking = await life.do(
        life.publishing("orders", b"perhaps"),
        life.publishing("orders", b"perhaps too", producer="p"),
        reader.wait(None),
        member.take(1, 30.0, None),
    )

    assert isinstance(first, OutcomeUnknown)
    assert isinstance(second, OutcomeUnknown)
    assert isinstance(waiting, BrokerFailed)
    assert isinstance(taking, BrokerFailed)
    assert [type(error) for error in told] == [BrokerFailed]
    assert "KeyError" in str(told[0])
    await check_stopped(life)
    await life.run(life.broker.close())


async def test_a_broker_that_stopped_comes_back_with_all_it_acknowledged(
    monkeypatch: pytest.MonkeyPatch, life: Life
) -> None:
    await life.run(life.broker.create_topic("orders", {}))
    await life.publish("orders", b"safe")
    with monkeypatch.context() as patch:
        patch.setattr(TopicLog, "append", None)
        (outcome,) = await life.do(life.publishing("orders", b"perhaps"))
        assert isinstance(outcome, OutcomeUnknown)
        await life.run(life.broker.close())

    again = await Life(life.disk).open()
    assert [value for _, value in again.messages("orders")] == [b"safe", b"perhaps"]


async def test_a_command_that_cannot_be_replayed_is_named(
    life: Life, failing: Callable[[type, str], None]
) -> None:
    await life.run(life.broker.create_topic("orders", {}))
    await life.publish("orders", b"safe")
    disk = life.disk.crash("everything")
    failing(TopicLog, "append")

    with pytest.raises(BrokerFailed, match=r"applying Append, index 2 of the journal, again"):
        await Life(disk).open()


@pytest.mark.parametrize(
    ("owner", "name", "options"),
    [
        (Sweeping, "arm", {"retention_age": 1}),
        (Delaying, "_deliver_due", {}),
        (QueueGroup, "look", {}),
    ],
)
@pytest.mark.parametrize("kind", ["memory", "durable"])
async def test_a_fault_in_a_timer_stops_the_broker(
    kind: str,
    owner: type,
    name: str,
    options: dict[str, Any],
    failing: Callable[[type, str], None],
) -> None:
    clock = ManualClock()
    broker = Broker(clock)
    if kind == "durable":
        broker = durable_broker(SimulatedFileSystem(), clock=clock)
        await broker.open(threaded=False)

        async def step() -> bool:
            return broker.host.step()

        clock.wait_also_for(step)

    async def run(work: Coroutine[Any, Any, Any]) -> Any:
        task = asyncio.ensure_future(work)
        await clock.settle()
        return task.result()

    rows = BatchBuilder()
    rows.append_row(b"x", deliver_at=clock.now_ms() + 2000)
    rows.append_row(b"x")
    await run(broker.create_topic("orders", options))
    await run(broker.publish("orders", rows, qos=1, auto_create=True, timeout=None))
    member = await run(
        broker.join_group(
            Joining(
                "orders", "g", order=None, filter=None, start=None, holder="me", auto_create=False
            )
        )
    )
    await run(member.take(1, 1.0, 0))
    failing(owner, name)

    await clock.advance(5)

    for verb in all_verbs(broker):
        with pytest.raises(BrokerFailed, match="KeyError"):
            await run(verb)
    await run(broker.close())


async def test_a_fault_in_a_checkpoint_stops_the_broker(
    life: Life, failing: Callable[[type, str], None]
) -> None:
    await life.run(life.broker.create_topic("orders", {}))
    await life.publish("orders", b"safe")
    failing(Checkpoints, "begin_plan")

    with pytest.raises(BrokerFailed, match="writing a checkpoint"):
        await life.run(life.broker.host.checkpoint())
    await check_stopped(life)
    await life.run(life.broker.close())


async def test_a_close_tells_of_a_fault_in_its_checkpoint(
    life: Life, failing: Callable[[type, str], None]
) -> None:
    await life.run(life.broker.create_topic("orders", {}))
    await life.publish("orders", b"safe")
    failing(Checkpoints, "begin_plan")

    with pytest.raises(BrokerFailed, match="writing a checkpoint"):
        await life.run(life.broker.close())

    life.disk.lock("").release()  # it is let go all the same


async def test_an_error_of_ours_in_a_checkpoint_is_no_failure_of_the_disk(
    life: Life, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: Checkpoints) -> None:
        raise InvalidRequest("nobody asked for this")

    told: list[FlintError] = []
    life.broker.host.on_failed = told.append
    monkeypatch.setattr(Checkpoints, "begin_plan", broken)

    with pytest.raises(BrokerFailed, match="nobody asked for this"):
        await life.run(life.broker.host.checkpoint())

    assert [type(error) for error in told] == [BrokerFailed]
    assert "the disk has failed" not in caplog.text
    await life.run(life.broker.close())


async def test_a_fault_in_a_filter_that_goes_on_in_a_later_turn_stops_the_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Broker(ManualClock())
    feed = await broker.open_feed(
        "orders", capacity=10, overflow="drop_oldest", filter=lambda message: True
    )
    calls = 0

    def sift(*_: object) -> None:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise KeyError("a fault")

    rows = BatchBuilder()
    rows.append(b"x")
    waiting = Unsifted(Run(rows.seal(), 0, 1, Origin("orders", 0, None, None)), sift, True)
    feed._unsifted.append(waiting)
    monkeypatch.setattr(Allowance, "is_over", lambda _: True)
    feed.sift(waiting)  # behind the first: only later turns look at it
    feed._sift_some()
    await asyncio.sleep(0)

    with pytest.raises(BrokerFailed, match="KeyError"):
        await broker.topics("*")


async def test_a_fault_at_the_end_of_a_turn_stops_the_broker(
    life: Life, failing: Callable[[type, str], None]
) -> None:
    await life.run(life.broker.create_topic("orders", {}))
    await life.run(life.broker.create_topic("bills", {}))
    failing(PublishIntake, "propose_gathered")

    outcomes = await life.do(
        life.publishing("orders", b"never"), life.publishing("bills", b"nor this")
    )

    assert [type(outcome) for outcome in outcomes] == [BrokerFailed, BrokerFailed]
    await check_stopped(life)
