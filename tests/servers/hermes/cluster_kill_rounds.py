"""`kill -9` of the leader of three `flintmq hermesd` nodes under load, time and again.

    .venv/bin/python -m tests.servers.hermes.cluster_kill_rounds --rounds 20

Clients go on over all rounds and look for the leader as HermesMQ's own do. After each kill another
node leads, and the one that was killed comes back and catches up. Nothing that was answered
Produced is lost or at another offset, a producer that repeats what it has no answer to is stored
once and in order, and nothing whose ack was answered comes again.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from tests.patience import until

from .cluster import HermesdNode, RoamingClient, bootstrapped, leader_of
from .kill_rounds import GROUP, TOPIC, Known

GRACE_SECONDS = 10
"""An ack that is sent again to the next leader comes in time, also on a busy machine."""


class Load:
    """Clients at work, until `is_over`."""

    def __init__(self, nodes: list[HermesdNode]) -> None:
        self.nodes, self.known = nodes, Known()
        self.is_over = False
        self.answered = 0
        """How many produces were answered."""
        self._clients: list[RoamingClient] = []

    def client(self, *, to_the_end: bool = False) -> RoamingClient:
        """`to_the_end`: it asks until it is answered."""
        client = RoamingClient(self.nodes, lambda: self.is_over and not to_the_end)
        self._clients.append(client)
        return client

    async def close(self) -> None:
        for client in self._clients:
            await client.close()

    def run(self) -> list[asyncio.Task[None]]:
        works: list[Coroutine[Any, Any, None]] = [
            *(self.produce(f"plain {number}") for number in range(2)),
            *(self.produce_once(producer) for producer in "pqr"),
            *(self.poll_and_ack() for _ in range(2)),
        ]
        return [asyncio.get_running_loop().create_task(work) for work in works]

    async def produce(self, name: str) -> None:
        """Without a producer id: what was not answered may be stored more than once."""
        client, number = self.client(), 0
        while not self.is_over:
            payload = b"%s %d" % (name.encode(), number)
            reply = await client.call("produce", topic=TOPIC, payload=payload, priority=number % 3)
            self.known.was_produced(reply.offset, payload)
            self.answered += 1
            number += 1

    async def produce_once(self, producer: str) -> None:
        client, open = self.client(), self.known.open
        while not self.is_over:
            sequence = open.setdefault(producer, 0)
            payload = b"%s #%d" % (producer.encode(), sequence)
            reply = await client.call(
                "produce", topic=TOPIC, payload=payload, producer_id=producer, seq=sequence
            )
            self.known.was_produced(reply.offset, payload)
            self.known.sequences[producer, sequence] = reply.offset
            self.answered += 1
            open[producer] = sequence + 1

    async def poll_and_ack(self) -> None:
        """Each ack goes to whoever leads by then, and all of them do."""
        polling, acking = self.client(), self.client(to_the_end=True)
        while not self.is_over:
            await self.ack_all(await self.poll(polling, GROUP, max=20, wait_ms=500), acking)

    async def poll(self, client: RoamingClient, group: str, **fields: Any) -> list[Any]:
        items = list((await client.call("poll", topic=TOPIC, group=group, **fields)).items)
        for item in items if group == GROUP else ():
            acked = item.offset in self.known.acked
            assert not acked, f"offset {item.offset} was acked, and came again"
        return items

    async def ack_all(self, items: list[Any], client: RoamingClient) -> None:
        for item in items:
            await client.call("ack", topic=TOPIC, group=GROUP, lease_id=item.lease_id)
            self.known.acked.add(item.offset)


async def one_round(load: Load, seconds: float) -> float:
    """How long no produce was answered."""
    await asyncio.sleep(seconds)
    leader = await leader_of(load.nodes)
    killed_at, before = time.monotonic(), load.answered
    await leader.kill()
    await until(lambda: load.answered > before + 5, "produces are answered again")
    pause = time.monotonic() - killed_at
    second = await leader_of(load.nodes, but=leader)
    applied = (await second.call("stats")).last_applied
    await leader.start()

    async def has_caught_up() -> bool:
        return bool((await leader.call("stats")).last_applied >= applied)

    await until(has_caught_up, f"node {leader.id} catches up")
    await until(leader.is_ready, f"node {leader.id} is ready")
    return pause


async def check(load: Load) -> tuple[int, int]:
    """How many messages there are, and how many were acked."""
    known, client = load.known, load.client()
    while (await client.call("stats")).messages:  # also what was polled, and not told by a kill
        await load.ack_all(await load.poll(client, GROUP, max=1024, wait_ms=500), client)
    found: dict[int, bytes] = {}
    while items := await load.poll(client, "check", max=1024, ack_mode="auto"):
        found.update((item.offset, item.payload) for item in items)
    lost = sorted(offset for offset in known.produced if offset not in found)
    assert not lost, f"{len(lost)} answered Produced, and lost: {lost[:3]} to {lost[-3:]}"
    assert all(found[offset] == payload for offset, payload in known.produced.items())
    assert sorted(found) == list(range(len(found))), "there are gaps"
    missing = sorted(found.keys() - known.acked)
    assert not missing, f"{len(missing)} never came to be acked: {missing[:5]}"
    for producer, sequence in known.open.items():
        name = b"%s #" % producer.encode()
        own = [found[at] for at in sorted(found) if found[at].startswith(name)]
        wanted = [b"%s%d" % (name, number) for number in range(len(own))]
        assert own == wanted, f"{producer} was stored twice, or not in order"
        assert sequence <= len(own) <= sequence + 1
    return len(found), len(known.acked)


async def rounds(directory: Path, count: int, seed: int) -> list[float]:
    chance = random.Random(seed)
    pauses: list[float] = []
    flags = ("--grace-seconds", str(GRACE_SECONDS))
    async with bootstrapped(directory, (1, 2, 3), *flags) as nodes:
        load = Load(nodes)
        working = load.run()
        for number in range(count):
            round = asyncio.ensure_future(one_round(load, chance.uniform(0.5, 1.5)))
            await asyncio.wait((round, *working), return_when=asyncio.FIRST_COMPLETED)
            for task in working:
                if task.done():
                    task.result()
            pauses.append(await round)
            print(
                f"round {number + 1}: {len(load.known.produced):,} answered Produced, "
                f"{len(load.known.acked):,} acks answered, none came again; "
                f"{pauses[-1] * 1000:,.0f} ms without an answer",
                flush=True,
            )
        load.is_over = True
        for outcome in await asyncio.gather(*working, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome
        load.is_over = False
        stored, acked = await check(load)
        await load.close()
        print(f"{stored:,} stored, all of those that were answered; {acked:,} acked, each once")
    return pauses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    given = parser.parse_args()
    print(f"seed {given.seed}")
    with tempfile.TemporaryDirectory() as directory:
        pauses = sorted(asyncio.run(rounds(Path(directory), given.rounds, given.seed)))
    print(
        f"{len(pauses)} leaders killed; without an answer: median "
        f"{pauses[len(pauses) // 2] * 1000:,.0f} ms, longest {pauses[-1] * 1000:,.0f} ms"
    )


if __name__ == "__main__":
    main()
