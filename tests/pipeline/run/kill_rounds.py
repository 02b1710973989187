"""Killing `flintmq pipeline run` with kill -9, and looking at what came out.

    python -m tests.pipeline.run.kill_rounds --rounds 5 --seed 7

`rollup`, `archive` and `lake` of examples/pipelines, `ice`, which is `lake` into an Iceberg table,
and `s3`, which is `lake` into a table on an S3 server, run undisturbed, then in each round on the
same orders, killed and started again: after a micro-batch that chance chose has begun, and a moment
later. What is killed is the driver, a Python worker, the broker or the S3 server, which are started
again. With `--victim executor` Spark runs executors of its own, and loses one. All have to end with
the same rows.
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
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import psutil

import flintmq
from flintmq.client.blocking.client import BlockingClient
from tests.patience import free_port
from tests.spark.fixtures import BrokerProcess, everything

from ..answers import Row
from ..lake.object_store import serving
from ..ready import EXAMPLES, decoded, encoded, in_order

JITTER_SECONDS = 0.6
PATIENCE_SECONDS = 400.0
FLOW = {"rollup": "totals", "archive": "files", "lake": "table", "ice": "table", "s3": "table"}
APART = {"rollup": 2.0, "archive": 60.0, "lake": 60.0, "ice": 60.0, "s3": 60.0}
"""Seconds from one order to the next."""
Victim = Literal["driver", "worker", "broker", "store", "executor"]
VICTIMS: tuple[Victim, ...] = get_args(Victim)
EVERYWHERE: tuple[Victim, ...] = ("driver", "worker", "broker")
MASTER, WITH_EXECUTORS = "local[2]", "local-cluster[2,1,1024]"


class Store:
    """An S3 server that is killed and comes back with what it had."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._port = directory, free_port()
        self._running = ExitStack()
        self.start()

    def start(self) -> None:
        self.server = self._running.enter_context(serving(self._directory, self._port))

    def kill(self) -> None:
        self._running.close()

    def environment(self) -> dict[str, str]:
        return {**os.environ, **{name.upper(): v for name, v in self.server.of_delta.items()}}


@dataclass
class Round:
    pipeline: str
    seed: int
    victims: list[Victim] = field(default_factory=list)
    killed_in: list[int] = field(default_factory=list)
    """The micro-batches that had begun."""
    rows: int = 0
    is_same: bool = False


class Place:
    """Where one run reads from and writes to."""

    def __init__(
        self,
        name: str,
        servers: str,
        topic: str,
        directory: Path,
        batch: int,
        store: Store | None = None,
    ) -> None:
        self.name, self.topic, self.directory = name, topic, directory
        self.store, self.master = store, MASTER
        self.settings = {"servers": servers, "state": str(directory / "state"), "input": topic}
        self.settings["batch"] = str(batch)
        if name == "rollup":
            self.settings["output"] = f"{topic}.{directory.name}"
        elif name == "archive":
            self.settings["directory"] = str(directory / "files")
        elif store is not None:
            self.settings["table"] = f"s3://{store.server.bucket('kills')}/{directory.name}"
        else:
            self.settings["table"] = str(directory / "table")

    def file(self) -> Path:
        if self.name != "ice":
            return EXAMPLES / f"{self.example}.toml"
        text = (EXAMPLES / "lake.toml").read_text()
        for old, new in (
            ('name = "lake"', 'name = "ice"'),
            ("${state}/lake", "${state}/ice"),
            ('delta = "${table}"', f'iceberg = "shop.orders"\noptions = {self._catalog()}'),
        ):
            assert old in text
            text = text.replace(old, new)
        self.directory.mkdir(parents=True, exist_ok=True)
        file = self.directory / "ice.toml"
        file.write_text(text)
        return file

    def _catalog(self) -> str:
        url = f"sqlite:///{self.directory}/catalog.db"
        return f'{{ type = "sql", uri = "{url}", warehouse = "file://{self.directory}/warehouse" }}'

    @property
    def example(self) -> str:
        return "lake" if self.name == "s3" else self.name

    def environment(self) -> dict[str, str]:
        return dict(os.environ) if self.store is None else self.store.environment()

    def offsets(self) -> Path:
        return self.directory / "state" / self.example / FLOW[self.name] / "offsets"

    def begun(self) -> int:
        """The number of the micro-batch that began last; -1 where none has."""
        if not self.offsets().is_dir():
            return -1
        return max([int(n) for n in os.listdir(self.offsets()) if n.isdecimal()], default=-1)

    def rows(self, mq: BlockingClient) -> list[Row]:
        if self.name == "rollup":
            found = everything(mq, self.settings["output"])
            return in_order([decoded(bytes(message.value)) for message in found])
        if self.example == "lake":
            from deltalake import DeltaTable

            options = None if self.store is None else dict(self.store.server.of_delta)
            table = DeltaTable(self.settings["table"], storage_options=options)
            return in_offset_order(table.to_pyarrow_table())
        if self.name == "ice":
            from pyiceberg.catalog import load_catalog

            catalog = tomllib.loads(f"options = {self._catalog()}")["options"]
            return in_offset_order(
                load_catalog("default", **catalog).load_table("shop.orders").scan().to_arrow()
            )
        import pyarrow.dataset as dataset

        files = dataset.dataset(self.directory / "files", partitioning="hive")
        return in_offset_order(files.to_table())


def in_offset_order(table: Any) -> list[Row]:
    rows: list[Row] = table.to_pylist()
    return sorted(rows, key=lambda row: int(row["offset"]))


class Process:
    def __init__(self, place: Place, environment: Mapping[str, str]) -> None:
        command = [sys.executable, "-m", "flintmq.cli", "pipeline", "run"]
        command += [str(place.file()), "--once", "--master", place.master]
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

    def kill_executor(self) -> bool:
        """A Java process that runs tasks, if Spark has any but its own."""
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self._process.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    if any("CoarseGrainedExecutorBackend" in word for word in child.cmdline()):
                        child.kill()
                        return True
        return False

    def kill_worker(self) -> bool:
        """A Python process that runs tasks, if there is one."""
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self._process.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    parent = child.parent()
                    if parent is not None and "pyspark.daemon" in " ".join(parent.cmdline()):
                        child.kill()
                        return True
        return False

    def wait(self) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(PATIENCE_SECONDS)

    def end(self) -> None:
        try:
            self._process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        assert self._process.returncode == 0, self._said.read_text()[-3000:]


def run_and_kill(
    place: Place,
    number: int,
    chance: random.Random,
    environment: Mapping[str, str],
    victim: Victim = "driver",
    broker: BrokerProcess | None = None,
) -> int | None:
    """Kill a run a moment after micro-batch `number` began; in which it was, if in any."""
    process = Process(place, environment)
    give_up_at = time.monotonic() + PATIENCE_SECONDS
    try:
        while not process.has_ended() and place.begun() < number:
            assert time.monotonic() < give_up_at, f"{place.name}: no batch {number}"
            time.sleep(0.01)
        time.sleep(chance.random() * JITTER_SECONDS)
        killed_in = None if process.has_ended() else place.begun()
        if victim in ("worker", "executor"):
            kill = process.kill_worker if victim == "worker" else process.kill_executor
            while not process.has_ended() and not kill():
                time.sleep(0.01)
            process.wait()
        elif victim == "store":
            assert place.store is not None
            place.store.kill()
            time.sleep(chance.random() * JITTER_SECONDS)
            place.store.start()
            process.wait()
        elif victim == "broker":
            assert broker is not None
            broker.kill()
            time.sleep(chance.random() * JITTER_SECONDS)
            broker.start()
            process.wait()
        return killed_in
    finally:
        process.kill()


def publish_orders(mq: BlockingClient, topic: str, rows: Sequence[Any]) -> None:
    mq.create_topic(topic)
    mq.publish_batch(topic, [encoded(row) for row in rows])


def main() -> int:
    from .test_ready_made import some_orders

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pipeline", action="append", choices=list(APART))
    parser.add_argument("--victim", action="append", choices=VICTIMS)
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
                    store = Store(Path(temporary) / "objects" / "data") if name == "s3" else None
                    topic, at = f"orders.{name}", Path(temporary) / name
                    rows = some_orders(chosen.messages, apart=APART[name], seed=chosen.seed)
                    publish_orders(mq, topic, rows)
                    place = partial(Place, name, broker.url, topic, batch=chosen.batch, store=store)
                    undisturbed = place(directory=at / "undisturbed")
                    Process(undisturbed, undisturbed.environment()).end()
                    expected = undisturbed.rows(mq)
                    for number in range(chosen.rounds):
                        chance = random.Random(chosen.seed + number)
                        killed = place(directory=at / f"{number}")
                        due = sorted(chance.randrange(batches) for _ in range(chosen.kills))
                        all = EVERYWHERE if store is None else (*EVERYWHERE, "store")
                        victims = [chance.choice(chosen.victim or all) for _ in due]
                        if "executor" in victims:
                            killed.master = WITH_EXECUTORS
                        found_in = [
                            run_and_kill(
                                killed, batch, chance, killed.environment(), victim, broker
                            )
                            for batch, victim in zip(due, victims, strict=True)
                        ]
                        killed_in = [batch for batch in found_in if batch is not None]
                        Process(killed, killed.environment()).end()
                        found = killed.rows(mq)
                        is_same = found == expected and bool(found)
                        outcome = Round(
                            name, chosen.seed + number, victims, killed_in, len(found), is_same
                        )
                        print(json.dumps(asdict(outcome)), flush=True)
                        failed |= not is_same or not killed_in
                    if store is not None:
                        store.kill()
        finally:
            broker.stop()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
