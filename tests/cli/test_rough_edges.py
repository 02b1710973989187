"""Where a newcomer stumbles: names that are wrong, brokers that are away, pipes that end early."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
import pytest

import flintmq
from flintmq.cli.root import root
from flintmq.compiled import BUILD

from .conftest import Shell

FLINTMQ = [sys.executable, "-m", "flintmq.cli"]


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["sub", "no topic"], 1, "`flintmq topic add 'no topic'` creates it"),
        (["group", "pause", "orders", "g"], 1, "`flintmq group ls orders` lists its groups"),
        (["dlq", "show", "orders", "g"], 1, "`flintmq group ls orders`"),
        (
            ["topic", "add", "orders", "--partitions", "2"],
            1,
            "change options with `flintmq topic edit orders`",
        ),
        (["topic", "ls", "--server", "127.0.0.1:1"], 3, "Start one with `flintmq serve`"),
        (
            ["topic", "ls", "--server", "file:///nowhere/at/all"],
            1,
            "directory /nowhere/at/all does not exist",
        ),
        (["sub", "orders", "--filter", "priority >"], 1, "column"),
        (["sub", "orders.*"], 2, "a pattern works only with --live"),
        (["sub", "orders", "--from", "committed"], 2, "add --reader NAME"),
        (["pub", "orders", "x", "--delay", "1s", "--at", "2026-11-15"], 2, "--delay and --at"),
        (["pub", "orders", "x", "--format", "xml"], 2, "'json', 'msgpack', 'avro'"),
        (["topic", "add", "t", "--retention-bytes", "2XB"], 2, "64KiB, 10MB or 2G"),
        (["dlq", "redrive", "orders", "g", "--id", "1", "--filter", "x"], 2, "--id and --filter"),
        (["check", "orders", "--lag-warn", "3"], 2, "pass TOPIC and GROUP"),
        (["bench", "pub", "--in-process", "--processes", "2"], 2, "needs a running broker"),
    ],
)
def test_an_error_is_one_line_that_says_what_to_type(
    shell: Shell, arguments: list[str], code: int, text: str
) -> None:
    shell("topic", "add", "orders")
    ended, out, err = shell(*arguments)
    assert (ended, out) == (code, b"")
    assert text in err
    assert err.startswith("flintmq: ")
    assert len(err.splitlines()) == 1
    assert "create_topic" not in err


@pytest.mark.parametrize("line", ['{"value": "x", "priority": 9}', '{"value": "x", "key": 7}'])
def test_a_line_that_is_no_envelope_is_named(shell: Shell, line: str) -> None:
    code, _, err = shell("pub", "orders", "-J", stdin=f'{{"value": "a"}}\n{line}\n'.encode())
    assert code == 1
    assert "line 2" in err


def test_a_broker_may_be_named_without_its_scheme(shell: Shell) -> None:
    assert "flint://127.0.0.1:1" in shell("check", "--server", "127.0.0.1:1")[1].decode()


def test_the_version_is_told(shell: Shell) -> None:
    assert shell("--version") == (0, f"flintmq {flintmq.__version__} ({BUILD})\n".encode(), "")


def test_count_is_a_limit_and_waits_for_nothing(shell: Shell) -> None:
    shell("pub", "orders", "--count", "2", "{{n}}")
    assert shell("sub", "orders", "--count", "5")[1] == b"1\n2\n"
    assert shell("sub", "orders", "--group", "g", "--count", "5")[1] == b"1\n2\n"


def test_who_filters_values_that_nobody_can_look_into_is_told(shell: Shell) -> None:
    shell("pub", "orders", '{"id": 42}')
    assert "pub --format json" in shell("sub", "orders", "--filter", "value.id == 42")[2]
    shell("pub", "known", '{"id": 42}', "--format", "json")
    assert shell("sub", "known", "--filter", "value.id == 42") == (0, b'{"id":42}\n', "")


def test_few_at_once_where_a_topic_takes_few(shell: Shell) -> None:
    shell("topic", "add", "small", "--retention-count", "5", "--overflow", "reject")
    code, _, err = shell("pub", "small", "--lines", stdin=b"1\n2\n3\n4\n5\n6\n7\n8\n")
    assert (code, "small: 4 messages" in err) == (1, True)
    assert shell("sub", "small")[1] == b"1\n2\n3\n4\n"


def test_an_empty_message_and_one_that_is_not_stored_are_told_as_such(shell: Shell) -> None:
    assert "offset 0, an empty message" in shell("pub", "orders")[2]
    assert "1 message in" in shell("pub", "orders", "x", "--qos", "0")[2]


def test_dead_letters_that_are_not_there_are_told(shell: Shell, server: str) -> None:
    with flintmq.connect_sync(server) as mq:
        mq.create_topic("orders", max_deliveries=1)
        mq.publish("orders", b"a")
        for message in mq.poll("orders", "billing"):
            message.reject("no")
    code, out, err = shell("dlq", "redrive", "orders", "billing", "--id", "7", "--id", "0", "--yes")
    assert (code, out) == (1, b"Redrove 1 dead letter (topic orders, group billing).\n")
    assert "1 of these ids" in err


def test_no_is_an_answer(shell: Shell) -> None:
    shell("topic", "add", "orders")
    code, out, err = shell("topic", "rm", "orders", stdin=b"n\n", typed=True)
    assert (code, out, "nothing was changed" in err) == (1, b"", True)
    assert shell("topic", "rm", "orders", stdin=b"y\n", typed=True)[0] == 0
    assert shell("topic", "info", "orders")[0] == 1


def commands(group: click.Group, path: tuple[str, ...] = ()) -> dict[str, click.Command]:
    context = click.Context(group)
    found: dict[str, click.Command] = {}
    for name in group.list_commands(context):
        one = group.get_command(context, name)
        assert one is not None
        if isinstance(one, click.Group):
            found |= commands(one, (*path, name))
        else:
            found[" ".join((*path, name))] = one
    return found


WITHOUT_JSON = (
    "serve",
    "worker",
    "reply",
    "cluster run",
    "hermesd",
    "blipd",
    "completion",
    "blip ",
)
"""They run on and on, print a shell's own language, or say what BlipMQ's commands say."""


def test_every_command_that_tells_something_tells_it_as_json_too() -> None:
    lacking = [
        name
        for name, command in commands(root).items()
        if not any("--output" in option.opts for option in command.params)
    ]
    assert [name for name in lacking if not name.startswith(WITHOUT_JSON)] == []


# --- with real processes


@pytest.fixture
def published(tmp_path: Path) -> Any:
    with flintmq.connect_sync(f"file://{tmp_path}/data") as mq:
        mq.publish_batch("orders", [b"%d" % number for number in range(5000)])
    return {**os.environ, "FLINTMQ_SERVER": f"file://{tmp_path}/data"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [["sub", "orders", "--follow"], ["sub", "orders", "-J"], ["copy", "orders", "-"]]
)
def test_whoever_reads_may_go_early(published: Any, arguments: list[str]) -> None:
    """Also where nothing more comes to be written: it ends by itself."""
    with subprocess.Popen(
        [*FLINTMQ, *arguments], env=published, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 0
        assert process.stderr.read() == b""


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="NOT TESTED: no /dev/full here, a disk that is full"
)
@pytest.mark.parametrize("arguments", [["sub", "orders"], ["--help"], ["topic", "ls"]])
def test_a_full_disk_is_told_in_one_line(published: Any, arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*FLINTMQ, *arguments], env=published, stdout=full, stderr=subprocess.PIPE, timeout=60
        )
    assert (done.returncode, done.stderr) == (1, b"flintmq: No space left on device\n")


@pytest.mark.slow
def test_ctrl_c_ends_the_reading_of_a_pipe_that_says_nothing(published: Any) -> None:
    """What came before is published and counted."""
    with subprocess.Popen(
        [*FLINTMQ, "pub", "lines", "--lines", "--output", "json"],
        env=published,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"the first line\n")
        process.stdin.flush()
        journal = Path(published["FLINTMQ_SERVER"].removeprefix("file://")) / "journal"
        while not any(b"the first line" in file.read_bytes() for file in journal.glob("journal-*")):
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        told = json.loads(process.stdout.read())
    assert (told["count"], told["ended"]) == (1, "interrupted")


def test_no_two_parameters_of_a_command_share_a_name() -> None:
    for path, command in commands(root).items():
        names = [parameter.name for parameter in command.params]
        assert len(names) == len(set(names)), (path, names)
