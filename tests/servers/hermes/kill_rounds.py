"""`kill -9` of `flintmq hermesd` under load from HermesMQ clients, time and again.

    .venv/bin/python -m tests.servers.hermes.kill_rounds --rounds 10

After each kill it is started on the same directory. Nothing that was answered Produced is lost or
at another offset, a producer that repeats what it has no answer to is stored once, and nothing
whose ack was answered comes again.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
import tempfile
from pathlib import Path

from .client import HermesClient, Refused

TOPIC, GROUP = "killed", "g"
LOST = (ConnectionError, asyncio.IncompleteReadError, TimeoutError)


class Hermesd:
    """The daemon as a process."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: asyncio.subprocess.Process | None = None
        self.address = ("", 0)

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "flintmq.cli", "hermesd", "--data-dir", str(self._directory)),
            *("--client-addr", "127.0.0.1:0", "--metrics-addr", "off"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert self._process.stdout is not None
        line = (await asyncio.wait_for(self._process.stdout.readline(), 60)).decode()
        host, _, port = line.split("hermes://")[1].split(",")[0].rpartition(":")
        self.address = host, int(port)

    async def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


class Known:
    """What clients were told, over all rounds."""

    def __init__(self) -> None:
        self.produced: dict[int, bytes] = {}
        self.acked: set[int] = set()
        self.open: dict[str, int] = {}
        """Producers and the sequence they have no answer to."""
        self.sequences: dict[tuple[str, int], int] = {}

    def was_produced(self, offset: int, payload: bytes) -> None:
        known = self.produced.setdefault(offset, payload)
        assert known == payload, f"offset {offset} was given to {known!r} and to {payload!r}"


async def produce_pipelined(address: tuple[str, int], known: Known, name: str) -> None:
    async with await HermesClient.connect(address) as client:
        number = 0
        while True:
            payloads = [b"%s %d" % (name.encode(), number + n) for n in range(32)]
            number += 32
            for payload in payloads:
                client.send("produce", topic=TOPIC, payload=payload, priority=number % 3)
            for payload in payloads:
                known.was_produced((await client.read_ok()).offset, payload)


async def produce_once(address: tuple[str, int], known: Known, producer: str) -> None:
    """One by one, by number: what was not answered before the kill is sent again first."""
    async with await HermesClient.connect(address) as client:
        while True:
            sequence = known.open.setdefault(producer, 0)
            payload = b"%s #%d" % (producer.encode(), sequence)
            offset = await client.produce(TOPIC, payload, producer_id=producer, seq=sequence)
            known.was_produced(offset, payload)
            known.sequences[producer, sequence] = offset
            known.open[producer] = sequence + 1


async def poll_and_ack(address: tuple[str, int], known: Known) -> None:
    async with await HermesClient.connect(address) as client:
        while True:
            items = await client.poll(TOPIC, GROUP, max=20, wait_ms=1000)
            for item in items:
                assert item.offset not in known.acked, f"offset {item.offset} was acked, and came"
                client.send("ack", topic=TOPIC, group=GROUP, lease_id=item.lease_id)
            for item in items:
                await client.read_ok()
                known.acked.add(item.offset)


async def subscribe_and_ack(address: tuple[str, int], known: Known) -> None:
    """Acks of a subscriber are not answered: they prove nothing, and do no harm."""
    async with await HermesClient.connect(address) as client:
        client.send("subscribe", topic=TOPIC, group=GROUP, prefetch=8)
        while True:
            item = await client.pushed(60)
            assert item.offset not in known.acked, f"offset {item.offset} was acked, and came"
            client.send("ack", lease_id=item.lease_id)


async def until_killed(work: object) -> None:
    with contextlib.suppress(*LOST):
        await work  # type: ignore[misc]


async def one_round(daemon: Hermesd, known: Known, number: int, seconds: float) -> None:
    await daemon.start()
    address = daemon.address
    async with asyncio.TaskGroup() as clients:
        for work in (
            produce_pipelined(address, known, f"round {number} a"),
            produce_pipelined(address, known, f"round {number} b"),
            produce_once(address, known, "p"),
            produce_once(address, known, "q"),
            poll_and_ack(address, known),
            subscribe_and_ack(address, known),
        ):
            clients.create_task(until_killed(work))
        await asyncio.sleep(seconds)
        await daemon.kill()


async def check(daemon: Hermesd, known: Known, group: str, found: dict[int, bytes]) -> int:
    """Read what `group` has not seen yet, add it to `found`; how much there is."""
    await daemon.start()
    async with await HermesClient.connect(daemon.address) as client:
        while items := await client.poll(TOPIC, group, max=1024, ack_mode="auto"):
            for item in items:
                assert item.offset not in found, f"offset {item.offset} came twice in auto mode"
                found[item.offset] = item.payload
        late = await client.poll(TOPIC, group, max=1024, ack_mode="auto", wait_ms=200)
        assert not late, f"a poll was answered with nothing while offset {late[0].offset} was there"
    await daemon.kill()
    lost = sorted(offset for offset in known.produced if offset not in found)
    assert not lost, f"{len(lost)} answered Produced, and lost: {lost[:3]} to {lost[-3:]}"
    assert all(found[offset] == payload for offset, payload in known.produced.items())
    assert sorted(found) == list(range(len(found))), "there are gaps"
    for producer in known.open:
        own = [p for p in found.values() if p.startswith(producer.encode() + b" #")]
        assert len(own) == len(set(own)), f"{producer} was stored twice"
    return len(found)


async def rounds(directory: Path, count: int, seed: int) -> Known:
    chance, known = random.Random(seed), Known()
    daemon, found = Hermesd(directory), dict[int, bytes]()
    try:
        for number in range(count):
            await one_round(daemon, known, number, chance.uniform(0.3, 0.9))
            there = await check(daemon, known, "check", found)
            print(
                f"round {number + 1}: {len(known.produced):,} answered Produced, all there; "
                f"{there:,} stored; {len(known.acked):,} acks answered, none came again",
                flush=True,
            )
        await check(daemon, known, "everything from the beginning", {})
    except* Refused as errors:
        raise AssertionError(f"refused: {errors.exceptions}") from None
    finally:
        await daemon.kill()
    return known


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    given = parser.parse_args()
    print(f"seed {given.seed}")
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(rounds(Path(directory), given.rounds, given.seed))


if __name__ == "__main__":
    main()
