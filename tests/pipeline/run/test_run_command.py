"""`flintmq pipeline run` as processes: killed, stopped by Ctrl-C, and gone on with."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import flintmq
from flintmq.cli.pipeline_run import command
from flintmq.spark.connecting import close_lines
from tests.cli.mini_shell import run_line
from tests.spark.fixtures import MASTER, BrokerProcess, everything

pytestmark = pytest.mark.slow

ONCE = "flintmq pipeline run orders.toml --once"
FOR_LONG = "flintmq pipeline run orders.toml --for 10m --set batch=40 --output json"
ROWS = 400
DAY = "2026-01-01"

ORDERS = '''
name = "orders"
servers = "${servers}"

[parameters]
servers = { env = "FLINTMQ_SERVER" }
batch = "1000"

[sources.orders]
topic = "orders"
schema = "id bigint, region string, at timestamp"
dead_letters = "orders.bad"
watermark = { column = "at", delay = "0 seconds" }
max_per_batch = "${batch}"

[steps.totals]
sql = """
select window(at, '1 minute').start as since, region, count(*) as n
from orders group by window(at, '1 minute'), region
"""

[sinks.totals]
from = "totals"
topic = "totals"

[sinks.copy]
from = "orders"
topic = "copy"

[spark]
"spark.sql.shuffle.partitions" = 2
'''


@pytest.fixture
def http_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path / "broker", "--http", "127.0.0.1:0").start()
    yield broker
    broker.stop()


class Run:
    """A command as a process, whose lines are read one by one."""

    def __init__(self, line: str, directory: Path, environment: dict[str, str]) -> None:
        words = shlex.split(line)[1:]
        self.errors = directory / "errors"
        with self.errors.open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "flintmq.cli", *words, "--master", "local[2]"],
                cwd=directory,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def events(self) -> Iterator[dict[str, Any]]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            yield json.loads(line)

    def batch_of(self, flow: str) -> dict[str, Any]:
        return next(one for one in self.events() if one.get("flow") == flow)

    def ended(self, number: int) -> tuple[int, list[dict[str, Any]]]:
        """Send a signal; the exit code, and what was told until then."""
        self._process.send_signal(number)
        told = list(self.events())
        code = self._process.wait(60)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code, told


def metrics(broker: BrokerProcess) -> str:
    (port,) = [int(found) for found in re.findall(r"http://127\.0\.0\.1:(\d+)", broker.said)]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        text: str = answer.read().decode()
        return text


@pytest.mark.timeout(400)
def test_runs_that_are_killed_and_stopped_give_what_an_undisturbed_one_gives(
    spark: Any, http_broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert all(line in (command.help or "") for line in (ONCE, FOR_LONG))
    (tmp_path / "orders.toml").write_text(ORDERS)
    environment = os.environ | {"FLINTMQ_SERVER": http_broker.url}
    rows: list[dict[str, Any]] = [
        {"id": n, "region": "eu" if n % 3 else "us", "at": f"{DAY}T00:{n // 60:02}:{n % 60:02}Z"}
        for n in range(ROWS)
    ]
    # Of the minute that has begun there are more to come, as far as anybody knows.
    counted = Counter((row["at"][:16], row["region"]) for row in rows[: ROWS // 60 * 60])
    with flintmq.connect_sync(http_broker.url) as mq:
        mq.publish_batch("orders", [json.dumps(row) for row in rows[: ROWS // 2]])

        killed = Run(FOR_LONG, tmp_path, environment)
        assert killed.batch_of("totals")["rows_in"] == 40
        assert "pipeline.orders.totals" in {group.name for group in mq.groups("orders")}
        shown = metrics(http_broker)
        assert killed.ended(signal.SIGKILL)[0] == -signal.SIGKILL
        mq.publish_batch("orders", [*(json.dumps(row) for row in rows[ROWS // 2 :]), "bad"])
        assert 'flintmq_group_lag_messages{topic="orders",group="pipeline.orders.copy"}' in shown

        stopped = Run(FOR_LONG, tmp_path, environment)
        stopped.batch_of("copy")
        code, told = stopped.ended(signal.SIGINT)
        assert (code, stopped.errors.read_text()) == (0, "")
        assert told[-1]["event"] == "stopped"
        assert {"event": "note", "text": "stopping after the running micro-batch; Ctrl-C again "
                "stops at once"} in told  # fmt: skip
        # The broker knows where they stand, and that is what was told.
        done = {flow["name"]: flow for flow in told[-1]["flows"]}
        assert set(done) == {"totals", "copy", "orders.dead-letters"}
        assert mq.group_stats("orders", "pipeline.orders.copy").position % 40 == 0

        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("FLINTMQ_SERVER", http_broker.url)
        last = run_line(ONCE, ("--master", MASTER))
        close_lines()

        assert last.code == 0, last.err
        assert "orders: done after" in last.err
        copies = values(mq, "copy")
        assert Counter(row["id"] for row in copies) == Counter(range(ROWS))
        totals = [(row["since"][:16], row["region"], row["n"]) for row in values(mq, "totals")]
        assert sorted(totals) == sorted((*window, n) for window, n in counted.items())
        assert len(values(mq, "orders.bad", is_json=False)) == 1


def values(mq: Any, topic: str, *, is_json: bool = True) -> list[Any]:
    found = [message.value for message in everything(mq, topic)]
    return [json.loads(value) if is_json else value for value in found]
