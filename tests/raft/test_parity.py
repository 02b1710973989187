"""The parity list is complete: every scenario of the model's suites has a test here, or a reason.

`docs/raft-parity.md` is the list. Tests say in their docstring, after `Parity:`, which scenarios
they reproduce; the document names the test of each. This test holds the two together.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "raft-parity.md"
ROW = re.compile(r"^\| `(\w+)` \| (.+) \|$")


def claims() -> dict[str, list[str]]:
    """Scenario -> the tests whose docstring claims it, as file::name."""
    found: dict[str, list[str]] = {}
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                text = " ".join((ast.get_docstring(node) or "").split())
                claim = re.match(r"Parity: ((?:Test\w+(?:, )?)+)", text)
                for name in re.findall(r"Test\w+", claim.group(1)) if claim else []:
                    found.setdefault(name, []).append(f"{path.name}::{node.name}")
    return found


def rows() -> dict[str, str]:
    matches = [ROW.match(line) for line in DOCUMENT.read_text().splitlines()]
    return {match.group(1): match.group(2) for match in matches if match}


def test_every_scenario_has_a_test_or_a_reason() -> None:
    claimed = claims()

    for name, entry in rows().items():
        if name.startswith("Test"):
            expected = ", ".join(f"`{test}`" for test in claimed.get(name, []))
            assert entry == expected or entry.startswith("does not apply: "), name
        else:
            assert (ROOT / "tests" / "raft" / "scenarios" / f"{name}.txt").exists(), name


def test_every_claim_is_listed() -> None:
    assert set(claims()) <= set(rows())


def test_the_whole_list_of_the_two_main_suites_is_there() -> None:
    sections = re.split(r"^## ", DOCUMENT.read_text(), flags=re.MULTILINE)
    counts = {
        section.splitlines()[0]: sum(bool(ROW.match(line)) for line in section.splitlines())
        for section in sections[1:]
    }

    assert counts["The paper (26)"] == 26
    assert counts["The core (118)"] == 118
    assert counts["Interaction scripts (28)"] == 28
