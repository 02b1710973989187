"""A slice of `scripts/state-runs --slow-link`."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import outbox_slow_link


@pytest.mark.slow
async def test_a_device_over_a_slow_link_sends_all_it_has_while_others_publish(
    tmp_path: Path,
) -> None:
    assert await outbox_slow_link.run(tmp_path, mib=1, mib_per_second=2.0)
