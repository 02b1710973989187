"""Killing drivers and brokers under a running query, and counting what came out.

    python -m tests.spark.kill_rounds --kills 20 --broker-kills 2 --seed 7

What is killed when is decided by a seed: after so many messages came out, and a moment later. A
query that fails because its broker was away too long is started again, as an operator would.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import flintmq
from flintmq.client.blocking.client import BlockingClient

from .fixtures import BrokerProcess

JITTER_SECONDS = 0.4
PATIENCE_SECONDS = 300.0


@dataclass
class Outcome:
    delivery: str
    seed: int
    sent: int
    came: int = 0
    lost: int = 0
    doubled: int = 0
    driver_kills: int = 0
    broker_kills: int = 0
    restarts: int = 0
    """Drivers that ended by themselves, in an error, and were started again."""


class Driver:
    def __init__(
        self, arguments: list[str], environment: Mapping[str, str], directory: Path
    ) -> None:
        here = str(Path(__file__).parents[2])
        path = os.pathsep.join(filter(None, [here, environment.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.driver", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**environment, "PYTHONPATH": path},
            cwd=directory,  # where local-cluster leaves the logs of its executors
        )

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.communicate()

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def end(self) -> tuple[bool, str]:
        """Whether it came to its end, and what it said."""
        said, error = self._process.communicate()
        return self._process.returncode == 0 and "done" in said, error


def run_rounds(
    directory: Path,
    *,
    delivery: str,
    messages: int,
    per_trigger: int,
    kills: int,
    broker_kills: int,
    seed: int,
    environment: Mapping[str, str] = os.environ,
) -> Outcome:
    """Run the query to its end under kills."""
    chance = random.Random(seed)
    outcome = Outcome(delivery, seed, messages)
    broker = BrokerProcess(directory / "data").start()
    arguments = [broker.url, str(directory / "checkpoint"), delivery, str(per_trigger)]
    due = sorted(
        [(chance.randrange(messages * 9 // 10), "driver") for _ in range(kills)]
        + [(chance.randrange(messages * 9 // 10), "broker") for _ in range(broker_kills)]
    )
    driver: Driver | None = None
    try:
        with flintmq.connect_sync(broker.url, timeout=60) as mq:
            mq.create_topic("in", partitions=2)
            mq.create_topic("out")
            for start in range(0, messages, 500):
                rows = range(start, min(start + 500, messages))
                mq.publish_batch("in", [str(row) for row in rows], key=[str(row) for row in rows])
            driver = Driver(arguments, environment, directory)
            give_up_at = time.monotonic() + PATIENCE_SECONDS
            while True:
                assert time.monotonic() < give_up_at, f"no progress: {outcome}"
                if driver.has_ended():
                    is_done, said = driver.end()
                    if is_done:
                        break
                    outcome.restarts += 1
                    assert outcome.restarts <= 3 + broker_kills, said[-3000:]
                    driver = Driver(arguments, environment, directory)
                elif due and mq.topic_stats("out").message_count >= due[0][0]:
                    what = due.pop(0)[1]
                    time.sleep(chance.random() * JITTER_SECONDS)
                    if what == "broker":
                        broker.kill()
                        outcome.broker_kills += 1
                        broker.start()
                    elif not driver.has_ended():
                        driver.kill()
                        outcome.driver_kills += 1
                        driver = Driver(arguments, environment, directory)
                    give_up_at = time.monotonic() + PATIENCE_SECONDS
                time.sleep(0.02)
            _count(mq, outcome)
    finally:
        if driver is not None and not driver.has_ended():
            driver.kill()
        broker.stop()
    return outcome


def _count(mq: BlockingClient, outcome: Outcome) -> None:
    seen: Counter[int] = Counter()
    with mq.reader("out") as reader:
        while rows := reader.read_batch(10_000, timeout=0):
            seen.update(int(value) for value in rows.values)
    outcome.came = seen.total()
    outcome.lost = sum(1 for row in range(outcome.sent) if row not in seen)
    outcome.doubled = sum(times - 1 for times in seen.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--broker-kills", type=int, default=2)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--per-trigger", type=int, default=400)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--delivery", action="append", default=[])
    chosen = parser.parse_args()
    failed = False
    for delivery in chosen.delivery or ["exactly_once", "idempotent", "at_least_once"]:
        with tempfile.TemporaryDirectory(prefix="flintmq-kills-") as directory:
            outcome = run_rounds(
                Path(directory),
                delivery=delivery,
                messages=chosen.messages,
                per_trigger=chosen.per_trigger,
                kills=chosen.kills,
                broker_kills=chosen.broker_kills,
                seed=chosen.seed,
            )
        print(json.dumps(asdict(outcome)), flush=True)
        promised = delivery == "exactly_once"
        failed |= bool(outcome.lost or (promised and outcome.doubled))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
