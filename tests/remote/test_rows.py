"""Small publishes go out as rows: those of a turn in one frame, whatever their topics, and their
receipts come back in one. What is stored is what a batch would have been."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flintmq
from flintmq.batch import BatchBuilder
from flintmq.engine.broker import Broker
from flintmq.errors import FlintError, InvalidRequest, TopicFull
from flintmq.net.remote.link import Link
from flintmq.net.remote.send_buffer import FEW_ROWS, SendBuffer, row_fields
from flintmq.net.server.native import NativeServer
from flintmq.net.server.rows import RowBatches
from flintmq.net.server.session import Session
from flintmq.net.wire import hello
from flintmq.net.wire.frames import Frame, FrameDecoder, encode_frame
from flintmq.net.wire.operations import Op, RowFields, RowsRequest, encode
from tests.remote.proxy import Proxy

# --- the same bytes

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
times = st.integers(-1000, 2**40)
rows = st.lists(
    st.fixed_dictionaries(
        {"value": st.binary(max_size=20)},
        optional={
            "key": texts | st.binary(max_size=8),
            "headers": st.dictionaries(texts, texts | st.binary(max_size=4), max_size=3),
            "priority": st.integers(0, 7),
            "expiry": times,
            "deliver_at": times,
            "content_type": texts.filter(bool),
        },
    ),
    min_size=1,
    max_size=9,
)


@given(rows, st.integers(0, 2**64 - 9))
def test_rows_become_the_batch_that_their_client_would_have_sealed(
    each: list[dict[str, Any]], sequence: int
) -> None:
    builder = BatchBuilder()
    for row in each:
        if len(row) == 1:
            builder.append(row["value"])
        else:
            builder.append_row(**row)

    sent = encode(("me", [("orders", sequence, row_fields(builder))]))
    [frame] = FrameDecoder().feed(b"".join(encode_frame(Op.PUBLISH_ROWS, 1, sent)))
    batches = RowBatches()
    [publish] = batches.publishes(frame)
    batch = batches.batch(publish)

    assert batch.encode() == builder.seal(producer="me", base_sequence=sequence).encode()
    assert batch.producer == "me"
    assert batch.size(0, len(each)) == builder.size(0, len(each))


@pytest.mark.parametrize(
    "row",
    [
        RowFields(b"v", priority=8),
        RowFields(b"v", priority=-1),
        RowFields(b"v", expiry=-(1 << 60)),
        RowFields(b"v", deliver_at=1 << 63),
        RowFields(b"v", key=7),
        RowFields(b"v", headers={"a": None}),
    ],
    ids=repr,
)
def test_a_row_is_checked_as_one_of_a_batch_is(row: RowFields) -> None:
    with pytest.raises(InvalidRequest):
        RowBatches().batch(RowsRequest("orders", 0, [row]))


@pytest.mark.parametrize(("sequence", "count"), [(-1, 1), (2**64 - 1, 2), (0, 0)])
def test_a_publish_of_rows_has_rows_and_sequences(sequence: int, count: int) -> None:
    with pytest.raises(InvalidRequest):
        RowBatches().batch(RowsRequest("orders", sequence, [b"row"] * count))


# --- over the wire


class Seen:
    """The frames of publishes that were received by the server, and of answers by the client."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.up: list[int] = []
        self.down: list[int] = []
        receive, hear = Session.receive, Link._receive

        def spy_up(session: Session, frame: Frame) -> None:
            self.up += [frame.op] if frame.op in (Op.PUBLISH, Op.PUBLISH_ROWS) else []
            receive(session, frame)

        def spy_down(link: Link, frames: list[Frame]) -> None:
            self.down += [frame.op for frame in frames]
            hear(link, frames)

        patch.setattr(Session, "receive", spy_up)
        patch.setattr(Link, "_receive", spy_down)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    return Seen(monkeypatch)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NativeServer]:
    async with flintmq.connect(f"file://{tmp_path}/data") as near:
        broker = near._broker
        assert isinstance(broker, Broker)
        server = NativeServer(broker)
        yield server
        await server.close()


async def everything(mq: flintmq.Client, topic: str) -> list[flintmq.Message]:
    async with mq.reader(topic, start="earliest") as reader:
        return list(await reader.read_batch(1000, timeout=0))


async def test_what_a_turn_publishes_to_many_topics_is_one_frame_each_way(
    url: str, seen: Seen
) -> None:
    async with flintmq.connect(url) as mq:
        await mq.create_topic("orders", partitions=4)
        for number in range(20):
            await mq.create_topic(f"t{number}")
        seen.down.clear()

        plain = [mq.publish(f"t{number % 20}", f"{number}".encode()) for number in range(60)]
        rich = [mq.publish("orders", {"n": number}, partition=number % 4) for number in range(4)]
        receipts = await asyncio.gather(*plain, *rich)

        assert seen.up == [Op.PUBLISH_ROWS]
        assert set(seen.down) == {Op.RECEIPTS}
        assert len(seen.down) <= 2  # topics with more to think about are told a moment later
        assert [(r.topic, r.offset, r.count) for r in receipts[:60]] == [
            (f"t{number % 20}", number // 20, 1) for number in range(60)
        ]
        assert [(r.topic, r.partition, r.offset) for r in receipts[60:]] == [
            ("orders", number, 0) for number in range(4)
        ]
        assert {r.durability for r in receipts} == {"synced"}
        found = [m.value for m in await everything(mq, "t7")]
        assert found == [b"7", b"27", b"47"]


async def test_who_publishes_one_by_one_does_not_wait_for_the_end_of_a_turn(
    url: str, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[SendBuffer] = []
    end_of_turn = SendBuffer._end_of_turn

    def counted(send_buffer: SendBuffer) -> None:
        turns.append(send_buffer)
        end_of_turn(send_buffer)

    monkeypatch.setattr(SendBuffer, "_end_of_turn", counted)
    async with flintmq.connect(url) as mq:
        for number in range(10):
            await mq.publish("orders", b"x" if number % 2 else {"n": number})
        assert len(turns) == 1
        assert seen.up == [Op.PUBLISH_ROWS] * 10

        await asyncio.gather(*(mq.publish(f"t{n}", b"x") for n in range(9)))
        await asyncio.gather(*(mq.publish(f"t{n}", b"x") for n in range(9)))
        assert seen.up[10:] == [Op.PUBLISH_ROWS] * 3  # one and eight, then nine
        assert [m.value for m in await everything(mq, "orders")][1::2] == [b"x"] * 5


async def test_many_rows_and_large_ones_go_as_batches(url: str, seen: Seen) -> None:
    async with flintmq.connect(url) as mq:
        await mq.create_topic("orders")
        await asyncio.gather(*(mq.publish("orders", b"x") for _ in range(FEW_ROWS + 1)))
        await mq.publish("orders", b"x" * 100_000)
        await mq.publish("orders", b"x", qos=0)

        assert seen.up == [Op.PUBLISH] * 3


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"retention_age": 3600.0},
        {"ttl": 60.0},
        {"compact": "key"},
        {"keep_until_settled": True},
    ],
    ids=str,
)
async def test_what_a_turn_publishes_is_stored_as_one_batch_where_nothing_is_refused(
    url: str, options: flintmq.TopicKeywords
) -> None:
    async with flintmq.connect(url) as mq:
        await mq.create_topic("orders", **options)
        receipts = await asyncio.gather(
            *(mq.publish("orders", b"x", key=f"{n}", ttl=9) for n in range(FEW_ROWS + 1))
        )
        async with mq.reader("orders", start="earliest") as reader:
            rows = await reader.read_batch(1000)

        assert [one.offset for one in receipts] == list(range(FEW_ROWS + 1))
        assert len(rows) == FEW_ROWS + 1
        assert len(rows.runs) == 1


async def test_a_broker_that_does_not_know_rows_is_sent_batches(
    url: str, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hello, "FEATURES", hello.DURATIONS)
    async with flintmq.connect(url) as mq:
        receipt = await mq.publish("orders", b"x", key="k", ttl=60)

        assert (receipt.offset, seen.up) == (0, [Op.PUBLISH])
        assert [m.key for m in await everything(mq, "orders")] == ["k"]


async def test_rows_keep_what_was_said_of_a_message(url: str, seen: Seen) -> None:
    async with flintmq.connect(url) as mq:
        await mq.publish("orders", "text", key=b"\x00k", headers={"a": "1", "b": b"2"}, priority=7)
        [message] = await everything(mq, "orders")

        assert seen.up == [Op.PUBLISH_ROWS]
        assert (message.value, message.key, message.priority) == (b"text", b"\x00k", 7)
        assert message.headers == {"a": "1", "b": b"2"}
        assert message.content_type is not None


async def test_one_that_is_refused_does_not_concern_the_others_of_its_frame(
    url: str, seen: Seen
) -> None:
    async with flintmq.connect(url) as mq:
        await mq.create_topic("orders")
        good, bad, worse = await asyncio.gather(
            mq.publish("orders", b"x"),
            mq.publish("orders.>", b"x"),
            mq.publish("\ud800", b"x"),
            return_exceptions=True,
        )

        assert isinstance(good, flintmq.Receipt)
        assert isinstance(bad, FlintError)
        assert isinstance(worse, FlintError)
        assert (await mq.publish("orders", b"y")).offset == 1


async def test_one_that_waits_for_room_does_not_hold_up_the_others(
    url: str, server: NativeServer, seen: Seen
) -> None:
    async with flintmq.connect(url) as mq:
        await mq.create_topic("free")
        await mq.create_topic("full", retention_count=1, overflow="block")
        await mq.publish("full", b"1")
        known = mq._broker._topics  # type: ignore[attr-defined]
        known.by_name.clear()  # as if it had not heard of it yet

        waiting = asyncio.ensure_future(mq.publish("full", b"2", timeout=60))
        stored = await mq.publish("free", b"x", timeout=60)

        assert stored.offset == 0
        assert not waiting.done()
        assert seen.up[-1] == Op.PUBLISH_ROWS
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await mq.purge_topic("full")
        assert [m.value for m in await everything(mq, "full")] == []


async def test_a_full_topic_refuses_rows_in_time(url: str, seen: Seen) -> None:
    async with flintmq.connect(url) as mq:
        await mq.create_topic("full", retention_count=1, overflow="reject")
        await mq.publish("full", b"1")
        mq._broker._topics.by_name.clear()  # type: ignore[attr-defined]

        with pytest.raises(TopicFull):
            await mq.publish("full", b"2")
        assert seen.up[-1] == Op.PUBLISH_ROWS


@pytest.mark.parametrize("way", ["up", "down"])
async def test_rows_that_are_sent_again_are_there_once(
    url: str, proxy: Proxy, server: NativeServer, way: Any
) -> None:
    async with flintmq.connect(url) as mq:
        await mq.publish("orders", b"0")
        proxy.cut_at = (way, proxy.passed[way] + 20)
        receipts = await asyncio.gather(*(mq.publish(f"t{n}", b"x") for n in range(5)))

        assert [r.offset for r in receipts] == [0] * 5
        assert not any(r.duplicate for r in receipts)
        for n in range(5):
            assert len(await everything(mq, f"t{n}")) == 1


async def test_rows_whose_session_is_gone_are_there_once(
    url: str, proxy: Proxy, server: NativeServer
) -> None:
    async with flintmq.connect(url) as mq:
        await mq.publish("orders", b"0")

        def forget() -> None:
            for session in list(server.sessions.values()):
                session.end()

        proxy.on_cut = forget
        proxy.cut_at = ("down", proxy.passed["down"] + 1)
        receipts = await asyncio.gather(
            *(mq.publish(f"t{n}", {"n": n}, headers={"a": "b"}) for n in range(5))
        )

        assert [r.offset for r in receipts] == [0] * 5
        for n in range(5):
            [message] = await everything(mq, f"t{n}")
            assert message.headers == {"a": "b"}
