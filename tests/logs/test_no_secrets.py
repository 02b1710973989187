"""Nothing of what messages hold gets into a log line, whatever happens to them."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import flintmq
from flintmq.engine.broker import Broker
from flintmq.net.server.gate import gate_of
from flintmq.net.server.limits import Limits
from flintmq.net.server.native import NativeServer
from flintmq.net.server.slowing import Slowing
from flintmq.net.wire.frames import encode_frame
from flintmq.net.wire.operations import Op
from flintmq.observe.logs import configure
from flintmq.serde.codec import Codec
from tests.servers.test_garbage import raw

MARK = "MARKED-7f3a"
VALUE = MARK.encode()


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    logs = configure(format="json", level="debug", stream=stream)
    yield stream
    logs.close()


async def test_a_key_that_is_refused_is_not_in_the_log(lines: io.StringIO, tmp_path: Path) -> None:
    broker = Broker(None, Codec())
    gate = gate_of("required", tmp_path / "keys.json", Slowing(first_seconds=0.0))
    server = NativeServer(broker, gate=gate)
    host, port = await server.start("127.0.0.1", 0)
    try:
        for key in (MARK, f"flint_{MARK}_{MARK}", None):
            with pytest.raises(flintmq.NotAuthenticated):
                await flintmq.connect(f"flint://{host}:{port}", api_key=key)
        with pytest.raises(flintmq.FlintError):
            await flintmq.connect(f"flint://{MARK}@{host}:{port}")
    finally:
        await server.close()
        await broker.close()
    for handler in logging.getLogger().handlers:
        handler.flush()
    told = lines.getvalue()

    assert '"event": "login_refused"' in told
    assert MARK not in told


async def test_a_busy_story_leaves_no_payload_in_the_log(lines: io.StringIO) -> None:
    broker = Broker(None, Codec())
    server = NativeServer(broker, limits=Limits(connections=2))
    host, port = await server.start("127.0.0.1", 0)
    url = f"flint://{host}:{port}"
    try:
        async with flintmq.connect(url) as mq:
            await mq.create_topic("jobs", max_deliveries=2, retention_count=50, overflow="reject")
            for number in range(20):
                await mq.publish(
                    "jobs", VALUE, key=f"{MARK}-{number}", headers={MARK: MARK}, content_type=MARK
                )
            async with mq.live("jobs"), mq.reader("jobs", start="earliest") as reader:
                await reader.read_batch(10, timeout=1)
            for message in await mq.poll("jobs", "g", max=5):
                await message.reject(f"it says {MARK}")
            for _ in range(2):
                await mq.nack(await mq.poll("jobs", "g", max=5))
            await mq.redrive("jobs", "g")
            with pytest.raises(flintmq.TopicFull):
                await mq.publish_batch("jobs", [VALUE] * 60)
            for bad in ({"filter": f"value == '{MARK}' and"}, {"filter": f"nothing.{MARK} == 1"}):
                with suppress(flintmq.FlintError):
                    await mq.poll("jobs", "h", **bad)  # type: ignore[arg-type]
            # What the broker does not understand, with a payload in it.
            async with raw((host, port)) as client:
                await client.open()
                client.send(b"".join(encode_frame(Op.PUBLISH, 1, b"", [VALUE * 50])))
                await client.wait_closed()
            async with raw((host, port)) as client:
                client.send(b"FLNT" + VALUE * 50)
                await client.wait_closed()
            async with raw((host, port)) as client:
                client.send(b"FLNT")
                with suppress(flintmq.FlintError):
                    await flintmq.connect(url, timeout=0.5)
    finally:
        await server.close()
        await broker.close()
    for handler in logging.getLogger().handlers:
        handler.flush()
    told = lines.getvalue()

    assert MARK not in told
    for event in ("topic_created", "dead_letters", "client_disconnected", "connection_turned_away"):
        assert f'"event": "{event}"' in told, "the story is busy enough"
