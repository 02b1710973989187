"""How long a client of a cluster waits when its leader is killed, or is stopped in good order.

    python -m tests.chaos.fail_over_times --kills 50 --hand-overs 20

Three real processes with default settings and one client that publishes all the time, one message
after the other. The pause is the longest time from one receipt to the next around each event.
Behind it: how long it took until another node led, by that node's log. The rest is the client's
way there. In the end everything is read: each receipt must be there once, in order.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import flintmq
from tests.patience import PATIENCE_SECONDS, until

from .broker import ChaosBroker
from .cluster import LEADING, ChaosCluster

TOPIC = "orders"
CALM_SECONDS = 1.0
"""Before each event, and of receipts behind it."""


class Pause(NamedTuple):
    seconds: float
    led_after: float
    """How long after the event another node led."""


class Publisher:
    """Publishes numbers, one after the other, and keeps the times of their receipts."""

    def __init__(self, mq: flintmq.Client, topic: str = TOPIC) -> None:
        self._mq, self._topic = mq, topic
        self.times: list[float] = []

    async def run(self) -> None:
        while True:
            receipt = await self._mq.publish(self._topic, len(self.times))
            assert receipt.durability == "replicated", receipt
            self.times.append(time.time())

    async def receipts_behind(self, moment: float) -> None:
        """Wait until receipts come regularly again."""

        def is_calm() -> bool:
            times = self.times
            return times[-1] > moment + CALM_SECONDS and longest(times[-20:]) < CALM_SECONDS / 2

        await until(is_calm, "receipts come again")

    async def stored(self) -> list[int]:
        async with self._mq.reader(self._topic, start="earliest") as reader:
            found: list[int] = []
            while rows := await reader.read_batch(1000, timeout=0):
                found += [row.decode() for row in rows]
            return found


def longest(times: list[float]) -> float:
    return max((after - before for before, after in pairwise(times)), default=0)


async def kill(node: ChaosBroker) -> None:
    node.kill()


async def stop(node: ChaosBroker) -> None:
    """In good order, as by SIGTERM."""
    code = await asyncio.to_thread(node.stop)
    assert code == 0, f"the node ended with {code}"


class FailOvers:
    def __init__(self, cluster: ChaosCluster, publisher: Publisher) -> None:
        self._cluster, self._publisher = cluster, publisher

    async def measure(self, harm: Callable[[ChaosBroker], Awaitable[None]]) -> Pause:
        cluster, publisher = self._cluster, self._publisher
        at = await cluster.leading()
        await publisher.receipts_behind(time.time())
        moment, first = time.time(), max(0, len(publisher.times) - 1)
        await harm(cluster.nodes[at])
        await until(lambda: cluster.leader() not in (-1, at), "another node leads")
        await publisher.receipts_behind(max(moment, led_at(cluster, moment)))
        pause = longest(publisher.times[first:])
        led = led_at(cluster, moment)
        await asyncio.to_thread(cluster.nodes[at].start)
        return Pause(pause, max(0.0, led - moment))


def led_at(cluster: ChaosCluster, moment: float) -> float:
    """When a node first led behind a moment, by the logs."""
    found = [moment + PATIENCE_SECONDS]
    for node in cluster.nodes:
        for line in node.log.read_text().splitlines():
            if f'"{LEADING}"' in line:
                at = datetime.fromisoformat(json.loads(line)["ts"]).timestamp()
                if at >= moment - 0.001:
                    found.append(at)
    return min(found)


async def status(url: str) -> dict[str, Any]:
    """What `cluster status` says; nothing while nobody can be asked."""
    asking = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "flintmq.cli", "cluster", "status", "--server", url),
        *("--output", "json"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    told, _ = await asking.communicate()
    found: dict[str, Any] = json.loads(told) if told else {}
    return found


def quantile(values: list[float], part: float) -> float:
    """The smallest value that so large a part of them does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-round(len(ordered) * part * 1000) // 1000) - 1)]


def figures(pauses: list[Pause]) -> dict[str, Any]:
    seconds = [pause.seconds for pause in pauses]
    return {
        "count": len(pauses),
        **{f"p{part}": round(quantile(seconds, part / 100), 4) for part in (50, 90, 99)},
        "max": round(max(seconds), 4),
        "led_p50": round(quantile([pause.led_after for pause in pauses], 0.5), 4),
        "led_max": round(max(pause.led_after for pause in pauses), 4),
    }


async def run(kills: int, hand_overs: int, place: Path) -> dict[str, Any]:
    cluster = ChaosCluster(place, options=(), is_proxied=False)
    await cluster.open()
    report: dict[str, Any] = {}
    try:
        await cluster.start()
        async with flintmq.connect(cluster.url, timeout=60) as mq:
            await mq.create_topic(TOPIC)
            publisher = Publisher(mq)
            publishing = asyncio.ensure_future(publisher.run())
            await until(lambda: bool(publisher.times), "there are receipts")
            fail_overs = FailOvers(cluster, publisher)
            for name, harm, count in (("kill", kill, kills), ("hand-over", stop, hand_overs)):
                pauses = []
                for number in range(count):
                    pauses.append(await fail_overs.measure(harm))
                    seconds, led = pauses[-1]
                    print(f"{name} {number + 1}: {seconds * 1000:.0f} ms, another node led after "
                          f"{led * 1000:.0f} ms", file=sys.stderr, flush=True)  # fmt: skip
                if pauses:
                    report[name] = figures(pauses)
            publishing.cancel()
            with suppress(asyncio.CancelledError):
                await publishing
            stored = await publisher.stored()
        acknowledged = len(publisher.times)
        report["acknowledged"] = acknowledged
        report["lost"] = acknowledged - len(set(stored).intersection(range(acknowledged)))
        report["doubled"] = len(stored) - len(set(stored))
        report["in_order"] = stored == sorted(stored)
        report["load"] = round(os.getloadavg()[1], 1)
    finally:
        cluster.leave()
        await cluster.close()
    return report


def table(report: dict[str, Any]) -> str:
    heads = ("event", "count", "p50", "p90", "p99", "max", "led p50", "led max")
    keys = ("p50", "p90", "p99", "max", "led_p50", "led_max")
    lines = ["".join(f"{head:>10}" for head in heads)]
    for name in ("kill", "hand-over"):
        if name in report:
            row = report[name]
            cells = [name, row["count"], *(f"{row[key] * 1000:.0f} ms" for key in keys)]
            lines.append("".join(f"{cell:>10}" for cell in cells))
    order = "in order" if report["in_order"] else "NOT IN ORDER"
    lines.append(f"{report['acknowledged']:,} receipts: {report['lost']} lost, "
                 f"{report['doubled']} stored twice, {order}; load {report['load']}")  # fmt: skip
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--hand-overs", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        report = asyncio.run(run(options.kills, options.hand_overs, Path(place)))
    print(table(report))
    print(json.dumps(report))
    return 0 if not report["lost"] and not report["doubled"] and report["in_order"] else 1


if __name__ == "__main__":
    sys.exit(main())
