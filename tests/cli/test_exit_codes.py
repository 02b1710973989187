"""Exit codes are from one list, and the list is in the documents."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from flintmq import errors
from flintmq.cli.exit_codes import MEANINGS, code_of

from .conftest import Shell

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["topic", "ls"], 0),
        (["topic", "info", "nothing"], 1),
        (["topic", "nonsense"], 2),
        (["topic", "ls", "--server", "flint://127.0.0.1:1"], 3),
    ],
)
def test_the_exit_code_says_what_happened(shell: Shell, arguments: list[str], code: int) -> None:
    ended, _, err = shell(*arguments)
    assert ended == code
    assert bool(err) == bool(code)


def test_who_may_not_is_told_apart_from_what_is_not_there() -> None:
    assert code_of(errors.PermissionDenied("publish", "orders")) == 4
    assert code_of(errors.TopicNotFound("x")) == 1


def test_the_documents_have_every_code() -> None:
    page = (ROOT / "docs/cli.md").read_text()
    for code, meaning in MEANINGS.items():
        assert f"| {code} | {meaning} |" in page


def loaded_by(*arguments: str) -> list[str]:
    code = f"import sys; from flintmq.cli.root import run; run({arguments!r}); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    return done.stdout.split()


def test_help_loads_nothing_that_takes_time() -> None:
    heavy = {"asyncio", "msgspec", "ssl", "socket", "flintmq.api", "flintmq.client", "rich"}
    assert heavy.isdisjoint(loaded_by("--help"))


def test_a_command_that_talks_to_a_broker_loads_no_broker() -> None:
    heavy = {"flintmq.daemon", "flintmq.engine", "flintmq.storage", "flintmq.servers"}
    assert heavy.isdisjoint(loaded_by("topic", "ls", "--server", "127.0.0.1:1"))
