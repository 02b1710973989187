"""A few of the joins that `python -m tests.integration.late_joins` makes by the thousand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.serving import serving

from .late_joins import run


@pytest.mark.slow
async def test_late_joiners_under_load_get_the_state_and_all_that_follows(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as url:
        assert await run(url, 30) > 0
