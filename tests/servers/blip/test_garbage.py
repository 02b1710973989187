"""Bytes that nobody meant: every connection ends or goes on, and nothing else happens."""

from __future__ import annotations

import logging
import random

import pytest

from flintmq.engine.broker import Broker

from .raw import (
    AUTH,
    HELLO,
    RawBlip,
    RawFlat,
    command,
    frame,
    publish_payload,
    text,
)

Address = tuple[str, int]


def story(chance: random.Random) -> bytes:
    """What a client says, in a random order, with some bytes changed."""
    version = chance.choice([1, 2])
    said = frame(HELLO, 1, version.to_bytes(2, "big")) + frame(AUTH, 2, text("k"))
    for id in range(3, 12):
        type = chance.randint(1, 10)
        payload = chance.choice(
            [
                b"",
                bytes(8),
                chance.randbytes(chance.randint(0, 20)),
                publish_payload("t", b"m", chance.randint(0, 3), ttl=5, key=b"k"),
                text("t") + bytes([chance.randint(0, 255)]) + text("g") + bytes(8),
            ]
        )
        said += frame(type, id, payload)
    if chance.random() < 0.3:
        said = command(chance.randint(0, 5), b"t", b"m", 5) * 3
    damaged = bytearray(said)
    for _ in range(chance.randint(0, 3)):
        damaged[chance.randrange(len(damaged))] = chance.randint(0, 255)
    return bytes(damaged)


@pytest.mark.parametrize("seed", range(4))
async def test_garbage_is_the_trouble_of_who_sends_it(
    address: Address, broker: Broker, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    chance = random.Random(seed)
    if seed % 2:
        await broker.create_topic("t", {"partitions": 3})
    async with RawBlip(address) as other:
        await other.login()
        number = await other.subscribe("other", 1)
        for _ in range(25):
            async with RawFlat(address) as client:
                client.writer.write(story(chance))
                client.writer.write_eof()
                await client.reader.read()
        other.publish("other", b"still here", 1)
        got = await other.poll(number)
        assert got is not None
        assert got.message == b"still here"
    assert [one.message for one in caplog.records if one.levelno >= logging.ERROR] == []
