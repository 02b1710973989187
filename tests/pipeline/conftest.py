"""What tests of pipelines share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flintmq.client.blocking.client import BlockingClient
from tests.spark.fixtures import BrokerProcess

from .ready import Ready


@pytest.fixture
def ready(spark: Any, broker: BrokerProcess, mq: BlockingClient, tmp_path: Path) -> Ready:
    return Ready(spark, broker.url, mq, tmp_path / "state")
