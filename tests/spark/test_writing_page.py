"""What docs/spark-writing.md shows really runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import flintmq
import flintmq.spark

from .fixtures import BrokerProcess

PAGE = Path(__file__).parents[2] / "docs" / "spark-writing.md"


def test_every_block_of_the_page_runs(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = BrokerProcess(tmp_path / "data").start()
    monkeypatch.setattr(flintmq.spark, "session", lambda *_, **__: spark)
    names: dict[str, Any] = {}
    try:
        for block in re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.DOTALL):
            block = block.replace("flint://127.0.0.1:7600", broker.url)
            exec(block.replace("/checkpoints", str(tmp_path / "checkpoints")), names)
        rows = names["decoded"].select("data.id", "data.amount", "why").collect()
        with flintmq.connect_sync(broker.url) as mq, mq.reader("counts") as reader:
            counts = [(message.key, message.value) for message in reader.read_batch(10)]
    finally:
        broker.stop()

    assert [tuple(row) for row in rows] == [(1, 19.0, None)]
    assert counts == [(b"anna", b"1")]
