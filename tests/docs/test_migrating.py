"""Pages of migration show the same program before and after: theirs compiles, ours runs (with every
block of the documents)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

MIGRATING = Path(__file__).parents[2] / "docs" / "migrating"


@pytest.mark.parametrize("framework", ["celery", "dramatiq", "taskiq", "faststream"])
def test_a_page_has_the_program_of_both(framework: str) -> None:
    page = (MIGRATING / f"from-{framework}.md").read_text()
    (before,) = re.findall(r"Before:\n\n```py\n(.*?)```", page, re.DOTALL)
    (after,) = re.findall(r"After:\n\n```python\n(.*?)```", page, re.DOTALL)

    compile(before, page, "exec")
    assert re.search(rf"^(from|import) {framework}\b", before, re.MULTILINE)
    assert "import flintmq" in after
    names = re.compile(r"^(?:async )?def (\w+)|^class (\w+)", re.MULTILINE)
    both = [{a or b for a, b in names.findall(text)} - {"main", "send"} for text in (before, after)]
    assert both[0] <= both[1]
