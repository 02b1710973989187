"""Every ready-made pipeline passes its check and has a page that says what can be set."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flintmq.pipeline.check.checking import check
from flintmq.pipeline.define.reading import read_parameters, read_pipeline

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples" / "pipelines").glob("*.toml"))
PAGES = {path.stem: path.read_text() for path in (ROOT / "docs" / "pipelines").glob("*.md")}
PAGE_OF = {"replay-topic": "replay"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_nothing_is_wrong_with_it(path: Path) -> None:
    assert check(read_pipeline(path, {}, {})) == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_its_page_has_its_parameters_and_a_command(path: Path) -> None:
    page = PAGES[PAGE_OF.get(path.stem, path.stem)]
    rows = "\n".join(
        f"| `{one.name}` | `{one.default}` | {one.about or 'the broker'} |"
        for one in read_parameters(path).values()
    )

    assert rows in page
    command = re.search(rf"flintmq pipeline run examples/pipelines/{path.name}.*", page)
    assert command is not None
    settings = re.findall(r"--set (\w+)=", command[0])
    assert set(settings) <= set(read_parameters(path))


def test_there_are_eleven_and_a_page_for_each() -> None:
    names = {
        "archive", "replay", "rollup", "sessions", "dedupe", "enrich", "join", "cdc",
        "dead-letters", "anomalies", "lake",
    }  # fmt: skip
    assert set(PAGES) >= names
    assert {path.stem for path in EXAMPLES} == names | {"replay-topic"}
