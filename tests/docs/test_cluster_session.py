"""The session with a cluster on its page is what really happens."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.upgrading import EARLIER, is_known

from .cluster_session import typed_on, without_figures

PAGE = Path(__file__).parents[2] / "docs/cluster-session.md"


@pytest.mark.slow
async def test_the_session_on_the_page_is_that_of_today(tmp_path: Path) -> None:
    if not is_known():
        pytest.skip(f"NOT TESTED: session with a cluster: commit {EARLIER} is not in this clone")
    page = PAGE.read_text()
    assert page.count("$ flintmq") > 8
    made = await typed_on(tmp_path, page)
    assert without_figures(made) == without_figures(page), "run scripts/make-cluster-session"
