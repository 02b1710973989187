"""The documentation is enough to write a client from."""

from __future__ import annotations

import asyncio

import flintmq

from .plain_client import PlainClient


async def test_a_client_written_from_the_documentation_publishes_and_reads(
    address: tuple[str, int], url: str
) -> None:
    def speak() -> tuple[object, ...]:
        client = PlainClient(*address)
        receipt = client.publish("orders", [b"one", b"two", b"", b"four" * 100])
        stream = client.reader("orders", "n")
        first = client.take(stream, 2, 1.0)
        rest = client.take(stream, 100, 1.0)
        nothing = client.take(stream, 100, 0.01)
        committed = client.ask(52, [stream])[0]
        client.close()
        return receipt[:3], first, rest, nothing, committed

    said = await asyncio.to_thread(speak)

    assert said == (
        ["orders", 0, 4],
        [(0, b"one"), (1, b"two")],
        [(2, b""), (3, b"four" * 100)],
        [],
        4,
    )
    async with flintmq.connect(url) as mq, mq.reader("orders") as reader:
        assert (await reader.read_batch(10)).values == [b"one", b"two", b"", b"four" * 100]
        assert (await mq.topic_stats("orders")).lag == {"n": 0, "*1": 0}


async def test_both_clients_read_what_the_other_has_published(
    address: tuple[str, int], url: str
) -> None:
    async with flintmq.connect(url) as mq:
        await mq.publish_batch("orders", [b"%d" % n for n in range(500)])
        await mq.publish("orders", b"last")

        def speak() -> list[tuple[int, bytes]]:
            client = PlainClient(*address)
            stream = client.reader("orders")
            rows = []
            while got := client.take(stream, 70, 0):
                rows += got
            client.close()
            return rows

        rows = await asyncio.to_thread(speak)
    assert rows == [(n, b"%d" % n) for n in range(500)] + [(500, b"last")]
