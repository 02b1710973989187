"""Each page of the docs begins with what it is for, and soon shows something that runs."""

from __future__ import annotations

from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(
    path
    for path in DOCS.rglob("*.md")
    if path.relative_to(DOCS).parts[0] not in ("decisions", "site")
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_a_page_begins_with_a_sentence_and_something_that_runs(page: Path) -> None:
    lines = [line for line in page.read_text().splitlines() if line.strip()]

    assert lines[0].startswith("# ")
    assert lines[1][0].isalnum() or lines[1][0] in "`[*", "what is the page for?"
    assert not lines[1].startswith("```"), "what is the page for?"
    assert any(line.startswith(("```", "    ")) for line in lines[:20])
