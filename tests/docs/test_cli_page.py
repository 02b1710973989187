"""The page about the command line shows what the commands say today."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.transcripts import BLOCK, masked, typed

PAGE = Path(__file__).parents[2] / "docs/cli.md"


@pytest.mark.slow
def test_the_answers_on_the_page_are_those_of_today() -> None:
    page = PAGE.read_text()
    assert len(BLOCK.findall(page)) > 5
    assert masked(typed(page)) == masked(page), "run scripts/make-cli-docs"


def test_what_differs_is_masked_and_nothing_else() -> None:
    old = "```console\n$ flintmq copy a b\na to b: 3 messages, 9 B in 0.01 s\n```"
    assert masked(old) == masked(old.replace("0.01", "0.32"))
    assert masked(old) != masked(old.replace("3 messages", "4 messages"))
