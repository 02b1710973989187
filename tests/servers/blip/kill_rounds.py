"""Kill a broker that BlipMQ's clients publish to, and see that what a PONG stood for is there.

python -m tests.servers.blip.kill_rounds --rounds 10
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from .raw import ACK, PING, PONG, RawBlip
from .served import ServedBlip

PUBLISHERS = 4
BURST = 20
"""Publishes between two PINGs."""


@dataclass
class Result:
    rounds: int = 0
    safe: int = 0
    """Publishes that were followed by an answered PING."""
    found: int = 0
    polled: int = 0
    """What came out of a subscription of version 1, made before the first kill."""
    lost: set[bytes] = field(default_factory=set)


async def publish(client: RawBlip, name: str, safe: set[bytes]) -> None:
    """Until the connection ends, which it does by the kill."""
    number = 0
    while True:
        burst = []
        for _ in range(BURST):
            burst.append(f"{name}-{number}".encode())
            client.publish("orders", burst[-1], 1)
            number += 1
        ping = client.send(PING)
        got = await client.next()
        assert (got.type, got.id) == (PONG, ping), got
        safe.update(burst)


async def killed_round(address: tuple[str, int], served: ServedBlip, name: str) -> set[bytes]:
    """Publish from several connections and kill in the middle; what was said to be safe."""
    safe: set[bytes] = set()
    clients = []
    for n in range(PUBLISHERS):
        client = await RawBlip(address).__aenter__()
        clients.append(await client.login(1 + n % 2))
    tasks = [
        asyncio.ensure_future(publish(client, f"{name}-{n}", safe))
        for n, client in enumerate(clients)
    ]
    while len(safe) < PUBLISHERS * BURST:  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    await asyncio.sleep(random.uniform(0, 0.3))
    served.process.send_signal(signal.SIGKILL)
    await served.wait()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(outcome, EOFError | OSError | asyncio.IncompleteReadError), outcome
    for client in clients:
        await client.__aexit__()
    return safe


async def stored(address: tuple[str, int], until: bytes) -> set[bytes]:
    """Everything in the topic, up to a message that was published last."""
    found: set[bytes] = set()
    async with RawBlip(address) as client:
        await client.login(2)
        client.publish("orders", until, 1)
        await client.ping()
        await client.subscribe("orders", 0, offset=0)
        while True:
            message = (await client.delivery()).message
            if message == until:
                return found
            found.add(message)


async def rounds(directory: Path, count: int) -> Result:
    result = Result()
    safe: set[bytes] = set()
    number = 0
    for n in range(count):
        served = ServedBlip(directory)
        try:
            await served.start()
            if not number:
                async with RawBlip(served.blip) as client:
                    await client.login(1)
                    number = await client.subscribe("orders", 1)
            safe |= await killed_round(served.blip, served, f"r{n}")
        finally:
            await served.leave()
        result.rounds += 1
    served = ServedBlip(directory)
    try:
        await served.start()
        found = await stored(served.blip, b"the end")
        result.safe, result.found, result.lost = len(safe), len(found), safe - found
        async with RawBlip(served.blip) as client:
            await client.login(1)
            for _ in range(50):
                got = await client.poll(number)
                assert got is not None
                assert got.message in found
                client.send(ACK, number.to_bytes(8, "big"), got.tag)
                result.polled += 1
    finally:
        await served.leave()
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        result = asyncio.run(rounds(Path(directory) / "data", arguments.rounds))
    print(
        f"{result.rounds} kills: {result.safe} publishes were safe, {result.found} are there, "
        f"{len(result.lost)} lost; {result.polled} polled by a subscription of before"
    )
    return 1 if result.lost else 0


if __name__ == "__main__":
    raise SystemExit(main())
