"""What somebody types in the first hour: half a command, another broker's word, no options."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import click
import pytest
from click.shell_completion import BashComplete

import flintmq
from flintmq.cli.command_group import SYNONYMS, nearest
from flintmq.cli.root import SECTIONS, root, run
from tests.serving import serving

from .conftest import Shell
from .test_rough_edges import FLINTMQ, commands

COMMANDS = [name for section in SECTIONS.values() for name in section]

# --- names of commands


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("tpic ls", "flintmq topic"),
        ("topics", "flintmq topic"),
        ("publish orders x", "flintmq pub"),
        ("topic delete orders", "flintmq topic rm"),
        ("group lst", "flintmq group ls"),
        ("dlq retry orders g", "flintmq dlq redrive"),
        ("context create here", "flintmq context add"),
        ("log verfy .", "flintmq log verify"),
        ("pipeline rum x.toml", "flintmq pipeline run"),
    ],
)
def test_a_command_that_is_none_is_answered_with_the_one_that_is_meant(
    shell: Shell, typed: str, meant: str
) -> None:
    code, out, err = shell(*typed.split())
    assert (code, out) == (2, b"")
    assert f"did you mean `{meant}`?" in err
    assert len(err.splitlines()) == 1


def test_nothing_is_guessed_where_nothing_is_near() -> None:
    assert nearest("xyzzy", COMMANDS) is None
    assert SYNONYMS.keys() <= {name.split()[-1] for name in commands(root)} | set(COMMANDS)


def test_help_has_the_everyday_commands_first(shell: Shell) -> None:
    text = shell("--help")[1].decode()
    assert text.index("  serve ") < text.index("  pub ") < text.index("  sub ")
    assert text.index("  sub ") < text.index("Operations:") < text.index("  blipd ")
    assert all(f"\n  {name} " in text for name in COMMANDS)
    assert max(map(len, text.splitlines())) <= 80


# --- messages from the end


def test_the_last_messages_can_be_asked_for(shell: Shell) -> None:
    shell("pub", "orders", "--count", "5", "{{n}}")
    assert shell("sub", "orders", "--last", "2")[1] == b"4\n5\n"
    assert shell("sub", "orders", "--from", "-3")[1] == b"3\n4\n5\n"
    assert shell("sub", "orders", "--last", "100")[1] == b"1\n2\n3\n4\n5\n"
    assert shell("sub", "orders", "--group", "g", "--last", "1")[1] == b"5\n"
    assert shell("sub", "orders", "--reader", "r", "--last", "1")[1] == b"5\n"


def test_the_last_messages_of_all_partitions_are_the_newest_ones(shell: Shell, server: str) -> None:
    with flintmq.connect_sync(server) as mq:
        mq.create_topic("orders", partitions=3)
        for number in range(6):
            mq.publish("orders", b"%d" % number, partition=[0, 0, 1, 2, 0, 0][number])
            time.sleep(0.002)  # within a millisecond, partitions have no order
    last = shell("sub", "orders", "--last", "3")[1].split()
    assert sorted(last) == [b"3", b"4", b"5"]
    code, _, err = shell("sub", "orders", "--group", "g", "--last", "3")
    assert (code, "has partitions" in err) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["sub", "t", "--last", "1", "--from", "0"], "choose one of --from and --last"),
        (["sub", "t", "--live", "--last", "1"], "do not use --from or --last"),
        (["copy", "t", "-", "--from", "-3"], "'-3' has no unit"),
    ],
)
def test_what_cannot_be_counted_from_the_end_says_so(
    shell: Shell, arguments: list[str], text: str
) -> None:
    code, _, err = shell(*arguments)
    assert (code, text in err) == (2, True)


# --- names that are not there


@pytest.mark.parametrize(
    "arguments", [["topic", "rm", "nosuch", "--yes"], ["group", "ls", "nosuch"]]
)
def test_a_topic_that_is_not_there_is_a_problem(shell: Shell, arguments: list[str]) -> None:
    code, out, err = shell(*arguments)
    assert (code, out) == (1, b"")
    assert "topic 'nosuch' does not exist; `flintmq topic ls` lists topics" in err


def test_a_pattern_that_matches_nothing_is_none(shell: Shell) -> None:
    assert shell("group", "ls", "nosuch.>")[0] == 0


# --- completion


def completed(*words: str) -> list[str]:
    shell = BashComplete(root, {}, "flintmq", "_FLINTMQ_COMPLETE")
    return [item.value for item in shell.get_completions(list(words[:-1]), words[-1])]


def test_a_shell_completes_topics_and_groups(shell: Shell) -> None:
    shell("pub", "orders", "x")
    shell("pub", "bills", "x")
    shell("sub", "orders", "--group", "billing")
    assert completed("sub", "or") == ["orders"]
    assert completed("topic", "rm", "bills", "") == ["bills", "orders"]
    assert completed("group", "info", "orders", "") == ["billing"]
    assert completed("sub", "orders", "--group", "b") == ["billing"]
    assert completed("dlq", "show", "orders", "x") == []


def test_where_no_broker_answers_nothing_is_completed_and_nothing_said(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert completed("sub", "--server", "127.0.0.1:1", "or") == []
    assert capfd.readouterr() == ("", "")


def test_every_argument_that_is_a_topic_or_a_group_is_completed() -> None:
    plain = [
        f"{name} {parameter.name}"
        for name, command in commands(root).items()
        if any(option.name == "server" for option in command.params)
        for parameter in command.params
        if isinstance(parameter, click.Argument) and parameter.name in ("topic", "topics", "group")
        if type(parameter.type).__name__ not in ("TopicArgument", "GroupArgument")
    ]
    assert [name for name in plain if not name.startswith("blip ")] == []


# --- backups


def test_a_running_broker_writes_a_backup(shell: Shell, server: str, tmp_path: Path) -> None:
    shell("pub", "orders", "--count", "3", "{{n}}")
    code, out, err = shell("backup", str(tmp_path / "copy"))
    assert (code, err) == (0, "")
    assert out.decode() == f"The broker at {server} wrote a backup to {tmp_path}/copy.\n"
    assert shell("sub", "orders", "--server", f"file://{tmp_path}/copy")[1] == b"1\n2\n3\n"
    assert shell("backup", str(tmp_path / "copy"))[0] == 1


@pytest.mark.slow
def test_a_directory_in_use_is_answered_with_the_way_that_works(
    shell: Shell, remote: str, tmp_path: Path
) -> None:
    shell("pub", "orders", "x", "--server", remote)
    code, _, err = shell("backup", str(tmp_path / "served"), str(tmp_path / "copy"))
    assert code == 1
    assert f"`flintmq backup {tmp_path}/copy`" in err
    assert not (tmp_path / "copy").exists()
    assert shell("backup", str(tmp_path / "copy"), "--server", remote)[0] == 0
    assert (tmp_path / "copy/manifest").exists()


def test_a_backup_elsewhere_has_an_absolute_path(shell: Shell) -> None:
    code, _, err = shell("backup", "copy", "--server", "flint://mq.example.com:7600")
    assert (code, "must be an absolute path" in err) == (2, True)


# --- a broker to begin with


@pytest.mark.slow
def test_serve_without_a_data_directory_uses_one_here_and_says_so(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*FLINTMQ, "serve", "--listen", "127.0.0.1:0", "--log-level", "error"],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if "FLINTMQ" not in name},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().endswith(f"data in {tmp_path}/flint-data\n")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        told = process.stderr.read()
    assert (
        told == "flintmq: storing data in ./flint-data; choose another directory with --data-dir\n"
    )


def test_a_port_in_use_is_one_line_and_nothing_is_opened(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        code = run(["serve", "--data-dir", str(tmp_path / "data"), "--listen", place])
    told = f"flintmq: {place} is in use by another program; choose another address with --listen\n"
    assert (code, *capfd.readouterr()) == (1, "", told)
    assert not (tmp_path / "data").exists()


@pytest.mark.slow
def test_who_follows_hears_that_the_broker_went_away_and_came_back(tmp_path: Path) -> None:
    with ExitStack() as first:
        url = first.enter_context(serving(tmp_path / "data"))
        with flintmq.connect_sync(url) as mq:
            mq.publish("orders", b"before")
        command = [*FLINTMQ, "sub", "orders", "--follow", "--server", url]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline() == b"before\n"
            first.close()
            assert b"connection lost" in process.stderr.readline()
            with serving(tmp_path / "data", listen=url.removeprefix("flint://")):
                assert b"reconnected after" in process.stderr.readline()
                process.send_signal(signal.SIGINT)
                assert process.wait(60) == 130


# --- Spark that is not there


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    return lambda: monkeypatch.setitem(sys.modules, "pyspark", None)


def test_a_pipeline_without_spark_says_what_to_install_and_leaves_nothing(
    shell: Shell, without_spark: Callable[[], None], tmp_path: Path
) -> None:
    without_spark()
    file = tmp_path / "totals.toml"
    assert shell("pipeline", "new", str(file))[0] == 0
    before = sorted(tmp_path.iterdir())
    code, _, err = shell("pipeline", "run", str(file), "--once", "--server", "127.0.0.1:1")
    assert code == 1
    assert "[spark]" in err
    assert len(err.splitlines()) == 1
    assert sorted(tmp_path.iterdir()) == before
