"""What the pages on Spark show really runs; docs/spark-writing.md has a test of its own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import flintmq.spark
from flintmq.client.blocking.client import BlockingClient
from tests.spark.fixtures import BrokerProcess

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["README.md", "docs/spark.md", "docs/spark-session.md"])
def test_every_block_of_the_page_runs(
    page: str,
    spark: Any,
    broker: BrokerProcess,
    mq: BlockingClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mq.publish_batch("orders", [b'{"id": 5}', b'{"id": 7}'], key="k")
    monkeypatch.setattr(flintmq.spark, "session", lambda *_, **__: spark)
    blocks = re.findall(r"```py\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert blocks
    names: dict[str, Any] = {}

    for block in blocks:
        block = block.replace("flint://localhost:7600", broker.url)
        block = block.replace("/var/lib/flint", str(broker.directory))
        exec(block.replace("/checkpoints", str(tmp_path)), names)

    assert names["spark"] is spark
    if "orders" in names:
        assert names["orders"].count() >= 2
