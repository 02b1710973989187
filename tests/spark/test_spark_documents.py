"""What docs/spark.md shows really runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import flintmq.spark
from flintmq.blocking.client import BlockingClient
from tests.spark.conftest import BrokerProcess

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


def test_every_block_of_the_page_runs(
    spark: Any,
    broker: BrokerProcess,
    mq: BlockingClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mq.publish_batch("orders", [b'{"amount": 5}', b'{"amount": 7}'], key="k")
    monkeypatch.setattr(flintmq.spark, "session", lambda *_, **__: spark)
    blocks = re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}

    for block in blocks:
        block = block.replace("flint://localhost:7600", broker.url)
        block = block.replace("/var/lib/flint", str(broker.directory))
        exec(block.replace("/checkpoints", str(tmp_path)), names)

    assert names["orders"].count() >= 2
