"""Against a real broker: heavy reads of one client, publishes of another, and its watchdog."""

from __future__ import annotations

import pytest

from tests.integration.longest_turn import BOMBS, run

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("only", ["unpack", "MB of JSON"])
async def test_others_publish_while_a_filter_reads_what_is_heavy(only: str) -> None:
    """Before, the broker took one turn for all of it: 19 s, in which connections were given up."""
    (row,) = await run(1_000, 20, only)
    assert row.publishes > BOMBS
    assert row.turns > BOMBS, "it took many turns"


async def test_the_watchdog_tells_of_every_step() -> None:
    rows = await run(2_000, 2, "")
    assert len(rows) == 15
    assert all(row.turns and row.publishes for row in rows)
