"""A micro-batch that goes out slowly and is interrupted goes on where it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from flintmq.pipeline.define.definition import Sink
from flintmq.pipeline.run.pacing import into_topic_paced
from flintmq.pipeline.run.sinks import messages_of

from ..ready import Ready

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]


class Interrupted(Exception):
    pass


def test_a_paced_batch_that_was_interrupted_goes_on_without_waiting_for_what_is_there(
    spark: Any, ready: Ready, topic: str, tmp_path: Path
) -> None:
    ready.mq.create_topic(topic, partitions=2)
    sink = Sink(name="out", takes="rows", topic=topic, key="id")
    rows = spark.range(40).selectExpr("id", "timestamp_seconds(1000 - id) as at").coalesce(1)
    waits: list[float] = []
    now = 0.0

    def wait(seconds: float) -> None:
        nonlocal now
        now += seconds
        waits.append(seconds)
        if len(waits) == 30:
            raise Interrupted

    def write() -> None:
        into_topic_paced(
            lambda frame, beside: messages_of(frame, sink, beside),
            {"servers": ready.servers, "topic": topic},
            str(tmp_path / "journal"),
            pace="at",
            speed=4.0,
            now=lambda: now,
            wait=wait,
        )(rows, 0)

    with pytest.raises(Interrupted):
        write()
    assert ready.mq.topic_stats(topic).message_count == 30, "a second is a quarter"
    write()
    assert len(waits) == 39, "those that were there were not waited for"
    write()

    assert len(waits) == 39
    found = ready.read(topic)
    assert sorted(row["id"] for row in found) == list(range(40))
