"""Killing `flintmq pipeline run` with kill -9, and looking at what came out.

    python -m tests.pipeline.run.kill_rounds --rounds 5 --seed 7

`rollup` and `archive` of examples/pipelines run undisturbed, then in each round on the same orders,
killed and started again: after a micro-batch that chance chose has begun, and a moment later. All
have to end with the same rows.
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
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import flintmq
from flintmq.client.blocking.client import BlockingClient
from tests.spark.fixtures import BrokerProcess, everything

from ..answers import Row
from ..ready import EXAMPLES, decoded, encoded, in_order

JITTER_SECONDS = 0.6
PATIENCE_SECONDS = 400.0
FLOW = {"rollup": "totals", "archive": "files"}
APART = {"rollup": 2.0, "archive": 60.0}
"""Seconds from one order to the next."""


@dataclass
class Round:
    pipeline: str
    seed: int
    killed_in: list[int] = field(default_factory=list)
    """The micro-batches that had begun."""
    rows: int = 0
    is_same: bool = False


class Place:
    """Where one run reads from and writes to."""

    def __init__(self, name: str, servers: str, topic: str, directory: Path, batch: int) -> None:
        self.name, self.topic, self.directory = name, topic, directory
        self.settings = {"servers": servers, "state": str(directory / "state"), "input": topic}
        self.settings["batch"] = str(batch)
        if name == "rollup":
            self.settings["output"] = f"{topic}.{directory.name}"
        else:
            self.settings["directory"] = str(directory / "files")

    def offsets(self) -> Path:
        return self.directory / "state" / self.name / FLOW[self.name] / "offsets"

    def begun(self) -> int:
        """The number of the micro-batch that began last; -1 where none has."""
        if not self.offsets().is_dir():
            return -1
        return max([int(n) for n in os.listdir(self.offsets()) if n.isdecimal()], default=-1)

    def rows(self, mq: BlockingClient) -> list[Row]:
        if self.name == "rollup":
            found = everything(mq, self.settings["output"])
            return in_order([decoded(bytes(message.value)) for message in found])
        import pyarrow.dataset as dataset

        files = dataset.dataset(self.directory / "files", partitioning="hive")
        table: list[Row] = files.to_table().to_pylist()
        return sorted(table, key=lambda row: int(row["offset"]))


class Process:
    def __init__(self, place: Place, environment: Mapping[str, str]) -> None:
        command = [sys.executable, "-m", "flintmq.cli", "pipeline", "run"]
        command += [str(EXAMPLES / f"{place.name}.toml"), "--once", "--master", "local[2]"]
        for name, value in place.settings.items():
            command += ["--set", f"{name}={value}"]
        place.directory.mkdir(parents=True, exist_ok=True)
        self._said = place.directory / "said.txt"
        with self._said.open("a") as said:
            self._process = subprocess.Popen(
                command, stdout=said, stderr=said, env=dict(environment), cwd=place.directory
            )

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def end(self) -> None:
        try:
            self._process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        assert self._process.returncode == 0, self._said.read_text()[-3000:]


def run_and_kill(
    place: Place, number: int, chance: random.Random, environment: Mapping[str, str]
) -> int | None:
    """Kill a run a moment after micro-batch `number` began; in which it was, if in any."""
    process = Process(place, environment)
    give_up_at = time.monotonic() + PATIENCE_SECONDS
    try:
        while not process.has_ended() and place.begun() < number:
            assert time.monotonic() < give_up_at, f"{place.name}: no batch {number}"
            time.sleep(0.01)
        time.sleep(chance.random() * JITTER_SECONDS)
        return None if process.has_ended() else place.begun()
    finally:
        process.kill()


def publish_orders(mq: BlockingClient, topic: str, rows: Sequence[Any]) -> None:
    mq.create_topic(topic)
    mq.publish_batch(topic, [encoded(row) for row in rows])


def main() -> int:
    from .test_ready_made import some_orders

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pipeline", action="append", choices=list(APART))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kills", type=int, default=1, help="in each round")
    parser.add_argument("--messages", type=int, default=480)
    parser.add_argument("--batch", type=int, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    chosen = parser.parse_args()
    batches = chosen.messages // chosen.batch
    failed = False
    with tempfile.TemporaryDirectory(prefix="flintmq-kills-") as temporary:
        broker = BrokerProcess(Path(temporary) / "data").start()
        try:
            with flintmq.connect_sync(broker.url, timeout=60) as mq:
                for name in chosen.pipeline or list(APART):
                    topic, at = f"orders.{name}", Path(temporary) / name
                    rows = some_orders(chosen.messages, apart=APART[name], seed=chosen.seed)
                    publish_orders(mq, topic, rows)
                    undisturbed = Place(name, broker.url, topic, at / "undisturbed", chosen.batch)
                    Process(undisturbed, os.environ).end()
                    expected = undisturbed.rows(mq)
                    for number in range(chosen.rounds):
                        chance = random.Random(chosen.seed + number)
                        killed = Place(name, broker.url, topic, at / f"{number}", chosen.batch)
                        due = sorted(chance.randrange(batches) for _ in range(chosen.kills))
                        found_in = [
                            run_and_kill(killed, batch, chance, os.environ) for batch in due
                        ]
                        killed_in = [batch for batch in found_in if batch is not None]
                        Process(killed, os.environ).end()
                        found = killed.rows(mq)
                        is_same = found == expected and bool(found)
                        outcome = Round(name, chosen.seed + number, killed_in, len(found), is_same)
                        print(json.dumps(asdict(outcome)), flush=True)
                        failed |= not is_same or not killed_in
        finally:
            broker.stop()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
