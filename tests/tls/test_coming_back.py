"""A connection over TLS that is lost, and a broker that comes back with another certificate."""

from __future__ import annotations

import asyncio

import pytest

import flintmq
from flintmq.net.remote import link
from flintmq.net.remote.broker import RemoteBroker

from ..remote.proxy import Proxy
from .conftest import Run
from .test_handshakes import tls
from .throw_away import Authority, eventually, served


def test_a_lost_connection_is_made_again_and_nothing_is_lost_or_doubled(
    run: Run, ca: Authority
) -> None:
    async def story() -> None:
        async with served(tls(ca.pair())) as (_, port):
            proxy = Proxy(("127.0.0.1", port))
            host, port = await proxy.start()
            receipts: list[flintmq.Receipt] = []
            done = asyncio.Event()
            async with flintmq.connect(f"flints://{host}:{port}", tls_ca=ca.file) as mq:

                async def publish() -> None:
                    while not done.is_set():
                        receipts.append(await mq.publish("orders", b"x" * 500))

                publishing = asyncio.ensure_future(publish())
                for _ in range(5):
                    count = len(receipts)
                    await eventually(lambda count=count: len(receipts) > count + 5)  # type: ignore[misc]
                    proxy.cut()
                done.set()
                await publishing
                stats = await mq.topic_stats("orders")
            await proxy.close()
        assert [receipt.offset for receipt in receipts] == list(range(stats.message_count))

    run(story())


def test_a_certificate_that_is_not_trusted_any_more_is_heard_of_at_once_and_not_tried_for_ever(
    run: Run, ca: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "TRY_AGAIN_SECONDS", 0.05)

    async def story() -> None:
        pair = ca.pair()
        secured = tls(pair)
        async with served(secured) as (_, port):
            proxy = Proxy(("127.0.0.1", port))
            host, port = await proxy.start()
            async with (
                flintmq.connect(f"flints://{host}:{port}", tls_ca=ca.file) as mq,
                mq.reader("orders") as reader,
                mq.subscribe("jobs", group="workers") as deliveries,
            ):
                await mq.publish("orders", b"0")
                assert await reader.read(timeout=60) is not None
                reading = asyncio.ensure_future(reader.read())
                working = asyncio.ensure_future(anext(deliveries))
                await mq.topics()
                old = ca.expired()
                pair.cert.write_bytes(old.cert.read_bytes())
                pair.key.write_bytes(old.key.read_bytes())
                assert secured.reload()
                proxy.cut()

                with pytest.raises((flintmq.TlsFailed, flintmq.OutcomeUnknown), match="expired"):
                    await asyncio.wait_for(reading, 60)
                with pytest.raises((flintmq.TlsFailed, flintmq.OutcomeUnknown), match="expired"):
                    await asyncio.wait_for(working, 60)
                assert isinstance(mq._broker, RemoteBroker)
                far = mq._broker.link
                assert far.failure is not None
                assert far._connecting is None, "nobody asks, nobody tries"
                with pytest.raises(flintmq.TlsFailed, match="has expired; renew it"):
                    await asyncio.wait_for(mq.publish("orders", b"1"), 60)
                with pytest.raises(flintmq.TlsFailed, match="has expired; renew it"):
                    await asyncio.wait_for(mq.topics(), 60)

                ca.pair(over=pair)
                assert secured.reload()
                assert (await asyncio.wait_for(mq.publish("orders", b"2"), 60)).offset == 1
                message = await asyncio.wait_for(reader.read(), 60)
                assert message is not None
                assert message.value == b"2"
            await proxy.close()

    run(story())
