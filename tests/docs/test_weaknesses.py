"""What a migration page says is better here has a test that can be found by its number."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/migrating/from-blipmq.md"
TESTS = ROOT / "tests/servers/blip"


def test_each_weakness_of_blipmq_is_named_by_a_test_or_stands_as_it_is() -> None:
    rows = re.findall(r"^\| (\*?)B(\d+)\*? \|", PAGE.read_text(), re.MULTILINE)
    assert [int(number) for _, number in rows] == list(range(1, 47))
    texts = "\n".join(path.read_text() for path in TESTS.glob("test_*.py"))
    named = {int(number) for number in re.findall(r"\bB(\d+)\b", texts)}
    # In italics is what no test of one broker can show.
    untested = {int(number) for is_told, number in rows if not is_told} - named
    assert untested == set()
