from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from flintmq.engine.host import Host

from .nodes import Cluster


@pytest.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    monkeypatch.setattr(Host, "first_file_bytes", 16 * 1024)
    async with Cluster(tmp_path) as cluster:
        yield cluster
