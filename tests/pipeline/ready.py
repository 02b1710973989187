"""Running the pipelines of examples/pipelines on data of a test: publish, run once, look."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flintmq.client.blocking.client import BlockingClient
from flintmq.pipeline.define.reading import read_pipeline
from flintmq.pipeline.run.running import Outcome, run
from tests.spark.fixtures import everything

from .answers import Row

EXAMPLES = Path(__file__).parents[2] / "examples" / "pipelines"
BASE = 1_700_000_400.0
"""The begin of an hour and a minute, less twenty minutes; in UTC."""
TIMES = frozenset({"at", "paid_at", "since", "until", "first", "last", "published"})

Sent = Row | bytes
"""A row, or a value that is none."""


class Ready:
    """One broker and one session for all; topics, checkpoints and files are a test's own."""

    def __init__(self, spark: Any, servers: str, mq: BlockingClient, state: Path) -> None:
        self._spark, self.servers, self.mq, self.state = spark, servers, mq, state

    def run(self, name: str, **parameters: object) -> Outcome:
        given = {name: str(value) for name, value in parameters.items()}
        given = {"servers": self.servers, "state": str(self.state)} | given
        return run(
            read_pipeline(EXAMPLES / f"{name}.toml", given, {}), once=True, spark=self._spark
        )

    def publish(self, topic: str, rows: Sequence[Sent], key: str | None = None) -> None:
        keys = [row.get(key) if isinstance(row, dict) and key else None for row in rows]
        if rows:
            self.mq.publish_batch(
                topic,
                [encoded(row) for row in rows],
                key=[None if one is None else str(one) for one in keys],
            )

    def read(self, topic: str) -> list[Row]:
        return [decoded(value) for value in self.values(topic)]

    def values(self, topic: str) -> list[bytes]:
        return [bytes(message.value) for message in everything(self.mq, topic)]


def encoded(row: Sent) -> bytes:
    if isinstance(row, bytes):
        return row
    return json.dumps({name: _out(name, value) for name, value in row.items()}).encode()


def decoded(value: bytes) -> Row:
    return {name: _in(name, one) for name, one in json.loads(value).items()}


def _out(name: str, value: Any) -> Any:
    if name in TIMES and value is not None:
        return datetime.fromtimestamp(value, UTC).isoformat(timespec="milliseconds")
    return value


def _in(name: str, value: Any) -> Any:
    return datetime.fromisoformat(value).timestamp() if name in TIMES else value


def batches_of(parts: Sequence[Sequence[Sent]], most: int) -> list[list[Row]]:
    """The micro-batches that runs make of what was published before each of them.

    A run that had rows ends with a batch that has none, if the watermark moved.
    """
    batches: list[list[Row]] = []
    for part in parts:
        if part and batches:
            batches.append([])
        for start in range(0, len(part), most):
            batches.append([row for row in part[start : start + most] if isinstance(row, dict)])
    return batches


def in_order(rows: Sequence[Row]) -> list[Row]:
    """Rows as they can be compared: sums of the same numbers in another order may differ."""
    return sorted(
        ({name: _rounded(value) for name, value in row.items()} for row in rows),
        key=lambda row: json.dumps(row, sort_keys=True),
    )


def _rounded(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value
