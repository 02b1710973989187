"""Exit codes are from one list, and the list is in the documents."""

from __future__ import annotations

import subprocess
import sys
import time
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


@pytest.mark.slow
def test_a_command_that_talks_to_a_broker_loads_no_broker() -> None:
    heavy = ("daemon", "engine", "storage", "net.server", "frontends")
    loaded = loaded_by("topic", "ls", "--server", "127.0.0.1:1")
    assert {f"flintmq.{name}" for name in heavy}.isdisjoint(loaded)


@pytest.mark.slow
def test_a_broker_with_keys_lets_in_who_has_one_for_what_it_is_for(
    shell: Shell, remote: str, tmp_path: Path
) -> None:
    shell("pub", "orders", "x", "--server", remote)
    directory = ("--data-dir", str(tmp_path / "served"))
    code, key, _ = shell("key", "add", "reader", "--grant", "orders:consume", *directory)
    assert code == 0
    (tmp_path / "reader.key").write_bytes(key)
    while (asked := shell("topic", "ls", "--server", remote))[0] == 0:
        time.sleep(0.1)  # it looks for keys once a second
    assert asked[0] == 4
    assert "--api-key-file" in asked[2]
    ours = ("--server", remote, "--api-key-file", str(tmp_path / "reader.key"))
    assert shell("sub", "orders", *ours)[:2] == (0, b"x\n")
    assert shell("pub", "orders", "y", *ours)[0] == 4
