"""What asking for permission costs a publish.

    .venv/bin/python -m benchmarks.key_cost

The same server in the same process, once open and once with keys, by turns; a client publishes
single messages one behind the other (a round trip each: the most that a check could weigh) and
many at once. Beside it the rule alone, and a broker with two hundred grants. One table and one
JSON line.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from statistics import median
from types import SimpleNamespace

import flintmq
from flintmq.access import EVERYTHING, Access, TopicGrant
from flintmq.daemon.process import loop_factory
from flintmq.engine.broker import Broker
from flintmq.net.server.gate import gate_of
from flintmq.net.server.native import NativeServer
from flintmq.net.wire.operations import PublishRequest
from flintmq.net.wire.rules import may_publish
from flintmq.serde.codec import Codec
from flintmq.storage.key_file import KEYS_FILE, KeyFile, make_key

from .report import machine, machine_line

GRANTS = 200
TOPICS = [f"orders.{number}" for number in range(50)]


def grants() -> list[TopicGrant]:
    return [TopicGrant.of(f"other.{number}.>", ["publish"]) for number in range(GRANTS)] + [
        TopicGrant.of("orders.*", ["publish", "administer"])
    ]


async def rates(seconds: float, rounds: int) -> dict[str, float]:
    """Publishes a second with keys, as a share of those without; the median of rounds."""
    shares: dict[str, list[float]] = {"one by one": [], "a hundred at once": []}
    with tempfile.TemporaryDirectory(prefix="flintmq-") as directory:
        path = Path(directory) / KEYS_FILE
        key, text = make_key("bench", grants(), now_ms=0, expires_at_ms=None)
        KeyFile(path).add(key)
        brokers = [Broker(None, Codec()) for _ in range(2)]
        servers = [
            NativeServer(brokers[0]),
            NativeServer(brokers[1], gate=gate_of("required", path)),
        ]
        addresses = [await server.start("127.0.0.1", 0) for server in servers]
        clients = [
            await flintmq.connect("flint://{}:{}".format(*address), api_key=text)
            for address in addresses
        ]
        for mq in clients:
            for topic in TOPICS:
                await mq.create_topic(topic, retention_count=1000)
        try:
            for number in range(rounds):
                for name, at_once in (("one by one", 1), ("a hundred at once", 100)):
                    order = clients if number % 2 else clients[::-1]
                    done = {id(mq): await _rate(mq, seconds, at_once) for mq in order}
                    shares[name].append(done[id(clients[1])] / done[id(clients[0])])
        finally:
            for mq in clients:
                await mq.close()
            for server in servers:
                await server.close()
            for broker in brokers:
                await broker.close()
    return {name: round(median(found), 3) for name, found in shares.items()}


async def _rate(mq: flintmq.Client, seconds: float, at_once: int) -> float:
    count = 0
    begun = time.perf_counter()
    while (taken := time.perf_counter() - begun) < seconds:
        topics = [TOPICS[(count + number) % len(TOPICS)] for number in range(at_once)]
        await asyncio.gather(*(mq.publish(topic, b"x" * 100) for topic in topics))
        count += at_once
    return count / taken


def rule_ns(access: Access) -> float:
    """One look at the rule of a publish, in nanoseconds."""
    asker = SimpleNamespace(access=access)
    wanted = PublishRequest(TOPICS[0])
    count = 200_000
    begun = time.perf_counter()
    for _ in range(count):
        may_publish(asker, wanted)
    return (time.perf_counter() - begun) / count * 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each turn")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    facts = machine()
    print(f"what permissions cost a publish: {machine_line(facts)}")
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        shares = runner.run(rates(arguments.seconds, arguments.rounds))
    rules = {
        "rule, open broker": round(rule_ns(EVERYTHING)),
        f"rule, {GRANTS + 1} grants": round(rule_ns(Access("bench", tuple(grants())))),
    }
    for name, share in shares.items():
        print(f"{name:24} {share:8.3f} of the rate without keys")
    for name, nanoseconds in rules.items():
        print(f"{name:24} {nanoseconds:8} ns")
    print(json.dumps({**facts, **shares, **rules}))


if __name__ == "__main__":
    main()
