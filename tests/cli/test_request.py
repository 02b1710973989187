"""`request` and `reply`: a command answers, and the answer is printed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from flintmq.cli.reply import _output

from .conftest import Shell


@contextmanager
def replying(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A responder in a process of its own, once it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-m", "flintmq.cli", "reply", *arguments], stderr=subprocess.PIPE
    )
    try:
        assert process.stderr is not None
        assert b"ready" in process.stderr.readline()
        yield process
    finally:
        process.terminate()
        process.wait(60)
        if process.stderr is not None:
            process.stderr.close()


@pytest.mark.slow
def test_a_command_answers_a_request(shell: Shell, remote: str) -> None:
    to = ("--server", remote)
    with replying("shout", "--exec", 'tr a-z A-Z; printf " $FLINT_HEADER_LANG"', *to):
        asked = shell("request", "shout", "hello", "-H", "lang:en", *to)
        assert asked == (0, b"HELLO en\n", "")
        assert shell("request", "shout", *to, stdin=b"from stdin")[1] == b"FROM STDIN \n"


@pytest.mark.slow
def test_members_of_a_group_share_requests_and_one_that_fails_passes_them_on(
    shell: Shell, remote: str
) -> None:
    to = ("--server", remote)
    with (
        replying("jobs", "--exec", "exit 1", "--group", "g", *to),
        replying("jobs", "done", "--group", "g", *to),
    ):
        for _ in range(5):
            assert shell("request", "jobs", "x", "--timeout", "30s", *to)[:2] == (0, b"done\n")


def test_nobody_there_fails_at_once(shell: Shell) -> None:
    code, out, err = shell("request", "shout", "hello", "--timeout", "1h")
    assert (code, out) == (1, b"")
    assert "no responders on topic 'shout'" in err


def test_a_reply_is_a_value_or_a_command(shell: Shell) -> None:
    assert shell("reply", "shout")[0] == 2
    assert shell("reply", "shout", "x", "--exec", "y")[0] == 2
    assert shell("reply", "shout", "--exec", "")[0] == 2


@pytest.mark.slow
async def test_a_command_that_reads_nothing_answers_all_the_same() -> None:
    for _ in range(30):
        process = await asyncio.create_subprocess_shell(
            "exec 0<&-; echo 1.08", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert await _output(process, b"hello") == b"1.08\n"
        assert process.returncode == 0


@pytest.mark.slow
async def test_a_command_that_reads_nothing_may_be_given_much() -> None:
    process = await asyncio.create_subprocess_shell(
        "echo done", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert await _output(process, bytes(10_000_000)) == b"done\n"
